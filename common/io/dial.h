/* Connects to HOST:PORT without blocking the loop, HOST being a name or an address.
 *
 *   1. HOST is resolved, to IPv6 and IPv4 addresses, on libuv's thread pool (getaddrinfo).
 *   2. The addresses are tried one after the other, in the resolver's order (RFC 6724), each for at
 *      most DIAL_ATTEMPT_US.
 *   3. `done` gets the first socket that connects, else the error of the last address.
 *
 * The socket has TCP keepalive and TCP_USER_TIMEOUT set: a peer that vanishes (power, cable) is
 * noticed within about DIAL_PEER_TIMEOUT_US. */
#ifndef COMMON_IO_DIAL_H
#define COMMON_IO_DIAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

#define DIAL_ATTEMPT_US 5000000u
#define DIAL_PEER_TIMEOUT_US 20000000u
#define DIAL_HOST_BYTES_MAX 256u

struct dial;

/* STATUS_OK: `fd` is a connected socket, close-on-exec and non-blocking, now the caller's; `text` is
 * the peer's address. Else `fd` is -1 and `text` says what failed:
 *   STATUS_NOT_FOUND  the name has no address
 *   STATUS_REFUSED    nobody listens there
 *   STATUS_TIMEOUT    no answer, from there or from the name servers
 *   STATUS_CLOSED     dial_cancel was called
 *   STATUS_SYSTEM     any other error of the kernel */
typedef void (*dial_done)(struct dial *dial, enum status status, int fd, const char *text);

/* Embedded by its owner. Its memory may be freed in or after `done`. */
struct dial {
    uv_loop_t *loop;
    uv_getaddrinfo_t lookup;
    uv_poll_t poll;
    uv_timer_t timer;
    struct addrinfo *addresses, *next; /* the result of the lookup; the next address to try */
    int fd;                            /* of the current attempt; -1: none */
    uint32_t handles_open;             /* poll, timer */
    bool is_looking_up, is_over;
    enum status status;
    char text[256];
    char host[DIAL_HOST_BYTES_MAX], port[6];
    dial_done done;
    void *owner; /* for the owner's use; set before dial_start */
};

/* `done` is called exactly once, from the loop, if this succeeds. STATUS_BAD_INPUT: not HOST:PORT
 * (an IPv6 address needs brackets). */
enum status dial_start(struct dial *dial, uv_loop_t *loop, const char *address, dial_done done,
                       struct err *err);
/* `done` follows with STATUS_CLOSED, once a running lookup has ended. A second call does
 * nothing. */
void dial_cancel(struct dial *dial);

/* Keepalive as above, for an accepted socket. Failures are ignored: a unix socket has none. */
void dial_keep_alive(int fd);

#endif
