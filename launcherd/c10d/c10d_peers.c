#include "launcherd/c10d/c10d_peers.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

static struct in6_addr mapped(const struct sockaddr_storage *address)
{
    struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    if (address->ss_family == AF_INET6)
        return ((const struct sockaddr_in6 *)address)->sin6_addr;
    memcpy(&ip.s6_addr[12], &((const struct sockaddr_in *)address)->sin_addr, 4);
    return ip;
}

bool c10d_peers_have(const struct c10d_peers *peers, const struct sockaddr_storage *address)
{
    const struct in6_addr ip = mapped(address);

    for (size_t i = 0; i < peers->count; i++)
        if (memcmp(&peers->ips[i], &ip, sizeof ip) == 0)
            return true;
    return false;
}

enum status c10d_peers_read(struct c10d_peers *peers, const char *const *names, size_t count,
                            struct err *err)
{
    peers->ips = calloc(count, sizeof *peers->ips);
    if (peers->ips == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the peers of the store");
    for (; peers->count < count; peers->count++) {
        struct in6_addr *ip = &peers->ips[peers->count];
        char peer[ADDRESS_BYTES_MAX];

        (void)snprintf(peer, sizeof peer, "%s", names[peers->count]);
        peer[strcspn(peer, "%")] = '\0'; /* cut off the zone of a link-local address */
        *ip = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        if (inet_pton(AF_INET, peer, &ip->s6_addr[12]) != 1 && inet_pton(AF_INET6, peer, ip) != 1)
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "%.64s is no numeric address, as a peer of the store must be", peer);
    }
    return STATUS_OK;
}
