/* Which address of the server is written into keys. */
#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

#include "common/io/address.h"
#include "rendezvous/server/advertise.h"
#include "tests/lib/test.h"

#define UP (IFF_UP | IFF_RUNNING)

struct own {
    struct ifaddrs list[8];
    struct sockaddr_storage addresses[8];
    uint32_t count;
};

static void add(struct own *own, const char *host, unsigned int flags)
{
    const uint32_t i = own->count++;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&own->addresses[i];
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&own->addresses[i];

    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1)
        v4->sin_family = AF_INET;
    else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1)
        v6->sin6_family = AF_INET6;
    own->list[i] = (struct ifaddrs){.ifa_addr = (struct sockaddr *)v4, .ifa_flags = flags};
    if (i > 0)
        own->list[i - 1].ifa_next = &own->list[i];
}

/* "": none. */
static const char *pick(const struct own *own, struct advertise_ways ways)
{
    static char text[64];
    struct sockaddr_storage found;

    text[0] = '\0';
    if (advertise_pick(own->list, &ways, &found))
        address_format_tcp(&found, text, sizeof text);
    return text;
}

TEST(a_machine_with_ipv6_alone)
{
    struct own own = {0};

    add(&own, "127.0.0.1", UP | IFF_LOOPBACK);
    add(&own, "::1", UP | IFF_LOOPBACK);
    add(&own, "fe80::1", UP);
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true, .with_v6 = true}), "");
    add(&own, "fd77::1", UP);
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true, .with_v6 = true}), "[fd77::1]:0");
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true}), ""); /* 0.0.0.0 takes no IPv6 */
}

TEST(the_interface_with_the_way_out_comes_first)
{
    struct own own = {0};

    add(&own, "127.0.0.1", UP | IFF_LOOPBACK);
    add(&own, "172.17.0.1", UP);
    add(&own, "10.77.0.1", UP);
    add(&own, "2001:db8::7", UP);
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true, .v4 = "10.77.0.1"}),
              "10.77.0.1:0");
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true}), "172.17.0.1:0");
    CHECK_STR(
        pick(&own, (struct advertise_ways){.with_v4 = true, .with_v6 = true, .v6 = "2001:db8::7"}),
        "[2001:db8::7]:0");
}

TEST(a_cable_and_an_address_of_its_own_come_before_what_is_made_up)
{
    struct own own = {0};

    add(&own, "172.17.0.1", IFF_UP); /* a bridge without anything in it */
    add(&own, "169.254.9.9", UP);
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true}), "169.254.9.9:0");
    add(&own, "10.0.0.3", UP);
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true}), "10.0.0.3:0");
    add(&own, "10.0.0.1", IFF_RUNNING); /* down */
    CHECK_STR(pick(&own, (struct advertise_ways){.with_v4 = true, .v4 = "10.0.0.1"}), "10.0.0.3:0");
}

static const char *address_of(const char *bound, const char *name, const char *reached)
{
    static char out[ADVERTISE_BYTES];

    advertise_address(bound, name, reached, out);
    return out;
}

TEST(a_wildcard_is_never_told)
{
    static const char *const open[] = {"0.0.0.0:7400", "[::]:7400"};

    CHECK_STR(address_of("10.0.0.1:7400", "head.example.org", "10.0.0.2"), "10.0.0.1:7400");
    for (int i = 0; i < 2; i++) {
        CHECK(advertise_is_open(open[i]));
        CHECK_STR(address_of(open[i], "head.example.org", "10.0.0.2"), "head.example.org:7400");
        CHECK_STR(address_of(open[i], NULL, "10.0.0.2"), "10.0.0.2:7400");
        CHECK_STR(address_of(open[i], NULL, "fd77::1"), "[fd77::1]:7400");
        CHECK(!advertise_is_open(address_of(open[i], NULL, NULL)));
    }
}

TEST_MAIN
