/* Two threads and two counters. Backward (the caller's thread) increments ready_count for each
 * complete bucket; the communication thread reduces bucket done_count while done_count <
 * ready_count. Buckets are reduced in the order of their indices on every rank, so the ranks need
 * no further agreement about the order of their collectives.
 *
 * After a failed collective the thread counts the step's other buckets as done without reducing
 * them, and the step ends with the first error. */
#include "worker/comm/ddp.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"
#include "worker/comm/ddp_check.h"
#include "worker/net/state.h"

struct ddp {
    struct comm *comm;
    struct net *net;
    uint32_t rank, world;
    struct ddp_options options;
    uint32_t bucket_count;
    struct ddp_times times; /* of the last step; the caller's thread alone */
    bool thread_runs;
    pthread_t thread;
    _Atomic(uint32_t) bucket_now; /* that is being reduced, from 1; 0: none */

    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    uint32_t ready_count; /* buckets that backward has completed in this step */
    uint32_t done_count;  /* buckets that were reduced, or skipped after an error; <= ready_count */
    bool stopping;
    uint64_t comm_us;
    enum status status; /* of this step's collectives */
    struct err err;
};

static enum status reduce_typed(struct ddp *ddp, enum graph_dtype dtype,
                                const struct net_view *view, struct err *err)
{
    enum comm_half type = dtype == GRAPH_BF16 ? COMM_BF16 : COMM_F16;

    if (dtype != GRAPH_F32 && !ddp->options.allreduce_always_fp32)
        return comm_all_reduce_sum_half(ddp->comm, view->values, view->count, type, err);
    return comm_all_reduce_sum(ddp->comm, view->values, view->count, err);
}

/* What a bucket is multiplied by before and after the sum; the product is 1 / world. */
struct factors {
    float before, after;
};

/* PyTorch's order for fp32; Apex's for a sum of 16-bit values, of which the small ones would lose
 * bits if they were divided first. */
static struct factors factors_of(const struct ddp *ddp, enum graph_dtype dtype)
{
    const float world = (float)ddp->world, predivide = ddp->options.predivide;

    if (predivide > 0.0F)
        return (struct factors){1.0F / predivide, predivide / world};
    if (dtype == GRAPH_F32 || ddp->options.allreduce_always_fp32)
        return (struct factors){1.0F / world, 1.0F};
    return (struct factors){1.0F, 1.0F / world};
}

static void multiply(const struct net_view *view, float factor)
{
    for (size_t i = 0; factor != 1.0F && i < view->count; i++)
        view->values[i] *= factor;
}

/* Closing the view rounds to the bucket's type. */
static enum status reduce_view(struct ddp *ddp, uint32_t index, struct err *err)
{
    const enum graph_dtype dtype = net_bucket(ddp->net, index).dtype;
    const struct factors factors = factors_of(ddp, dtype);
    struct net_view view;
    enum status status = net_bucket_open(ddp->net, index, &view, err);

    if (status != STATUS_OK)
        return status;
    multiply(&view, factors.before);
    status = reduce_typed(ddp, dtype, &view, err);
    if (status != STATUS_OK)
        return status; /* training ends: nobody opens a bucket again */
    multiply(&view, factors.after);
    return net_bucket_close(ddp->net, index, &view, err);
}

static enum status reduce(struct ddp *ddp, uint32_t index, struct err *err)
{
    struct err cause = {.text = ""};
    const uint64_t begun_us = mono_us();
    enum status status;

    atomic_store_explicit(&ddp->bucket_now, index + 1, memory_order_relaxed);
    status = reduce_view(ddp, index, &cause);
    if (status == STATUS_OK && ddp->options.reduced != NULL)
        ddp->options.reduced(ddp->options.reduced_user, index, begun_us);
    atomic_store_explicit(&ddp->bucket_now, 0, memory_order_relaxed);
    if (status == STATUS_OK)
        return STATUS_OK;
    return err_set(err, status, cause.code, "gradients, bucket %u of %u: %.200s", index + 1,
                   ddp->bucket_count, cause.text);
}

