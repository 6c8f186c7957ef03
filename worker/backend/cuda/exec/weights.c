/* Layers with weights (convolution and linear), by plans. A plan writes weight gradients in the
 * type of the values; if the gradient arena has another type, a cast copies them into it. */
#include <assert.h>
#include <stdio.h>

#include "worker/backend/cuda/exec/internal.h"

enum { WEIGHT, BIAS };

/* The weights with which the layer computes. */
static void *stored(const struct cuda_tensor *tensor)
{
    return tensor->half != NULL ? tensor->half : tensor->param;
}

/* Requests a buffer for the gradient that a plan writes. If the arena has the plan's type, no
 * buffer is needed: the plan writes into the arena. */
static enum status request_made(struct cuda *cuda, struct cuda_layer *layer,
                                struct cuda_tensor *tensor, struct err *err)
{
    tensor->made_type = layer->out.dtype;
    if (tensor->graph->grad_dtype == tensor->made_type)
        return STATUS_OK;
    return cuda_request_in_backward(cuda, layer, &tensor->made,
                                    tensor->size * graph_dtype_bytes(tensor->made_type), err);
}

static enum status keep_made(struct cuda *cuda, struct cuda_layer *layer,
                             const struct cuda_tensor *tensor, struct err *err)
{
    int code;

    assert(tensor != NULL);
    if (tensor->made == NULL)
        return STATUS_OK;
    code = cuda->kernels->cast(tensor->grad, cuda_type(tensor->graph->grad_dtype), tensor->made,
                               cuda_type(tensor->made_type), tensor->size, cuda->stream);
    return cuda_launched(cuda, layer, code, "cast of a gradient", err);
}

static void *made(const struct cuda_tensor *tensor)
{
    assert(tensor != NULL);
    return tensor->made != NULL ? tensor->made : tensor->grad;
}

static enum status forward(struct cuda *cuda, struct cuda_layer *layer, enum plan_kind kind,
                           struct err *err)
{
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_X] = layer->in[0]->data,
        [PLAN_PORT_W] = stored(&layer->tensors[WEIGHT]),
        [PLAN_PORT_BIAS] = layer->graph->has_bias ? stored(&layer->tensors[BIAS]) : NULL,
        [PLAN_PORT_Y] = layer->out.data,
    };

    cuda_stats_forward(cuda, layer, &kind, pointers);
    return cuda_run(cuda, layer, kind, pointers, err);
}

static enum status data_gradient(struct cuda *cuda, struct cuda_layer *layer, enum plan_kind kind,
                                 struct err *err)
{
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_DY] = layer->out.grad,
        [PLAN_PORT_W] = stored(&layer->tensors[WEIGHT]),
        [PLAN_PORT_DX] = layer->dx[0],
    };

    if (layer->dx[0] == NULL)
        return STATUS_OK;
    cuda_stats_dgrad(cuda, layer, &kind, pointers);
    if (kind == PLAN_CONV_DGRAD && cuda_residual_by_plan(cuda, layer)) {
        kind = PLAN_CONV_DGRAD_MASKED;
        pointers[PLAN_PORT_DADD] = layer->masked_by->out.grad;
        pointers[PLAN_PORT_MASK] = layer->masked_by->mask;
        pointers[PLAN_PORT_DX] = layer->in[0]->grad;
    } else if (kind == PLAN_CONV_DGRAD && cuda_adds_by_plan(cuda, layer)) {
        kind = PLAN_CONV_DGRAD_ADD;
        pointers[PLAN_PORT_DX] = layer->in[0]->grad;
    }
    return cuda_run(cuda, layer, kind, pointers, err);
}

static enum status weight_gradient(struct cuda *cuda, struct cuda_layer *layer, enum plan_kind kind,
                                   void *bias_grad, struct err *err)
{
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_DY] = layer->out.grad,
        [PLAN_PORT_X] = layer->in[0]->data,
        [PLAN_PORT_DW] = made(&layer->tensors[WEIGHT]),
        [PLAN_PORT_DBIAS] = bias_grad,
    };
    enum status status;

    cuda_stats_wgrad(cuda, layer, &kind, pointers);
    status = cuda_run(cuda, layer, kind, pointers, err);
    return status == STATUS_OK ? keep_made(cuda, layer, &layer->tensors[WEIGHT], err) : status;
}

static enum status check_plans(struct cuda *cuda, struct cuda_layer *layer,
                               const enum plan_kind kinds[3], struct err *err)
{
    for (uint32_t i = 0; i < (cuda->evaluate_only ? 1U : 3U); i++) {
        if ((i == 2 && !layer->in[0]->needs_grad) || cuda_has_plan(cuda, layer, kinds[i]))
            continue;
        return cuda_no_plan(cuda, layer, kinds[i], err);
    }
    return STATUS_OK;
}

/* -- convolution -- */

static size_t output_rows(const struct cuda *cuda, const struct cuda_layer *layer)
{
    return (size_t)cuda->rows * layer->out.h * layer->out.w;
}

static enum status request_columns(struct cuda *cuda, struct cuda_layer *layer, size_t rows,
                                   struct err *err)
{
    return cuda_request_in_backward(
        cuda, layer, &layer->scratch,
        kernel_columns_bytes(cuda_type(layer->out.dtype), rows, layer->out.channels, 1), err);
}

