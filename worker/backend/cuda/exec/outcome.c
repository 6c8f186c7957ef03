/* The outcome of a step: whether its gradients are finite, its loss, the loss scaler's state. Every
 * call queues its work; an error is kept for the next call that can report it. */
#include <assert.h>
#include <string.h>

#include "common/io/mono.h"
#include "worker/backend/cuda/exec/internal.h"

static void finite_of_type(struct cuda *cuda, const struct backend_span *spans, uint32_t count,
                           enum graph_dtype dtype, uint32_t *found)
{
    struct kernel_values values[KERNEL_SPANS_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct err err;

        if (spans[i].dtype == dtype)
            values[n++] = (struct kernel_values){spans[i].memory, spans[i].count};
        if (n == 0 || (n < KERNEL_SPANS_MAX && i + 1 < count))
            continue;
        cuda_keep(
            cuda,
            cuda_launched(cuda, NULL,
                          cuda->kernels->finite(values, n, cuda_type(dtype), found, cuda->stream),
                          "finite check", &err),
            &err);
        n = 0;
    }
}

void cuda_queue_finite(struct cuda *cuda, const struct backend_span *grads, uint32_t count,
                       struct scaler *scaler)
{
    for (int dtype = GRAPH_F32; dtype <= GRAPH_BF16; dtype++)
        finite_of_type(cuda, grads, count, (enum graph_dtype)dtype, &scaler->found_inf);
}

bool cuda_is_finite(void *state, const struct backend_span *span)
{
    struct cuda *cuda = state;
    const uint32_t zero = 0;
    uint32_t found = 0;
    struct err err;

    cuda_keep(cuda, cuda_memory_write(cuda, cuda->flag, &zero, sizeof zero, &err), &err);
    finite_of_type(cuda, span, 1, span->dtype, cuda->flag);
    cuda_keep(cuda, cuda_memory_read(cuda, cuda->flag, &found, sizeof found, &err), &err);
    return found == 0;
}

void cuda_add(void *state, const struct backend_span *to, const struct backend_span *from,
              bool clear)
{
    struct cuda *cuda = state;
    struct err err;
    int code =
        cuda->kernels->accumulate(to->memory, cuda_type(to->dtype), from->memory,
                                  cuda_type(from->dtype), 1.0F, clear, to->count, cuda->stream);

    cuda_keep(cuda, cuda_launched(cuda, NULL, code, "sum of gradients", &err), &err);
}

/* -- outcomes -- */

static void to_outcome(const struct cuda_outcome *from, uint32_t n, struct net_outcome *to)
{
    to->result = (struct net_result){from->loss.loss_sum, n, from->loss.top1, from->loss.top5};
    to->scaler = from->scaler;
}

enum status cuda_result(void *state, struct net_result *result, struct err *err)
{
    struct cuda *cuda = state;
    struct kernel_loss_result loss;
    enum status status = cuda_memory_read(cuda, cuda->loss_result, &loss, sizeof loss, err);

    if (status == STATUS_OK)
        *result = (struct net_result){loss.loss_sum, cuda->n, loss.top1, loss.top5};
    return status;
}

static enum status queue_outcome(struct cuda *cuda, uint32_t slot, const struct scaler *scaler,
                                 struct err *err)
{
    struct cuda_outcome *outcome = &cuda->outcomes[slot];
    enum status status = cuda->runtime->queue_copy_out(&outcome->loss, cuda->loss_result,
                                                       sizeof outcome->loss, cuda->stream, err);

    if (status == STATUS_OK)
        status = cuda->runtime->queue_copy_out(&outcome->scaler, scaler, sizeof outcome->scaler,
                                               cuda->stream, err);
    return status == STATUS_OK
               ? cuda->runtime->event_record(cuda->outcome_done[slot], cuda->stream, err)
               : status;
}

/* -- when a step ended -- */

enum { LATE_PART = 16 }; /* of what a host that waited saw later is taken over */

static uint32_t slot_of(const struct cuda *cuda, uint32_t number)
{
    return (cuda->outcome_first + number) % CUDA_OUTCOMES;
}

