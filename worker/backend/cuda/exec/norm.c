/* Batch norm, with the addition, the ReLU and the max pool that are fused into it. Training uses
 * plans or our own kernels (norm_choose.c), evaluation uses our own. Synchronised statistics always
 * use our kernels. */
#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cuda/exec/internal.h"

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR };

/* The value before a fused pool, else the layer's own value. */
static void *norm_out(const struct cuda_layer *layer)
{
    return layer->graph->fused_pool ? layer->inside : layer->out.data;
}

static void *norm_out_grad(const struct cuda_layer *layer)
{
    return layer->graph->fused_pool ? layer->inside_grad : layer->out.grad;
}

/* What our own kernels read of the output's gradient: it may be that of the norm that adds this one. */
static const struct cuda_layer *grad_of(const struct cuda_layer *layer)
{
    return layer->given_by != NULL ? layer->given_by : layer;
}

static uint32_t channels(const struct cuda_layer *layer)
{
    return layer->in[0]->channels * layer->in[0]->planes;
}

/* Plans compute the gradients of scale and shift in fp32, our kernels in the arena's type. */
static bool has_fp32_grads(const struct cuda_layer *layer)
{
    return layer->tensors[GAMMA].graph->grad_dtype == GRAPH_F32;
}

static struct kernel_norm norm_shape(const struct cuda *cuda, const struct cuda_layer *layer,
                                     uint32_t images)
{
    const struct cuda_value *in = layer->in[0];
    const struct cuda_tensor *gamma = &layer->tensors[GAMMA];

    (void)cuda;
    return (struct kernel_norm){
        .rows = (size_t)images * in->h * in->w,
        .channels = channels(layer),
        .type = cuda_type(in->dtype),
        .param_type = gamma->half != NULL ? cuda_type(gamma->graph->dtype) : KERNEL_F32,
        .stats_type = cuda_type(layer->tensors[RUNNING_MEAN].graph->dtype),
        .eps = layer->graph->eps,
        .momentum = layer->graph->momentum,
        .relu = layer->graph->fused_relu,
    };
}

static void *own_param(const struct cuda_tensor *tensor)
{
    return tensor->half != NULL ? tensor->half : (void *)tensor->param;
}

/* -- set-up -- */

bool cuda_norm_has_plans(const struct cuda *cuda, const struct cuda_layer *norm, struct err *why)
{
    static const enum plan_kind kinds[] = {PLAN_NORM_FORWARD, PLAN_NORM_BACKWARD};

    if (cuda->norm_sum != NULL) {
        (void)err_set(why, STATUS_UNSUPPORTED, 0, "their statistics are of all ranks");
        return false;
    }
    if (cuda->collective_sms > 0 && cuda_has_plan(cuda, norm, PLAN_NORM_BACKWARD) &&
        !cuda_plan_spares(cuda, norm, PLAN_NORM_BACKWARD)) {
        (void)err_set(why, STATUS_UNSUPPORTED, 0,
                      "no engine leaves multiprocessors to the collectives");
        return false;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!cuda_has_plan(cuda, norm, kinds[i])) {
            (void)cuda_no_plan(cuda, norm, kinds[i], why);
            return false;
        }
    return true;
}

struct cuda_norm_needs cuda_norm_needs(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const struct kernel_norm shape = norm_shape(cuda, norm, cuda->batch_max);

    return (struct cuda_norm_needs){
        .floats = KERNEL_NORM_STATS * (size_t)channels(norm) * sizeof(float),
        .mask = kernel_norm_mask_bytes(&shape), /* at least one bit per element, as plans need it */
        .sums = kernel_norm_sum_count(channels(norm)) * sizeof(double),
        .scratch = kernel_columns_bytes(shape.type, shape.rows, channels(norm), 2),
    };
}

static enum status request_grads(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const uint32_t end = 2 * cuda->graph->layer_count - 1 - layer->index; /* its backward */
    enum status status = STATUS_OK;

    for (uint32_t i = GAMMA; i <= BETA && layer->uses_plans && !has_fp32_grads(layer); i++) {
        layer->tensors[i].made_type = GRAPH_F32;
        if (status == STATUS_OK && !cuda->evaluate_only)
            status = cuda_request(cuda, layer, &layer->tensors[i].made,
                                  layer->tensors[i].size * sizeof(float),
                                  cuda_stats_grads_birth(cuda, layer), end, err);
    }
    return status;
}

