/* The operation graph of each plan kind, in the form that cuDNN 9.19 accepts (found by trying):
 *   an intermediate tensor is f32, unless a convolution or a batch norm's backward reads it: these
 *   take the values' own type
 *   filters are k, c, r, s with the strides of [k][r][s][c] */
#include "worker/backend/cuda/plans/cudnn_layers.h"

#include <assert.h>

typedef cudnnBackendDescriptor_t descriptor;

static struct cudnn_dims in_dims(const struct plan_request *request)
{
    return (struct cudnn_dims){request->n, request->c, request->h, request->w};
}

static struct cudnn_dims out_dims(const struct plan_request *request)
{
    return (struct cudnn_dims){request->n, request->k, request->out_h, request->out_w};
}

static struct cudnn_dims weight_dims(const struct plan_request *request)
{
    return (struct cudnn_dims){request->k, request->c, request->window.kernel,
                               request->window.kernel};
}

/* A tensor of [c] in f32, bound to `port`. */
static descriptor per_channel(struct cudnn_graph *graph, enum plan_port port, uint32_t c)
{
    return cudnn_tensor(graph, port, cudnn_channels(c), CUDNN_DATA_FLOAT);
}

/* y = relu(x * factor + term) with factor and term of [c], both bound and of the values' type. */
static void scale_shift_relu(struct cudnn_graph *graph, const struct plan_request *request,
                             descriptor x, descriptor y)
{
    const struct cudnn_dims dims = in_dims(request);
    const cudnnDataType_t type = cudnn_type(request->type);
    descriptor scaled = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);
    descriptor shifted = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);

    cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, x,
                    cudnn_tensor(graph, PLAN_PORT_EQ_SCALE, cudnn_channels(request->c), type),
                    scaled);
    cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, scaled,
                    cudnn_tensor(graph, PLAN_PORT_EQ_SHIFT, cudnn_channels(request->c), type),
                    shifted);
    cudnn_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, shifted, NULL, y);
}

static void conv_forward(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_dims out = out_dims(request);
    descriptor x = cudnn_tensor(graph, PLAN_PORT_X, in_dims(request), type);
    descriptor w = cudnn_tensor(graph, PLAN_PORT_W, weight_dims(request), type);
    descriptor y = cudnn_tensor(graph, PLAN_PORT_Y, out, type);
    descriptor product = request->has_bias ? cudnn_tensor_virtual(graph, out, CUDNN_DATA_FLOAT) : y;

    cudnn_conv(graph, CUDNN_CONV_FORWARD, &request->window, x, w, product);
    if (request->has_bias)
        cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, product,
                        cudnn_tensor(graph, PLAN_PORT_BIAS, cudnn_channels(request->k), type), y);
}

static void conv_gradient(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const bool is_dgrad = request->kind == PLAN_CONV_DGRAD;
    descriptor y = cudnn_tensor(graph, PLAN_PORT_DY, out_dims(request), type);
    descriptor x =
        cudnn_tensor(graph, is_dgrad ? PLAN_PORT_DX : PLAN_PORT_X, in_dims(request), type);
    descriptor w =
        cudnn_tensor(graph, is_dgrad ? PLAN_PORT_W : PLAN_PORT_DW, weight_dims(request), type);

    cudnn_conv(graph, is_dgrad ? CUDNN_CONV_DGRAD : CUDNN_CONV_WGRAD, &request->window, x, w, y);
}

static void conv_dgrad_add(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    descriptor y = cudnn_tensor(graph, PLAN_PORT_DY, out_dims(request), type);
    descriptor x = cudnn_tensor(graph, PLAN_PORT_DX, in_dims(request), type);
    descriptor w = cudnn_tensor(graph, PLAN_PORT_W, weight_dims(request), type);

    cudnn_conv_add(graph, CUDNN_CONV_DGRAD, &request->window, x, w, y);
}

/* No engine that is made beforehand takes this: it is compiled. */
static void conv_dgrad_masked(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_dims dims = in_dims(request);
    descriptor y = cudnn_tensor(graph, PLAN_PORT_DY, out_dims(request), type);
    descriptor w = cudnn_tensor(graph, PLAN_PORT_W, weight_dims(request), type);
    descriptor gradient = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);
    descriptor masked = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);

    cudnn_conv(graph, CUDNN_CONV_DGRAD, &request->window, gradient, w, y);
    cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, cudnn_tensor(graph, PLAN_PORT_DADD, dims, type),
                    cudnn_tensor(graph, PLAN_PORT_MASK, dims, CUDNN_DATA_BOOLEAN), masked);
    cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, gradient, masked,
                    cudnn_tensor(graph, PLAN_PORT_DX, dims, type));
}