static void *run(void *user)
{
    struct ddp *ddp = user;

    (void)pthread_mutex_lock(&ddp->lock);
    for (;;) {
        struct err err = {.text = ""};
        enum status status;
        uint64_t begin_us;

        while (ddp->ready_count == ddp->done_count && !ddp->stopping)
            (void)pthread_cond_wait(&ddp->changed, &ddp->lock);
        if (ddp->stopping)
            break;
        assert(ddp->done_count < ddp->ready_count && ddp->ready_count <= ddp->bucket_count);
        status = ddp->status;
        if (status == STATUS_OK) {
            uint32_t index = ddp->done_count;

            (void)pthread_mutex_unlock(&ddp->lock);
            begin_us = mono_us();
            status = reduce(ddp, index, &err);
            begin_us = mono_us() - begin_us;
            (void)pthread_mutex_lock(&ddp->lock);
            ddp->comm_us += begin_us;
        }
        if (status != STATUS_OK && ddp->status == STATUS_OK) {
            ddp->status = status;
            ddp->err = err;
        }
        ddp->done_count++;
        (void)pthread_cond_broadcast(&ddp->changed);
    }
    (void)pthread_mutex_unlock(&ddp->lock);
    return NULL;
}

/* Every rank gets rank 0's values. */
static enum status share_state(struct ddp *ddp, enum net_part part, struct err *err)
{
    struct net_view view;
    enum status status = net_state_open(ddp->net, part, &view, err);

    if (status != STATUS_OK)
        return status;
    status = comm_broadcast(ddp->comm, view.values, view.count * sizeof *view.values, 0, err);
    return status == STATUS_OK ? net_state_close(ddp->net, part, &view, err) : status;
}

static enum status start_thread(struct ddp *ddp, struct err *err)
{
    int rc = pthread_create(&ddp->thread, NULL, run, ddp);

    if (rc != 0)
        return err_set(err, STATUS_SYSTEM, rc, "communication thread: %s", strerror(rc));
    ddp->thread_runs = true;
    return STATUS_OK;
}

enum status ddp_new(struct ddp **out, struct comm *comm, struct net *net, uint32_t rank,
                    uint32_t world, const struct ddp_options *options, struct err *err)
{
    struct ddp *ddp = calloc(1, sizeof *ddp);
    uint64_t settings = (options->delay_allreduce ? 1U : 0U) |
                        (options->broadcast_buffers ? 2U : 0U) |
                        (options->allreduce_always_fp32 ? 4U : 0U);
    uint32_t predivide_bits;
    enum status status = STATUS_OK;

    assert(rank < world && options->predivide >= 0.0F && net_bucket_count(net) > 0);
    if (ddp == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for DDP");
    memcpy(&predivide_bits, &options->predivide, sizeof predivide_bits);
    settings |= (uint64_t)predivide_bits << 32;
    ddp->comm = comm;
    ddp->net = net;
    ddp->rank = rank;
    ddp->world = world;
    ddp->options = *options;
    ddp->bucket_count = net_bucket_count(net);
    (void)pthread_mutex_init(&ddp->lock, NULL);
    (void)pthread_cond_init(&ddp->changed, NULL);
    if (world > 1)
        status = ddp_check(comm, net, world, settings, err);
    if (status == STATUS_OK && world > 1)
        status = share_state(ddp, NET_PARAMS, err);
    if (status != STATUS_OK)
        ddp_free(&ddp);
    *out = ddp;
    return status;
}

void ddp_free(struct ddp **out)
{
    struct ddp *ddp = *out;

    if (ddp == NULL)
        return;
    if (ddp->thread_runs) {
        (void)pthread_mutex_lock(&ddp->lock);
        ddp->stopping = true;
        (void)pthread_cond_broadcast(&ddp->changed);
        (void)pthread_mutex_unlock(&ddp->lock);
        (void)pthread_join(ddp->thread, NULL);
    }
    (void)pthread_cond_destroy(&ddp->changed);
    (void)pthread_mutex_destroy(&ddp->lock);
    free(ddp);
    *out = NULL;
}

enum status ddp_forward_begin(struct ddp *ddp, struct err *err)
{
    if (ddp->world == 1 || !ddp->options.broadcast_buffers)
        return STATUS_OK;
    return share_state(ddp, NET_BUFFERS, err);
}

/* -- the reducer -- */

static enum status begin(void *context, struct err *err)
{
    struct ddp *ddp = context;

    (void)err;
    (void)pthread_mutex_lock(&ddp->lock);
    assert(ddp->done_count == ddp->ready_count || ddp->status != STATUS_OK); /* last step is over */
    ddp->ready_count = 0;
    ddp->done_count = 0;
    ddp->comm_us = 0;
    (void)pthread_mutex_unlock(&ddp->lock);
    return STATUS_OK;
}

static enum status bucket_ready(void *context, uint32_t index, struct err *err)
{
    struct ddp *ddp = context;

    (void)err;
    (void)pthread_mutex_lock(&ddp->lock);
    assert(index == ddp->ready_count && index < ddp->bucket_count);
    ddp->ready_count++;
    (void)pthread_cond_broadcast(&ddp->changed);
    (void)pthread_mutex_unlock(&ddp->lock);
    return STATUS_OK;
}

/* Waits until the thread has reduced all buckets that are ready. */
static enum status finish(void *context, struct err *err)
{
    struct ddp *ddp = context;
    const uint64_t begin_us = mono_us();
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&ddp->lock);
    while (ddp->done_count < ddp->ready_count)
        (void)pthread_cond_wait(&ddp->changed, &ddp->lock);
    ddp->times.comm_us = ddp->comm_us;
    ddp->times.exposed_us = mono_us() - begin_us;
    if (ddp->status != STATUS_OK)
        status = err_set(err, ddp->status, ddp->err.code, "%s", ddp->err.text);
    (void)pthread_mutex_unlock(&ddp->lock);
    return status;
}

