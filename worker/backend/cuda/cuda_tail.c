/* The end of a step: finite check, clipping, optimizer, loss scaler. Of a step that was announced
 * by net_step_whole it is collected, and queued as a whole when it is complete: as it comes the
 * first time, then recorded, then repeated.
 *
 * It is a record of its own (a CUDA graph) beside that of forward and backward in cuda_step.c: with
 * a dynamic loss scale the rate depends on whether the step before was skipped, and that is asked
 * while the device is at work on this step's gradients. Rates are not in the record, it reads them
 * from the device. */
#include <assert.h>
#include <string.h>

#include "common/log.h"
#include "worker/backend/cuda/cuda.h"

/* In the order in which net_clip and net_update ask for it. */
static void queue_plain(struct cuda *cuda, const struct cuda_tail *tail)
{
    if (tail->checks)
        cuda_queue_finite(cuda, tail->grads, tail->grad_count, tail->scaler);
    if (tail->clips) {
        cuda_queue_clip(cuda, tail->grads, tail->grad_count, &tail->clip, tail->scaler);
        if (tail->checks)
            cuda_queue_finite(cuda, tail->grads, tail->grad_count, tail->scaler);
    }
    cuda_queue_update(cuda, tail->params, tail->param_count, &tail->optim, tail->scaler);
    cuda_queue_scaler_end(cuda, tail->scaler, tail->used_momentum);
}

/* All but the rates. */
static bool same_optim(const struct optim *a, const struct optim *b)
{
    return a->kind == b->kind && a->nesterov == b->nesterov && a->dampening == b->dampening &&
           a->weight_decay == b->weight_decay && a->beta2 == b->beta2 && a->eps == b->eps &&
           a->trust == b->trust && a->lookahead == b->lookahead && a->every == b->every &&
           a->alpha == b->alpha;
}

static bool same_tail(const struct cuda_tail *a, const struct cuda_tail *b)
{
    return a->grads == b->grads && a->grad_count == b->grad_count && a->checks == b->checks &&
           a->clips == b->clips && a->clip.value == b->clip.value && a->clip.norm == b->clip.norm &&
           a->params == b->params && a->param_count == b->param_count && a->scaler == b->scaler &&
           a->used_momentum == b->used_momentum && same_optim(&a->optim, &b->optim);
}

/* What fails here has not run: it is no failure of the step, which may still be queued as it comes.
 */
static enum status record(struct cuda *cuda, const struct cuda_tail *tail, struct err *err)
{
    const struct err before = cuda->failed;
    enum status status = cuda->runtime->record_begin(cuda->stream, err);

    if (status != STATUS_OK)
        return status;
    cuda->mode = CUDA_RECORD; /* nobody waits for the stream */
    queue_plain(cuda, tail);
    cuda->mode = CUDA_PLAIN;
    status = cuda->runtime->record_end(cuda->stream, &cuda->tail_record.graph, err);
    if (before.status == STATUS_OK && cuda->failed.status != STATUS_OK) {
        if (status == STATUS_OK)
            status = cuda_failed(cuda, err);
        cuda->failed = before;
    }
    return status;
}

/* False where there is no record of such an end and none could be made: then it is to be queued as
 * it comes. */
static bool take_record(struct cuda *cuda, const struct cuda_tail *tail)
{
    struct err why = {.text = ""};

    if (!cuda->records || !cuda->tail_record.is_warm || !same_tail(&cuda->tail_record.of, tail) ||
        !cuda_update_is_settled(cuda, &tail->optim))
        return false;
    if (cuda->tail_record.graph != NULL || record(cuda, tail, &why) == STATUS_OK)
        return true;
    cuda->runtime->graph_free(&cuda->tail_record.graph);
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "the optimizer is queued launch by launch, since recording it failed: %s", why.text);
    cuda->records = false;
    return false;
}

static void finish(struct cuda *cuda)
{
    const struct cuda_tail *tail = &cuda->tail;
    struct err err = {.text = ""};

    if (!take_record(cuda, tail)) {
        cuda->runtime->graph_free(&cuda->tail_record.graph);
        cuda->tail_record.of = *tail;
        cuda->tail_record.is_warm = true;
        cuda_queue_rates(cuda, &tail->optim, tail->scaler);
        queue_plain(cuda, tail);
        return;
    }
    cuda_queue_rates(cuda, &tail->optim, tail->scaler);
    cuda_keep(cuda, cuda->runtime->queue_graph(cuda->tail_record.graph, cuda->stream, &err), &err);
}

void cuda_tail_begin(struct cuda *cuda, bool waits)
{
    cuda->tail = (struct cuda_tail){.waits = waits};
}

void cuda_finite(void *state, const struct backend_span *grads, uint32_t count,
                 struct scaler *scaler)
{
    struct cuda *cuda = state;

    if (!cuda->tail.waits) {
        cuda_profile_part(cuda, CUDA_PART_FINITE, cuda->stream);
        cuda_queue_finite(cuda, grads, count, scaler);
        cuda_profile_end(cuda);
        return;
    }
    cuda->tail.checks = true;
    cuda->tail.grads = grads;
    cuda->tail.grad_count = count;
    cuda->tail.scaler = scaler;
}

void cuda_clip(void *state, const struct backend_span *grads, uint32_t count,
               const struct net_clip *clip, const struct scaler *scaler)
{
    struct cuda *cuda = state;

    if (!cuda->tail.waits) {
        cuda_profile_part(cuda, CUDA_PART_CLIP, cuda->stream);
        cuda_queue_clip(cuda, grads, count, clip, scaler);
        cuda_profile_end(cuda);
        return;
    }
    assert(!cuda->tail.clips); /* once a step */
    cuda->tail.clips = true;
    cuda->tail.clip = *clip;
    cuda->tail.grads = grads;
    cuda->tail.grad_count = count;
}

void cuda_update(void *state, const struct backend_param *params, uint32_t count,
                 const struct optim *optim, const struct scaler *scaler)
{
    struct cuda *cuda = state;

    if (!cuda->tail.waits) {
        cuda_profile_part(cuda, CUDA_PART_UPDATE, cuda->stream);
        cuda_queue_rates(cuda, optim, scaler);
        cuda_queue_update(cuda, params, count, optim, scaler);
        cuda_profile_end(cuda);
        return;
    }
    cuda->tail.params = params;
    cuda->tail.param_count = count;
    cuda->tail.optim = *optim;
}

void cuda_scaler_end(void *state, struct scaler *scaler, bool used_momentum)
{
    struct cuda *cuda = state;

    if (!cuda->tail.waits) {
        cuda_profile_part(cuda, CUDA_PART_SCALER, cuda->stream);
        cuda_queue_scaler_end(cuda, scaler, used_momentum);
        cuda_profile_end(cuda);
        return;
    }
    cuda->tail.scaler = scaler;
    cuda->tail.used_momentum = used_momentum;
    finish(cuda);
    cuda->tail.waits = false;
}
