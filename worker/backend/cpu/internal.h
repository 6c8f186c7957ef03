/* Internal to the CPU backend: values in channel blocks, layers as tables of functions, oneDNN
 * primitives. Calls go from top to bottom:
 *
 *     cpu.c                  struct backend: opens the layers, runs one at a time
 *     images.c, tensors.c    convert input images and parameters to the backend's layouts
 *     outcome.c              the end of a step: finite check, clipping, optimizer, outcome
 *     memory.c               the memory plan: one arena for all values and buffers
 *     conv.c ... ops.c       the layers, a struct cpu_op each
 *     ops_bf16.c             the simple layers on values that are stored in bf16
 *     product.c, half.c      convolution and linear as oneDNN primitives; half.c: on bf16 values
 *     dnnl.h                 oneDNN, version 2 or 3
 *     threads.c              how many threads oneDNN has
 *     profile.c              times
 *     base.c                 allocation, shapes, rounding, sums over ranks
 *     kernels*.c             loops over values, one table per instruction set */
#ifndef WORKER_BACKEND_CPU_INTERNAL_H
#define WORKER_BACKEND_CPU_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/backend/cpu/dnnl.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/kernels_bf16.h"
#include "worker/backend/cpu/kernels_bf16_pool.h"
#include "worker/backend/cpu/kernels_residual.h"
#include "worker/graph/graph.h"
#include "worker/net/backend.h"
#include "worker/net/profile.h"
#include "worker/net/scaler.h"

/* A convolution computes about this much of its output at once, so that it stays in the L2 cache.
 */
#define CPU_CHUNK_BYTES (512 * 1024)

/* The output of a layer for the whole batch, and its gradient. A 16-bit value is a rounded fp32
 * value. Only if the CPU computes bf16 (cpu.has_bf16), bf16 values are stored as bf16, through the
 * same pointers (cpu_bf16), channels last and without padding. */
struct cpu_value {
    float *data;
    float *grad; /* NULL if no layer needs it, and before cpu_memory_make */
    enum cpu_type type;
    bool needs_grad;
    bool blocked;     /* fp32 in [n][blocks][height][width][block], see kernels.h; else row-major */
    uint32_t dims[3]; /* channels, height, width; 1 and 1 for features */
    uint32_t blocks;  /* 0 if not blocked */
    size_t image_size; /* elements stored per image */
};

/* A parameter or buffer in the layout in which its layer reads it. */
struct cpu_tensor {
    /* Of weights: row-major, and as stored. Both may have more output and input channels than the
     * tensor; the extra channels are 0. NULL for a vector, which is [count] and padding. */
    struct cpu_layout *plain, *stored;
    struct cpu_shape shape, wide; /* of weights: the tensor's shape, and the shape of `plain` */
    size_t count, size;           /* elements; elements with padding */
    float *param, *grad;
};

/* Kinds of work of a layer that are timed separately. */
enum cpu_work {
    CPU_FORWARD,
    CPU_BACKWARD,
    CPU_CONV_FORWARD,
    CPU_CONV_DATA,
    CPU_CONV_WEIGHTS,
    CPU_CONV_COPIES, /* conversions to and from 16 bits */
    CPU_WORKS
};

/* Parts of a step that belong to no layer. */
enum cpu_part { CPU_IMAGES, CPU_FINITE, CPU_CLIP, CPU_UPDATE, CPU_PARTS };

struct cpu;
struct cpu_layer;

/* The functions of an operation. open: chooses layouts and requests buffers; the values have no
 * memory yet. backward: writes the gradients of the inputs (adds if layer->adds) and of the
 * tensors. */
struct cpu_op {
    enum status (*open)(struct cpu *cpu, struct cpu_layer *layer, struct err *err);
    void (*close)(struct cpu_layer *layer);
    enum status (*forward)(struct cpu *cpu, struct cpu_layer *layer, struct err *err);
    enum status (*backward)(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                            struct err *err);
};

struct cpu_layer {
    const struct graph_layer *graph;
    const struct cpu_op *op;
    struct cpu_value out;
    struct cpu_value *in, *in2; /* outputs of other layers; NULL: none */
    struct cpu_tensor *tensors; /* in the order of the graph */
    void *own;                  /* state of the operation */
    bool is_half;               /* computed in bf16, else in fp32 and rounded */
    struct cpu_layer *norm;     /* CONV2D: the batch norm, if it is the only reader */
    struct cpu_layer *conv;     /* BATCH_NORM: the convolution whose `norm` it is */
    bool adds[2];               /* backward adds to the gradient of input k instead of writing it */
    float *spare;               /* with adds[0]: buffer for this layer's share of the gradient */
    bool grad_is_value;         /* the gradient overwrites the value's memory */
    uint32_t grad_of;           /* index of the gradient's memory request; GRAPH_NONE: none */
    uint64_t ns[CPU_WORKS], calls[CPU_WORKS];
};

