/* Internal to the CUDA backend.
 *
 *   values   NHWC in device memory, channels padded with zeros
 *   layers   tables of functions (struct cuda_op)
 *   heavy    plans (plans/plans.h); everything else is a kernel (kernels/)
 *
 * It is plain C that calls three tables of functions of the loaded module, so a test can pass
 * tables that work on host memory, and no CUDA header is needed.
 *
 * Streams, and the events that order them, as event -> what waits for it:
 *
 *   stream    forward, backward, optimizer
 *   copies    images and labels to the device    slot.copied -> stream; slot.used -> copies
 *   reduces   collectives                        bucket_done -> reduces; reduced -> stream
 *   views     the host's copies of memory        bucket_done -> the host
 *
 * The host waits only if a call has to return a result from the device. */
#ifndef WORKER_BACKEND_CUDA_EXEC_INTERNAL_H
#define WORKER_BACKEND_CUDA_EXEC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/backend/cuda/exec/kernels.h"
#include "worker/backend/cuda/exec/plan_progress.h"
#include "worker/backend/cuda/exec/profile.h"
#include "worker/backend/cuda/module/runtime.h"
#include "worker/backend/cuda/plans/plans.h"
#include "worker/graph/graph.h"
#include "worker/net/backend.h"
#include "worker/net/optim.h"

enum {
    CUDA_SETS_MAX = 4,  /* batch sizes that have plans: the full one, and an epoch's last */
    CUDA_STEPS_MAX = 4, /* captured steps, one for each batch size */
    CUDA_SLOTS = 2,     /* batches in flight to the device */
    /* With this training step, plans of a smaller last batch begin to be built: an eager, a captured and a
     * replayed step have begun. */
    CUDA_STEPS_BEFORE_LAST = 4
};

/* The output of a layer for the whole batch, and its gradient.
 *   data, grad: [n][h][w][channels], channels padded with zeros
 * A flattened image keeps its order: feature c * planes + p is stored at p * channels + c. */
struct cuda_value {
    void *data, *grad; /* grad is NULL if it is not needed */
    enum graph_dtype dtype;
    uint32_t channels, h, w; /* stored channels */
    uint32_t planes;         /* of a flattened image: its h * w; else 1 */
    size_t image_size;       /* stored elements of an image */
    bool needs_grad;
};

/* One axis of a row-major tensor. Index i is stored at
 *   (i / planes) * step + (i % planes) * plane */
struct cuda_axis {
    uint32_t count, planes;
    size_t step, plane;
};

/* A parameter or buffer in its stored layout. */
struct cuda_tensor {
    const struct graph_tensor *graph;
    struct cuda_axis axes[4];
    uint32_t axis_count;
    size_t size;  /* stored elements */
    float *param; /* fp32 */
    void *half;   /* in graph->dtype; NULL: none */
    void *grad;   /* in graph->grad_dtype */
    void *made;   /* the gradient in the plan's type, if that is not grad's; NULL: in place */
    enum graph_dtype made_type;
};

struct cuda;
struct cuda_layer;

struct cuda_op {
    enum status (*open)(struct cuda *cuda, struct cuda_layer *layer, struct err *err);
    enum status (*forward)(struct cuda *cuda, struct cuda_layer *layer, struct err *err);
    /* Writes (does not add) the gradients of inputs to layer->dx, unless that is NULL. */
    enum status (*backward)(struct cuda *cuda, struct cuda_layer *layer, float grad_scale,
                            struct err *err);
};

struct cuda_layer {
    const struct graph_layer *graph;
    const struct cuda_op *op;
    uint32_t index;
    struct cuda_value out;
    struct cuda_value *in[2]; /* NULL: there is none */
    bool is_view;             /* its value shares its input's memory */
    struct cuda_tensor *tensors;

