/* Data-parallel training over one net: equal parameters at the start, averaged gradients at every
 * step.
 *
 * A communication thread reduces bucket after bucket, in index order on every rank, while backward
 * goes on. Gradients are divided by the world size before the reduce (net_backward's grad_scale),
 * as PyTorch does; with a predivide factor p by p before and by world / p behind it, as Apex does.
 * Where the net's backend reduces on the device (net_reduces) there is no thread, and no waiting.
 */
#ifndef WORKER_DDP_H
#define WORKER_DDP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"
#include "worker/net.h"

struct ddp;

struct ddp_options {
    bool delay_allreduce;       /* reduce after backward, no overlap */
    float predivide;            /* 0: the world size */
    bool broadcast_buffers;     /* ddp_forward_begin sends rank 0's running statistics */
    bool allreduce_always_fp32; /* reduce fp16 and bf16 gradients in fp32, then round them once */
};

/* Times of the last step. Formulas: spec "measuring overlap": exposed = what the step waited for.
 */
struct ddp_times {
    uint64_t comm_us;    /* sum over buckets of the time inside the collective */
    uint64_t exposed_us; /* wait between the end of backward and the end of the last bucket */
};

/* Compares net_hash across ranks (a mismatch is STATUS_CONFLICT naming rank and parameter), then
 * broadcasts rank 0's parameters and buffers. `comm` and `net` are borrowed until ddp_free. */
enum status ddp_new(struct ddp **ddp, struct comm *comm, struct net *net, uint32_t rank,
                    uint32_t world, const struct ddp_options *options, struct err *err);
void ddp_free(struct ddp **ddp);

/* Before a forward that reads buffers, a validation's: broadcasts them where asked. */
enum status ddp_forward_begin(struct ddp *ddp, struct err *err);
/* net_backward with overlapped reduction; returns when every bucket is reduced on this rank.
 * `weight`: the part of this batch in the step, 1 without accumulation. Inner steps of an
 * accumulation call net_backward themselves, with weight * ddp_grad_scale. */
enum status ddp_backward(struct ddp *ddp, float weight, struct err *err);
/* Sums over all ranks in the middle of forward or backward, on the caller's thread: first the
 * buckets that are ready are reduced, so that all ranks make their collectives in one order. For
 * net_options.norm_sum. */
enum status ddp_sum(struct ddp *ddp, double *values, size_t count, struct err *err);
float ddp_grad_scale(const struct ddp *ddp);
struct ddp_times ddp_times(const struct ddp *ddp);

#endif
