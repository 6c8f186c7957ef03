/* The check at the start of data-parallel training: all ranks have the same net and options.
 * Private to worker/comm. */
#ifndef WORKER_COMM_DDP_CHECK_H
#define WORKER_COMM_DDP_CHECK_H

#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"
#include "worker/net/net.h"

/* Collective. Compares with rank 0's: the net (names, shapes, types, layouts, order of the
 * tensors), the buckets, and `settings` (any number that must be equal). Errors: STATUS_CONFLICT,
 * with the same text on every rank, names the first rank that differs and the difference;
 * STATUS_MEMORY. */
enum status ddp_check(struct comm *comm, struct net *net, uint32_t world, uint64_t settings,
                      struct err *err);

#endif
