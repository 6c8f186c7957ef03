/* The optimizer step: a few launches over all tensors, one for each type of gradients. Pointers and
 * counts go into tables that the launches carry, so nothing waits for the device; rates are read
 * from there. */
#include <assert.h>

#include "worker/backend/cuda/cuda.h"
#include "worker/optim.h"

/* What one call of a kernel works on. */
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
                                                      .half = param->low,
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
                                            .half = param->low,
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

/* The workspace grows before the first launch that needs it, and stays. */
static enum status lars_room(struct cuda *cuda, const struct kernel_lars_tensor *tensors,
                             uint32_t n, struct err *err)
{
    const size_t bytes = cuda->kernels->lars_workspace(tensors, n);

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
                                                       .half = param->low,
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
                                                      .half = update->params[i].low,
                                                      .count = update->params[i].count};
    code = is_before ? cuda->kernels->lookahead_before(tensors, update->count, &lookahead, found,
                                                       applied, cuda->stream)
                     : cuda->kernels->lookahead(tensors, update->count, &lookahead, found, applied,
                                                cuda->stream);
    return cuda_launched(cuda, NULL, code, "Lookahead", err);
}

/* -- pure 16-bit training: what was written is rounded -- */

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

/* A momentum buffer of zeros is what the first step wants, unless it dampens. Then whether there
 * was one is known to the device alone, as that may have been skipped. */
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
        if (params[i].low != NULL)
            update.half_type = cuda_type(params[i].dtype);
    cuda_keep(cuda, run(cuda, &update, &err), &err);
}

/* Somebody wrote the parameter: its low copy follows. */
void cuda_refresh(void *state, const struct backend_param *param)
{
    struct cuda *cuda = state;
    struct err err;
    enum status status = STATUS_OK;
    int code;

    if (!param->has_master && param->dtype != GRAPH_F32)
        status = cuda_round_floats(cuda, param->param, param->dtype, param->count, &err);
    if (status == STATUS_OK && param->low != NULL) {
        code = cuda->kernels->cast(param->low, cuda_type(param->dtype), param->param, KERNEL_F32,
                                   param->count, cuda->stream);
        status = cuda_launched(cuda, NULL, code, "low copy of a parameter", &err);
    }
    cuda_keep(cuda, status, &err);
}
