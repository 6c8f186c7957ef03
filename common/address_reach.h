/* Which addresses are of use to other machines. Pure. */
#ifndef COMMON_ADDRESS_REACH_H
#define COMMON_ADDRESS_REACH_H

#include <netinet/in.h>
#include <sys/socket.h>

enum address_reach {
    ADDRESS_FOR_OTHERS,
    ADDRESS_LOOPBACK,   /* or a wildcard: of this machine alone */
    ADDRESS_LINK_LOCAL, /* of IPv6: each machine would have to add the name of its own interface */
};

enum address_reach address_reach(const struct sockaddr_storage *resolved);
/* The same of a numeric host, as "10.0.0.1" or "::1". A name is for others, and so is "fe80::1%eth0": whoever writes it knows
 * that all machines have an eth0. */
enum address_reach address_reach_of(const char *host);
/* ::ffff:10.0.0.1, as a socket of IPv6 shows an address of IPv4, becomes 10.0.0.1. */
void address_unmap(struct sockaddr_storage *resolved);

#endif
