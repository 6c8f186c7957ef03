/* The order by which launcherd makes a `launcherd --warm` a shim, and what both derive from msg
 * warm: the start order for the first environment of the workers, and whether another start order
 * fits them. */
#ifndef LAUNCHERD_SHIM_WARM_ORDER_H
#define LAUNCHERD_SHIM_WARM_ORDER_H

#include <stdbool.h>

#include "common/buf.h"
#include "common/msg.h"

#define WARM_ORDER_BYTES_MAX (64u * 1024u)

/* A start order with everything that `warm` says; the other values, such as the ranks, mean
 * nothing. Borrows from `warm`. */
struct msg_start warm_start(const struct msg_warm *warm);
/* Whether workers that were started for `warm` can take the ranks of `start`. */
bool warm_fits(const struct msg_warm *warm, const struct msg_start *start);

/* Adds the length in bytes (uint32_t, native byte order), then the `count` texts, each with its
 * NUL. False: no memory, or longer than WARM_ORDER_BYTES_MAX. */
bool warm_order_build(struct buf *out, const char *const *texts, uint32_t count);
/* Splits the bytes after the length. `texts` borrow from `bytes`. False: these are not exactly
 * `count` texts. */
bool warm_order_read(char *bytes, uint32_t byte_count, char **texts, uint32_t count);

#endif
