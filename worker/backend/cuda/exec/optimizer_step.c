/* The optimizer step: finite check, clipping, optimizer, loss scaler.
 *
 * The optimizer is a few launches over all tensors, one for each type of gradients. The launches
 * carry tables of pointers and counts, so nothing waits for the device; rates are read on the
 * device.
 *
 * In a step that may be captured (net_step_graphable) the calls are deferred: they are collected,
 * and queued together after the last one. The first time they run eagerly, then they are captured,
 * then the capture is replayed. It is a CUDA graph separate from that of forward and backward
 * (step.c): with a dynamic loss scale the rates depend on whether the step before was skipped, and
 * the host asks for that while the device computes this step's gradients. So rates are not in the
 * capture. */
#include <assert.h>
#include <string.h>

#include "common/log.h"
#include "worker/backend/cuda/exec/internal.h"
#include "worker/net/optim.h"

/* The arguments of one kernel call. */
struct update {
    const struct backend_param *params;
    uint32_t count;
    const struct optim *optim;
    const struct scaler *scaler;
    enum kernel_type grad_type, half_type;
};

static enum status run_sgd(struct cuda *cuda, const struct update *update, struct err *err)
{
    const struct optim *optim = update->optim;
    const struct kernel_sgd sgd = {
        .grad_type = update->grad_type,
        .half_type = update->half_type,
        .dampening = optim->dampening,
        .weight_decay = optim->weight_decay,
        .nesterov = optim->nesterov,
    };
    struct kernel_sgd_tensor *tensors = cuda->tables;
    uint32_t n = 0;

    for (uint32_t i = 0; i < update->count; i++) {
        const struct backend_param *param = &update->params[i];

        if (cuda_type(param->grad.dtype) == update->grad_type)
            tensors[n++] = (struct kernel_sgd_tensor){.grad = param->grad.memory,
                                                      .master = param->param,
                                                      .momentum = param->states[OPTIM_MOMENTUM],
                                                      .half = param->half,
                                                      .count = param->count};
    }
    if (n == 0)
        return STATUS_OK;
    return cuda_launched(cuda, NULL,
                         cuda->kernels->sgd(tensors, n, &sgd, cuda->rates, &update->scaler->scale,
                                            &update->scaler->found_inf, cuda->stream),
                         "SGD", err);
}

static enum status run_adam(struct cuda *cuda, const struct update *update, struct err *err)
{
    const struct optim *optim = update->optim;
    const struct kernel_adam adam = {
        .grad_type = update->grad_type,
        .half_type = update->half_type,
        .beta2 = optim->beta2,
        .weight_decay = (double)optim->weight_decay,
        .eps = optim->eps,
        .is_adamw = optim->kind == OPTIM_ADAMW,
    };
    struct kernel_adam_tensor *tensors = cuda->tables;
    uint32_t n = 0;

    for (uint32_t i = 0; i < update->count; i++) {
        const struct backend_param *param = &update->params[i];

        if (cuda_type(param->grad.dtype) == update->grad_type)
            tensors[n++] =
                (struct kernel_adam_tensor){.grad = param->grad.memory,
                                            .master = param->param,
                                            .exp_avg = param->states[OPTIM_EXP_AVG],
                                            .exp_avg_sq = param->states[OPTIM_EXP_AVG_SQ],
                                            .half = param->half,
                                            .count = param->count};
    }
    if (n == 0)
        return STATUS_OK;
    return cuda_launched(cuda, NULL,
                         cuda->kernels->adam(tensors, n, &adam, cuda->rates, &update->scaler->scale,
                                             &update->scaler->found_inf, &update->scaler->applied,
                                             cuda->stream),
                         "Adam", err);
}

/* Enlarges the workspace before the first launch that needs it; it is kept. */
static enum status lars_room(struct cuda *cuda, const struct kernel_lars_tensor *tensors,
                             uint32_t n, struct err *err)
{
    const size_t bytes = kernel_lars_workspace(tensors, n);

    if (bytes <= cuda->lars_bytes)
        return STATUS_OK;
    cuda->runtime->memory_free(&cuda->lars_workspace);
    cuda->lars_bytes = bytes;
    return cuda->runtime->memory_new(&cuda->lars_workspace, bytes, err);
}