/* Our own kernels do norm and pool as one, so the value between them is never in memory. They keep
 * the norm's input of each maximum. */
static enum status request_inside(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const size_t bytes = cuda_value_bytes(cuda, layer->in[0]);
    enum status status = STATUS_OK;

    if (!layer->graph->fused_pool)
        return STATUS_OK;
    if (layer->uses_plans)
        status = cuda_request(cuda, layer, &layer->inside, bytes, layer->index, layer->index, err);
    if (status == STATUS_OK && layer->uses_plans)
        status = cuda_request_in_backward(cuda, layer, &layer->inside_grad, bytes, err);
    if (status == STATUS_OK && !layer->uses_plans && !cuda->evaluate_only)
        status = cuda_request_until_backward(cuda, layer, &layer->kept,
                                             cuda_value_bytes(cuda, &layer->out), err);
    if (status == STATUS_OK)
        status = cuda_request_until_backward(cuda, layer, (void **)&layer->place,
                                             layer->out.image_size * cuda->batch_max, err);
    return status;
}

static enum status request_stats(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct cuda_norm_needs needs = cuda_norm_needs(cuda, layer);
    const bool is_one = layer->graph->fused_pool && !layer->uses_plans;
    enum status status =
        cuda_request_until_backward(cuda, layer, (void **)&layer->stats, needs.floats, err);

    if (status == STATUS_OK && layer->graph->fused_relu && !is_one && !cuda->evaluate_only)
        status = cuda_request(cuda, layer, (void **)&layer->mask, needs.mask, layer->index,
                              cuda_grad_death(cuda, layer), err);
    if (status != STATUS_OK || layer->uses_plans)
        return status;
    status = cuda_request_until_backward(cuda, layer, (void **)&layer->sums, needs.sums, err);
    if (status == STATUS_OK)
        status =
            cuda_request_until_backward(cuda, layer, (void **)&layer->own_sums, needs.sums, err);
    if (status == STATUS_OK)
        status =
            cuda_request_until_backward(cuda, layer, (void **)&layer->coefs, needs.floats, err);
    return status == STATUS_OK
               ? cuda_request_until_backward(cuda, layer, &layer->scratch, needs.scratch, err)
               : status;
}

static enum status norm_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    enum status status = cuda_same_storage(layer, err);

    if (status == STATUS_OK)
        status = request_stats(cuda, layer, err);
    if (status == STATUS_OK)
        status = cuda_stats_open(cuda, layer, err);
    if (status == STATUS_OK)
        status = request_inside(cuda, layer, err);
    if (status == STATUS_OK)
        status = request_grads(cuda, layer, err);
    /* a plan writes the gradients of its inputs even if they are not needed */
    for (uint32_t k = 0; k < 2; k++)
        if (status == STATUS_OK && layer->in[k] != NULL && !layer->in[k]->needs_grad)
            status = cuda_request_in_backward(cuda, layer, &layer->unused[k],
                                              cuda_value_bytes(cuda, layer->in[k]), err);
    return status;
}

/* -- forward -- */

static enum status synchronise(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const size_t count = kernel_norm_sum_count(channels(layer));
    struct err cause = {.text = ""};
    double *host;
    enum status status;

    if (cuda->norm_sum == NULL || !cuda->training)
        return STATUS_OK;
    host = calloc(count, sizeof *host);
    if (host == NULL)
        return cuda_out_of_memory(layer, err);
    status = backend_cuda.memory_read(cuda, layer->sums, host, count * sizeof *host, &cause);
    if (status == STATUS_OK)
        status = cuda->norm_sum(cuda->norm_sum_user, host, count, &cause);
    if (status == STATUS_OK)
        status = backend_cuda.memory_write(cuda, layer->sums, host, count * sizeof *host, &cause);
    free(host);
    return cuda_named(layer, status, &cause, err);
}

