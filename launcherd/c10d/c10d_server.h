/* The c10d store on a libuv loop: the edge of c10d.h. It listens on one address and serves only the
 * named peers. If a client does not read its replies, nothing more is read from it until it does.
 * It is closed if all unread replies together exceed a limit. */
#ifndef LAUNCHERD_C10D_C10D_SERVER_H
#define LAUNCHERD_C10D_C10D_SERVER_H

#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/c10d/c10d.h"

struct c10d_server;
struct c10d_peer;

struct c10d_server_options {
    const char *address; /* "HOST:PORT"; port 0: any. Resolving a name blocks. NULL: `fd` */
    int fd;              /* with `address` NULL: a bound TCP socket; taken over, also on failure */
    const char *const
        *peers;        /* [peer_count] numeric addresses that may connect; borrowed for the call */
    size_t peer_count; /* > 0 */
    struct c10d_limits limits; /* 0 in a field: the default; hash_seed is set here */
    uint64_t unread_bytes_max; /* limit for all unread replies together; 0: the default */
};

/* NULL: `err` says why. STATUS_BAD_INPUT: an invalid address or peer. STATUS_BUSY: the port is in
 * use. */
struct c10d_server *c10d_server_new(uv_loop_t *loop, const struct c10d_server_options *options,
                                    struct err *err);
/* "10.0.0.2:41235", with the port that the kernel chose. */
const char *c10d_server_bound(const struct c10d_server *server);
/* The core, for c10d_next_client and the functions after it. Below: a client's address by its
 * number. */
const struct c10d *c10d_server_core(const struct c10d_server *server);
const char *c10d_server_peer(const struct c10d_server *server, uint32_t client);
/* Closes everything. `on_closed` (may be NULL) is called from the loop when all is closed. */
void c10d_server_close(struct c10d_server **server, void (*on_closed)(void *owner), void *owner);

#endif