/* The batch norm's value, before the operations of norm_followers: [+ ADD], [ReLU], [MASK]. The
 * last of these writes Y; then the norm's value itself is an intermediate. */
static descriptor norm_value(struct cudnn_graph *graph, const struct plan_request *request)
{
    return request->has_add || request->has_relu
               ? cudnn_tensor_virtual(graph, in_dims(request), CUDNN_DATA_FLOAT)
               : cudnn_tensor(graph, PLAN_PORT_Y, in_dims(request), cudnn_type(request->type));
}

static void norm_followers(struct cudnn_graph *graph, const struct plan_request *request,
                           descriptor value, bool has_mask)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_dims dims = in_dims(request);

    if (request->has_add) {
        descriptor sum = request->has_relu ? cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT)
                                           : cudnn_tensor(graph, PLAN_PORT_Y, dims, type);

        cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, value,
                        cudnn_tensor(graph, PLAN_PORT_ADD, dims, type), sum);
        value = sum;
    }
    if (!request->has_relu)
        return;
    descriptor y = cudnn_tensor(graph, PLAN_PORT_Y, dims, type);

    cudnn_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, value, NULL, y);
    if (has_mask)
        cudnn_pointwise(graph, CUDNN_POINTWISE_CMP_GT, y,
                        cudnn_number_f32(graph, CUDNN_NUMBER_ZERO, 0.0F),
                        cudnn_tensor(graph, PLAN_PORT_MASK, dims, CUDNN_DATA_BOOLEAN));
}

