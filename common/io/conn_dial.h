/* Opens a connection to a server by its address: "unix:PATH", or "HOST:PORT" with a name or an
 * address. It combines dial.h, conn.h and, if the caller has a key, TLS. It never blocks the loop:
 * a unix socket connects at once, a name is looked up on libuv's thread pool.
 *
 * Without a key only loopback addresses are allowed: nothing leaves this machine unencrypted. */
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

/* STATUS_OK: `conn` is open; with a key, the TLS handshake has only begun (conn_secure). Otherwise
 * no callback of `conn` comes, and `text` says what failed. Statuses: those of dial_done and
 * conn_open_to; STATUS_UNSUPPORTED: not a loopback address, and no key. */
typedef void (*conn_dial_done)(struct conn_dial *dial, enum status status, const char *text);

/* Embedded by its owner. Its memory may be freed in or after `done`. */
struct conn_dial {
    struct dial dial;
    struct conn *conn;
    struct tls_context *tls;
    size_t payload_max;
    const struct conn_handlers *handlers;
    char address[96]; /* for the label of the connection */
    conn_dial_done done;
    void *owner;     /* for the owner's use; set before conn_dial_start */
    bool is_running; /* `done` will be called */
};

/* Opens `conn`, whose owner must be set. `tls`: NULL for none; not used on a unix socket; must
 * outlive the connection. On success either the connection is open already (is_running is false: a
 * unix socket) or `done` follows. Errors: those of `done`, and STATUS_BAD_INPUT (not a valid
 * address). */
enum status conn_dial_start(struct conn_dial *dial, struct conn *conn, uv_loop_t *loop,
                            const char *address, struct tls_context *tls, size_t payload_max,
                            const struct conn_handlers *handlers, conn_dial_done done,
                            struct err *err);
/* `done` follows with STATUS_CLOSED, once a running lookup has ended. Does nothing unless
 * is_running. */
void conn_dial_cancel(struct conn_dial *dial);

#endif