    /* Gradients of the inputs. */
    bool adds[2];   /* another reader wrote this gradient before: add to it */
    void *spare[2]; /* with adds: backward's output before the addition, unless the plan adds */
    float add_us;   /* time of that addition, for a convolution; 0: not measured */
    const struct cuda_layer *masked_by; /* residual.c, for a convolution: the norm */
    void *dx[2];                        /* where backward writes */

    void *scratch;  /* sums over columns */
    uint8_t *place; /* pools: the position of each maximum in its window */

    /* BATCH_NORM */
    bool uses_plans;         /* false: our own kernels; set by cuda_norms_choose */
    uint8_t *mask;           /* where the ReLU passed the value */
    float *stats, *coefs;    /* see kernels/batch_norm.h */
    double *sums, *own_sums; /* of our own kernels; own_sums: before the sum over ranks */
    void *unused[2];         /* gradients that the plan writes but nothing reads */
    /* cuda_norms_share: the gradient of `given_by`, under its mask, is this norm's too */
    const struct cuda_layer *given_by, *gives_to;
    const struct cuda_layer *masks_for; /* residual.c: the convolution */
    void *inside, *inside_grad;         /* with a fused pool and plans: the value before the pool */
    void *kept;          /* with a fused pool and our own kernels: see kernels/norm_pool.h */
    float *channel_sums; /* with stats.c: SUM, SQ_SUM */
    void *equal;         /* with stats.c: EQ_SCALE, EQ_SHIFT, of the value's type */
    float *factors;      /* with stats.c: DY_FACTOR, X_FACTOR, TERM */
};

/* Memory of the arena that is needed from time `birth` to `death`, both included.
 *   forward of layer i   time i
 *   backward of layer i  time 2 * layers - 1 - i
 * See net/memory_plan.h. `*at` is set when the arena is laid out. */
struct cuda_request {
    void **at;
    size_t bytes;
    uint32_t birth, death;
};

/* The plans of one batch size. */
struct cuda_set {
    uint32_t n;    /* 0: unused */
    bool is_ready; /* else a thread builds it, see sets.c */
    struct plan_set *plans;
    struct plan_request *requests; /* until it is ready */
    uint32_t request_count;
    int32_t *index; /* [layer][PLAN_KINDS]; -1: no plan */
    uint8_t *forms; /* [layer], of enum cuda_stats; 0 if it is no batch norm */

    struct plan_progress progress;
    const struct cuda_plans *builds_by; /* the builder's */
    pthread_t builder;
    bool has_builder;
    atomic_bool stops; /* the builder's work is not needed any more */
    struct err built;  /* the builder's result, after it is joined */
};

/* What the calls of a step do.
 *
 *   EAGER    each call queues its work at once
 *   CAPTURE  each call is captured; the graph is launched after the last one
 *   REPLAY   calls do nothing; the graph of an earlier step is launched after the last one
 *   DEFER    calls do nothing, since capturing failed: after the last one all is queued eagerly */
enum cuda_mode { CUDA_EAGER, CUDA_CAPTURE, CUDA_REPLAY, CUDA_DEFER };

/* Forward and backward of one batch size. */
struct cuda_step {
    uint32_t n;       /* 0: unused */
    float grad_scale; /* with which the graph was captured */
    bool is_warm;     /* it ran eagerly once: libraries are initialised, memory is allocated */
    struct CUgraphExec_st *graph;
};

/* A host copy of a span: pinned memory in the device's type, and the values as fp32. See
 * view_open. */
struct cuda_stage {
    void *pinned;
    float *floats;
    size_t pinned_bytes, float_count;
    bool is_open; /* a view uses it */
};

/* One more than a net keeps: the event before the oldest one is still there to count from. */
#define CUDA_OUTCOMES (NET_OUTCOMES + 1)

/* An outcome that the device copies to the host; pinned. */
struct cuda_outcome {
    struct kernel_loss_result loss;
    struct scaler scaler;
};

/* What the net requested at the end of a step. A capture holds the pointers, so they must stay
 * valid; other pointers or options require a new capture. */
