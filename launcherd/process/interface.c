#include "launcherd/process/interface.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static const struct in6_addr *v6_of(const struct ifaddrs *at)
{
    return &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr;
}

/* False: not an IP address. */
static bool to_text(const struct ifaddrs *at, char text[INET6_ADDRSTRLEN])
{
    if (at->ifa_addr == NULL)
        return false;
    if (at->ifa_addr->sa_family == AF_INET)
        return inet_ntop(AF_INET,
                         &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr, text,
                         INET6_ADDRSTRLEN) != NULL;
    return at->ifa_addr->sa_family == AF_INET6 &&
           inet_ntop(AF_INET6, v6_of(at), text, INET6_ADDRSTRLEN) != NULL;
}

/* Rewrites an address in inet_ntop's form, so that equal addresses have equal texts. False: not
 * numeric. */
static bool normalize(const char *address, char text[INET6_ADDRSTRLEN])
{
    struct in6_addr v6;
    struct in_addr v4;
    char host[ADDRESS_BYTES_MAX];

    (void)snprintf(host, sizeof host, "%s", address);
    host[strcspn(host, "%")] = '\0';
    if (inet_pton(AF_INET, host, &v4) == 1)
        return inet_ntop(AF_INET, &v4, text, INET6_ADDRSTRLEN) != NULL;
    return inet_pton(AF_INET6, host, &v6) == 1 &&
           inet_ntop(AF_INET6, &v6, text, INET6_ADDRSTRLEN) != NULL;
}

bool interface_of_address(const char *address, char name[IF_NAMESIZE])
{
    char wanted[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN];
    struct ifaddrs *all = NULL;
    bool is_found = false;

    if (!normalize(address, wanted) || getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at != NULL && !is_found; at = at->ifa_next) {
        if (!to_text(at, text) || strcmp(text, wanted) != 0)
            continue;
        (void)snprintf(name, IF_NAMESIZE, "%s", at->ifa_name);
        name[strcspn(name, ":")] = '\0'; /* a label of an address: "eth0:1" */
        is_found = true;
    }
    freeifaddrs(all);
    return is_found;
}

enum status interface_take(const char *wanted, char address[ADDRESS_BYTES_MAX], struct err *err)
{
    char text[INET6_ADDRSTRLEN], name[IF_NAMESIZE];

    if (strlen(wanted) >= ADDRESS_BYTES_MAX || !normalize(wanted, text))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.80s is no numeric address; `ip address` lists those of this machine",
                       wanted);
    if (!interface_of_address(wanted, name))
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "%.80s: no interface of this machine has this numeric address; `ip "
                       "address` lists those that do",
                       wanted);
    (void)snprintf(address, ADDRESS_BYTES_MAX, "%s", wanted);
    return STATUS_OK;
}

static bool has_name(const struct ifaddrs *at, const char *name)
{
    const size_t bytes = strlen(name);

    return strncmp(at->ifa_name, name, bytes) == 0 &&
           (at->ifa_name[bytes] == '\0' || at->ifa_name[bytes] == ':');
}

enum status interface_address(const char *name, char address[ADDRESS_BYTES_MAX], struct err *err)
{
    char text[INET6_ADDRSTRLEN];
    struct ifaddrs *all = NULL;
    int best = 0; /* 2: IPv4, 1: IPv6 */
    bool exists = false;

    static_assert(INET6_ADDRSTRLEN <= ADDRESS_BYTES_MAX, "every address fits");
    if (getifaddrs(&all) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "the interfaces of this machine: %s",
                       strerror(errno));
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        int worth;

        if (!has_name(at, name))
            continue;
        exists = true;
        if (!to_text(at, text))
            continue;
        worth = at->ifa_addr->sa_family == AF_INET ? 2 : IN6_IS_ADDR_LINKLOCAL(v6_of(at)) ? 0 : 1;
        if (worth <= best)
            continue;
        best = worth;
        (void)snprintf(address, ADDRESS_BYTES_MAX, "%s", text);
    }
    freeifaddrs(all);
    if (best > 0)
        return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, 0, "the interface %.60s %s", name,
                   exists ? "has no address by which others reach this machine"
                          : "does not exist here: `ip address` lists those that do");
}

enum status interface_choose(const char *wanted, const char *name, char address[ADDRESS_BYTES_MAX],
                             struct err *err)
{
    enum status status;
    struct err why;

    (void)snprintf(address, ADDRESS_BYTES_MAX, "127.0.0.1");
    if (wanted != NULL && name != NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "give --address or --interface, not both");
    if (wanted == NULL)
        return name != NULL ? interface_address(name, address, err) : STATUS_OK;
    status = interface_take(wanted, address, &why);
    return status == STATUS_OK ? status
                               : err_set(err, status, why.code, "--address %.240s", why.text);
}
