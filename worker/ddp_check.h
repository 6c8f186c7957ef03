/* Whether all ranks are about to train the same thing. One face of DDP's start, apart because only
 * it is long. */
#ifndef WORKER_DDP_CHECK_H
#define WORKER_DDP_CHECK_H

#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"
#include "worker/net.h"

/* Collective. Compares the nets (names, shapes, types, layouts, order), the buckets and `settings`
 * (any number that must be equal) with rank 0's. STATUS_CONFLICT, with the same words on every
 * rank, names the first rank that differs and in what. */
enum status ddp_check(struct comm *comm, struct net *net, uint32_t world, uint64_t settings,
                      struct err *err);

#endif
