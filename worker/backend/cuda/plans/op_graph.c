/* cuDNN requires an order: a descriptor is finalised before another one takes it. Source of the
 * attributes: cuDNN 9 backend API reference, and cuDNN's error strings. */
#include "worker/backend/cuda/plans/op_graph.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define ALIGNMENT 16 /* bytes, of every tensor */

/* Ids of tensors; the ids of two tensors on one port differ by ID_AGAIN. */
enum { ID_PORT = 1, ID_AGAIN = 100, ID_NUMBER = 1000, ID_VIRTUAL = 2000 };

void cudnn_graph_init(struct cudnn_graph *graph, const struct cudnn_api *api)
{
    memset(graph, 0, sizeof *graph);
    graph->api = api;
}

void cudnn_graph_close(struct cudnn_graph *graph)
{
    while (graph->descriptor_count > 0)
        (void)graph->api->BackendDestroyDescriptor(graph->descriptors[--graph->descriptor_count]);
}

static void check(struct cudnn_graph *graph, cudnnStatus_t status, const char *what)
{
    char why[128] = "";

    if (status == CUDNN_STATUS_SUCCESS || graph->failure != CUDNN_STATUS_SUCCESS)
        return;
    graph->api->GetLastErrorString(why, sizeof why);
    graph->failure = status;
    (void)snprintf(graph->text, sizeof graph->text, "%s: %s%s%s", what,
                   graph->api->GetErrorString(status), why[0] != '\0' ? ", " : "", why);
}

cudnnBackendDescriptor_t cudnn_descriptor(struct cudnn_graph *graph,
                                          cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;

    assert(graph->descriptor_count < CUDNN_GRAPH_DESCRIPTORS_MAX);
    if (graph->failure != CUDNN_STATUS_SUCCESS)
        return NULL;
    check(graph, graph->api->BackendCreateDescriptor(type, &descriptor), "new descriptor");
    if (graph->failure != CUDNN_STATUS_SUCCESS)
        return NULL;
    graph->descriptors[graph->descriptor_count++] = descriptor;
    return descriptor;
}

void cudnn_set(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void *values)
{
    char what[32];

    if (graph->failure != CUDNN_STATUS_SUCCESS)
        return;
    (void)snprintf(what, sizeof what, "attribute %d", (int)name);
    check(graph, graph->api->BackendSetAttribute(descriptor, name, type, count, values), what);
}

void cudnn_finalize(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                    const char *what)
{
    if (graph->failure == CUDNN_STATUS_SUCCESS)
        check(graph, graph->api->BackendFinalize(descriptor), what);
}

