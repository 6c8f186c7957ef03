/* Data-parallel training over one net: equal parameters at the start, averaged gradients at every step.
 *
 * ddp_new makes the ranks equal. ddp_reducer is the net's reducer on the host: a communication thread reduces
 * bucket after bucket, in index order on every rank, while backward goes on. fp32 gradients (accumulated ones are
 * always fp32) are multiplied by 1 / world before the sum, as PyTorch does; 16-bit ones after it, as Apex does.
 * With a predivide factor p all are multiplied by 1 / p before and by p / world after the sum. If the device
 * reduces instead (net_device_reducer), ddp_reducer is not called and there is no thread. */
#ifndef WORKER_COMM_DDP_H
#define WORKER_COMM_DDP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"
#include "worker/net/net.h"

struct ddp;

struct ddp_options {
    bool delay_allreduce;       /* reduce after backward, no overlap */
    float predivide;            /* 0: the world size */
    bool broadcast_buffers;     /* ddp_forward_begin sends rank 0's running statistics */
    bool allreduce_always_fp32; /* reduce fp16 and bf16 gradients in fp32, then round them once */
    /* Called when a bucket is reduced, on the thread that did it. NULL: nobody is told. */
    void (*reduced)(void *user, uint32_t bucket, uint64_t begun_us);
    void *reduced_user;
};

/* Times of the last step that ddp_reducer reduced; 0 before the first. */
struct ddp_times {
    uint64_t comm_us;    /* sum over buckets of the time inside the collective */
    uint64_t exposed_us; /* from the end of backward to the end of the last bucket */
};

/* Collective. Checks that all ranks train the same net (ddp_check), then broadcasts rank 0's
 * parameters and buffers. `comm` and `net` are borrowed until ddp_free. Errors: STATUS_CONFLICT
 * (naming rank and parameter), STATUS_MEMORY, those of the collectives. */
enum status ddp_new(struct ddp **ddp, struct comm *comm, struct net *net, uint32_t rank,
                    uint32_t world, const struct ddp_options *options, struct err *err);
void ddp_free(struct ddp **ddp);

/* Collective, with broadcast_buffers: broadcasts rank 0's running statistics. Before a forward that
 * reads them, as a validation's does. */
enum status ddp_forward_begin(struct ddp *ddp, struct err *err);
/* The reducer for net_set_reducer: collectives of `comm`. Once for each ddp; starts the thread,
 * which ddp_free ends. It is valid until then. Its finish returns when every bucket is reduced on
 * this rank. Where a collective fails, the rest of the step's buckets are skipped and finish
 * returns the first error. Errors: STATUS_SYSTEM (no thread). */
enum status ddp_reducer(struct ddp *ddp, struct reducer *reducer, struct err *err);
/* Sums `values`, [count], over all ranks in the middle of forward or backward, on the caller's
 * thread. Buckets that are ready are reduced first, so that all ranks make their collectives in the
 * same order. For net_options.norm_sum. */
enum status ddp_sum(struct ddp *ddp, double *values, size_t count, struct err *err);
struct ddp_times ddp_times(const struct ddp *ddp);
/* The bucket that is being reduced, counted from 1, and how many there are; 0: none. May be called
 * from any thread, until ddp_free. */
uint32_t ddp_bucket_now(const struct ddp *ddp, uint32_t *bucket_count);

#endif