struct cuda_optimizer_step {
    bool defers; /* calls are collected here, and queued when scaler_end completes them */
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
    uint32_t batch_max, batch_last; /* of net_options */
    bool evaluate_only, deterministic, tf32;
    uint64_t tune_us; /* of net_options, as the next one */
    bool tunes_cold;
    uint64_t time_until_us; /* our own kernels are timed until then, by mono_us(); 0: not */
    uint32_t image_channels;
    uint32_t collective_sms; /* of net_options */
    float label_smoothing;

    struct CUstream_st *stream, *copies, *views, *reduces; /* see the top of this file */
    struct CUevent_st *reduced;
    struct device_collective collective; /* of cuda_device_reducer; .sum NULL: none */
    bool is_reduced;                     /* this step's gradients are reduced by the collective */
    uint32_t ready_count;                /* buckets of this step that are complete */
    void *wide; /* a bucket of 16-bit gradients as fp32, for collective.in_fp32 */
    size_t wide_bytes;
    struct cuda_request *requests; /* kept after the layout: tests check lifetimes with them */
    uint32_t request_count;
    void *arena;
    void *workspace;
    size_t workspace_bytes, bytes;

    struct {
        void *pinned; /* labels */
        void *staged; /* also pinned: copy of images from other memory; NULL: not used yet */
        void *images; /* on the device: images, then labels */
        const struct cuda_lent *lent; /* with its last images; NULL: other memory */
        int64_t *labels;              /* on the device */
        struct CUevent_st *copied, *used;
        bool is_used, are_bytes;
        struct net_normal normal; /* for images of bytes */
    } slots[CUDA_SLOTS];
    uint32_t slot_next;
    struct cuda_lent *lent; /* memory of cuda_images_new */
    int64_t *labels;
    struct kernel_loss_row *loss_rows; /* [batch_max] */
    struct kernel_loss_result *loss_result;
    uint32_t *flag; /* see cuda_is_finite */
    uint32_t
        *counters; /* [KERNEL_COLUMNS_COUNTERS], 0 between launches; of everything on `stream` */
    void *clip_scratch, *rounded, *lars_workspace;
    size_t lars_bytes;
    void *tables; /* on the host: the tables of one optimizer launch */
    bool had_momentum, is_first_momentum;

    struct cuda_set sets[CUDA_SETS_MAX];
    struct cuda_set *set;            /* the current step's */
    uint32_t steps_begun;            /* training steps of batch_max, up to CUDA_STEPS_BEFORE_LAST */
    struct CUevent_st **bucket_done; /* [bucket_count] */
    struct backend_span *buckets;    /* [bucket_count], from the last bucket_ready of each */
    struct cuda_stage state_stage, bucket_stage;

    /* the current step */
    uint32_t n, rows; /* images; computed rows, which may be more in evaluation */
    bool training;
    struct scaler *scaler;
    net_sum norm_sum; /* or NULL */
    void *norm_sum_user;
    bool is_graphable, captures;
    enum cuda_mode mode;
    struct cuda_step steps[CUDA_STEPS_MAX], *step;

    struct cuda_optimizer_step optimizer;
    struct {
        struct cuda_optimizer_step of;
        bool is_warm; /* it ran eagerly once */
        struct CUgraphExec_st *graph;
    } optimizer_capture;
    struct kernel_rates *rates; /* on the device */

    struct cuda_outcome *outcomes; /* pinned, a ring: the oldest at outcome_first */
    struct CUevent_st *outcome_done[CUDA_OUTCOMES]; /* timed */
    uint32_t outcome_n[CUDA_OUTCOMES];
    uint32_t outcome_first, outcome_count;
    uint64_t outcome_us; /* when the event before the oldest's passed, mono_us(); 0: not known */

    struct cuda_profile *profile; /* NULL: not requested */
    struct err failed;            /* the first failure of a call that cannot report it */
};