static void set_i64(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                    cudnnBackendAttributeName_t name, int64_t value)
{
    cudnn_set(graph, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_bool(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, bool value)
{
    cudnn_set(graph, descriptor, name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

static void set_descriptor(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    cudnn_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_compute_f32(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                            cudnnBackendAttributeName_t name)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;

    cudnn_set(graph, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

enum tensor_way { TENSOR_REAL, TENSOR_VIRTUAL, TENSOR_NUMBER };

static cudnnBackendDescriptor_t new_tensor(struct cudnn_graph *graph, enum tensor_way way,
                                           int64_t id, struct cudnn_dims dims, cudnnDataType_t type)
{
    cudnnBackendDescriptor_t tensor = cudnn_descriptor(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t lengths[4] = {dims.n, dims.c, dims.h, dims.w};
    const int64_t strides[4] = {dims.c * dims.h * dims.w, 1, dims.c * dims.w, dims.c};

    if (tensor == NULL)
        return NULL;
    cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, lengths);
    cudnn_set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set_i64(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
    set_i64(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    if (way == TENSOR_VIRTUAL)
        set_bool(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    if (way == TENSOR_NUMBER)
        set_bool(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
    cudnn_finalize(graph, tensor, "tensor");
    return tensor;
}

static struct cudnn_binding *bind(struct cudnn_graph *graph, enum plan_port port, int64_t id)
{
    struct cudnn_binding *binding = &graph->bindings[graph->binding_count++];

    assert(graph->binding_count <= CUDNN_GRAPH_BINDINGS_MAX);
    *binding = (struct cudnn_binding){.id = id, .port = port};
    return binding;
}

cudnnBackendDescriptor_t cudnn_tensor(struct cudnn_graph *graph, enum plan_port port,
                                      struct cudnn_dims dims, cudnnDataType_t type)
{
    int64_t id = ID_PORT + port;

    for (uint32_t i = 0; i < graph->binding_count; i++)
        if (graph->bindings[i].id == id)
            id += ID_AGAIN;
    (void)bind(graph, port, id);
    return new_tensor(graph, TENSOR_REAL, id, dims, type);
}

cudnnBackendDescriptor_t cudnn_tensor_virtual(struct cudnn_graph *graph, struct cudnn_dims dims,
                                              cudnnDataType_t type)
{
    return new_tensor(graph, TENSOR_VIRTUAL, ID_VIRTUAL + graph->virtual_count++, dims, type);
}

cudnnBackendDescriptor_t cudnn_number_f32(struct cudnn_graph *graph, enum cudnn_number which,
                                          float number)
{
    const int64_t id = ID_NUMBER + (int64_t)which;

    bind(graph, PLAN_PORTS, id)->number.f32 = number;
    return new_tensor(graph, TENSOR_NUMBER, id, cudnn_channels(1), CUDNN_DATA_FLOAT);
}

cudnnBackendDescriptor_t cudnn_number_i64(struct cudnn_graph *graph, enum cudnn_number which,
                                          int64_t number)
{
    const int64_t id = ID_NUMBER + (int64_t)which;

    bind(graph, PLAN_PORTS, id)->number.i64 = number;
    return new_tensor(graph, TENSOR_NUMBER, id, cudnn_channels(1), CUDNN_DATA_INT64);
}

static cudnnBackendDescriptor_t new_op(struct cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                       const struct cudnn_slot *slots, uint32_t slot_count)
{
    cudnnBackendDescriptor_t op = cudnn_descriptor(graph, type);

    for (uint32_t i = 0; i < slot_count && op != NULL; i++)
        set_descriptor(graph, op, slots[i].name, slots[i].tensor);
    return op;
}

static void add_op(struct cudnn_graph *graph, cudnnBackendDescriptor_t op, const char *what)
{
    assert(graph->op_count < CUDNN_GRAPH_OPS_MAX);
    cudnn_finalize(graph, op, what);
    graph->ops[graph->op_count++] = op;
}

static cudnnBackendDescriptor_t conv_window(struct cudnn_graph *graph,
                                            const struct graph_window *window)
{
    cudnnBackendDescriptor_t conv = cudnn_descriptor(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t pads[2] = {window->pad, window->pad}, dilations[2] = {1, 1},
                  strides[2] = {window->stride, window->stride};

    set_i64(graph, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    set_compute_f32(graph, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    cudnn_finalize(graph, conv, "convolution's window");
    return conv;
}

static void add_conv(struct cudnn_graph *graph, enum cudnn_conv kind,
                     const struct graph_window *window, cudnnBackendDescriptor_t x,
                     cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y, float beta)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
    } names[] = {
        [CUDNN_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [CUDNN_CONV_DGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [CUDNN_CONV_WGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const struct cudnn_slot slots[] = {{names[kind].conv, conv_window(graph, window)},
                                       {names[kind].x, x},
                                       {names[kind].w, w},
                                       {names[kind].y, y}};
    cudnnBackendDescriptor_t op = new_op(graph, names[kind].type, slots, 4);
    const float alpha = 1.0F;

    cudnn_set(graph, op, names[kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    cudnn_set(graph, op, names[kind].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    add_op(graph, op, "convolution");
}

void cudnn_conv(struct cudnn_graph *graph, enum cudnn_conv kind, const struct graph_window *window,
                cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y)
{
    add_conv(graph, kind, window, x, w, y, 0.0F);
}

void cudnn_conv_add(struct cudnn_graph *graph, enum cudnn_conv kind,
                    const struct graph_window *window, cudnnBackendDescriptor_t x,
                    cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y)
{
    add_conv(graph, kind, window, x, w, y, 1.0F);
}

static cudnnBackendDescriptor_t pointwise_mode(struct cudnn_graph *graph, cudnnPointwiseMode_t mode)
{
    cudnnBackendDescriptor_t pointwise =
        cudnn_descriptor(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

    cudnn_set(graph, pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_compute_f32(graph, pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC);
    cudnn_finalize(graph, pointwise, "pointwise mode");
    return pointwise;
}

void cudnn_pointwise(struct cudnn_graph *graph, cudnnPointwiseMode_t mode,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                     cudnnBackendDescriptor_t y)
{
    const struct cudnn_slot slots[] = {
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_mode(graph, mode)},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b}}; /* last: operations of one input leave it out */

    add_op(graph,
           new_op(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, slots, b != NULL ? 4 : 3),
           "pointwise operation");
}

void cudnn_relu_backward(struct cudnn_graph *graph, cudnnBackendDescriptor_t dy,
                         cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t dx)
{
    const struct cudnn_slot slots[] = {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                        pointwise_mode(graph, CUDNN_POINTWISE_RELU_BWD)},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx}};

    add_op(graph, new_op(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, slots, 4),
           "ReLU backward");
}

void cudnn_stats(struct cudnn_graph *graph, cudnnBackendDescriptor_t x,
                 cudnnBackendDescriptor_t sum, cudnnBackendDescriptor_t sq_sum)
{
    const struct cudnn_slot slots[] = {{CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x},
                                       {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum},
                                       {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, sq_sum}};
    cudnnBackendDescriptor_t op =
        new_op(graph, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, slots, 3);
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;

    cudnn_set(graph, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set_compute_f32(graph, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC);
    add_op(graph, op, "statistics");
}

void cudnn_norm_forward(struct cudnn_graph *graph, cudnnBackendNormFwdPhase_t phase,
                        const struct cudnn_slot *slots, uint32_t slot_count)
{
    cudnnBackendDescriptor_t op =
        new_op(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, slots, slot_count);
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;

    cudnn_set(graph, op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    cudnn_set(graph, op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    add_op(graph, op, "batch norm");
}

void cudnn_norm_backward(struct cudnn_graph *graph, const struct cudnn_slot *slots,
                         uint32_t slot_count)
{
    cudnnBackendDescriptor_t op =
        new_op(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, slots, slot_count);
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;

    cudnn_set(graph, op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    add_op(graph, op, "batch norm backward");
}

void cudnn_norm_weights(struct cudnn_graph *graph, const struct cudnn_slot *slots,
                        uint32_t slot_count)
{
    cudnnBackendDescriptor_t op =
        new_op(graph, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, slots, slot_count);

    set_compute_f32(graph, op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC);
    add_op(graph, op, "batch norm's weight gradients");
}

void cudnn_stats_finalize(struct cudnn_graph *graph, const struct cudnn_slot *slots,
                          uint32_t slot_count)
{
    cudnnBackendDescriptor_t op =
        new_op(graph, CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR, slots, slot_count);
    const cudnnBnFinalizeStatsMode_t mode = CUDNN_BN_FINALIZE_STATISTICS_TRAINING;

    cudnn_set(graph, op, CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE,
              CUDNN_TYPE_BN_FINALIZE_STATS_MODE, 1, &mode);
    set_compute_f32(graph, op, CUDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC);
    add_op(graph, op, "batch norm statistics");
}

cudnnBackendDescriptor_t cudnn_graph_finish(struct cudnn_graph *graph)
{
    cudnnBackendDescriptor_t whole =
        cudnn_descriptor(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    cudnn_set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              graph->op_count, graph->ops);
    cudnn_finalize(graph, whole, "operation graph");
    return graph->failure == CUDNN_STATUS_SUCCESS ? whole : NULL;
}

cudnnDataType_t cudnn_type(enum graph_dtype dtype)
{
    static const cudnnDataType_t types[] = {[GRAPH_F32] = CUDNN_DATA_FLOAT,
                                            [GRAPH_F16] = CUDNN_DATA_HALF,
                                            [GRAPH_BF16] = CUDNN_DATA_BFLOAT16};

    return types[dtype];
}