/* The gradient of the bias: the sum of the output's gradient over its rows. */
static enum status bias_columns(struct cuda *cuda, struct cuda_layer *layer, size_t rows,
                                struct err *err)
{
    const struct cuda_tensor *bias = &layer->tensors[BIAS];
    int code = cuda->kernels->columns(
        layer->out.grad, cuda_type(layer->out.dtype), rows, layer->out.channels, bias->grad,
        cuda_type(bias->graph->grad_dtype), layer->scratch, cuda->counters, cuda->stream);

    return cuda_launched(cuda, layer, code, "gradient of the bias", err);
}

static enum status conv_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    static const enum plan_kind kinds[] = {PLAN_CONV_FORWARD, PLAN_CONV_WGRAD, PLAN_CONV_DGRAD};
    enum status status = check_plans(cuda, layer, kinds, err);
    size_t rows = (size_t)cuda->batch_max * layer->out.h * layer->out.w;

    if (status == STATUS_OK)
        status = request_made(cuda, layer, &layer->tensors[WEIGHT], err);
    if (status == STATUS_OK && layer->graph->has_bias)
        status = request_columns(cuda, layer, rows, err);
    return status;
}

static enum status conv_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    return forward(cuda, layer, PLAN_CONV_FORWARD, err);
}

static enum status conv_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                 struct err *err)
{
    enum status status = weight_gradient(cuda, layer, PLAN_CONV_WGRAD, NULL, err);

    (void)grad_scale;
    if (status == STATUS_OK && layer->graph->has_bias)
        status = bias_columns(cuda, layer, output_rows(cuda, layer), err);
    return status == STATUS_OK ? data_gradient(cuda, layer, PLAN_CONV_DGRAD, err) : status;
}

/* -- the addition that a data gradient's own plan may do -- */

static enum status add_once(struct cuda *cuda, void *user, struct err *err)
{
    const struct cuda_value *values = user;
    const size_t count = cuda->rows * values->image_size;
    int code = cuda->kernels->add(values->data, values->data, values->grad,
                                  cuda_type(values->dtype), false, count, cuda->stream);

    return cuda_launched(cuda, NULL, code, "sum of gradients", err);
}

/* Microseconds of the addition; 0: not known. */
static float time_addition(struct cuda *cuda, void *user)
{
    const struct cuda_value *value = user;
    const size_t bytes = cuda_value_bytes(cuda, value);
    struct cuda_value values = *value;
    void *memory = NULL;
    struct err ignored;
    float us;

    if (cuda_measure_memory(cuda, value->dtype, 2 * bytes, &memory, &ignored) != STATUS_OK)
        return 0.0F;
    values.data = memory;
    values.grad = (char *)memory + bytes;
    us = cuda_measure_us(cuda, add_once, &values);
    cuda->runtime->memory_free(&memory);
    return us;
}

static float time_addition_once(struct cuda *cuda, struct cuda_value *value)
{
    char name[96];

    (void)snprintf(name, sizeof name, "addition %s n%u of %zu", plan_type_name(value->dtype),
                   cuda->rows, value->image_size);
    return cuda_time_once(cuda, name, time_addition, value);
}

void cuda_additions_time(struct cuda *cuda)
{
    if (cuda->deterministic || cuda->evaluate_only || cuda->options.is_synchronous)
        return;
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        struct cuda_layer *layer = &cuda->layers[i];

        if (layer->graph->op == GRAPH_CONV2D && layer->adds[0] &&
            cuda_plan_time_us(cuda, layer, PLAN_CONV_DGRAD_ADD) > 0.0F &&
            cuda_plan_time_us(cuda, layer, PLAN_CONV_DGRAD) > 0.0F)
            layer->add_us = time_addition_once(cuda, layer->in[0]);
    }
}

const struct cuda_op cuda_op_conv = {conv_open, conv_forward, conv_backward};

/* -- linear -- */

static enum status linear_open(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    static const enum plan_kind kinds[] = {PLAN_LINEAR_FORWARD, PLAN_LINEAR_WGRAD,
                                           PLAN_LINEAR_DGRAD};
    enum status status = check_plans(cuda, layer, kinds, err);

    for (uint32_t i = 0; status == STATUS_OK && i < layer->graph->tensor_count; i++)
        status = request_made(cuda, layer, &layer->tensors[i], err);
    if (status == STATUS_OK && layer->graph->has_bias)
        status = request_columns(cuda, layer, cuda->batch_max, err);
    return status;
}

static enum status linear_forward(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    return forward(cuda, layer, PLAN_LINEAR_FORWARD, err);
}

static enum status linear_backward(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                                   struct err *err)
{
    struct cuda_tensor *bias = layer->graph->has_bias ? &layer->tensors[BIAS] : NULL;
    enum status status =
        weight_gradient(cuda, layer, PLAN_LINEAR_WGRAD, bias != NULL ? made(bias) : NULL, err);

    (void)grad_scale;
    if (status == STATUS_OK && bias != NULL)
        status = cuda_lacks_bias(cuda, layer, PLAN_LINEAR_WGRAD)
                     ? bias_columns(cuda, layer, cuda->rows, err)
                     : keep_made(cuda, layer, bias, err);
    return status == STATUS_OK ? data_gradient(cuda, layer, PLAN_LINEAR_DGRAD, err) : status;
}

const struct cuda_op cuda_op_linear = {linear_open, linear_forward, linear_backward};
