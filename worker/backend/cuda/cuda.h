/* Inside of the CUDA backend: values as NHWC in device memory, layers as tables of functions, plans
 * (plans.h) for the heavy ones and kernels (kernels/) for the rest.
 *
 * All of it is plain C over three tables of functions of the loaded module, so that a test can
 * stand in tables over host memory; no CUDA header is needed. Work is queued on one stream; the
 * host waits for it only where a call has to bring something back. */
#ifndef WORKER_BACKEND_CUDA_CUDA_H
#define WORKER_BACKEND_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_kernels.h"
#include "worker/backend/cuda/cuda_profile.h"
#include "worker/backend/cuda/module_runtime.h"
#include "worker/backend/cuda/plans.h"
#include "worker/graph.h"
#include "worker/net_backend.h"
#include "worker/optim.h"

enum {
    CUDA_SETS_MAX = 4,  /* batch sizes that have plans: the whole one, the last of an epoch */
    CUDA_STEPS_MAX = 4, /* recorded steps, one a batch size */
    CUDA_SLOTS = 2      /* batches on their way to the device */
};

/* What a layer makes for the whole batch, and its gradient: [n][h][w][channels], channels padded
 * with zeros. A flattened image keeps its order: feature c * planes + p is stored at
 * p * channels + c. */
struct cuda_value {
    void *data, *grad; /* grad is NULL where nobody needs it */
    enum graph_dtype dtype;
    uint32_t channels, h, w; /* stored channels */
    uint32_t planes;         /* of a flattened image: h * w of it; else 1 */
    size_t image_size;       /* stored elements of an image */
    bool needs_grad;
};

/* Where index i of one axis of a row-major tensor lies: (i / planes) * step + (i % planes) * plane.
 */
struct cuda_axis {
    uint32_t count, planes;
    size_t step, plane;
};

/* A parameter or buffer as it is stored. */
struct cuda_tensor {
    const struct graph_tensor *graph;
    struct cuda_axis axes[4];
    uint32_t axis_count;
    size_t size;  /* stored elements */
    float *param; /* fp32 */
    void *low;    /* in graph->dtype; NULL: none */
    void *grad;   /* in graph->grad_dtype */
    void *made;   /* where a plan makes the gradient in another type; NULL: in place */
    enum graph_dtype made_type;
};

struct cuda;
struct cuda_layer;

struct cuda_op {
    enum status (*open)(struct cuda *cuda, struct cuda_layer *layer, struct err *err);
    enum status (*forward)(struct cuda *cuda, struct cuda_layer *layer, struct err *err);
    /* Writes (not adds) the gradients of inputs to layer->dx, where that is not NULL. */
    enum status (*backward)(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                            struct err *err);
};

struct cuda_layer {
    const struct graph_layer *graph;
    const struct cuda_op *op;
    uint32_t index;
    struct cuda_value out;
    struct cuda_value *in[2]; /* NULL where there is none */
    bool is_view;             /* its value is its input's memory */
    struct cuda_tensor *tensors;
    bool adds[2];               /* somebody else has begun the gradient of this input */
    void *spare[2];             /* where it is made before it is added */
    void *dx[2];                /* where backward writes it */
    bool uses_plans;            /* BATCH_NORM: else own kernels */
    uint8_t *mask;              /* BATCH_NORM: where the ReLU let through */
    float *stats, *coefs;       /* BATCH_NORM: see kernels_norm.h */
    double *sums, *own_sums;    /* ... and by our kernels */
    void *unwanted[2];          /* ... the gradients of its inputs, where nobody needs them */
    void *inside, *inside_grad; /* ... with a pool: the value before it */
    float *channel_sums;        /* BATCH_NORM that cuda_stats.c serves: SUM, SQ_SUM */
    void *equal;                /* ... EQ_SCALE, EQ_SHIFT, of its type */
    float *factors;             /* ... DY_FACTOR, X_FACTOR, TERM */
    void *scratch;              /* sums over columns */
    uint8_t *place;             /* pools: of each maximum */
};

/* Memory that somebody needs during a part of the step; times as in cpu_plan.h. */
struct cuda_want {
    void **at;
    size_t bytes;
    uint32_t birth, death;
};

/* The plans of one batch size. */
struct cuda_set {
    uint32_t n; /* 0: unused */
    struct plan_set *plans;
    int32_t *index; /* [layer][PLAN_KINDS]; -1: there is none */
    uint8_t *forms; /* [layer], of enum cuda_stats */
};