static void norm_forward(struct cudnn_graph *graph, const struct plan_request *request)
{
    const uint32_t c = request->c;
    const struct cudnn_slot slots[] = {
        {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
         cudnn_tensor(graph, PLAN_PORT_X, in_dims(request), cudnn_type(request->type))},
        {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, per_channel(graph, PLAN_PORT_SCALE, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, per_channel(graph, PLAN_PORT_SHIFT, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
         cudnn_number_f32(graph, CUDNN_NUMBER_EPS, request->eps)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
         cudnn_number_f32(graph, CUDNN_NUMBER_MOMENTUM, request->momentum)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_MEAN, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_VAR, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_MEAN, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_VAR, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, per_channel(graph, PLAN_PORT_MEAN, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, per_channel(graph, PLAN_PORT_INV_STD, c)},
        {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, norm_value(graph, request)},
    };
    const uint32_t count = sizeof slots / sizeof slots[0];

    cudnn_norm_forward(graph, CUDNN_NORM_FWD_TRAINING, slots, count);
    norm_followers(graph, request, slots[count - 1].tensor, true);
}

/* NORM_EVALUATE and NORM_APPLY. Built from single operations: cuDNN's own inference batch norm has
 * no engine for them. */
static void norm_evaluate(struct cudnn_graph *graph, const struct plan_request *request)
{
    static const struct {
        cudnnPointwiseMode_t mode;
        enum plan_port port;
    } steps[] = {{CUDNN_POINTWISE_SUB, PLAN_PORT_MEAN},
                 {CUDNN_POINTWISE_MUL, PLAN_PORT_INV_STD},
                 {CUDNN_POINTWISE_MUL, PLAN_PORT_SCALE},
                 {CUDNN_POINTWISE_ADD, PLAN_PORT_SHIFT}};
    const uint32_t count = sizeof steps / sizeof steps[0];
    descriptor value =
        cudnn_tensor(graph, PLAN_PORT_X, in_dims(request), cudnn_type(request->type));

    for (uint32_t i = 0; i < count; i++) {
        descriptor next = i + 1 < count
                              ? cudnn_tensor_virtual(graph, in_dims(request), CUDNN_DATA_FLOAT)
                              : norm_value(graph, request);

        cudnn_pointwise(graph, steps[i].mode, value, per_channel(graph, steps[i].port, request->c),
                        next);
        value = next;
    }
    norm_followers(graph, request, value, request->kind == PLAN_NORM_APPLY);
}

/* The gradient of the norm's output: DY, or DY where MASK is set, which is also the value of
 * DADD. */
static descriptor norm_gradient(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_dims dims = in_dims(request);
    descriptor dy = cudnn_tensor(graph, PLAN_PORT_DY, dims, type), masked;

    if (!request->has_relu)
        return dy;
    masked = request->has_add ? cudnn_tensor(graph, PLAN_PORT_DADD, dims, type)
                              : cudnn_tensor_virtual(graph, dims, type);
    cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, dy,
                    cudnn_tensor(graph, PLAN_PORT_MASK, dims, CUDNN_DATA_BOOLEAN), masked);
    return masked;
}

static void norm_backward(struct cudnn_graph *graph, const struct plan_request *request)
{
    const uint32_t c = request->c;
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_slot slots[] = {
        {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, norm_gradient(graph, request)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
         cudnn_tensor(graph, PLAN_PORT_X, in_dims(request), type)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, per_channel(graph, PLAN_PORT_MEAN, c)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, per_channel(graph, PLAN_PORT_INV_STD, c)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, per_channel(graph, PLAN_PORT_SCALE, c)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, per_channel(graph, PLAN_PORT_DSCALE, c)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, per_channel(graph, PLAN_PORT_DSHIFT, c)},
        {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC,
         cudnn_tensor(graph, PLAN_PORT_DX, in_dims(request), type)},
    };

    cudnn_norm_backward(graph, slots, sizeof slots / sizeof slots[0]);
}

/* X, or the output of batch norm and ReLU on X if the convolution applies them to its input. */
static descriptor conv_input(struct cudnn_graph *graph, const struct plan_request *request,
                             bool has_prologue)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    descriptor x = cudnn_tensor(graph, PLAN_PORT_X, in_dims(request), type), y;

    if (!has_prologue)
        return x;
    y = cudnn_tensor_virtual(graph, in_dims(request), type);
    scale_shift_relu(graph, request, x, y);
    return y;
}

static void conv_stats(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    descriptor x = conv_input(graph, request, request->kind == PLAN_CONV_STATS_PROLOGUE);
    descriptor w = cudnn_tensor(graph, PLAN_PORT_W, weight_dims(request), type);
    descriptor y = cudnn_tensor(graph, PLAN_PORT_Y, out_dims(request), type);

    cudnn_conv(graph, CUDNN_CONV_FORWARD, &request->window, x, w, y);
    cudnn_stats(graph, y, per_channel(graph, PLAN_PORT_SUM, request->k),
                per_channel(graph, PLAN_PORT_SQ_SUM, request->k));
}

static void wgrad_prologue(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    descriptor dy = cudnn_tensor(graph, PLAN_PORT_DY, out_dims(request), type);
    descriptor x = conv_input(graph, request, true);
    descriptor dw = cudnn_tensor(graph, PLAN_PORT_DW, weight_dims(request), type);

    cudnn_conv(graph, CUDNN_CONV_WGRAD, &request->window, x, dw, dy);
}

/* cuDNN was found to accept only this form: the norm computed again step by step, coefficients in
 * f32. */
static void dgrad_norm(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_dims dims = in_dims(request);
    const uint32_t c = request->c;
    descriptor dy = cudnn_tensor(graph, PLAN_PORT_DY, out_dims(request), type);
    descriptor w = cudnn_tensor(graph, PLAN_PORT_W, weight_dims(request), type);
    descriptor x = cudnn_tensor(graph, PLAN_PORT_X, dims, type);
    descriptor mean = per_channel(graph, PLAN_PORT_MEAN, c);
    descriptor inv_std = per_channel(graph, PLAN_PORT_INV_STD, c);
    descriptor scale = per_channel(graph, PLAN_PORT_SCALE, c);
    descriptor gradient = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);
    descriptor masked = cudnn_tensor(graph, PLAN_PORT_DADD, dims, type);
    const struct {
        cudnnPointwiseMode_t mode;
        descriptor by;
    } steps[] = {{CUDNN_POINTWISE_SUB, mean},
                 {CUDNN_POINTWISE_MUL, inv_std},
                 {CUDNN_POINTWISE_MUL, scale},
                 {CUDNN_POINTWISE_ADD, per_channel(graph, PLAN_PORT_SHIFT, c)}};
    descriptor value = x;

    cudnn_conv(graph, CUDNN_CONV_DGRAD, &request->window, gradient, w, dy);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        descriptor next = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);

        cudnn_pointwise(graph, steps[i].mode, value, steps[i].by, next);
        value = next;
    }
    cudnn_relu_backward(graph, gradient, value, masked);
    const struct cudnn_slot slots[] = {
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inv_std},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, scale},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, masked},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
         per_channel(graph, PLAN_PORT_DSCALE, c)},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
         per_channel(graph, PLAN_PORT_DSHIFT, c)},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
         per_channel(graph, PLAN_PORT_DY_FACTOR, c)},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
         per_channel(graph, PLAN_PORT_X_FACTOR, c)},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, per_channel(graph, PLAN_PORT_TERM, c)},
    };

    cudnn_norm_weights(graph, slots, sizeof slots / sizeof slots[0]);
}