/* Computes the statistics and stores them in layer->stats. */
static enum status own_stats(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_norm norm = norm_shape(cuda, layer, cuda->rows);
    const void *gamma = own_param(&layer->tensors[GAMMA]);
    const void *beta = own_param(&layer->tensors[BETA]);
    float *mean = layer->tensors[RUNNING_MEAN].param, *var = layer->tensors[RUNNING_VAR].param;
    enum status status;
    int code;

    if (!cuda->training) {
        code =
            cuda->kernels->norm_running(&norm, gamma, beta, mean, var, layer->stats, cuda->stream);
        return cuda_launched(cuda, layer, code, "running statistics", err);
    }
    if (cuda->norm_sum == NULL) {
        code = cuda->kernels->norm_statistics(&norm, layer->in[0]->data, gamma, beta, mean, var,
                                              layer->stats, layer->sums, layer->scratch,
                                              cuda->counters, cuda->stream);
        return cuda_launched(cuda, layer, code, "statistics", err);
    }
    code = cuda->kernels->norm_sums(&norm, layer->in[0]->data, layer->sums, layer->scratch,
                                    cuda->counters, cuda->stream);
    status = cuda_launched(cuda, layer, code, "statistics", err);
    if (status == STATUS_OK)
        status = synchronise(cuda, layer, err);
    if (status != STATUS_OK)
        return status;
    code = cuda->kernels->norm_finish(&norm, layer->sums, gamma, beta, mean, var, layer->stats,
                                      cuda->stream);
    return cuda_launched(cuda, layer, code, "statistics", err);
}

static enum status own_apply(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_norm norm = norm_shape(cuda, layer, cuda->rows);
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    int code;

    if (layer->graph->fused_pool) {
        code = cuda->kernels->norm_pool(&norm, &pool, layer->in[0]->data, layer->stats,
                                        layer->out.data, cuda->training ? layer->place : NULL,
                                        cuda->training ? layer->kept : NULL, cuda->stream);
        return cuda_launched(cuda, layer, code, "batch norm and max pool", err);
    }
    code = cuda->kernels->norm_apply(&norm, layer->in[0]->data, layer->stats,
                                     layer->graph->fused_add ? layer->in[1]->data : NULL,
                                     layer->out.data, cuda->training ? layer->mask : NULL,
                                     cuda->stream);
    return cuda_launched(cuda, layer, code, "batch norm", err);
}

static enum status own_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const enum status status = own_stats(cuda, layer, err);

    return status == STATUS_OK ? own_apply(cuda, layer, err) : status;
}

static enum status plan_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const size_t c = channels(layer);
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_X] = layer->in[0]->data,
        [PLAN_PORT_SCALE] = layer->tensors[GAMMA].param,
        [PLAN_PORT_SHIFT] = layer->tensors[BETA].param,
        [PLAN_PORT_ADD] = layer->graph->fused_add ? layer->in[1]->data : NULL,
        [PLAN_PORT_Y] = norm_out(layer),
        [PLAN_PORT_MEAN] = layer->stats + KERNEL_NORM_MEAN * c,
        [PLAN_PORT_INV_STD] = layer->stats + KERNEL_NORM_INV_STD * c,
    };
    enum status status;

    pointers[PLAN_PORT_RUNNING_MEAN] = layer->tensors[RUNNING_MEAN].param;
    pointers[PLAN_PORT_RUNNING_VAR] = layer->tensors[RUNNING_VAR].param;
    pointers[PLAN_PORT_MASK] = layer->mask;
    if (cuda_stats_form(cuda, layer) != CUDA_STATS_NONE)
        status = cuda_stats_norm_forward(cuda, layer, pointers, err);
    else
        status = cuda_run(cuda, layer, PLAN_NORM_FORWARD, pointers, err);
    for (uint32_t i = RUNNING_MEAN; i <= RUNNING_VAR && status == STATUS_OK; i++)
        status = cuda_round_floats(cuda, layer->tensors[i].param, layer->tensors[i].graph->dtype,
                                   layer->tensors[i].size, err);
    return status;
}

/* The pool after a norm that ran as a plan. */
static enum status pool_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    int code =
        cuda->kernels->max_pool(&pool, layer->inside, layer->out.data, layer->place, cuda->stream);

    return cuda_launched(cuda, layer, code, "max pool", err);
}

static enum status pool_backward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    int code = cuda->kernels->max_pool_backward(&pool, layer->out.grad, layer->place,
                                                layer->inside_grad, cuda->stream);

    return cuda_launched(cuda, layer, code, "max pool backward", err);
}

enum status cuda_norm_pool_pass(struct cuda *cuda, struct cuda_layer *norm, struct err *err)
{
    const enum status status = pool_forward(cuda, norm, err);

    return status == STATUS_OK ? pool_backward(cuda, norm, err) : status;
}

enum status cuda_norm_plan_forward(struct cuda *cuda, struct cuda_layer *norm, struct err *err)
{
    const enum status status = plan_forward(cuda, norm, err);

