/* Interfaces and addresses: of the loopback interface, which every machine has. */
#include "launcherd/process/interface.h"
#include "tests/lib/test.h"

#include <string.h>

TEST(the_interface_of_an_address)
{
    char name[IF_NAMESIZE] = "";

    CHECK(interface_of_address("127.0.0.1", name));
    CHECK_STR(name, "lo");
    /* class E: of no machine */
    CHECK(!interface_of_address("240.0.0.1", name));
    CHECK(!interface_of_address("localhost", name)); /* no numeric address */
    CHECK(!interface_of_address("", name));
}

TEST(the_address_of_an_interface)
{
    char address[ADDRESS_BYTES_MAX] = "";
    struct err err;

    CHECK_EQ(interface_address("lo", address, &err), STATUS_OK);
    CHECK_STR(address, "127.0.0.1");
    CHECK_EQ(interface_address("nosuch0", address, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "nosuch0 does not exist here") != NULL);
    CHECK_EQ(interface_address("", address, &err), STATUS_NOT_FOUND);
    CHECK_EQ(interface_address("l", address, &err), STATUS_NOT_FOUND); /* not a prefix */
}

TEST(the_choice_of_the_operator)
{
    char address[ADDRESS_BYTES_MAX];
    struct err err;

    CHECK_EQ(interface_choose(NULL, NULL, address, &err), STATUS_OK);
    CHECK_STR(address, "127.0.0.1");
    CHECK_EQ(interface_choose("127.0.0.1", "lo", address, &err), STATUS_BAD_INPUT);
    CHECK_EQ(interface_choose("192.0.2.77", NULL, address, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "--address 192.0.2.77: no interface") != NULL);
}

TEST_MAIN
