/* The connection to the shim: whole frames out, messages in. Not locked: the caller's lock covers it. */
#ifndef LIBDDP_LINK_H
#define LIBDDP_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "libddp/wire.h"

struct link {
    int fd; /* -1: no shim, and every call succeeds */
    struct buf in;
    struct buf out; /* what the socket did not take yet: whole frames, the first maybe in part */
    bool is_closed;
    struct err
        broken; /* text is not empty: the shim has sent what is no message; the rest is dropped */
};

/* Takes `fd` over, which the programs that we start shall not get. Errors: STATUS_BAD_INPUT (it is not
 * a connection to a shim). */
enum status link_open(struct link *link, int fd, struct err *err);
void link_close(struct link *link);

/* Sends as much as the socket takes now. Errors: STATUS_CLOSED. */
enum status link_flush(struct link *link, struct err *err);
/* Reads what has arrived and calls `take` for each message. Never waits. Errors: STATUS_CLOSED,
 * STATUS_MEMORY, and STATUS_BAD_INPUT or STATUS_TOO_BIG, which then stay: nothing more is read from it. */
enum status link_read(struct link *link,
                      void (*take)(void *owner, const struct wire_message *message), void *owner,
                      struct err *err);

#endif
