/* The addresses that may connect to a store: those of the job's nodes. */
#ifndef LAUNCHERD_C10D_C10D_PEERS_H
#define LAUNCHERD_C10D_C10D_PEERS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/status.h"

struct c10d_peers {
    struct in6_addr *ips; /* IPv4 as ::ffff:a.b.c.d */
    size_t count;
};

/* Numeric addresses; free(peers->ips) also after an error. STATUS_MEMORY, STATUS_BAD_INPUT. */
enum status c10d_peers_read(struct c10d_peers *peers, const char *const *names, size_t count,
                            struct err *err);
bool c10d_peers_have(const struct c10d_peers *peers, const struct sockaddr_storage *address);

#endif
