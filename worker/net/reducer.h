/* Who averages the gradients of all ranks.
 *
 * A net has one reducer (net_set_reducer) or none, and drives it: net_backward_reduce calls begin,
 * then bucket_ready for each bucket, then finish. There are two implementations:
 *   - ddp_reducer (worker/comm/ddp.h): a thread of the host opens each bucket and reduces it by
 *     Gloo;
 *   - net_device_reducer (worker/net/net.h): the backend queues a collective of the device, NCCL's,
 *     for each bucket.
 * Training chooses one of them when the world has met (worker/train/setup.c); nothing else asks who
 * reduces. */
#ifndef WORKER_NET_REDUCER_H
#define WORKER_NET_REDUCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"

/* Threads: the net calls all three functions on the thread that called net_backward_reduce, one at
 * a time. What they start may run elsewhere: on a thread of the reducer, which uses net_bucket_open
 * and net_bucket_close, or on a stream of the device.
 *
 * Order in each reduced step: begin once; bucket_ready once for each bucket, in the order of the
 * indices 0, 1, ..., which is the same on every rank; finish once. Steps that are not reduced
 * (inner batches of an accumulation) call nothing.
 *
 * Errors: the first status that is not STATUS_OK ends net_backward_reduce with it. finish is called
 * after every begin that succeeded, also when backward or bucket_ready failed: fewer buckets have
 * come then, and it only waits for what this reducer has started on the host. After a failure the
 * gradients are undefined and training has to end: the ranks no longer agree.
 *
 * Abort: nothing here cancels a collective. Whoever notices a lost peer ends the transport (comm's
 * watch closes the connections, nccl_guard aborts the communicator); the collective then fails and
 * its status arrives here, or, for work on a device, in a later call that waits for the device. */
struct reducer {
    void *context; /* borrowed; outlives the last step */
    enum status (*begin)(void *context, struct err *err);
    /* Bucket `index` is complete: nothing changes its gradients any more but the reducer. Does not
     * wait for other ranks. */
    enum status (*bucket_ready)(void *context, uint32_t index, struct err *err);
    /* On return every bucket is reduced, or its reduction is queued ahead of all that the net
     * queues after this. */
    enum status (*finish)(void *context, struct err *err);

    /* What the reduction makes of one gradient g_r per rank r:
     *   c * sum over r of (prescale * g_r), with c * prescale = 1 / world
     * The net multiplies the gradient of the loss by prescale, in every backward pass, since inner
     * batches of an accumulation are summed before they are reduced: small values of 16 bit lose
     * bits that way, so it is mostly 1. c is the reducer's. */
    float prescale; /* > 0 */

    /* The three calls only queue work on the device. Such a step may be captured as a CUDA graph;
     * a replay of it repeats the collectives. A step with a reducer that works on the host never
     * is. */
    bool graphable;
};

struct CUstream_st;

/* A sum over all ranks that a device can queue, as NCCL's communicator does; for
 * net_device_reducer. A plain sum, since NCCL has faster algorithms for it (NVLS, CollNet) than for
 * a sum with a factor. */
struct device_collective {
    void *context;
    /* Queues on `stream`: `memory`, [count] of dtype, becomes the sum over all ranks. Called for
     * each bucket in order; where the step is captured, only while it is. */
    enum status (*sum)(void *context, void *memory, size_t count, enum graph_dtype dtype,
                       struct CUstream_st *stream, struct err *err);
    float prescale;  /* the reducer's; 0: 1 */
    float postscale; /* every value is multiplied by this after the collective; 0: by 1 */
    bool in_fp32;    /* 16-bit gradients are widened before and rounded after the collective */
    bool delays;     /* no collective before backward is over */
};

#endif
