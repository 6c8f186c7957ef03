/* A model as data. A graph is a list of named layers in execution order, each of which makes one
 * value, and the parameters and buffers that the layers own. Nothing is computed here.
 *
 * This folder:
 *     graph.h  the graph, its builders and checks
 *     amp.h    opt levels of mixed precision
 *     pass.h   passes, which make a new graph from an old one: mixed precision, fusion, buckets
 *     hash.h   a hash of a graph
 *
 * A model calls the builders below; shapes are inferred as layers are added. A builder with a wrong
 * argument stores the first error, which names the layer. All later builders do nothing, and
 * graph_check() returns the error. So a model can be written as a plain list of calls.
 *
 * Every value has a type. Builders set fp32; pass_amp() sets others and inserts GRAPH_CAST. */
#ifndef WORKER_GRAPH_GRAPH_H
#define WORKER_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define GRAPH_NAME_MAX 64
#define GRAPH_LAYERS_MAX 1024
#define GRAPH_TENSORS_MAX 4096
#define GRAPH_DIM_MAX 65536 /* one axis of one value */
#define GRAPH_NONE UINT32_MAX

/* X(name, text) */
#define GRAPH_OP_TABLE(X)                                                                          \
    X(INPUT, "input")                                                                              \
    X(CONV2D, "conv2d")                                                                            \
    X(BATCH_NORM, "batch_norm")                                                                    \
    X(RELU, "relu")                                                                                \
    X(MAX_POOL, "max_pool")                                                                        \
    X(AVG_POOL, "avg_pool")                                                                        \
    X(FLATTEN, "flatten")                                                                          \
    X(LINEAR, "linear")                                                                            \
    X(ADD, "add")                                                                                  \
    X(CAST, "cast")                                                                                \
    X(CROSS_ENTROPY, "cross_entropy")

enum graph_op {
#define GRAPH_OP_ENUM(name, text) GRAPH_##name,
    GRAPH_OP_TABLE(GRAPH_OP_ENUM)
#undef GRAPH_OP_ENUM
};

enum graph_dtype { GRAPH_F32, GRAPH_F16, GRAPH_BF16 };

/* Type and shape of a value for one image, without the batch: [channels][height][width] or
 * [features]. */
struct graph_value {
    enum graph_dtype dtype;
    uint32_t dims[3];
    uint32_t dim_count; /* 3 or 1 */
};

/* The square window of a convolution or pool. */
struct graph_window {
    uint32_t kernel, stride, pad;
};

struct graph_layer {
    char name[GRAPH_NAME_MAX]; /* PyTorch's module name: "layer1.0"; unique */
    enum graph_op op;
    uint32_t inputs[2]; /* layers whose values are read, both earlier; GRAPH_NONE: none */
    struct graph_value out;
    struct graph_window window; /* CONV2D, MAX_POOL, and a BATCH_NORM with fused_pool */
    bool has_bias;              /* CONV2D, LINEAR */
    float eps, momentum;        /* BATCH_NORM */
    /* Set by pass_fuse; applied in this order after the layer itself: */
    bool fused_add;        /* BATCH_NORM: inputs[1] is added */
    bool rounds_norm;      /* with fused_add: the norm is rounded to its type before the sum */
    bool fused_relu;       /* BATCH_NORM, ADD */
    bool fused_pool;       /* BATCH_NORM with fused_relu: max pool of `window` */
    uint32_t tensor_first; /* its tensors in graph->tensors, in state_dict order */
    uint32_t tensor_count;
};

enum graph_role { GRAPH_WEIGHT, GRAPH_BIAS, GRAPH_RUNNING_MEAN, GRAPH_RUNNING_VAR };

/* A parameter or buffer. Shapes: convolution weight [out][in][kh][kw], linear weight [out][in], all
 * others [channels] or [features]. */
struct graph_tensor {
    char name[GRAPH_NAME_MAX + 16]; /* LAYER.weight, .bias, .running_mean or .running_var */
    enum graph_role role;
    uint32_t layer;
    uint32_t dims[4];
    uint32_t dim_count;
    size_t count;   /* elements: the product of dims */
    bool trainable; /* weights and biases */
    /* Set by pass_amp; builders set fp32. */
    enum graph_dtype dtype;      /* in which the layer reads it */
    enum graph_dtype grad_dtype; /* in which the gradient is kept and reduced */
    bool has_master;             /* the optimizer updates an fp32 master, `dtype` is a copy of it */
};

/* Gradients that are reduced together: a slice of graph->grad_order. Made by pass_buckets. */
struct graph_bucket {
    uint32_t order_first; /* first entry in graph->grad_order */
    uint32_t order_count;
    enum graph_dtype dtype; /* of all its gradients */
};

struct graph {
    struct graph_layer *layers;
    uint32_t layer_count;
    struct graph_tensor *tensors;
    uint32_t tensor_count;
    /* Indices of the trainable tensors in the order in which backward completes their gradients:
     * last first. NULL before pass_buckets. */
    uint32_t *grad_order; /* [grad_count] */
    uint32_t grad_count;
    struct graph_bucket *buckets;
    uint32_t bucket_count;
    struct err err; /* of the first builder that failed */
};

/* NULL when out of memory. */
struct graph *graph_new(void);
void graph_free(struct graph **graph);
/* A deep copy; NULL when out of memory. */
struct graph *graph_copy(const struct graph *graph);

/* Builders. Each returns the index of the new layer, or GRAPH_NONE after an error, which the next
 * builder accepts as an input. */
uint32_t graph_input(struct graph *graph, uint32_t channels, uint32_t height, uint32_t width);
uint32_t graph_conv2d(struct graph *graph, const char *name, uint32_t input, uint32_t out_channels,
                      struct graph_window window, bool has_bias);
/* Over [channels][height][width] or [features]; eps 1e-5, momentum 0.1, as PyTorch. */
uint32_t graph_batch_norm(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_relu(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_max_pool(struct graph *graph, const char *name, uint32_t input,
                        struct graph_window window);
/* Mean over height and width: [channels][1][1], as AdaptiveAvgPool2d(1). */
uint32_t graph_avg_pool(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_flatten(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_linear(struct graph *graph, const char *name, uint32_t input, uint32_t out_features,
                      bool has_bias);
uint32_t graph_add(struct graph *graph, const char *name, uint32_t a, uint32_t b);
/* Softmax and cross-entropy together; must be the last layer. */
uint32_t graph_cross_entropy(struct graph *graph, const char *name, uint32_t input);

/* The first error of a builder, or STATUS_BAD_INPUT if the graph has no input, no loss at its end,
 * or a value that no layer reads. */
enum status graph_check(const struct graph *graph, struct err *err);

const char *graph_op_name(enum graph_op op);
/* "fp32", "fp16" or "bf16". */
const char *graph_dtype_name(enum graph_dtype dtype);
/* Bytes of one element. */
uint32_t graph_dtype_bytes(enum graph_dtype dtype);
/* Elements of a value for one image. */
size_t graph_value_count(const struct graph_value *value);
/* Number of inputs of other layers that are the value of `layer`. */
uint32_t graph_use_count(const struct graph *graph, uint32_t layer);
/* The only layer that reads the value of `layer`, GRAPH_NONE if there are none or several. */
uint32_t graph_only_user(const struct graph *graph, uint32_t layer);

#endif