extern const struct cuda_op cuda_op_input, cuda_op_conv, cuda_op_norm, cuda_op_relu, cuda_op_pool;
extern const struct cuda_op cuda_op_flatten, cuda_op_linear, cuda_op_add, cuda_op_cast;
extern const struct cuda_op cuda_op_loss, cuda_op_avg_pool;

/* -- check.c: failures, with the layer's name; `layer` may be NULL -- */

/* The result of a launch. With DDP_CUDA_SYNC=1 waits for the device, so that an error names the
 * layer that caused it. */
enum status cuda_launched(struct cuda *cuda, const struct cuda_layer *layer, int code,
                          const char *what, struct err *err);
enum status cuda_named(const struct cuda_layer *layer, enum status status, const struct err *cause,
                       struct err *err);
enum status cuda_out_of_memory(const struct cuda_layer *layer, struct err *err);
/* For calls that return nothing: keeps the first error; cuda_failed reports it from the next call
 * that can. */
void cuda_keep(struct cuda *cuda, enum status status, const struct err *err);
enum status cuda_failed(const struct cuda *cuda, struct err *err);
enum kernel_type cuda_type(enum graph_dtype dtype);

/* -- memory.c: one arena for values, gradients and the layers' requests -- */

enum status cuda_request(struct cuda *cuda, const struct cuda_layer *layer, void **at, size_t bytes,
                         uint32_t birth, uint32_t death, struct err *err);
/* From this layer's forward to the end of its backward. */
enum status cuda_request_until_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                        size_t bytes, struct err *err);
/* Only during its backward. */
enum status cuda_request_in_backward(struct cuda *cuda, struct cuda_layer *layer, void **at,
                                     size_t bytes, struct err *err);
/* The last time that reads the gradient of the layer's output, and its mask. */
uint32_t cuda_grad_death(const struct cuda *cuda, const struct cuda_layer *layer);
/* Call after every layer's open: lays out the arena and sets all pointers. */
enum status cuda_memory_make(struct cuda *cuda, struct err *err);
/* Sets `adds` of every layer; call when all layers are described. */
void cuda_find_adds(struct cuda *cuda);
size_t cuda_value_bytes(const struct cuda *cuda, const struct cuda_value *value);

/* -- layout.c: shapes of values and tensors -- */

void cuda_describe_value(struct cuda *cuda, struct cuda_layer *layer);
void cuda_describe_tensors(struct cuda *cuda, struct cuda_layer *layer);
/* Converts between row-major and stored order, on the host. stored: [size]; its padding is not
 * written. */
void cuda_tensor_store(const struct cuda_tensor *tensor, const float *row_major, float *stored);
void cuda_tensor_fetch(const struct cuda_tensor *tensor, const float *stored, float *row_major);
/* Converts n elements between `type` and fp32, on the host. */
void cuda_widen(const void *from, enum graph_dtype type, size_t n, float *to);
void cuda_narrow(const float *from, enum graph_dtype type, size_t n, void *to);

/* -- sets.c: the net's plans, one set per batch size -- */

/* Makes the set for `n` rows current. Builds it if it does not exist, and waits for the thread that
 * builds it. Candidates are timed in a net's first set alone, and with NET_TUNE_ALL.
 * Errors: STATUS_TOO_BIG (more than CUDA_SETS_MAX sizes), those of plans->open and build. */
enum status cuda_sets_use(struct cuda *cuda, uint32_t n, struct err *err);
/* Begins to build the set for `n` rows on a thread, if there is none. A failure is reported by
 * cuda_sets_use. */
void cuda_sets_begin(struct cuda *cuda, uint32_t n);
void cuda_sets_close(struct cuda *cuda);

/* -- layer_plans.c: one layer's plans in the current set -- */

/* The entry with the plan's index in the set. */
int32_t *cuda_plan_entry(const struct cuda *cuda, const struct cuda_set *set, uint32_t layer,
                         enum plan_kind kind);
