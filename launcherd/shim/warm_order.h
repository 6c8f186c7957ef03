/* What launcherd tells a process of `launcherd --warm`, and what both make of msg warm: the start order that
 * its workers get their first environment from, and whether another start order is of the same kind. */
#ifndef LAUNCHERD_SHIM_WARM_ORDER_H
#define LAUNCHERD_SHIM_WARM_ORDER_H

#include <stdbool.h>

#include "common/buf.h"
#include "common/msg.h"

#define WARM_ORDER_BYTES_MAX (64u * 1024u)

/* A start order with all that `warm` says, and places that mean nothing. It borrows from `warm`. */
struct msg_start warm_start(const struct msg_warm *warm);
/* Whether workers that were started for `warm` can take their places in `start`. */
bool warm_fits(const struct msg_warm *warm, const struct msg_start *start);

/* The texts [count], with their bytes in front (u32, of this machine). False: no memory, or too long. */
bool warm_order_build(struct buf *out, const char *const *texts, uint32_t count);
/* `texts` borrow from `bytes`. False: it is none of `count` texts. `bytes`: behind the u32. */
bool warm_order_read(char *bytes, uint32_t byte_count, char **texts, uint32_t count);

#endif