enum status cuda_outcomes_begin(struct cuda *cuda, struct err *err)
{
    struct CUevent_st *begin = cuda->outcome_done[slot_of(cuda, CUDA_OUTCOMES - 1)];
    enum status status = cuda->runtime->event_record(begin, cuda->stream, err);

    if (status == STATUS_OK)
        status = cuda->runtime->event_sync(begin, err);
    cuda->outcome_us = mono_us();
    return status;
}

/* The host may look long after a step ended: then two steps would seem to end at once. So the time
 * between two steps is the device's. It is no later than the host's look, and follows the host's
 * clock slowly where the host waited for it. */
static enum status find_end(struct cuda *cuda, bool waited, struct err *err)
{
    const uint64_t now_us = mono_us();
    uint64_t ended_us = now_us;
    double us = 0;
    enum status status = STATUS_OK;

    if (cuda->outcome_us != 0) {
        status = cuda->runtime->event_elapsed(cuda->outcome_done[slot_of(cuda, CUDA_OUTCOMES - 1)],
                                              cuda->outcome_done[slot_of(cuda, 0)], &us, err);
        ended_us = cuda->outcome_us + (us > 0 ? (uint64_t)(us + 0.5) : 0);
    }
    if (ended_us > now_us)
        ended_us = now_us;
    cuda->outcome_us = waited ? ended_us + (now_us - ended_us) / LATE_PART : ended_us;
    return status;
}

void cuda_step_end(void *state, const struct scaler *scaler)
{
    struct cuda *cuda = state;
    struct err err;
    uint32_t slot;

    if (cuda->outcome_count == NET_OUTCOMES) { /* drop the oldest: its copy is before ours */
        cuda->outcome_first = slot_of(cuda, 1);
        cuda->outcome_count--;
        cuda->outcome_us = 0;
    }
    slot = slot_of(cuda, cuda->outcome_count++);
    cuda->outcome_n[slot] = cuda->n;
    cuda_keep(cuda, queue_outcome(cuda, slot, scaler, &err), &err);
    cuda_profile_collect(cuda);
}

enum status cuda_outcome_take(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                              struct err *err)
{
    struct cuda *cuda = state;
    const uint32_t slot = cuda->outcome_first;
    bool passed = false;
    enum status status = cuda_failed(cuda, err);

    assert(slot < CUDA_OUTCOMES && cuda->outcome_count <= NET_OUTCOMES);
    *taken = false;
    if (status != STATUS_OK || cuda->outcome_count == 0)
        return status;
    status = cuda->runtime->event_passed(cuda->outcome_done[slot], &passed, err);
    if (status == STATUS_OK && !passed && wait)
        status = cuda->runtime->event_sync(cuda->outcome_done[slot], err);
    if (status != STATUS_OK || !(passed || wait))
        return status;
    *taken = true;
    status = find_end(cuda, !passed, err);
    to_outcome(&cuda->outcomes[slot], cuda->outcome_n[slot], outcome);
    outcome->ended_us = cuda->outcome_us;
    cuda->outcome_first = slot_of(cuda, 1);
    cuda->outcome_count--;
    return status;
}

/* Values share memory, so most are overwritten by now. Forward runs again from the images, which
 * are kept, and each value is checked right after it is written. Side effect: running statistics
 * are updated once more. */
uint32_t cuda_first_nonfinite(void *state)
{
    struct cuda *cuda = state;

    cuda->norm_sum = NULL;                 /* one rank may run this without the others */
    cuda->options.stats = CUDA_STATS_NONE; /* so that every value is written */
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        struct cuda_layer *layer = &cuda->layers[i];
        const struct backend_span span = {layer->out.data, cuda->rows * layer->out.image_size,
                                          layer->out.dtype};
        struct err err;

        if (layer->out.data == NULL)
            continue;
        if (layer->op->forward(cuda, layer, &err) != STATUS_OK)
            return GRAPH_NONE;
        if (!cuda_is_finite(cuda, &span))
            return i;
    }
    return GRAPH_NONE;
}