bool cuda_has_plan(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind);
/* Whether the plan does not write the gradient of the bias. */
bool cuda_lacks_bias(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind);
/* Whether the plan leaves collective_sms multiprocessors to collectives. */
bool cuda_plan_spares(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind);
/* The time that was measured when the plan was built; 0: not measured. */
float cuda_plan_time_us(const struct cuda *cuda, const struct cuda_layer *layer,
                        enum plan_kind kind);
/* Whether the norm's plans were not made because no start has timed them yet. */
bool cuda_norm_put_off(const struct cuda *cuda, const struct cuda_layer *norm);
/* Whether the layer's own plan adds its data gradient: no spare buffer, no addition afterwards. */
bool cuda_adds_by_plan(const struct cuda *cuda, const struct cuda_layer *layer);
/* Returns STATUS_UNSUPPORTED; `err` says why there is no plan. */
enum status cuda_no_plan(const struct cuda *cuda, const struct cuda_layer *layer,
                         enum plan_kind kind, struct err *err);
/* Queues the plan on cuda->stream. pointers: [PLAN_PORTS]. */
enum status cuda_run(struct cuda *cuda, struct cuda_layer *layer, enum plan_kind kind,
                     void *const *pointers, struct err *err);

/* -- measure.c: times of our own kernels, before the first step -- */

/* The cached time of `name`, a line that says what runs; else that of measure(), if there is still time for it.
 * 0: not known. */
float cuda_time_once(struct cuda *cuda, const char *name, float (*measure)(struct cuda *, void *),
                     void *user);
/* A function that queues one run on cuda->stream. */
typedef enum status (*cuda_measured)(struct cuda *cuda, void *user, struct err *err);
/* Microseconds of one run; 0: not known. */
float cuda_measure_us(struct cuda *cuda, cuda_measured run, void *user);
/* Allocates device memory for the runs, filled with random values of the type. */
enum status cuda_measure_memory(struct cuda *cuda, enum graph_dtype type, size_t bytes,
                                void **memory, struct err *err);

/* -- weights.c -- */

/* Measures add_us, if plans were timed that add the gradient themselves. */
void cuda_additions_time(struct cuda *cuda);

/* -- residual.c: gradients of shortcuts that are not stored -- */

/* Finds the convolutions whose data gradient may add a norm's gradient under its mask: sets masked_by. Call when
 * the layers' `adds` are known. */
void cuda_residuals_find(struct cuda *cuda);
/* Keeps masked_by, and sets masks_for, where that is faster. Call once for a net, when norms are chosen and
 * additions measured. */
void cuda_residuals_choose(struct cuda *cuda);
/* Whether the current set has the plan for it, so that the norm does not store the gradient. */
bool cuda_residual_by_plan(const struct cuda *cuda, const struct cuda_layer *conv);

/* -- norm_choose.c: which batch norms run as plans -- */

/* Call once for a net, with its first set of plans and before its layers are opened. */
void cuda_norms_choose(struct cuda *cuda);
/* Whether plans and our own kernels are compared at all, in this start or a later one. */
bool cuda_norms_compare(const struct cuda *cuda);
/* A norm that is the shortcut of another one, with nobody else reading it, has the other's masked
 * gradient for its own. Our own kernels read gradient and mask, so it is not stored. Call after
 * cuda_norms_choose. */
void cuda_norms_share(struct cuda *cuda);
/* Whether two layers are batch norms that take the same time. */
bool cuda_norm_same_work(const struct cuda_layer *a, const struct cuda_layer *b);
/* Microseconds of both ways by our own kernels, from the cache or measured now; 0: not known. */
float cuda_norm_own_us(struct cuda *cuda, const struct cuda_layer *norm);
/* Microseconds of a pass over memory of its own; both get the norm as cuda_layer. 0: not known.
 * prepare: runs once before, for what the pass reads; NULL: random values do. */
float cuda_norm_time_us(struct cuda *cuda, const struct cuda_layer *norm, cuda_measured prepare,
                        cuda_measured pass);

/* -- norm.c -- */