static enum status run_lars(struct cuda *cuda, const struct update *update, struct err *err)
{
    const struct optim *optim = update->optim;
    const struct kernel_lars lars = {
        .grad_type = update->grad_type,
        .half_type = update->half_type,
        .weight_decay = optim->weight_decay,
        .trust = optim->trust,
        .eps = optim->eps,
        .nesterov = optim->nesterov,
        .is_larc = optim->kind == OPTIM_LARC,
    };
    struct kernel_lars_tensor *tensors = cuda->tables;
    enum status status;
    uint32_t n = 0;

    for (uint32_t i = 0; i < update->count; i++) {
        const struct backend_param *param = &update->params[i];

        if (cuda_type(param->grad.dtype) == update->grad_type)
            tensors[n++] = (struct kernel_lars_tensor){.grad = param->grad.memory,
                                                       .master = param->param,
                                                       .momentum = param->states[OPTIM_MOMENTUM],
                                                       .half = param->half,
                                                       .count = param->count,
                                                       .adapts = param->adapts};
    }
    if (n == 0)
        return STATUS_OK;
    status = lars_room(cuda, tensors, n, err);
    if (status != STATUS_OK)
        return status;
    return cuda_launched(cuda, NULL,
                         cuda->kernels->lars(tensors, n, &lars, cuda->rates, cuda->lars_workspace,
                                             &update->scaler->scale, &update->scaler->found_inf,
                                             cuda->stream),
                         "LARS", err);
}

static enum status run_typed(struct cuda *cuda, const struct update *update, struct err *err)
{
    switch (update->optim->kind) {
    case OPTIM_SGD:
        return run_sgd(cuda, update, err);
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        return run_adam(cuda, update, err);
    case OPTIM_LARS:
    case OPTIM_LARC:
        return run_lars(cuda, update, err);
    }
    return STATUS_OK;
}

/* -- Lookahead -- */

static enum status look_ahead(struct cuda *cuda, const struct update *update, bool is_before,
                              struct err *err)
{
    const struct kernel_lookahead lookahead = {
        .half_type = update->half_type,
        .is_paper = update->optim->lookahead == OPTIM_LOOKAHEAD_PAPER,
        .every = update->optim->every,
        .alpha = update->optim->alpha,
    };
    struct kernel_lookahead_tensor *tensors = cuda->tables;
    const uint32_t *found = &update->scaler->found_inf, *applied = &update->scaler->applied;
    int code;

    if (update->optim->lookahead == OPTIM_LOOKAHEAD_NONE)
        return STATUS_OK;
    for (uint32_t i = 0; i < update->count; i++)
        tensors[i] = (struct kernel_lookahead_tensor){.master = update->params[i].param,
                                                      .slow = update->params[i].states[OPTIM_SLOW],
                                                      .half = update->params[i].half,
                                                      .count = update->params[i].count};
    code = is_before ? cuda->kernels->lookahead_before(tensors, update->count, &lookahead, found,
                                                       applied, cuda->stream)
                     : cuda->kernels->lookahead(tensors, update->count, &lookahead, found, applied,
                                                cuda->stream);
    return cuda_launched(cuda, NULL, code, "Lookahead", err);
}

/* -- pure 16-bit training: written values are rounded -- */

enum status cuda_round_floats(struct cuda *cuda, float *values, enum graph_dtype dtype,
                              size_t count, struct err *err)
{
    const enum kernel_type type = cuda_type(dtype);
    int code;

    if (dtype == GRAPH_F32)
        return STATUS_OK;
    code = cuda->kernels->cast(cuda->rounded, type, values, KERNEL_F32, count, cuda->stream);
    if (code == 0)
        code = cuda->kernels->cast(values, KERNEL_F32, cuda->rounded, type, count, cuda->stream);
    return cuda_launched(cuda, NULL, code, "rounding", err);
}

static enum status round_written(struct cuda *cuda, const struct update *update, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < update->count; i++) {
        const struct backend_param *param = &update->params[i];