/* What happens to the calls of a step. */
enum cuda_mode {
    CUDA_PLAIN,  /* queued as they come */
    CUDA_RECORD, /* written down, then queued as one */
    CUDA_REPEAT, /* nothing: what was written down is queued again */
    CUDA_LATER   /* nothing: writing down failed, the whole step is queued when it is complete */
};

struct cuda_step {
    uint32_t n; /* 0: unused */
    float grad_scale;
    bool is_warm; /* it ran once as it came */
    struct CUgraphExec_st *graph;
};

/* Host values as a copy: see view_open. */
struct cuda_stage {
    void *pinned;
    float *floats;
    size_t pinned_bytes, float_count;
};

/* An outcome on its way; pinned. */
struct cuda_outcome {
    struct kernel_loss_result loss;
    struct scaler scaler;
};

/* What is asked for at the end of a step; pointers stay valid, and the same, from step to step. */
struct cuda_tail {
    bool waits; /* collected until it is complete */
    const struct backend_span *grads;
    uint32_t grad_count;
    bool checks, clips;
    struct net_clip clip;
    const struct backend_param *params;
    uint32_t param_count;
    struct optim optim;
    struct scaler *scaler;
    bool used_momentum;
};

struct cuda {
    const struct graph *graph;
    const struct cuda_runtime *runtime;
    const struct cuda_kernels *kernels;
    const struct cuda_plans *plans;
    struct cuda_backend_options options;
    struct cuda_layer *layers;
    struct cuda_tensor *tensors;
    uint32_t batch_max;
    bool evaluate_only, deterministic, tf32;
    uint32_t image_channels;
    float label_smoothing;

    struct CUstream_st *stream, *copies, *views; /* work; images; a host's views */
    struct CUstream_st *reduces;                 /* collectives */
    struct CUevent_st *reduced;
    struct cuda_reduce reduce; /* .reduce NULL: none */
    bool is_reduced;           /* this step's gradients */
    void *wide;                /* a bucket of 16-bit gradients as fp32, for reduce.in_fp32 */
    size_t wide_bytes;
    struct cuda_want *wants; /* kept: what lives when is for tests to look at */
    uint32_t want_count;
    void *arena;
    void *workspace;
    size_t workspace_bytes, bytes;

    struct {
        void *pinned, *images;
        int64_t *labels; /* on the device */
        struct CUevent_st *copied, *used;
        bool is_used, are_bytes;
    } slots[CUDA_SLOTS];
    uint32_t slot_next;
    int64_t *labels;
    struct kernel_loss_row *loss_rows; /* [batch_max] */
    struct kernel_loss_result *loss_result;
    uint32_t *flag; /* see cuda_is_finite */
    void *clip_scratch, *rounded, *lars_workspace;
    size_t lars_bytes;
    void *tables; /* the host's: of one optimizer launch */
    bool had_momentum, is_first_momentum;

    struct cuda_set sets[CUDA_SETS_MAX];
    struct cuda_set *set; /* of this step */
    struct CUevent_st **bucket_done;
    struct backend_span *buckets; /* [bucket_count], as they were ready last */
    struct cuda_stage state_stage, bucket_stage;

    /* the step */
    uint32_t n, rows; /* images; rows that are computed */
    bool training;
    struct scaler *scaler;
    net_sum norm_sum; /* or NULL */
    void *norm_sum_user;
    bool is_promised, records;
    enum cuda_mode mode;
    struct cuda_step steps[CUDA_STEPS_MAX], *step;

    struct cuda_tail tail;
    struct {
        struct cuda_tail of;
        bool is_warm; /* it ran once as it came */
        struct CUgraphExec_st *graph;
    } tail_record;
    struct kernel_rates *rates; /* on the device */

    struct cuda_outcome *outcomes; /* pinned, a ring: the oldest at outcome_first */
    struct CUevent_st *outcome_done[NET_OUTCOMES];
    uint32_t outcome_n[NET_OUTCOMES];
    uint32_t outcome_first, outcome_count;

    struct cuda_profile *profile; /* NULL: none was asked for */
    struct err failed;            /* the first failure of a call that cannot report it */
};

extern const struct cuda_op cuda_op_input, cuda_op_conv, cuda_op_norm, cuda_op_relu, cuda_op_pool;
extern const struct cuda_op cuda_op_flatten, cuda_op_linear, cuda_op_add, cuda_op_cast;
extern const struct cuda_op cuda_op_loss, cuda_op_avg_pool;

/* cuda_check.c: what a call on a layer came to, with the layer's name; with DDP_CUDA_SYNC=1 waits
 * and says where it failed. `layer` may be NULL. */