/* Reduces on the caller's thread: with --delay-allreduce. With a world of 1 it does nothing. */
static enum status finish_here(void *context, struct err *err)
{
    struct ddp *ddp = context;
    const uint64_t begin_us = mono_us();
    const bool is_complete = ddp->ready_count == ddp->bucket_count; /* else backward failed */
    enum status status = STATUS_OK;

    for (uint32_t i = 0; is_complete && ddp->world > 1 && i < ddp->bucket_count; i++)
        if (status == STATUS_OK)
            status = reduce(ddp, i, err);
    ddp->done_count = ddp->ready_count;
    ddp->times.comm_us = mono_us() - begin_us;
    ddp->times.exposed_us = ddp->times.comm_us;
    return status;
}

enum status ddp_reducer(struct ddp *ddp, struct reducer *reducer, struct err *err)
{
    const bool overlaps = ddp->world > 1 && !ddp->options.delay_allreduce;

    assert(!ddp->thread_runs);
    *reducer = (struct reducer){
        .context = ddp,
        .begin = begin,
        .bucket_ready = bucket_ready,
        .finish = overlaps ? finish : finish_here,
        .prescale = 1.0F,
        .graphable = false,
    };
    return overlaps ? start_thread(ddp, err) : STATUS_OK;
}

struct ddp_times ddp_times(const struct ddp *ddp)
{
    return ddp->times;
}

uint32_t ddp_bucket_now(const struct ddp *ddp, uint32_t *bucket_count)
{
    *bucket_count = ddp->bucket_count;
    return atomic_load_explicit(&ddp->bucket_now, memory_order_relaxed);
}

enum status ddp_sum(struct ddp *ddp, double *values, size_t count, struct err *err)
{
    enum status status;

    assert(count == 0 || values != NULL);
    if (ddp->world == 1)
        return STATUS_OK;
    (void)pthread_mutex_lock(&ddp->lock);
    while (ddp->thread_runs && ddp->done_count < ddp->ready_count)
        (void)pthread_cond_wait(&ddp->changed, &ddp->lock);
    status = ddp->status;
    if (status != STATUS_OK)
        status = err_set(err, status, ddp->err.code, "%s", ddp->err.text);
    (void)pthread_mutex_unlock(&ddp->lock);
    return status == STATUS_OK ? comm_all_reduce_sum_f64(ddp->comm, values, count, err) : status;
}