static void norm_dx(struct cudnn_graph *graph, const struct plan_request *request)
{
    const cudnnDataType_t type = cudnn_type(request->type);
    const struct cudnn_dims dims = in_dims(request);
    descriptor from_dy = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);
    descriptor from_x = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);
    descriptor sum = cudnn_tensor_virtual(graph, dims, CUDNN_DATA_FLOAT);

    cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, cudnn_tensor(graph, PLAN_PORT_DADD, dims, type),
                    per_channel(graph, PLAN_PORT_DY_FACTOR, request->c), from_dy);
    cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, cudnn_tensor(graph, PLAN_PORT_X, dims, type),
                    per_channel(graph, PLAN_PORT_X_FACTOR, request->c), from_x);
    cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, from_dy, from_x, sum);
    cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, sum, per_channel(graph, PLAN_PORT_TERM, request->c),
                    cudnn_tensor(graph, PLAN_PORT_DX, dims, type));
}

static void stats_finalize(struct cudnn_graph *graph, const struct plan_request *request)
{
    const uint32_t c = request->c;
    const cudnnDataType_t type = cudnn_type(request->type);
    const int64_t count = (int64_t)request->n * request->h * request->w;
    const struct cudnn_slot slots[] = {
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC, per_channel(graph, PLAN_PORT_SUM, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC, per_channel(graph, PLAN_PORT_SQ_SUM, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC, per_channel(graph, PLAN_PORT_SCALE, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC, per_channel(graph, PLAN_PORT_SHIFT, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_MEAN, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_VAR, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_MEAN, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC,
         per_channel(graph, PLAN_PORT_RUNNING_VAR, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, per_channel(graph, PLAN_PORT_MEAN, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC,
         per_channel(graph, PLAN_PORT_INV_STD, c)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC,
         cudnn_tensor(graph, PLAN_PORT_EQ_SCALE, cudnn_channels(c), type)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC,
         cudnn_tensor(graph, PLAN_PORT_EQ_SHIFT, cudnn_channels(c), type)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC,
         cudnn_number_i64(graph, CUDNN_NUMBER_COUNT, count)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC,
         cudnn_number_f32(graph, CUDNN_NUMBER_EPS, request->eps)},
        {CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC,
         cudnn_number_f32(graph, CUDNN_NUMBER_MOMENTUM, request->momentum)},
    };

    cudnn_stats_finalize(graph, slots, sizeof slots / sizeof slots[0]);
}

static void (*const builders[PLAN_KINDS])(struct cudnn_graph *, const struct plan_request *) = {
    [PLAN_CONV_FORWARD] = conv_forward,
    [PLAN_CONV_DGRAD] = conv_gradient,
    [PLAN_CONV_DGRAD_ADD] = conv_dgrad_add,
    [PLAN_CONV_WGRAD] = conv_gradient,
    [PLAN_NORM_FORWARD] = norm_forward,
    [PLAN_NORM_EVALUATE] = norm_evaluate,
    [PLAN_NORM_BACKWARD] = norm_backward,
    [PLAN_CONV_STATS] = conv_stats,
    [PLAN_CONV_STATS_PROLOGUE] = conv_stats,
    [PLAN_STATS_FINALIZE] = stats_finalize,
    [PLAN_NORM_APPLY] = norm_evaluate,
    [PLAN_CONV_WGRAD_PROLOGUE] = wgrad_prologue,
    [PLAN_CONV_DGRAD_NORM] = dgrad_norm,
    [PLAN_NORM_DX] = norm_dx,
    [PLAN_CONV_DGRAD_MASKED] = conv_dgrad_masked,
};

bool cudnn_serves(enum plan_kind kind)
{
    return builders[kind] != NULL;
}

void cudnn_layer_build(struct cudnn_graph *graph, const struct plan_request *request)
{
    assert(cudnn_serves(request->kind));
    builders[request->kind](graph, request);
}
