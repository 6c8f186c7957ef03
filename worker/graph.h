/* A model as data: named layers in execution order, each making one value; the parameters that the
 * layers own.
 *
 * Model files call the builders below; shapes are inferred as layers are added. A builder that is
 * given something wrong records the first error, naming the layer, and graph_check() returns it, so
 * that a model file reads as a list. Passes (worker/pass.h) make a new graph from an old one: they
 * set types, merge layers, cut gradients into buckets. Values carry a dtype of their own; f32 is
 * what builders make, an AMP pass sets others and inserts GRAPH_CAST. */
#ifndef WORKER_GRAPH_H
#define WORKER_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define GRAPH_NAME_MAX 64
#define GRAPH_LAYERS_MAX 1024
#define GRAPH_TENSORS_MAX 4096
#define GRAPH_DIM_MAX 65536 /* one axis of one value */
#define GRAPH_NONE UINT32_MAX

/* X(name, words) */
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
#define GRAPH_OP_ENUM(name, words) GRAPH_##name,
    GRAPH_OP_TABLE(GRAPH_OP_ENUM)
#undef GRAPH_OP_ENUM
};

enum graph_dtype { GRAPH_F32, GRAPH_F16, GRAPH_BF16 };

/* Shape of one image's value, the batch left out: [channels][height][width] or [features]. */
struct graph_value {
    enum graph_dtype dtype;
    uint32_t dims[3];
    uint32_t dim_count; /* 3 or 1 */
};

/* A window that slides over height and width: convolution and pooling, square. */
struct graph_window {
    uint32_t kernel, stride, pad;
};

struct graph_layer {
    char name[GRAPH_NAME_MAX]; /* PyTorch's module name: "layer1.0"; unique */
    enum graph_op op;
    uint32_t inputs[2]; /* layers whose values are read; GRAPH_NONE where there is none */
    struct graph_value out;
    struct graph_window window; /* CONV2D, MAX_POOL, and a BATCH_NORM with fused_pool */
    bool has_bias;              /* CONV2D, LINEAR */
    float eps, momentum;        /* BATCH_NORM */
    bool fused_relu;            /* BATCH_NORM, ADD: pass_fuse put the ReLU inside */
    bool fused_pool;            /* BATCH_NORM with fused_relu: and the max pool behind it */
    bool fused_add;             /* BATCH_NORM: inputs[1] is added before the ReLU */
    uint32_t tensor_first;      /* its tensors in graph->tensors, in state_dict order */
    uint32_t tensor_count;
};

enum graph_role { GRAPH_WEIGHT, GRAPH_BIAS, GRAPH_RUNNING_MEAN, GRAPH_RUNNING_VAR };

/* A parameter or buffer. Weights: conv [out][in][kh][kw], linear [out][in], the rest [channels]. */
struct graph_tensor {
    char name[GRAPH_NAME_MAX + 16];
    enum graph_role role;
    uint32_t layer;
    uint32_t dims[4];
    uint32_t dim_count;
    size_t count;
    bool trainable;
    /* pass_amp sets these; builders leave fp32. */
    enum graph_dtype dtype;      /* what the layer computes with */
    enum graph_dtype grad_dtype; /* what the gradient is kept and reduced as */
    bool has_master;             /* an fp32 parameter stands behind the low copy */
};

/* Trainable tensors whose gradients are reduced together: indices into graph->tensors, in the order
 * that backward completes them (reverse). Made by pass_buckets. */
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
    uint32_t *grad_order; /* [grad_count] trainable tensors, last first; NULL before pass_buckets */
    uint32_t grad_count;
    struct graph_bucket *buckets;
    uint32_t bucket_count;
    struct err err; /* the first mistake of a builder */
};

/* NULL when out of memory. */
struct graph *graph_new(void);
void graph_free(struct graph **graph);
/* A deep copy; NULL when out of memory. */
struct graph *graph_copy(const struct graph *graph);

/* Builders: each returns the new layer's index, or GRAPH_NONE after an error; GRAPH_NONE as an
 * input is passed on. */
uint32_t graph_input(struct graph *graph, uint32_t channels, uint32_t height, uint32_t width);
uint32_t graph_conv2d(struct graph *graph, const char *name, uint32_t input, uint32_t out_channels,
                      struct graph_window window, bool has_bias);
/* Over [channels][height][width] or [features]; eps 1e-5, momentum 0.1, as PyTorch. */
uint32_t graph_batch_norm(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_relu(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_max_pool(struct graph *graph, const char *name, uint32_t input,
                        struct graph_window window);
/* The mean over height and width: [channels][1][1], as AdaptiveAvgPool2d(1). */
uint32_t graph_avg_pool(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_flatten(struct graph *graph, const char *name, uint32_t input);
uint32_t graph_linear(struct graph *graph, const char *name, uint32_t input, uint32_t out_features,
                      bool has_bias);
uint32_t graph_add(struct graph *graph, const char *name, uint32_t a, uint32_t b);
/* Softmax and cross-entropy in one; the last layer. */
uint32_t graph_cross_entropy(struct graph *graph, const char *name, uint32_t input);

/* The first builder error, or what is wrong with the whole: no input, no loss at the end, a value
 * that nobody reads. */
enum status graph_check(const struct graph *graph, struct err *err);

const char *graph_op_name(enum graph_op op);
/* "fp32", "fp16", "bf16"; and the bytes of one element. */
const char *graph_dtype_name(enum graph_dtype dtype);
uint32_t graph_dtype_bytes(enum graph_dtype dtype);
/* Elements of one image's value. */
size_t graph_value_count(const struct graph_value *value);
/* How many layers read the value of `layer`. */
uint32_t graph_use_count(const struct graph *graph, uint32_t layer);
/* The only layer that reads the value of `layer`, GRAPH_NONE if there are none or several. */
uint32_t graph_only_user(const struct graph *graph, uint32_t layer);

#endif