    return status == STATUS_OK && norm->graph->fused_pool ? pool_forward(cuda, norm, err) : status;
}

static enum status norm_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    return layer->uses_plans && cuda->training ? cuda_norm_plan_forward(cuda, layer, err)
                                               : own_forward(cuda, layer, err);
}

/* -- backward -- */

/* NULL: nobody adds a value, or its gradient is not stored. */
static void *skip_grad(const struct cuda *cuda, const struct cuda_layer *layer)
{
    if (!layer->graph->fused_add ||
        (layer->masks_for != NULL && cuda_residual_by_plan(cuda, layer->masks_for)))
        return NULL;
    return layer->dx[1] != NULL ? layer->dx[1] : layer->unused[1];
}

/* Without a ReLU the gradient of the added value is dy itself, and no plan writes it. */
static enum status copy_skip(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const enum kernel_type type = cuda_type(layer->in[0]->dtype);
    int code;

    if (!layer->graph->fused_add || layer->graph->fused_relu || layer->dx[1] == NULL)
        return STATUS_OK;
    code = cuda->kernels->cast(layer->dx[1], type, norm_out_grad(layer), type,
                               cuda->rows * layer->in[0]->image_size, cuda->stream);
    return cuda_launched(cuda, layer, code, "addition backward", err);
}

static int own_gradient_sums(struct cuda *cuda, struct cuda_layer *layer,
                             const struct kernel_norm *norm)
{
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);

    if (layer->graph->fused_pool)
        return cuda->kernels->norm_pool_backward_sums(norm, &pool, layer->kept, layer->out.grad,
                                                      layer->place, layer->stats, layer->sums,
                                                      layer->scratch, cuda->counters, cuda->stream);
    return cuda->kernels->norm_backward_sums(norm, layer->in[0]->data, grad_of(layer)->out.grad,
                                             grad_of(layer)->mask, layer->stats, layer->sums,
                                             layer->scratch, cuda->counters, cuda->stream);
}

/* Sums, and what follows from them, in one launch. */
static int own_gradients_as_one(struct cuda *cuda, struct cuda_layer *layer,
                                const struct kernel_norm *norm)
{
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    void *dgamma = layer->tensors[GAMMA].grad, *dbeta = layer->tensors[BETA].grad;

    if (layer->graph->fused_pool)
        return cuda->kernels->norm_pool_gradients(
            norm, &pool, layer->kept, layer->out.grad, layer->place, layer->stats, dgamma, dbeta,
            layer->coefs, layer->sums, layer->scratch, cuda->counters, cuda->stream);
    return cuda->kernels->norm_gradients(
        norm, layer->in[0]->data, grad_of(layer)->out.grad, grad_of(layer)->mask, layer->stats,
        dgamma, dbeta, layer->coefs, layer->sums, layer->scratch, cuda->counters, cuda->stream);
}

/* Sums, and what follows from them: the gradients of scale and shift, and layer->coefs. */
static enum status own_gradients(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_norm norm = norm_shape(cuda, layer, cuda->rows);
    const size_t bytes = kernel_norm_sum_count(channels(layer)) * sizeof(double);
    enum status status;
    int code;

    if (cuda->norm_sum == NULL)
        return cuda_launched(cuda, layer, own_gradients_as_one(cuda, layer, &norm), "gradient sums",
                             err);
    code = own_gradient_sums(cuda, layer, &norm);
    status = cuda_launched(cuda, layer, code, "gradient sums", err);
    if (status == STATUS_OK)
        status = cuda->runtime->queue_copy(layer->own_sums, layer->sums, bytes, cuda->stream, err);
    if (status == STATUS_OK)
        status = synchronise(cuda, layer, err);
    if (status != STATUS_OK)
        return status;
    code = cuda->kernels->norm_backward_finish(
        &norm, layer->own_sums, layer->sums, layer->stats, layer->tensors[GAMMA].grad,
        layer->tensors[BETA].grad, layer->coefs, cuda->stream);
    return cuda_launched(cuda, layer, code, "gradient sums", err);
}