        if (param->has_master || param->dtype == GRAPH_F32)
            continue;
        status = cuda_round_floats(cuda, param->param, param->dtype, param->count, err);
        for (uint32_t s = 0; s < OPTIM_STATES && status == STATUS_OK; s++)
            if (param->states[s] != NULL)
                status = cuda_round_floats(cuda, param->states[s], param->dtype, param->count, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* In SGD's first step with momentum buf = g. Zeros in the buffer give the same, unless dampening is
 * used. With dampening the host must know whether there was such a step before, but only the device
 * knows, since that step may have been skipped. */
bool cuda_update_is_settled(const struct cuda *cuda, const struct optim *optim)
{
    return optim->kind != OPTIM_SGD || optim->momentum == 0.0F || optim->dampening == 0.0F ||
           cuda->had_momentum;
}

static enum status learn_momentum(struct cuda *cuda, const struct optim *optim,
                                  const struct scaler *scaler, struct err *err)
{
    struct scaler now;
    enum status status;

    cuda->is_first_momentum = false;
    if (cuda_update_is_settled(cuda, optim))
        return STATUS_OK;
    status = cuda_memory_read(cuda, scaler, &now, sizeof now, err);
    cuda->had_momentum = now.has_momentum != 0;
    cuda->is_first_momentum = !cuda->had_momentum;
    return status;
}

static enum status queue_rates(struct cuda *cuda, const struct optim *optim,
                               const struct scaler *scaler, struct err *err)
{
    enum status status = learn_momentum(cuda, optim, scaler, err);
    const struct kernel_rates rates = {
        .lr = optim->lr,
        .momentum = optim->momentum,
        .wide_lr = (double)optim->lr,
        .beta1 = optim->beta1,
        .is_first_step = cuda->is_first_momentum,
    };

    if (status != STATUS_OK)
        return status;
    return cuda_launched(cuda, NULL, cuda->kernels->rates(cuda->rates, &rates, cuda->stream),
                         "rates", err);
}

void cuda_queue_rates(struct cuda *cuda, const struct optim *optim, const struct scaler *scaler)
{
    struct err err;

    cuda_keep(cuda, queue_rates(cuda, optim, scaler, &err), &err);
}

static enum status run(struct cuda *cuda, struct update *update, struct err *err)
{
    enum status status = STATUS_OK;

    if (update->optim->lookahead == OPTIM_LOOKAHEAD_PAPER)
        status = look_ahead(cuda, update, true, err);
    for (int type = KERNEL_F32; type <= KERNEL_BF16 && status == STATUS_OK; type++) {
        update->grad_type = (enum kernel_type)type;
        status = run_typed(cuda, update, err);
    }
    if (status == STATUS_OK)
        status = round_written(cuda, update, err);
    if (status != STATUS_OK || update->optim->lookahead == OPTIM_LOOKAHEAD_NONE)
        return status;
    status = look_ahead(cuda, update, false, err);
    return status == STATUS_OK ? round_written(cuda, update, err) : status;
}

void cuda_queue_update(struct cuda *cuda, const struct backend_param *params, uint32_t count,
                       const struct optim *optim, const struct scaler *scaler)
{
    struct update update = {params, count, optim, scaler, KERNEL_F32, KERNEL_F16};
    struct err err;

    for (uint32_t i = 0; i < count; i++)
        if (params[i].half != NULL)
            update.half_type = cuda_type(params[i].dtype);
    cuda_keep(cuda, run(cuda, &update, &err), &err);
}

/* -- clipping, the scaler -- */

void cuda_bind_scaler(void *state, struct scaler *scaler)
{
    ((struct cuda *)state)->scaler = scaler;
}

/* Neighbours of one type become one span, so that there are never too many spans. */
static uint32_t merge_spans(const struct backend_span *grads, uint32_t count,
                            struct kernel_span *spans)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        const enum kernel_type type = cuda_type(grads[i].dtype);
        struct kernel_span *last = n > 0 ? &spans[n - 1] : NULL;

        if (last != NULL && last->type == type &&
            (char *)last->values + last->count * graph_dtype_bytes(grads[i].dtype) ==
                (char *)grads[i].memory) {
            last->count += grads[i].count;
            continue;
        }
        assert(n < KERNEL_SPANS_MAX); /* one arena: a span a type */
        spans[n++] = (struct kernel_span){grads[i].memory, grads[i].count, type};
    }
    return n;
}