enum status cuda_launched(struct cuda *cuda, const struct cuda_layer *layer, int code,
                          const char *what, struct err *err);
enum status cuda_named(const struct cuda_layer *layer, enum status status, const struct err *cause,
                       struct err *err);
enum status cuda_out_of_memory(const struct cuda_layer *layer, struct err *err);
/* Keeps the first failure for the next call that can report it; and reports it. */
void cuda_keep(struct cuda *cuda, enum status status, const struct err *err);
enum status cuda_failed(const struct cuda *cuda, struct err *err);
enum kernel_type cuda_type(enum graph_dtype dtype);

/* cuda_memory.c */
enum status cuda_want(struct cuda *cuda, const struct cuda_layer *layer, void **at, size_t bytes,
                      uint32_t birth, uint32_t death, struct err *err);
/* From this layer's forward to the end of its backward; during its backward alone. */
enum status cuda_want_until_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                     size_t bytes, struct err *err);
enum status cuda_want_in_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                  size_t bytes, struct err *err);
/* Values, gradients and wants in one arena. */
enum status cuda_memory_make(struct cuda *cuda, struct err *err);
size_t cuda_value_bytes(const struct cuda *cuda, const struct cuda_value *value);

/* cuda_layout.c: shapes of values and tensors. */
void cuda_describe_value(struct cuda *cuda, struct cuda_layer *layer);
void cuda_describe_tensors(struct cuda *cuda, struct cuda_layer *layer);
/* Between row-major and stored order, on the host; `stored` is [size], padding as it was. */
void cuda_tensor_store(const struct cuda_tensor *tensor, const float *row_major, float *stored);
void cuda_tensor_fetch(const struct cuda_tensor *tensor, const float *stored, float *row_major);
/* Reads and writes n elements of `type` as fp32. */
void cuda_widen(const void *from, enum graph_dtype type, size_t n, float *to);
void cuda_narrow(const float *from, enum graph_dtype type, size_t n, void *to);

/* cuda_sets.c: makes sure that there are plans for `n` rows, and takes them. */
enum status cuda_sets_use(struct cuda *cuda, uint32_t n, struct err *err);
void cuda_sets_close(struct cuda *cuda);
bool cuda_has_plan(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind);
/* The plan leaves the gradient of the bias to others. */
bool cuda_lacks_bias(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind);
/* As measured when it was built; 0: not known. */
float cuda_plan_time_us(const struct cuda *cuda, const struct cuda_layer *layer,
                        enum plan_kind kind);
/* STATUS_UNSUPPORTED with the reason. */
enum status cuda_no_plan(const struct cuda *cuda, const struct cuda_layer *layer,
                         enum plan_kind kind, struct err *err);
enum status cuda_run(struct cuda *cuda, struct cuda_layer *layer, enum plan_kind kind,
                     void *const *pointers, struct err *err);

/* cuda_stats_choose.c: whether plans for such batch norms are asked for; the form of every norm in
 * the newest set, chosen once; the only convolution that reads a norm's value, NULL. */
bool cuda_stats_wanted(const struct cuda *cuda);
void cuda_stats_choose(struct cuda *cuda);
const struct cuda_layer *cuda_stats_reader(const struct cuda *cuda, const struct cuda_layer *norm);
/* cuda_stats.c: batch norms whose statistics come out of the convolution before. The form of this
 * step. */
enum cuda_stats cuda_stats_form(const struct cuda *cuda, const struct cuda_layer *norm);
/* Memory; and when gradients of scale and shift are first written. */
enum status cuda_stats_open(struct cuda *cuda, struct cuda_layer *norm, struct err *err);
uint32_t cuda_stats_grads_birth(const struct cuda *cuda, const struct cuda_layer *norm);
/* What a convolution runs instead, where it does a norm's work, and the pointers for that. */
void cuda_stats_forward(const struct cuda *cuda, const struct cuda_layer *conv,
                        enum plan_kind *kind, void **pointers);
void cuda_stats_wgrad(const struct cuda *cuda, const struct cuda_layer *conv, enum plan_kind *kind,
                      void **pointers);
void cuda_stats_dgrad(const struct cuda *cuda, const struct cuda_layer *conv, enum plan_kind *kind,
                      void **pointers);
/* What is left of the norm; `given`: the pointers of NORM_FORWARD. */
enum status cuda_stats_norm_forward(struct cuda *cuda, struct cuda_layer *norm, void *const *given,
                                    struct err *err);
enum status cuda_stats_norm_dx(struct cuda *cuda, struct cuda_layer *norm, struct err *err);