/* A request for a buffer during a part of the step. Times are those of worker/net/memory_plan.h:
 * forward of layer i is time i, its backward is time 2 * layer_count - 1 - i. */
struct cpu_request {
    float **at; /* set by cpu_memory_make */
    size_t bytes;
    uint32_t birth, death; /* first and last time in use */
};

struct cpu {
    const struct graph *graph;
    const struct cpu_kernels *kernels;
    struct cpu_dnnl *dnnl;
    struct cpu_layer *layers;
    struct cpu_tensor *tensors;
    uint32_t batch_max, threads; /* threads: oneDNN's; 0: unchanged */
    bool evaluate_only;
    bool has_profile, profile; /* net_options.profile; whether it is on now */
    uint64_t part_ns[CPU_PARTS], part_calls[CPU_PARTS];
    bool has_bf16; /* the machine can compute bf16 and net_options allow it */
    bool widens;   /* images of one channel are copied into all channels of the input */
    float label_smoothing;
    size_t bytes;
    struct cpu_request *requests;
    uint32_t request_count;
    void *arena; /* the memory of all requests */

    /* the current step */
    uint32_t n;
    bool training;
    const struct scaler *scaler; /* its scale multiplies the gradient of the loss */
    int64_t *labels;             /* [batch_max] */
    struct net_result result;
    struct net_outcome outcomes[NET_OUTCOMES]; /* ring buffer, oldest at outcome_first */
    uint32_t outcome_first, outcome_count;
    net_sum norm_sum; /* sums over ranks for synchronised batch norm; NULL: none */
    void *norm_sum_user;
};

extern const struct cpu_op cpu_op_input, cpu_op_conv, cpu_op_norm, cpu_op_relu, cpu_op_pool;
extern const struct cpu_op cpu_op_flatten, cpu_op_linear, cpu_op_add, cpu_op_cast, cpu_op_loss;
extern const struct cpu_op cpu_op_avg_pool, cpu_op_norm_features;
/* For an output that is stored in bf16; the cast: input or output. */
extern const struct cpu_op cpu_op_relu_bf16, cpu_op_pool_bf16, cpu_op_add_bf16;
extern const struct cpu_op cpu_op_avg_pool_bf16, cpu_op_cast_bf16;

/* -- base.c -- */

/* Zeroed, 64-byte aligned memory, counted in cpu->bytes. NULL when out of memory. Free with free().
 */
void *cpu_alloc(struct cpu *cpu, size_t bytes);
enum status cpu_out_of_memory(const struct cpu_layer *layer, struct err *err);
/* Rounds n floats to `dtype` in place; does nothing for fp32. */
void cpu_round(const struct cpu *cpu, enum graph_dtype dtype, float *values, size_t n);
/* The shape of a blocked value for `images` images. */
struct cpu_area cpu_area(const struct cpu_value *value, uint32_t images);
/* grad += more if `adds`, else grad = more (the two may be the same memory). */
void cpu_add_grad(const struct cpu *cpu, float *grad, const float *more, size_t count, bool adds);
/* The same for the gradient of a value, in the value's `dtype`; the sum is rounded. `count`:
 * elements. */
void cpu_value_add_grad(const struct cpu *cpu, const struct cpu_value *value,
                        enum graph_dtype dtype, float *grad, const float *more, size_t count,
                        bool adds);
/* The shape of a max pool that is a separate layer. */
struct cpu_pool_shape cpu_pool_shape(const struct cpu_layer *layer);
/* Allocates layer->own, the position of each window's maximum, one byte per output; not if nothing
 * trains. */
enum status cpu_pool_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err);
void cpu_pool_close(struct cpu_layer *layer);
/* The memory of a value that is stored in bf16, or of its gradient. */
uint16_t *cpu_bf16(float *memory);
const uint16_t *cpu_bf16_const(const float *memory);
/* Bytes of n images of the value. */
size_t cpu_value_bytes(const struct cpu_value *value, size_t n);
/* Image `image` in the memory of the value or of its gradient. */
float *cpu_image_at(const struct cpu_value *value, float *memory, size_t image);
/* A bf16 value as rows of channels, and as pixels. */
struct cpu_rows cpu_rows(const struct cpu_value *value, uint32_t images);
struct cpu_pixels cpu_pixels(const struct cpu_value *value, uint32_t images);
/* Sums `values` over all ranks if statistics are synchronised and this is a training step. */
enum status cpu_sync(struct cpu *cpu, const struct cpu_layer *layer, double *values, size_t count,
                     struct err *err);
/* The shape of an fp32 value for n images. */
struct cpu_shape cpu_value_shape(const struct cpu *cpu, const struct cpu_value *value, uint32_t n);
/* A row-major fp32 shape of weights. */
struct cpu_shape cpu_weights_shape(const int64_t *dims, int dim_count);
/* Sets the layouts of the weights of `layer` (its first tensor). `shape` is row-major; `wide` too,
 * with as many channels or more; `stored` has the dimensions of `wide` and is copied. */
