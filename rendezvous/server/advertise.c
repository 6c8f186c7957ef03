#include "rendezvous/server/advertise.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/address.h"

#define OUT_BYTES (KEY_HOST_BYTES_MAX + 8)

/* This machine's name with its domain, if the resolver knows it. A name without a domain is of
 * little use on other machines. */
static bool full_name(char *out, size_t out_bytes)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    struct addrinfo *found = NULL;
    char name[HOST_NAME_MAX + 1] = "";
    bool is_known;

    if (gethostname(name, sizeof name - 1) < 0 || getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    is_known = found->ai_canonname != NULL && strchr(found->ai_canonname, '.') != NULL &&
               strncmp(found->ai_canonname, "localhost", 9) != 0 &&
               strlen(found->ai_canonname) < KEY_HOST_BYTES_MAX;
    if (is_known)
        (void)snprintf(out, out_bytes, "%s", found->ai_canonname);
    freeaddrinfo(found);
    return is_known;
}

/* The first IPv4 address of an interface that is up, except loopback. */
static bool interface_address(char *out, size_t out_bytes)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN] = "";

    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr == NULL || (one->ifa_flags & IFF_UP) == 0 ||
            (one->ifa_flags & IFF_LOOPBACK) != 0 || one->ifa_addr->sa_family != AF_INET)
            continue;
        (void)inet_ntop(AF_INET,
                        &((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr, text,
                        sizeof text);
        break;
    }
    freeifaddrs(all);
    (void)snprintf(out, out_bytes, "%s", text);
    return text[0] != '\0';
}

static bool is_wildcard(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

enum status advertise_address(const char *bound, const char *wanted, char *out, struct err *err)
{
    char host[KEY_HOST_BYTES_MAX];
    in_port_t port = 0;

    if (wanted != NULL) {
        if (!address_split_tcp(wanted, host, sizeof host, &port) || port == 0 || is_wildcard(host))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--advertise %.100s: HOST:PORT is expected, as other machines reach "
                           "this server",
                           wanted);
        (void)snprintf(out, OUT_BYTES, "%s", wanted);
        return STATUS_OK;
    }
    (void)snprintf(out, OUT_BYTES, "%s", bound);
    if (address_split_tcp(bound, host, sizeof host, &port) && is_wildcard(host) &&
        (full_name(host, sizeof host) || interface_address(host, sizeof host)))
        (void)snprintf(out, OUT_BYTES, "%s:%u", host, ntohs(port));
    return STATUS_OK;
}
