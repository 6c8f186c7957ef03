/* The c10d store on a libuv loop: an edge around c10d.h. It listens on one address and talks to the named peers alone.
 *
 * A client that does not read its replies is read from no more until it does, and is closed when all such replies
 * together are over a limit. */
#ifndef LAUNCHERD_C10D_C10D_SERVER_H
#define LAUNCHERD_C10D_C10D_SERVER_H

#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/c10d/c10d.h"

struct c10d_server;
struct c10d_peer;

struct c10d_server_options {
    const char *
        address; /* "HOST:PORT"; port 0: the kernel's choice. A name blocks while it is resolved. NULL: fd */
    int fd; /* a bound TCP socket, taken over also on failure; with `address` NULL */
    const char *const
        *peers;        /* [peer_count] numeric addresses that may connect; borrowed for the call */
    size_t peer_count; /* > 0 */
    struct c10d_limits limits; /* a field of 0 is the default; hash_seed is set here */
    uint64_t unread_bytes_max; /* replies that nobody reads, together; 0: the default */
};

/* NULL, and why in `err`.
 *   STATUS_BAD_INPUT  an address or a peer that is none
 *   STATUS_BUSY       somebody listens there */
struct c10d_server *c10d_server_new(uv_loop_t *loop, const struct c10d_server_options *options,
                                    struct err *err);
/* "10.0.0.2:41235", with the port that the kernel chose. */
const char *c10d_server_bound(const struct c10d_server *server);
/* For c10d_next_client and what follows it; the clients' addresses by their number. */
const struct c10d *c10d_server_core(const struct c10d_server *server);
const char *c10d_server_peer(const struct c10d_server *server, uint32_t client);
/* Closes all; `on_closed` (may be NULL) is called from the loop when nothing of it is left. */
void c10d_server_close(struct c10d_server **server, void (*on_closed)(void *owner), void *owner);

#endif
