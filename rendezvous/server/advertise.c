#include "rendezvous/server/advertise.h"

#include <arpa/inet.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/address_reach.h"
#include "common/io/address.h"
#include "common/io/address_toward.h"

/* Documentation addresses (RFC 5737, RFC 3849): a route to them is a route to anywhere. */
#define FAR_V4 "192.0.2.1"
#define FAR_V6 "2001:db8::1"

/* Whether another machine reaches that address: a host name that has only a loopback address in /etc/hosts (Debian:
 * 127.0.1.1) may be unknown there. */
static bool is_reached(const struct addrinfo *one)
{
    struct sockaddr_storage address = {0};

    memcpy(&address, one->ai_addr, one->ai_addrlen);
    return address_reach(&address) == ADDRESS_FOR_OTHERS;
}

bool advertise_name(char *out, size_t out_bytes)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    struct addrinfo *found = NULL;
    char name[HOST_NAME_MAX + 1] = "";
    bool is_known = false;

    if (gethostname(name, sizeof name - 1) < 0 || getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    for (const struct addrinfo *one = found; one != NULL && !is_known; one = one->ai_next)
        is_known = is_reached(one);
    is_known = is_known && found->ai_canonname != NULL &&
               strchr(found->ai_canonname, '.') != NULL &&
               strncmp(found->ai_canonname, "localhost", 9) != 0 &&
               strlen(found->ai_canonname) < out_bytes;
    if (is_known)
        (void)snprintf(out, out_bytes, "%s", found->ai_canonname);
    freeaddrinfo(found);
    return is_known;
}

static bool is_link_local_v4(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;

    return address->ss_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe;
}

static bool is_on(const struct sockaddr_storage *address, const char *way)
{
    char text[INET6_ADDRSTRLEN] = "";

    if (address->ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr,
                        text, sizeof text);
    else
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
                        text, sizeof text);
    return strcmp(text, way) == 0;
}

/* How good the address is; 0: no other machine reaches it. An address on the way to anywhere comes first, since a machine may
 * have networks that only its own virtual machines or containers are in. */
static uint32_t worth_of(const struct ifaddrs *one, const struct sockaddr_storage *address,
                         const struct advertise_ways *ways)
{
    const bool is_v4 = address->ss_family == AF_INET;
    uint32_t worth = 1;

    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0 ||
        address_reach(address) != ADDRESS_FOR_OTHERS || (is_v4 && !ways->with_v4) ||
        (!is_v4 && !ways->with_v6))
        return 0;
    worth += is_v4 ? 1 : 0;
    worth += is_on(address, is_v4 ? ways->v4 : ways->v6) ? 2 : 0;
    worth += !is_link_local_v4(address) ? 4 : 0;
    worth += (one->ifa_flags & IFF_RUNNING) != 0 ? 8 : 0;
    return worth;
}

bool advertise_pick(const struct ifaddrs *all, const struct advertise_ways *ways,
                    struct sockaddr_storage *out)
{
    uint32_t best = 0;

    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct sockaddr_storage address = {0};
        uint32_t worth;

        if (one->ifa_addr == NULL ||
            (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
            continue;
        memcpy(&address, one->ifa_addr,
               one->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                   : sizeof(struct sockaddr_in6));
        worth = worth_of(one, &address, ways);
        if (worth <= best)
            continue;
        best = worth;
        *out = address;
    }
    return best > 0;
}

/* 0.0.0.0 takes IPv4 alone, [::] both (address_listen). A machine without a network has nobody to tell an address. */
static void of_interfaces(const char *wildcard, in_port_t port, char *out)
{
    struct advertise_ways ways = {.with_v4 = true, .with_v6 = strcmp(wildcard, "::") == 0};
    struct sockaddr_storage found = {.ss_family = AF_INET};
    struct ifaddrs *all = NULL;

    (void)address_toward(FAR_V4, ways.v4);
    (void)address_toward(FAR_V6, ways.v6);
    ((struct sockaddr_in *)&found)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (getifaddrs(&all) == 0) {
        (void)advertise_pick(all, &ways, &found);
        freeifaddrs(all);
    }
    if (found.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&found)->sin6_port = port;
    else
        ((struct sockaddr_in *)&found)->sin_port = port;
    address_format_tcp(&found, out, ADVERTISE_BYTES);
}

static bool is_wildcard(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

enum status advertise_check(const char *wanted, struct err *err)
{
    char host[KEY_HOST_BYTES_MAX];
    in_port_t port = 0;

    if (address_split_tcp(wanted, host, sizeof host, &port) && port != 0 && !is_wildcard(host))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "--advertise %.100s: HOST:PORT is expected, as other machines reach this server",
                   wanted);
}

bool advertise_is_open(const char *bound)
{
    char host[KEY_HOST_BYTES_MAX];
    in_port_t port;

    return address_split_tcp(bound, host, sizeof host, &port) && is_wildcard(host);
}

void advertise_address(const char *bound, const char *name, const char *reached, char *out)
{
    char host[KEY_HOST_BYTES_MAX];
    in_port_t port = 0;

    (void)snprintf(out, ADVERTISE_BYTES, "%s", bound);
    if (!address_split_tcp(bound, host, sizeof host, &port) || !is_wildcard(host))
        return;
    if (name == NULL && reached == NULL)
        of_interfaces(host, port, out);
    else if (name == NULL && strchr(reached, ':') != NULL)
        (void)snprintf(out, ADVERTISE_BYTES, "[%.60s]:%u", reached, ntohs(port));
    else
        (void)snprintf(out, ADVERTISE_BYTES, "%.255s:%u", name != NULL ? name : reached,
                       ntohs(port));
}