/* Whether there is a plan for each part of the norm's work; if not, `why` has the reason. */
bool cuda_norm_has_plans(const struct cuda *cuda, const struct cuda_layer *norm, struct err *why);
/* Bytes that our own kernels need. */
struct cuda_norm_needs {
    size_t floats, mask, sums, scratch; /* floats: stats; coefs */
};
struct cuda_norm_needs cuda_norm_needs(const struct cuda *cuda, const struct cuda_layer *norm);
/* Forward and backward of the pool of a norm that runs as a plan. */
enum status cuda_norm_pool_pass(struct cuda *cuda, struct cuda_layer *norm, struct err *err);
/* By plans, the pool included. */
enum status cuda_norm_plan_forward(struct cuda *cuda, struct cuda_layer *norm, struct err *err);
enum status cuda_norm_plan_backward(struct cuda *cuda, struct cuda_layer *norm, struct err *err);
/* What our own kernels do in training, in this order, the pool included. */
enum cuda_norm_part {
    CUDA_NORM_SUMS,
    CUDA_NORM_APPLY,
    CUDA_NORM_BACKWARD_SUMS, /* and the gradients of scale and shift */
    CUDA_NORM_BACKWARD_APPLY,
    CUDA_NORM_PARTS
};
/* One part, for measurements. */
enum status cuda_norm_own_part(struct cuda *cuda, struct cuda_layer *norm, enum cuda_norm_part part,
                               struct err *err);
/* All parts. */
enum status cuda_norm_own_pass(struct cuda *cuda, struct cuda_layer *norm, struct err *err);

/* -- stats_choose.c: which batch norm takes its statistics from the convolution before it -- */

/* Whether plans for such statistics are requested at all. */
bool cuda_stats_requested(const struct cuda *cuda);
/* Sets the form of every norm in the current set; call once for a set. */
void cuda_stats_choose(struct cuda *cuda);
/* The convolution that is the only reader of the norm's value; NULL: there is none. */
const struct cuda_layer *cuda_stats_reader(const struct cuda *cuda, const struct cuda_layer *norm);

/* -- stats.c: how these norms run -- */

/* The norm's form in this step: CUDA_STATS_NONE in evaluation. */
enum cuda_stats cuda_stats_form(const struct cuda *cuda, const struct cuda_layer *norm);
/* Requests the memory that these norms need. */
enum status cuda_stats_open(struct cuda *cuda, struct cuda_layer *norm, struct err *err);
/* The time at which gradients of scale and shift are first written. */
uint32_t cuda_stats_grads_birth(const struct cuda *cuda, const struct cuda_layer *norm);
/* If a convolution also does a norm's work, sets `*kind` to the plan that it runs and sets the
 * pointers for that; else changes nothing. */
void cuda_stats_forward(const struct cuda *cuda, const struct cuda_layer *conv,
                        enum plan_kind *kind, void **pointers);
void cuda_stats_wgrad(const struct cuda *cuda, const struct cuda_layer *conv, enum plan_kind *kind,
                      void **pointers);
void cuda_stats_dgrad(const struct cuda *cuda, const struct cuda_layer *conv, enum plan_kind *kind,
                      void **pointers);
/* The rest of the norm, after the convolution's part. given: the pointers of NORM_FORWARD. */
enum status cuda_stats_norm_forward(struct cuda *cuda, struct cuda_layer *norm, void *const *given,
                                    struct err *err);
enum status cuda_stats_norm_dx(struct cuda *cuda, struct cuda_layer *norm, struct err *err);

/* -- images.c -- */

enum status cuda_slots_open(struct cuda *cuda, struct err *err);
void cuda_slots_close(struct cuda *cuda);
/* cuda_images_send queues the copy of the batch into the slot; cuda_images_unpack then converts it
 * to the input, on the step's stream. */
enum status cuda_images_send(struct cuda *cuda, uint32_t slot, const struct net_images *images,
                             const int64_t *labels, struct err *err);
