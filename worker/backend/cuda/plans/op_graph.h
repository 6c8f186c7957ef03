/* cuDNN's operation graphs from C: builders for the few operations that our nets use.
 *
 * A graph is built front to back; the first error is kept with cuDNN's own text and every later
 * call does nothing, so that a builder reads as a list. All tensors are NHWC in memory; dimensions
 * are given in cuDNN's order, n, c, h, w. A tensor is bound to a port of plans.h, or is virtual: an
 * intermediate that is never in memory. Nothing here uses a device. */
#ifndef WORKER_BACKEND_CUDA_PLANS_OP_GRAPH_H
#define WORKER_BACKEND_CUDA_PLANS_OP_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cuda/libs.h"
#include "worker/backend/cuda/plans/plans.h"

#define CUDNN_GRAPH_DESCRIPTORS_MAX 64
#define CUDNN_GRAPH_OPS_MAX 12
#define CUDNN_GRAPH_BINDINGS_MAX 24

/* Numbers that a plan gets when it runs. Every number and port has its own id, so that a plan from
 * the cache finds them whatever order the builder used. */
enum cudnn_number {
    CUDNN_NUMBER_EPS,
    CUDNN_NUMBER_MOMENTUM,
    CUDNN_NUMBER_COUNT,
    CUDNN_NUMBER_ZERO
};

/* What a tensor's id means when a plan runs: a port's pointer or a number. */
struct cudnn_binding {
    int64_t id;
    enum plan_port port; /* PLAN_PORTS: a number */
    union {
        float f32;
        int64_t i64;
    } number;
};

struct cudnn_graph {
    const struct cudnn_api *api;
    cudnnBackendDescriptor_t descriptors[CUDNN_GRAPH_DESCRIPTORS_MAX]; /* to destroy at the end */
    uint32_t descriptor_count;
    cudnnBackendDescriptor_t ops[CUDNN_GRAPH_OPS_MAX];
    uint32_t op_count;
    struct cudnn_binding bindings[CUDNN_GRAPH_BINDINGS_MAX];
    uint32_t binding_count;
    uint32_t virtual_count;
    cudnnStatus_t failure; /* the first error */
    char text[192];        /* cuDNN's text of that error */
};

struct cudnn_dims {
    int64_t n, c, h, w;
};

/* Mean, scale and the like: [1][c][1][1]. */
static inline struct cudnn_dims cudnn_channels(int64_t c)
{
    return (struct cudnn_dims){1, c, 1, 1};
}

void cudnn_graph_init(struct cudnn_graph *graph, const struct cudnn_api *api);
void cudnn_graph_close(struct cudnn_graph *graph);

/* A new descriptor that the graph destroys; NULL after a failure. */
cudnnBackendDescriptor_t cudnn_descriptor(struct cudnn_graph *graph,
                                          cudnnBackendDescriptorType_t type);
void cudnn_set(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void *values);
void cudnn_finalize(struct cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                    const char *what);

/* Creates tensors. Several may be bound to one port: a running mean is read and written there. */
cudnnBackendDescriptor_t cudnn_tensor(struct cudnn_graph *graph, enum plan_port port,
                                      struct cudnn_dims dims, cudnnDataType_t type);
cudnnBackendDescriptor_t cudnn_tensor_virtual(struct cudnn_graph *graph, struct cudnn_dims dims,
                                              cudnnDataType_t type);
cudnnBackendDescriptor_t cudnn_number_f32(struct cudnn_graph *graph, enum cudnn_number which,
                                          float number);
cudnnBackendDescriptor_t cudnn_number_i64(struct cudnn_graph *graph, enum cudnn_number which,
                                          int64_t number);

/* Operations, all computing in f32. */
enum cudnn_conv { CUDNN_CONV_FORWARD, CUDNN_CONV_DGRAD, CUDNN_CONV_WGRAD };
/* x, w, y: the three tensors. In backward, y is a gradient, and so is the result (x or w). */
void cudnn_conv(struct cudnn_graph *graph, enum cudnn_conv kind, const struct graph_window *window,
                cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y);
/* The same, but adds to the values in the result's memory (beta 1). */
void cudnn_conv_add(struct cudnn_graph *graph, enum cudnn_conv kind,
                    const struct graph_window *window, cudnnBackendDescriptor_t x,
                    cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y);
/* y = mode(x, b); b is NULL for operations with one input. */
void cudnn_pointwise(struct cudnn_graph *graph, cudnnPointwiseMode_t mode,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                     cudnnBackendDescriptor_t y);
/* dx = dy where x is above 0. */
void cudnn_relu_backward(struct cudnn_graph *graph, cudnnBackendDescriptor_t dy,
                         cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t dx);
void cudnn_stats(struct cudnn_graph *graph, cudnnBackendDescriptor_t x,
                 cudnnBackendDescriptor_t sum, cudnnBackendDescriptor_t sq_sum);

/* One attribute of an operation that takes a tensor. */
struct cudnn_slot {
    cudnnBackendAttributeName_t name;
    cudnnBackendDescriptor_t tensor;
};

/* A batch norm; `phase`: inference or training. */
void cudnn_norm_forward(struct cudnn_graph *graph, cudnnBackendNormFwdPhase_t phase,
                        const struct cudnn_slot *slots, uint32_t slot_count);
void cudnn_norm_backward(struct cudnn_graph *graph, const struct cudnn_slot *slots,
                         uint32_t slot_count);
/* The gradients of scale and shift, and the coefficients of the data gradient. */
void cudnn_norm_weights(struct cudnn_graph *graph, const struct cudnn_slot *slots,
                        uint32_t slot_count);
void cudnn_stats_finalize(struct cudnn_graph *graph, const struct cudnn_slot *slots,
                          uint32_t slot_count);

/* The whole graph as one descriptor; NULL after a failure. */
cudnnBackendDescriptor_t cudnn_graph_finish(struct cudnn_graph *graph);

cudnnDataType_t cudnn_type(enum graph_dtype dtype);

#endif