enum status cpu_weights_set_layout(struct cpu_layer *layer, const struct cpu_shape *shape,
                                   const struct cpu_shape *wide, const struct cpu_layout *stored,
                                   struct err *err);
/* A tensor of one dimension: `count` elements in an array of `size`. */
void cpu_tensor_set_vector(struct cpu_tensor *tensor, size_t count, size_t size);
void cpu_tensor_close(struct cpu_tensor *tensor);

/* -- threads.c -- */

/* From now on oneDNN computes with `count` threads if called from this thread; 0: unchanged. */
void cpu_threads_use(uint32_t count);
/* How many threads oneDNN has; for struct backend. */
uint32_t cpu_threads(void);

/* -- profile.c -- */

/* Nanoseconds of a monotonic clock while the profile is on, else 0. */
uint64_t cpu_clock(const struct cpu *cpu);
/* Adds one call and the time since `since`. */
void cpu_count(const struct cpu *cpu, struct cpu_layer *layer, enum cpu_work work, uint64_t since);
void cpu_count_part(struct cpu *cpu, enum cpu_part part, uint64_t since);
/* For struct backend. */
bool cpu_profile(const void *state, uint32_t index, struct net_profile *profile);
void cpu_profile_set(void *state, bool is_on);

/* -- memory.c -- */

/* Requests a buffer for the times birth to death; *at is set after all layers are open. Its content
 * is undefined at time birth. Errors: STATUS_MEMORY. */
enum status cpu_request(struct cpu *cpu, const struct cpu_layer *layer, float **at, size_t bytes,
                        uint32_t birth, uint32_t death, struct err *err);
/* The same, only for the backward of `layer`. */
enum status cpu_request_in_backward(struct cpu *cpu, const struct cpu_layer *layer, float **at,
                                    size_t bytes, struct err *err);
/* Allocates the arena for all values, gradients and requested buffers. Errors: STATUS_MEMORY. */
enum status cpu_memory_make(struct cpu *cpu, struct err *err);
/* -- images.c -- */

/* [n][channels][height][width] f32 into the value of the input layer. */
void cpu_images_take(struct cpu *cpu, const struct net_images *images);

/* -- tensors.c, for struct backend -- */

uint32_t cpu_tensor_layout(const void *state, uint32_t index, uint64_t words[BACKEND_LAYOUT_WORDS]);
size_t cpu_tensor_size(const void *state, uint32_t index);
enum status cpu_tensor_pack(void *state, uint32_t index, const float *row_major, float *stored,
                            struct err *err);
enum status cpu_tensor_unpack(void *state, uint32_t index, const void *stored,
                              enum graph_dtype dtype, float *row_major, struct err *err);

/* -- outcome.c, for struct backend: host memory, every call is complete on return -- */

enum status cpu_memory_read(void *state, const void *memory, void *host, size_t bytes,
                            struct err *err);
enum status cpu_memory_write(void *state, void *memory, const void *host, size_t bytes,
                             struct err *err);
enum status cpu_view_open(void *state, const struct backend_span *span, uint32_t bucket,
                          float **values, struct err *err);
enum status cpu_view_close(void *state, const struct backend_span *span, uint32_t bucket,
                           float *values, struct err *err);
void cpu_step_graphable(void *state);
void cpu_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads);
enum status cpu_result(void *state, struct net_result *result, struct err *err);
void cpu_bind_scaler(void *state, struct scaler *scaler);
void cpu_finite(void *state, const struct backend_span *grads, uint32_t count,
                struct scaler *scaler);
void cpu_clip(void *state, const struct backend_span *grads, uint32_t count,
              const struct net_clip *clip, const struct scaler *scaler);
void cpu_update(void *state, const struct backend_param *params, uint32_t count,
                const struct optim *optim, const struct scaler *scaler);
void cpu_scaler_end(void *state, struct scaler *scaler, bool used_momentum);
void cpu_step_end(void *state, const struct scaler *scaler);
enum status cpu_outcome_take(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                             struct err *err);
void cpu_add(void *state, const struct backend_span *to, const struct backend_span *from,
             bool clear);
void cpu_refresh(void *state, const struct backend_param *param);
bool cpu_is_finite(void *state, const struct backend_span *span);

/* -- norm.c -- */

/* Parts of batch norm for images [first, first + n): a convolution calls them while its output is
 * in the cache. */
void cpu_norm_sums(struct cpu *cpu, struct cpu_layer *norm, uint32_t first, uint32_t n);
void cpu_norm_backward_apply(struct cpu *cpu, struct cpu_layer *norm, uint32_t first, uint32_t n);

#endif
