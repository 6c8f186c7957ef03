/* Inside of the CPU backend: values in channel blocks, layers as tables of functions, oneDNN
 * primitives. */
#ifndef WORKER_BACKEND_CPU_CPU_H
#define WORKER_BACKEND_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <oneapi/dnnl/dnnl.h>

#include "common/status.h"
#include "worker/backend/cpu/cpu_kernels.h"
#include "worker/backend/cpu/cpu_kernels_add.h"
#include "worker/graph.h"
#include "worker/net_backend.h"
#include "worker/scaler.h"

#define CPU_PRIM_ARGS_MAX 8
#define CPU_CHUNK_BYTES                                                                            \
    (512 * 1024) /* of a convolution's output worked on at once, so that it stays in the L2 cache  \
                  */

/* What a layer makes, for the whole batch, and its gradient. */
struct cpu_value {
    float *data;
    float *grad; /* NULL where nobody needs it, and before cpu_memory_make */
    bool needs_grad;
    bool blocked;      /* [n][blocks][height][width][block]; else row-major */
    uint32_t dims[3];  /* channels, height, width; 1 and 1 for features */
    uint32_t blocks;   /* 0 where not blocked */
    size_t image_size; /* floats stored per image */
};

/* A parameter or buffer as it is stored. */
struct cpu_tensor {
    dnnl_memory_desc_t plain, stored; /* weights */
    bool is_vector;                   /* [count] and padding, no descriptors */
    size_t count, size;               /* elements, stored elements */
    float *param, *grad;
};

/* A primitive with its arguments. */
struct cpu_prim {
    dnnl_primitive_t prim; /* NULL: not made */
    dnnl_exec_arg_t args[CPU_PRIM_ARGS_MAX];
    int arg_count;
};

enum cpu_work {
    CPU_FORWARD,
    CPU_BACKWARD,
    CPU_CONV_FORWARD,
    CPU_CONV_DATA,
    CPU_CONV_WEIGHTS,
    CPU_CONV_COPIES, /* to and from 16 bits */
    CPU_WORKS
};

/* Work of no layer. */
enum cpu_part { CPU_IMAGES, CPU_FINITE, CPU_CLIP, CPU_UPDATE, CPU_PARTS };

struct cpu;
struct cpu_layer;

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
    struct cpu_value *in, *in2; /* NULL where there is none */
    struct cpu_tensor *tensors; /* in the order of the graph */
    void *own;                  /* what the op keeps */
    bool is_low;                /* computed in bf16 (cpu_low.h), not in fp32 and rounded */
    struct cpu_layer *norm;     /* CONV2D: the batch norm that alone reads it */
    struct cpu_layer *conv;     /* BATCH_NORM: the reverse */
    bool adds[2];               /* backward adds to the gradient of this input */
    float *spare;               /* where it is made before it is added */
    bool grad_is_value;
    uint32_t grad_of; /* index of the want whose memory is the value's gradient; GRAPH_NONE */
    uint64_t ns[CPU_WORKS], calls[CPU_WORKS];
};

/* Memory that somebody needs during a part of the step (cpu_plan.h says which times there are). */
struct cpu_want {
    float **at;
    size_t bytes;
    uint32_t birth, death;
};

struct cpu {
    const struct graph *graph;
    const struct cpu_kernels *kernels;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* user scratchpad */
    void *scratch;
    size_t scratch_bytes;
    struct cpu_layer *layers;
    struct cpu_tensor *tensors;
    uint32_t batch_max;
    bool evaluate_only;
    bool has_profile, profile; /* it is asked for at all; it is on */
    uint64_t part_ns[CPU_PARTS], part_calls[CPU_PARTS];
    bool has_bf16; /* the machine computes in bf16, and is to */
    bool widens;   /* images have one channel, the input has more */
    float label_smoothing;
    size_t bytes;
    struct cpu_want *wants;
    uint32_t want_count;
    void *arena; /* all that was wanted */

    /* the step */
    uint32_t n;
    bool training;
    const struct scaler *scaler; /* the loss's gradient is multiplied by its scale */
    int64_t *labels;             /* [batch_max] */
    struct net_result result;
    struct net_outcome outcomes[NET_OUTCOMES]; /* a ring, the oldest at outcome_first */
    uint32_t outcome_first, outcome_count;
    net_sum norm_sum; /* or NULL */
    void *norm_sum_user;
};

extern const struct cpu_op cpu_op_input, cpu_op_conv, cpu_op_norm, cpu_op_relu, cpu_op_pool;
extern const struct cpu_op cpu_op_flatten, cpu_op_linear, cpu_op_add, cpu_op_cast, cpu_op_loss;
extern const struct cpu_op cpu_op_avg_pool, cpu_op_norm_features;