void cuda_queue_clip(struct cuda *cuda, const struct backend_span *grads, uint32_t count,
                     const struct net_clip *clip, const struct scaler *scaler)
{
    const struct kernel_clip limits = {clip->value, clip->norm};
    struct kernel_span spans[KERNEL_SPANS_MAX];
    uint32_t n = merge_spans(grads, count, spans);
    struct err err;
    int code = cuda->kernels->clip(spans, n, &limits, &scaler->scale, &scaler->found_inf,
                                   cuda->clip_scratch, cuda->stream);

    cuda_keep(cuda, cuda_launched(cuda, NULL, code, "clipping", &err), &err);
}

void cuda_queue_scaler_end(struct cuda *cuda, struct scaler *scaler, bool used_momentum)
{
    struct err err;
    int code =
        cuda->kernels->scaler_step((struct kernel_scaler *)scaler, used_momentum, cuda->stream);

    cuda_keep(cuda, cuda_launched(cuda, NULL, code, "loss scaler", &err), &err);
}

/* -- the parts, deferred and captured -- */

/* Queues the calls in the order in which net_clip and net_update make them. */
static void queue_eagerly(struct cuda *cuda, const struct cuda_optimizer_step *end)
{
    if (end->checks)
        cuda_queue_finite(cuda, end->grads, end->grad_count, end->scaler);
    if (end->clips) {
        cuda_queue_clip(cuda, end->grads, end->grad_count, &end->clip, end->scaler);
        if (end->checks)
            cuda_queue_finite(cuda, end->grads, end->grad_count, end->scaler);
    }
    cuda_queue_update(cuda, end->params, end->param_count, &end->optim, end->scaler);
    cuda_queue_scaler_end(cuda, end->scaler, end->used_momentum);
}

/* Compares everything except the rates. */
static bool same_optim(const struct optim *a, const struct optim *b)
{
    return a->kind == b->kind && a->nesterov == b->nesterov && a->dampening == b->dampening &&
           a->weight_decay == b->weight_decay && a->beta2 == b->beta2 && a->eps == b->eps &&
           a->trust == b->trust && a->lookahead == b->lookahead && a->every == b->every &&
           a->alpha == b->alpha;
}

static bool same_step(const struct cuda_optimizer_step *a, const struct cuda_optimizer_step *b)
{
    return a->grads == b->grads && a->grad_count == b->grad_count && a->checks == b->checks &&
           a->clips == b->clips && a->clip.value == b->clip.value && a->clip.norm == b->clip.norm &&
           a->params == b->params && a->param_count == b->param_count && a->scaler == b->scaler &&
           a->used_momentum == b->used_momentum && same_optim(&a->optim, &b->optim);
}

/* A call that fails in a capture has not run: the step has not failed and may still run eagerly. */
static enum status capture(struct cuda *cuda, const struct cuda_optimizer_step *end,
                           struct err *err)
{
    const struct err before = cuda->failed;
    enum status status;

    assert(cuda->mode == CUDA_EAGER && cuda->optimizer_capture.graph == NULL); /* never nested */
    status = cuda->runtime->capture_begin(cuda->stream, err);
    if (status != STATUS_OK)
        return status;
    cuda->mode = CUDA_CAPTURE; /* so that nothing waits for the stream */
    queue_eagerly(cuda, end);
    cuda->mode = CUDA_EAGER;
    status = cuda->runtime->capture_end(cuda->stream, &cuda->optimizer_capture.graph, err);
    if (before.status == STATUS_OK && cuda->failed.status != STATUS_OK) {
        if (status == STATUS_OK)
            status = cuda_failed(cuda, err);
        cuda->failed = before;
    }
    return status;
}

/* False if there is no capture of such an end and none could be made: then it runs eagerly. */
static bool take_capture(struct cuda *cuda, const struct cuda_optimizer_step *end)
{
    struct err why = {.text = ""};

    if (!cuda->captures || !cuda->optimizer_capture.is_warm ||
        !same_step(&cuda->optimizer_capture.of, end) || !cuda_update_is_settled(cuda, &end->optim))
        return false;
    if (cuda->optimizer_capture.graph != NULL || capture(cuda, end, &why) == STATUS_OK)
        return true;
    cuda->runtime->graph_free(&cuda->optimizer_capture.graph);
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "the optimizer is queued launch by launch, since capturing it failed: %s", why.text);
    cuda->captures = false;
    return false;
}