static enum status own_gradient_apply(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const struct kernel_norm norm = norm_shape(cuda, layer, cuda->rows);
    const struct kernel_pool pool = cuda_pool_shape(cuda, layer);
    int code;

    if (layer->dx[0] == NULL)
        return STATUS_OK;
    if (layer->graph->fused_pool)
        code = cuda->kernels->norm_pool_backward_apply(&norm, &pool, layer->in[0]->data,
                                                       layer->out.grad, layer->place, layer->stats,
                                                       layer->coefs, layer->dx[0], cuda->stream);
    else
        code = cuda->kernels->norm_backward_apply(
            &norm, layer->in[0]->data, grad_of(layer)->out.grad, grad_of(layer)->mask, layer->stats,
            layer->coefs, layer->dx[0], skip_grad(cuda, layer), cuda->stream);
    return cuda_launched(cuda, layer, code, "batch norm backward", err);
}

static enum status own_backward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    const enum status status = own_gradients(cuda, layer, err);

    return status == STATUS_OK ? own_gradient_apply(cuda, layer, err) : status;
}

enum status cuda_norm_own_part(struct cuda *cuda, struct cuda_layer *norm, enum cuda_norm_part part,
                               struct err *err)
{
    switch (part) {
    case CUDA_NORM_SUMS:
        return own_stats(cuda, norm, err);
    case CUDA_NORM_APPLY:
        return own_apply(cuda, norm, err);
    case CUDA_NORM_BACKWARD_SUMS:
        return own_gradients(cuda, norm, err);
    case CUDA_NORM_BACKWARD_APPLY:
        return own_gradient_apply(cuda, norm, err);
    case CUDA_NORM_PARTS:
        break;
    }
    assert(false);
    return STATUS_BAD_INPUT;
}

enum status cuda_norm_own_pass(struct cuda *cuda, struct cuda_layer *norm, struct err *err)
{
    const enum status status = own_forward(cuda, norm, err);

    return status == STATUS_OK ? own_backward(cuda, norm, err) : status;
}

static enum status keep_grad(struct cuda *cuda, struct cuda_layer *layer, uint32_t index,
                             struct err *err)
{
    const struct cuda_tensor *tensor = &layer->tensors[index];
    int code;

    if (tensor->made == NULL)
        return STATUS_OK;
    code = cuda->kernels->cast(tensor->grad, cuda_type(tensor->graph->grad_dtype), tensor->made,
                               KERNEL_F32, tensor->size, cuda->stream);
    return cuda_launched(cuda, layer, code, "cast of a gradient", err);
}

static enum status plan_backward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    struct cuda_tensor *gamma = &layer->tensors[GAMMA], *beta = &layer->tensors[BETA];
    const size_t c = channels(layer);
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_DY] = norm_out_grad(layer),
        [PLAN_PORT_MASK] = layer->mask,
        [PLAN_PORT_X] = layer->in[0]->data,
        [PLAN_PORT_SCALE] = gamma->param,
        [PLAN_PORT_MEAN] = layer->stats + KERNEL_NORM_MEAN * c,
        [PLAN_PORT_INV_STD] = layer->stats + KERNEL_NORM_INV_STD * c,
        [PLAN_PORT_DX] = layer->dx[0] != NULL ? layer->dx[0] : layer->unused[0],
        [PLAN_PORT_DSCALE] = gamma->made != NULL ? gamma->made : gamma->grad,
        [PLAN_PORT_DSHIFT] = beta->made != NULL ? beta->made : beta->grad,
        [PLAN_PORT_DADD] = layer->graph->fused_relu ? skip_grad(cuda, layer) : NULL,
    };
    enum status status = cuda_stats_form(cuda, layer) == CUDA_STATS_PROLOGUE
                             ? cuda_stats_norm_dx(cuda, layer, err)
                             : cuda_run(cuda, layer, PLAN_NORM_BACKWARD, pointers, err);

    if (status == STATUS_OK)
        status = copy_skip(cuda, layer, err);
    if (status == STATUS_OK)
        status = keep_grad(cuda, layer, GAMMA, err);
    return status == STATUS_OK ? keep_grad(cuda, layer, BETA, err) : status;
}

enum status cuda_norm_plan_backward(struct cuda *cuda, struct cuda_layer *norm, struct err *err)
{
    enum status status = STATUS_OK;

    if (norm->graph->fused_pool)
        status = pool_backward(cuda, norm, err);
    return status == STATUS_OK ? plan_backward(cuda, norm, err) : status;
}

static enum status norm_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                 struct err *err)
{
    (void)grad_scale;
    return layer->uses_plans ? cuda_norm_plan_backward(cuda, layer, err)
                             : own_backward(cuda, layer, err);
}

const struct cuda_op cuda_op_norm = {norm_open, norm_forward, norm_backward};
