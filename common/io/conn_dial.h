/* Opens a connection to a server by its address: "unix:PATH", or "HOST:PORT" with a name or an
 * address. It is dial.h, conn.h and, where the caller has a key, TLS in one. It never blocks the
 * loop: a unix socket connects at once, a name is looked up on libuv's thread pool.
 *
 * Without a key only loopback addresses are called: nothing that leaves this machine is plain. */
#ifndef COMMON_IO_CONN_DIAL_H
#define COMMON_IO_CONN_DIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/dial.h"
#include "common/io/tls.h"
#include "common/status.h"

struct conn_dial;

/* STATUS_OK: `conn` is open; TLS, where there is a key, has only begun (conn_secure). Else no
 * callback of `conn` comes, and `text` says what failed, with the statuses of dial_done and of
 * conn_open_to; STATUS_UNSUPPORTED: without a key, and not a loopback address. */
typedef void (*conn_dial_done)(struct conn_dial *dial, enum status status, const char *text);

/* Embedded by its owner; its memory is free only in or after `done`. */
struct conn_dial {
    struct dial dial;
    struct conn *conn;
    struct tls_context *tls;
    size_t payload_max;
    const struct conn_handlers *handlers;
    char address[96]; /* for the label of the connection */
    conn_dial_done done;
    void *owner;     /* for the owner's use; set before conn_dial_start */
    bool is_running; /* `done` is to come */
};

/* Opens `conn`, whose owner is set. `tls`: NULL for none; not used on a unix socket; outlives the
 * connection. If this succeeds, the connection is open already (is_running is false: a unix socket)
 * or `done` follows. Errors: as `done` gets, and STATUS_BAD_INPUT (not such an address). */
enum status conn_dial_start(struct conn_dial *dial, struct conn *conn, uv_loop_t *loop,
                            const char *address, struct tls_context *tls, size_t payload_max,
                            const struct conn_handlers *handlers, conn_dial_done done,
                            struct err *err);
/* `done` follows with STATUS_CLOSED, after a lookup that runs has ended. Does nothing unless
 * is_running. */
void conn_dial_cancel(struct conn_dial *dial);

#endif