/* cuda_step.c: batches to the device, recorded steps. */
enum status cuda_slots_open(struct cuda *cuda, struct err *err);
void cuda_slots_close(struct cuda *cuda);
void cuda_step_whole(void *state);
void cuda_drop_records(void *state);
enum status cuda_step_begin(void *state, const struct net_images *images, const int64_t *labels,
                            uint32_t n, bool training, struct err *err);
enum status cuda_layer_forward(void *state, uint32_t layer, struct err *err);
enum status cuda_layer_backward(void *state, uint32_t layer, float grad_scale, struct err *err);
void cuda_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads);

/* cuda_reduce.c: the bucket that was ready last time there was one of this index; behind which the
 * step goes on when all of them were queued. */
bool cuda_reduces(const void *state);
void cuda_step_reduce(void *state);
enum status cuda_reduce_bucket(struct cuda *cuda, uint32_t bucket, struct err *err);
enum status cuda_reduce_join(struct cuda *cuda, struct err *err);

/* cuda_end.c, cuda_update.c: the parts of a step's end, each queued as it comes. */
void cuda_queue_finite(struct cuda *cuda, const struct backend_span *grads, uint32_t count,
                       struct scaler *scaler);
void cuda_queue_clip(struct cuda *cuda, const struct backend_span *grads, uint32_t count,
                     const struct net_clip *clip, const struct scaler *scaler);
/* Before cuda_queue_update, which reads them on the device. Waits for the device where it is not
 * known whether this is the first step with momentum. */
void cuda_queue_rates(struct cuda *cuda, const struct optim *optim, const struct scaler *scaler);
bool cuda_update_is_settled(const struct cuda *cuda, const struct optim *optim);
void cuda_queue_update(struct cuda *cuda, const struct backend_param *params, uint32_t count,
                       const struct optim *optim, const struct scaler *scaler);
void cuda_queue_scaler_end(struct cuda *cuda, struct scaler *scaler, bool used_momentum);

/* cuda_tail.c: a step begins, whose end is recorded where it `waits`. */
void cuda_tail_begin(struct cuda *cuda, bool waits);

/* cuda_tail.c, cuda_end.c, cuda_update.c, cuda_views.c: what struct backend asks for around a step.
 */
void cuda_bind_scaler(void *state, struct scaler *scaler);
void cuda_finite(void *state, const struct backend_span *grads, uint32_t count,
                 struct scaler *scaler);
bool cuda_is_finite(void *state, const struct backend_span *span);
void cuda_clip(void *state, const struct backend_span *grads, uint32_t count,
               const struct net_clip *clip, const struct scaler *scaler);
void cuda_scaler_end(void *state, struct scaler *scaler, bool used_momentum);
void cuda_add(void *state, const struct backend_span *to, const struct backend_span *from,
              bool clear);
enum status cuda_result(void *state, struct net_result *result, struct err *err);
void cuda_step_end(void *state, const struct scaler *scaler);
enum status cuda_outcome_take(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                              struct err *err);
uint32_t cuda_first_nonfinite(void *state);
void cuda_update(void *state, const struct backend_param *params, uint32_t count,
                 const struct optim *optim, const struct scaler *scaler);
/* Rounds fp32 values to `dtype` in place; of one tensor of a graph that has such without masters.
 */
enum status cuda_round_floats(struct cuda *cuda, float *values, enum graph_dtype dtype,
                              size_t count, struct err *err);
void cuda_refresh(void *state, const struct backend_param *param);
enum status cuda_memory_read(void *state, const void *memory, void *host, size_t bytes,
                             struct err *err);
enum status cuda_memory_write(void *state, void *memory, const void *host, size_t bytes,
                              struct err *err);
enum status cuda_view_open(void *state, const struct backend_span *span, uint32_t bucket,
                           float **values, struct err *err);
enum status cuda_view_close(void *state, const struct backend_span *span, uint32_t bucket,
                            float *values, struct err *err);
void cuda_stage_free(struct cuda *cuda, struct cuda_stage *stage);
enum status cuda_tensor_pack(void *state, uint32_t index, const float *row_major, float *stored,
                             struct err *err);
enum status cuda_tensor_unpack(void *state, uint32_t index, const void *stored,
                               enum graph_dtype dtype, float *row_major, struct err *err);

/* cuda_ops.c */
enum status cuda_same_storage(const struct cuda_layer *layer, struct err *err);
struct kernel_pool cuda_pool_shape(const struct cuda *cuda, const struct cuda_layer *layer);

#endif