static void finish(struct cuda *cuda)
{
    const struct cuda_optimizer_step *end = &cuda->optimizer;
    struct err err = {.text = ""};

    if (!take_capture(cuda, end)) {
        cuda->runtime->graph_free(&cuda->optimizer_capture.graph);
        cuda->optimizer_capture.of = *end;
        cuda->optimizer_capture.is_warm = true;
        cuda_queue_rates(cuda, &end->optim, end->scaler);
        queue_eagerly(cuda, end);
        return;
    }
    cuda_queue_rates(cuda, &end->optim, end->scaler);
    cuda_keep(cuda, cuda->runtime->queue_graph(cuda->optimizer_capture.graph, cuda->stream, &err),
              &err);
}

void cuda_optimizer_begin(struct cuda *cuda, bool defers)
{
    assert(!cuda->optimizer.defers ||
           cuda->failed.status != STATUS_OK); /* the last step is complete */
    cuda->optimizer = (struct cuda_optimizer_step){.defers = defers};
}

void cuda_finite(void *state, const struct backend_span *grads, uint32_t count,
                 struct scaler *scaler)
{
    struct cuda *cuda = state;

    if (!cuda->optimizer.defers) {
        cuda_profile_part(cuda, CUDA_PART_FINITE, cuda->stream);
        cuda_queue_finite(cuda, grads, count, scaler);
        cuda_profile_end(cuda);
        return;
    }
    cuda->optimizer.checks = true;
    cuda->optimizer.grads = grads;
    cuda->optimizer.grad_count = count;
    cuda->optimizer.scaler = scaler;
}

void cuda_clip(void *state, const struct backend_span *grads, uint32_t count,
               const struct net_clip *clip, const struct scaler *scaler)
{
    struct cuda *cuda = state;

    if (!cuda->optimizer.defers) {
        cuda_profile_part(cuda, CUDA_PART_CLIP, cuda->stream);
        cuda_queue_clip(cuda, grads, count, clip, scaler);
        cuda_profile_end(cuda);
        return;
    }
    assert(!cuda->optimizer.clips); /* once a step */
    cuda->optimizer.clips = true;
    cuda->optimizer.clip = *clip;
    cuda->optimizer.grads = grads;
    cuda->optimizer.grad_count = count;
}

void cuda_update(void *state, const struct backend_param *params, uint32_t count,
                 const struct optim *optim, const struct scaler *scaler)
{
    struct cuda *cuda = state;

    if (!cuda->optimizer.defers) {
        cuda_profile_part(cuda, CUDA_PART_UPDATE, cuda->stream);
        cuda_queue_rates(cuda, optim, scaler);
        cuda_queue_update(cuda, params, count, optim, scaler);
        cuda_profile_end(cuda);
        return;
    }
    cuda->optimizer.params = params;
    cuda->optimizer.param_count = count;
    cuda->optimizer.optim = *optim;
}

void cuda_scaler_end(void *state, struct scaler *scaler, bool used_momentum)
{
    struct cuda *cuda = state;

    if (!cuda->optimizer.defers) {
        cuda_profile_part(cuda, CUDA_PART_SCALER, cuda->stream);
        cuda_queue_scaler_end(cuda, scaler, used_momentum);
        cuda_profile_end(cuda);
        return;
    }
    cuda->optimizer.scaler = scaler;
    cuda->optimizer.used_momentum = used_momentum;
    finish(cuda);
    cuda->optimizer.defers = false;
}

/* -- outside of a step -- */

/* Call after the host wrote a parameter: rounds it if it has no master, and updates its half
 * copy. */
void cuda_refresh(void *state, const struct backend_param *param)
{
    struct cuda *cuda = state;
    struct err err;
    enum status status = STATUS_OK;
    int code;

    if (!param->has_master && param->dtype != GRAPH_F32)
        status = cuda_round_floats(cuda, param->param, param->dtype, param->count, &err);
    if (status == STATUS_OK && param->half != NULL) {
        code = cuda->kernels->cast(param->half, cuda_type(param->dtype), param->param, KERNEL_F32,
                                   param->count, cuda->stream);
        status = cuda_launched(cuda, NULL, code, "half copy of a parameter", &err);
    }
    cuda_keep(cuda, status, &err);
}
