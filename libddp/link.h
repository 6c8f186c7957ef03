/* The connection to the shim: whole frames out, messages in. Not locked: the caller's lock protects
 * it. */
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
    struct buf out; /* bytes that the socket has not taken; the first frame may be partly sent */
    bool is_closed;
    struct err broken; /* with a text: the shim sent an invalid message; the rest is dropped */
};

/* Takes over `fd` and makes it close-on-exec. Errors: STATUS_BAD_INPUT (it is no connection to a
 * shim). */
enum status link_open(struct link *link, int fd, struct err *err);
void link_close(struct link *link);

/* Sends as much as the socket takes now. Errors: STATUS_CLOSED. */
enum status link_flush(struct link *link, struct err *err);
/* Reads what has arrived and calls `take` for each message. Never waits. Errors: STATUS_CLOSED,
 * STATUS_MEMORY; STATUS_BAD_INPUT and STATUS_TOO_BIG are permanent: nothing more is read. */
enum status link_read(struct link *link,
                      void (*take)(void *owner, const struct wire_message *message), void *owner,
                      struct err *err);

#endif