enum status cuda_images_unpack(struct cuda *cuda, uint32_t slot, struct err *err);
void *cuda_images_new(void *state, size_t bytes);
void cuda_images_free(void *state, void *memory);
enum status cuda_images_settle(void *state, const void *memory, struct err *err);

/* -- step.c: eager, captured and replayed steps -- */

void cuda_step_graphable(void *state);
void cuda_drop_captures(void *state);
enum status cuda_step_begin(void *state, const struct net_images *images, const int64_t *labels,
                            uint32_t n, bool training, struct err *err);
enum status cuda_layer_forward(void *state, uint32_t layer, struct err *err);
enum status cuda_layer_backward(void *state, uint32_t layer, float grad_scale, struct err *err);
void cuda_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads);
enum status cuda_backward_end(void *state, struct err *err);
/* Whether calls of this step queue nothing: the step is replayed, or queued when it is complete. */
bool cuda_is_quiet(const struct cuda *cuda);
/* The result of a call of a step; `why` is copied to `err` (NULL: not). If the call failed during
 * capture, perhaps it cannot be captured. Nothing has run yet, so the status is STATUS_OK, and
 * cuda_backward_end queues the whole step eagerly. */
enum status cuda_settle(struct cuda *cuda, enum status status, const struct err *why,
                        struct err *err);

/* -- reducer.c -- */

/* See net_device_reducer. */
void cuda_device_reducer(void *state, const struct device_collective *collective,
                         struct reducer *reducer);

/* -- reduce.c: cuda_reduce_bucket queues the collective of a bucket after the work that computes
 * the bucket; cuda_reduce_join makes the step wait for all collectives so far; cuda_reduce_all does
 * both for all buckets of the step -- */

enum status cuda_reduce_bucket(struct cuda *cuda, uint32_t bucket, struct err *err);
enum status cuda_reduce_join(struct cuda *cuda, struct err *err);
enum status cuda_reduce_all(struct cuda *cuda, struct err *err);

/* -- optimizer_step.c and outcome.c: the end of a step -- */

/* Each of these queues its work eagerly. */
void cuda_queue_finite(struct cuda *cuda, const struct backend_span *grads, uint32_t count,
                       struct scaler *scaler);
void cuda_queue_clip(struct cuda *cuda, const struct backend_span *grads, uint32_t count,
                     const struct net_clip *clip, const struct scaler *scaler);
/* Call before cuda_queue_update, which reads the rates on the device. Waits for the device if it is
 * unknown whether this is the first step with momentum. */
void cuda_queue_rates(struct cuda *cuda, const struct optim *optim, const struct scaler *scaler);
/* Whether that is known, so that the update can be captured. */
bool cuda_update_is_settled(const struct cuda *cuda, const struct optim *optim);
void cuda_queue_update(struct cuda *cuda, const struct backend_param *params, uint32_t count,
                       const struct optim *optim, const struct scaler *scaler);
void cuda_queue_scaler_end(struct cuda *cuda, struct scaler *scaler, bool used_momentum);

/* Begins a step. defers: the calls at its end are collected, and may be captured. */
void cuda_optimizer_begin(struct cuda *cuda, bool defers);

/* -- functions of struct backend around a step: optimizer_step.c, outcome.c, views.c -- */

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
/* The device has no work yet: its clock is set beside the host's. */
enum status cuda_outcomes_begin(struct cuda *cuda, struct err *err);
void cuda_step_end(void *state, const struct scaler *scaler);
enum status cuda_outcome_take(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                              struct err *err);
uint32_t cuda_first_nonfinite(void *state);
void cuda_update(void *state, const struct backend_param *params, uint32_t count,
                 const struct optim *optim, const struct scaler *scaler);
/* Rounds fp32 values to `dtype` in place. Only for tensors without masters (rounded_bytes in cuda.c
 * has room for them). */
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

/* -- ops.c -- */

enum status cuda_same_storage(const struct cuda_layer *layer, struct err *err);
struct kernel_pool cuda_pool_shape(const struct cuda *cuda, const struct cuda_layer *layer);

#endif
