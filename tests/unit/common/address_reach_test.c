/* Which addresses are told to other machines. */
#include <arpa/inet.h>
#include <string.h>

#include "common/address_reach.h"
#include "common/io/address.h"
#include "common/io/address_toward.h"
#include "tests/lib/test.h"

TEST(whom_an_address_is_for)
{
    static const struct {
        const char *host;
        enum address_reach reach;
    } cases[] = {
        {"10.77.0.1", ADDRESS_FOR_OTHERS},   {"head.example.org", ADDRESS_FOR_OTHERS},
        {"fd77::1", ADDRESS_FOR_OTHERS},     {"2001:db8::1", ADDRESS_FOR_OTHERS},
        {"169.254.3.4", ADDRESS_FOR_OTHERS}, {"::ffff:10.0.0.1", ADDRESS_FOR_OTHERS},
        {"127.0.0.1", ADDRESS_LOOPBACK},     {"127.0.1.1", ADDRESS_LOOPBACK},
        {"::1", ADDRESS_LOOPBACK},           {"::ffff:127.0.0.1", ADDRESS_LOOPBACK},
        {"0.0.0.0", ADDRESS_LOOPBACK},       {"::", ADDRESS_LOOPBACK},
        {"fe80::1", ADDRESS_LINK_LOCAL},     {"fe80::1%eth0", ADDRESS_FOR_OTHERS},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (address_reach_of(cases[i].host) != cases[i].reach)
            FAIL("%s: %d", cases[i].host, address_reach_of(cases[i].host));
}

TEST(a_mapped_address_is_that_of_ipv4)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7400)};
    struct sockaddr_storage address = {0};
    char text[64];

    CHECK_EQ(inet_pton(AF_INET6, "::ffff:10.77.0.1", &v6.sin6_addr), 1);
    memcpy(&address, &v6, sizeof v6);
    address_unmap(&address);
    address_format_tcp(&address, text, sizeof text);
    CHECK_STR(text, "10.77.0.1:7400");
    CHECK(address_is_loopback("[::ffff:127.0.0.1]:1"));
}

TEST(the_own_address_on_the_way_to_another)
{
    char own[ADDRESS_BYTES_MAX];

    CHECK(address_toward("127.0.0.5", own));
    CHECK_STR(own, "127.0.0.1");
    CHECK(!address_toward("head.example.org", own)); /* a name is not looked up */
}

TEST_MAIN