/* Zeroed, 64-byte aligned, counted in cpu->bytes; NULL when out of memory. Free with free(). */
void *cpu_alloc(struct cpu *cpu, size_t bytes);
enum status cpu_out_of_memory(const struct cpu_layer *layer, struct err *err);
/* STATUS_OK, or what oneDNN refused, by layer. */
enum status cpu_check(dnnl_status_t rc, const struct cpu_layer *layer, const char *what,
                      struct err *err);
/* Rounds n stored floats to `dtype`, in place; nothing for fp32. */
void cpu_round(const struct cpu *cpu, enum graph_dtype dtype, float *values, size_t n);
struct cpu_area cpu_area(const struct cpu_value *value, uint32_t images);

/* cpu_profile.c. Nanoseconds now where the profile is on, else 0; and adding what passed since. */
uint64_t cpu_clock(const struct cpu *cpu);
void cpu_count(const struct cpu *cpu, struct cpu_layer *layer, enum cpu_work work, uint64_t since);
void cpu_count_part(struct cpu *cpu, enum cpu_part part, uint64_t since);
/* What struct backend asks for. */
bool cpu_profile(const void *state, uint32_t index, struct net_profile *profile);
void cpu_profile_set(void *state, bool is_on);

/* Descriptors: of a value for n images, and of a tensor row-major. */
dnnl_status_t cpu_value_md(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                           dnnl_memory_desc_t *md);
void cpu_vector_md(size_t count, dnnl_memory_desc_t *md);
/* A tensor stored in oneDNN's layout `stored`; its row-major side has the same dims. */
void cpu_tensor_set_layout(struct cpu_tensor *tensor, const dnnl_memory_desc_t *plain,
                           const dnnl_memory_desc_t *stored);

/* Makes the primitive of `pd` and destroys `pd`; grows the shared scratchpad. */
enum status cpu_prim_make(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                          dnnl_primitive_desc_t pd, struct err *err);
enum status cpu_prim_arg(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                         int arg, const dnnl_memory_desc_t *md, const void *data, struct err *err);
/* Points argument `arg` elsewhere. */
void cpu_prim_point(struct cpu_prim *prim, int arg, const void *data);
enum status cpu_prim_run(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_prim *prim,
                         struct err *err);
void cpu_prim_close(struct cpu_prim *prim);
/* Copies between two layouts of the same dims, once. */
enum status cpu_reorder(struct cpu *cpu, const dnnl_memory_desc_t *from_md, const float *from,
                        const dnnl_memory_desc_t *to_md, float *to, struct err *err);

/* `*at` is set by cpu_memory_make, behind the last open. What lies there is undefined at birth.
 * Errors: STATUS_MEMORY. */
enum status cpu_want(struct cpu *cpu, const struct cpu_layer *layer, float **at, size_t bytes,
                     uint32_t birth, uint32_t death, struct err *err);
/* For this layer's backward alone. */
enum status cpu_want_in_backward(struct cpu *cpu, const struct cpu_layer *layer, float **at,
                                 size_t bytes, struct err *err);
/* Values, gradients and all wants in one arena. Errors: STATUS_MEMORY. */
enum status cpu_memory_make(struct cpu *cpu, struct err *err);
/* grad (+)= more: added or, where nobody wrote it yet, copied. */
void cpu_add_grad(const struct cpu *cpu, float *grad, const float *more, size_t count, bool adds);

/* Adds up over all ranks where statistics are synchronised and this is training. */
enum status cpu_sync(struct cpu *cpu, const struct cpu_layer *layer, double *values, size_t count,
                     struct err *err);

/* cpu_end.c: what struct backend asks for around a step; memory is the host's, nothing is queued.
 */
enum status cpu_memory_read(void *state, const void *memory, void *host, size_t bytes,
                            struct err *err);
enum status cpu_memory_write(void *state, void *memory, const void *host, size_t bytes,
                             struct err *err);
enum status cpu_view_open(void *state, const struct backend_span *span, uint32_t bucket,
                          float **values, struct err *err);
enum status cpu_view_close(void *state, const struct backend_span *span, uint32_t bucket,
                           float *values, struct err *err);
void cpu_step_whole(void *state);
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

/* Batch norm in pieces, so that a convolution can call it while its output is in the cache: images
 * first .. first + n. */
void cpu_norm_sums(struct cpu *cpu, struct cpu_layer *norm, uint32_t first, uint32_t n);
void cpu_norm_backward_apply(struct cpu *cpu, struct cpu_layer *norm, uint32_t first, uint32_t n);

#endif
