#include "common/address_reach.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void address_unmap(struct sockaddr_storage *resolved)
{
    const struct sockaddr_in6 v6 = *(const struct sockaddr_in6 *)resolved;
    struct sockaddr_in *v4 = (struct sockaddr_in *)resolved;

    if (resolved->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return;
    *resolved = (struct sockaddr_storage){0};
    v4->sin_family = AF_INET;
    v4->sin_port = v6.sin6_port;
    memcpy(&v4->sin_addr, &v6.sin6_addr.s6_addr[12], sizeof v4->sin_addr);
}

enum address_reach address_reach(const struct sockaddr_storage *resolved)
{
    struct sockaddr_storage plain = *resolved;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&plain;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&plain;
    in_addr_t host;

    address_unmap(&plain);
    if (plain.ss_family == AF_INET6) {
        if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
            return ADDRESS_LINK_LOCAL;
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)
                   ? ADDRESS_LOOPBACK
                   : ADDRESS_FOR_OTHERS;
    }
    host = ntohl(v4->sin_addr.s_addr);
    return host >> 24 == IN_LOOPBACKNET || host == INADDR_ANY ? ADDRESS_LOOPBACK
                                                              : ADDRESS_FOR_OTHERS;
}

/* False: not numeric. */
static bool parse(const char *host, struct sockaddr_storage *resolved)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)resolved;
    struct sockaddr_in *v4 = (struct sockaddr_in *)resolved;
    *resolved = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1)
        v4->sin_family = AF_INET;
    else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1)
        v6->sin6_family = AF_INET6;
    return resolved->ss_family != 0;
}

enum address_reach address_reach_of(const char *host)
{
    struct sockaddr_storage resolved;

    return parse(host, &resolved) ? address_reach(&resolved) : ADDRESS_FOR_OTHERS;
}
