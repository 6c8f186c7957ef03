/* The heavy layers as prepared plans, which cuDNN and cublasLt execute: a table of functions of the
 * CUDA module. A test can pass a table that calls plain C on host memory.
 *
 * Life of a set:
 *   open    for a device
 *   build   once, all requests of a net; on several threads: from the cache on disk if it has them,
 *           else the engine that the heuristics propose first. Then candidates are timed for as
 *           long as the options allow; the result is in the cache for the next set
 *   run     in a step: allocates nothing and waits for nothing, so a step can be captured
 *   close
 *
 * Storage:
 *   values             [n][h][w][c] of one type; linear ones [n][c]. c is the stored number of
 *                      channels (plan_stored_channels, plan_image_channels); surplus channels must
 *                      be 0 in inputs and are 0 in outputs.
 *   weights            [k][r][s][c]; linear ones [k][c]; of the values' type
 *   their gradients    and those of biases: of the values' type (fp16 weights, fp16 gradients)
 *   batch norms        scale, shift, their gradients, statistics, running statistics: f32 [c]
 *
 * All pointers are 16-byte aligned. Sums are computed in f32. */
#ifndef WORKER_BACKEND_CUDA_PLANS_PLANS_H
#define WORKER_BACKEND_CUDA_PLANS_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"

struct CUstream_st; /* what CUDA's cudaStream_t points to */

/* What a plan computes, and the pointers (ports) that run() takes. In brackets: only if the
 * request has has_bias, has_add, has_relu.
 *
 * CONV_FORWARD         y = x * w [+ bias]
 *                      X, W, [BIAS], Y
 * CONV_DGRAD           dx = dy * w
 *                      DY, W, DX
 * CONV_DGRAD_ADD       dx = dx + dy * w, in place; one rounding
 *                      DY, W, DX
 * CONV_DGRAD_MASKED    dx = dy * w + dadd where the mask is set; one rounding
 *                      DY, W, DADD, MASK, DX
 * CONV_WGRAD           dw = dy * x; the gradient of a bias is a sum over dy, see kernels/layers.h
 *                      DY, X, DW
 * NORM_FORWARD         y = [relu] (norm(x) * scale + shift [+ add]), by the batch's statistics;
 *                      running statistics are updated in place, the variance unbiased
 *                      X, SCALE, SHIFT, [ADD], Y, MEAN, INV_STD, RUNNING_MEAN, RUNNING_VAR,
 *                      [MASK where has_relu]
 * NORM_EVALUATE        the same by given statistics
 *                      X, SCALE, SHIFT, [ADD], Y, MEAN, INV_STD
 * NORM_BACKWARD        of NORM_FORWARD; DADD is the masked dy, which is the gradient of ADD
 *                      DY, [MASK], X, SCALE, MEAN, INV_STD, DX, DSCALE, DSHIFT,
 *                      [DADD where has_add]
 * LINEAR_FORWARD       y = x * w^T [+ bias]
 *                      X, W, [BIAS], Y
 * LINEAR_DGRAD         DY, W, DX
 * LINEAR_WGRAD         DY, X, DW, [DBIAS]
 *
 * Stage two: the convolution computes the statistics, and with a prologue kind the normalised value
 * is never written.
 *
 * CONV_STATS           y = x * w; per channel sum = sum of y, sq_sum = sum of y^2
 *                      X, W, Y, SUM, SQ_SUM (f32 [k])
 * CONV_STATS_PROLOGUE  y = relu(x * eq_scale + eq_shift) * w; the same sums
 *                      X, EQ_SCALE, EQ_SHIFT (`type` [c]), W, Y, SUM, SQ_SUM
 * STATS_FINALIZE       statistics of n * h * w values; running statistics in place
 *                      SUM, SQ_SUM, SCALE, SHIFT, MEAN, INV_STD, RUNNING_MEAN, RUNNING_VAR,
 *                      EQ_SCALE, EQ_SHIFT (`type` [c])
 * NORM_APPLY           y = relu(norm(x) * scale + shift [+ add]) by given statistics, all in f32: a
 *                      shift of 16 bits would be off by 2^-11 of mean / deviation
 *                      X, SCALE, SHIFT, MEAN, INV_STD, [ADD], Y, [MASK]
 * CONV_WGRAD_PROLOGUE  dw = dy * relu(x * eq_scale + eq_shift)
 *                      DY, X, EQ_SCALE, EQ_SHIFT, DW
 * CONV_DGRAD_NORM      dadd = dy * w where norm(x) * scale + shift > 0, else 0; that value is
 *                      computed again. And the gradients of the norm's scale and shift.
 *                      DY, W, X, MEAN, INV_STD, SCALE, SHIFT, DADD, DSCALE, DSHIFT,
 *                      DY_FACTOR, X_FACTOR, TERM (f32 [c])
 * NORM_DX              dx = dadd * dy_factor + x * x_factor + term
 *                      DADD, X, DY_FACTOR, X_FACTOR, TERM, DX
 *
 * MASK is [n][h][w][c], where the ReLU let the value through: a bit an element, eight to a byte, the
 * lowest first. So cuDNN stores CUDNN_DATA_BOOLEAN (API reference, cudnnDataType_t); only plans read
 * it.
 *
 * X(name, text) */
#define PLAN_KIND_TABLE(X)                                                                         \
    X(CONV_FORWARD, "convolution forward")                                                         \
    X(CONV_DGRAD, "convolution data gradient")                                                     \
    X(CONV_WGRAD, "convolution weight gradient")                                                   \
    X(NORM_FORWARD, "batch norm forward")                                                          \
    X(NORM_EVALUATE, "batch norm evaluation")                                                      \
    X(NORM_BACKWARD, "batch norm backward")                                                        \
    X(LINEAR_FORWARD, "linear forward")                                                            \
    X(LINEAR_DGRAD, "linear data gradient")                                                        \
    X(LINEAR_WGRAD, "linear weight gradient")                                                      \
    X(CONV_DGRAD_ADD, "convolution data gradient, added")                                          \
    X(CONV_STATS, "convolution forward with statistics")                                           \
    X(CONV_STATS_PROLOGUE, "convolution of a normalised value with statistics")                    \
    X(STATS_FINALIZE, "batch norm statistics")                                                     \
    X(NORM_APPLY, "batch norm application")                                                        \
    X(CONV_WGRAD_PROLOGUE, "convolution weight gradient of a normalised value")                    \
    X(CONV_DGRAD_NORM, "convolution data gradient of a normalised value")                          \
    X(NORM_DX, "batch norm data gradient")                                                         \
    X(CONV_DGRAD_MASKED, "convolution data gradient, added to a masked one")

enum plan_kind {
#define PLAN_KIND_ENUM(name, text) PLAN_##name,
    PLAN_KIND_TABLE(PLAN_KIND_ENUM)
#undef PLAN_KIND_ENUM
        PLAN_KINDS
};

/* Indices of run()'s pointers; NULL if a plan does not take one. */
#define PLAN_PORT_TABLE(ENTRY)                                                                     \
    ENTRY(X)                                                                                       \
    ENTRY(W)                                                                                       \
    ENTRY(BIAS)                                                                                    \
    ENTRY(Y)                                                                                       \
    ENTRY(DX)                                                                                      \
    ENTRY(DW)                                                                                      \
    ENTRY(DBIAS)                                                                                   \
    ENTRY(DY)                                                                                      \
    ENTRY(ADD)                                                                                     \
    ENTRY(DADD)                                                                                    \
    ENTRY(MASK)                                                                                    \
    ENTRY(SCALE)                                                                                   \
    ENTRY(SHIFT)                                                                                   \
    ENTRY(DSCALE)                                                                                  \
    ENTRY(DSHIFT)                                                                                  \
    ENTRY(MEAN)                                                                                    \
    ENTRY(INV_STD)                                                                                 \
    ENTRY(RUNNING_MEAN)                                                                            \
    ENTRY(RUNNING_VAR)                                                                             \
    ENTRY(SUM)                                                                                     \
    ENTRY(SQ_SUM)                                                                                  \
    ENTRY(EQ_SCALE)                                                                                \
    ENTRY(EQ_SHIFT)                                                                                \
    ENTRY(DY_FACTOR)                                                                               \
    ENTRY(X_FACTOR)                                                                                \
    ENTRY(TERM)

enum plan_port {
#define PLAN_PORT_ENUM(name) PLAN_PORT_##name,
    PLAN_PORT_TABLE(PLAN_PORT_ENUM)
#undef PLAN_PORT_ENUM
        PLAN_PORTS
};

/* The parameters of a plan. Requests that differ only in `layer`, `name`, `eps` and `momentum` share a plan: eps and
 * momentum are given to it at each run. */
struct plan_request {
    enum plan_kind kind;
    uint32_t layer; /* in the graph; for messages and for the caller */
    char name[GRAPH_NAME_MAX];
    enum graph_dtype type;
    uint32_t n, c, h, w;        /* the layer's input, stored channels; linear: h = w = 1 */
    uint32_t k;                 /* stored output channels; norms: c */
    uint32_t out_h, out_w;      /* convolutions */
    struct graph_window window; /* convolutions */
    bool has_bias, has_add, has_relu;
    bool if_timed; /* there is another way: build() makes no engine where the cache has no time
                            of one, except with PLAN_TUNE_ALL */
    float eps, momentum; /* norms; momentum as PyTorch's: weight of the new statistics */
};

/* What was built for a request. */
struct plan_info {
    enum status status;     /* UNSUPPORTED: no engine can do this here; use another way */
    size_t workspace_bytes; /* one of the largest size serves all plans of a stream */
    bool from_cache;
    bool lacks_bias;   /* LINEAR_WGRAD with a bias: no engine writes DBIAS */
    bool spares_sms;   /* built to leave options.spared_sms free */
    bool is_put_off;   /* if_timed, and nothing was made; UNSUPPORTED */
    bool needs_driver; /* only the driver is missing: the engine compiles its kernel at run time */
    float time_us;     /* of the chosen candidate, maybe measured when it was put into the cache; 0:
                          not measured, so the engine is the first that the heuristics propose */
    char engine[96];   /* the chosen engine, or why there is none */
};

/* How far build() is. */
enum plan_phase {
    PLAN_WAITING,  /* for a process that makes the same plans; `done`: seconds so far */
    PLAN_BUILDING, /* `done` of `total` plans have an engine */
    PLAN_TIMING    /* `done` of `total` plans have a time */
};

#define PLAN_TUNE_ALL UINT64_MAX

struct plan_options {
    uint32_t device_index;
    bool deterministic;  /* the same bits in every run: uses only engines that promise this, always
                            the first of them, and times nothing */
    bool tf32;           /* f32 convolutions and linear layers may round their inputs to TF32 */
    uint32_t candidates; /* to time for each request; 1: take the heuristics' first; 0: 8 */
    uint64_t tune_us;    /* build() begins no further plan's candidates after so long; 0: times
                            nothing; PLAN_TUNE_ALL: all that has no time yet */
    bool tunes_cold;     /* also if build() had to build engines that the cache did not have */
    bool in_background;  /* the threads of build() have a low priority, and nothing is timed */
    struct plan_set *shares; /* an open set of the same device, which is closed later: its libraries
                                and handles are used. NULL: opens its own */
    uint32_t threads;        /* threads that build; 0: one per processor, at most 16 */
    uint32_t
        spared_sms; /* multiprocessors that batch norms leave to collectives that run at the same
                       time, if an engine accepts such a wish. With persistent blocks on all
                       multiprocessors the norm would wait for NCCL's kernel to end, or NCCL's
                       kernel for the norm */
    size_t workspace_limit;   /* bytes; 0: 1 GiB */
    const char *cache_folder; /* NULL: the user's cache folder (ddp/plans in it); "": no cache */
    const char *cudnn_name;   /* libraries, for tests; NULL: see libs.h */
    const char *cublaslt_name;
    void (*note)(void *user, const char *text); /* reports an unusable cache; may be NULL */
    /* Called by build() on its caller's thread, several times a second; may be NULL. */
    void (*progress)(void *user, enum plan_phase phase, uint32_t done, uint32_t total);
    /* Asked by build() on all its threads: true ends it early, with STATUS_CLOSED; may be NULL. */
    bool (*stops)(void *user);
    void *note_user;         /* of these three */
    const char *device_file; /* a description of a device in cuDNN's JSON, to build plans without a
                                device; such plans cannot run; NULL: the device */
};

/* What build() did. Requests that share a plan count once. */
struct plan_counts {
    uint32_t plans;
    uint32_t queries; /* of the heuristics */
    uint32_t
        finalised; /* engines that cuDNN made ready to run, also out of the cache; the costly part */
    uint32_t from_cache; /* plans */
    uint32_t built;      /* plans that the cache did not have */
    uint32_t tuned;      /* plans whose candidates were timed */
    uint32_t timed;      /* candidates */
    uint32_t untimed;    /* plans without a time, which a later set will time; 0 if it never will */
    bool may_time;       /* the options allow it, and no other process does it just now */
    uint64_t cache_bytes;                /* read */
    uint64_t wait_us, build_us, tune_us; /* for another process; engines; times */
};

struct plan_set;

/* Calls for a set come from one thread at a time; run() may be called during a capture. build() of
 * one set may run beside run() of the set that it shares. */
struct cuda_plans {
    /* Loads the libraries and creates their handles. `err` has name, version and remedy.
     * Errors: STATUS_NOT_FOUND    a library is missing
     *         STATUS_UNSUPPORTED  too old; no device */
    enum status (*open)(struct plan_set **set, const struct plan_options *options, struct err *err);
    void (*close)(struct plan_set **set);
    /* Builds a plan for each request; once for a set. A request for which there is no engine is no
     * error: see info. Without a cache this blocks for seconds; if another process makes the same
     * plans, until it has, but at most PLAN_WAIT_US. Errors: STATUS_MEMORY, STATUS_LIBRARY,
     * STATUS_CLOSED (options.stops). */
    enum status (*build)(struct plan_set *set, const struct plan_request *requests, uint32_t count,
                         struct err *err);
    const struct plan_info *(*info)(const struct plan_set *set, uint32_t index);
    void (*counts)(const struct plan_set *set, struct plan_counts *counts); /* of build() */
    /* Microseconds of other work on this device, by a name of one line, from the same cache; 0: not known.
     * They are those of this build of the module. After build(). */
    float (*time_read)(const struct plan_set *set, const char *name);
    void (*time_write)(struct plan_set *set, const char *name, float time_us);
    /* Queues plan `index` on the stream.
     *   pointers: [PLAN_PORTS], device memory
     *   workspace: info's bytes, 256-byte aligned; may be reused after the stream has done the plan
     * Errors: STATUS_LIBRARY, with the layer's name. */
    enum status (*run)(struct plan_set *set, uint32_t index, struct CUstream_st *stream,
                       void *workspace, void *const *pointers, struct err *err);
};

extern const struct cuda_plans cuda_plans; /* only in the module */

/* How long build() waits for another process with the same requests; with PLAN_TUNE_ALL the second. */
#define PLAN_WAIT_US UINT64_C(30000000)
#define PLAN_WAIT_ALL_US UINT64_C(1800000000)

const char *plan_kind_name(enum plan_kind kind);
const char *plan_port_name(enum plan_port port);
const char *plan_type_name(enum graph_dtype type); /* "fp16" */
/* Whether a plan of this request takes a pointer at this port. */
bool plan_takes(const struct plan_request *request, enum plan_port port);

/* Bytes of the port's memory for this request. */
size_t plan_port_bytes(const struct plan_request *request, enum plan_port port);

/* The least time of a run on a GPU, by what it moves and computes: docs/performance.md. Only its
 * order means anything. */
double plan_cost_us(const struct plan_request *request);

/* How many channels (or features) are stored for `channels`: the next multiple of 8. */
uint32_t plan_stored_channels(uint32_t channels);
/* How many are stored of the images, the network's input: the next multiple of 4, of which cuDNN's engines for
 * fp16 make the first convolution without a workspace. Of 8 where a convolution of bf16 reads them: its engines
 * are several times slower with 4 (docs/performance.md). */
uint32_t plan_image_channels(const struct graph *graph);

/* The plans that a net needs: for every convolution, batch norm and linear layer of the (passed)
 * graph, for a training step and a forward one. Batch norms of a forward one need none: our kernel
 * does them in one pass, and starts at once. In layer order, forward before backward; no data
 * gradient for layers that read the network's input. Returns how many; requests NULL: only
 * counts. */
uint32_t plan_list(const struct graph *graph, uint32_t batch, bool evaluate_only,
                   struct plan_request *requests);
/* The plans of stage two, in addition to plan_list's.
 *   a convolution without bias, channels a multiple of 64, fp16, that only a batch norm reads:
 *     CONV_STATS, STATS_FINALIZE; NORM_APPLY where the norm has a ReLU, else NORM_EVALUATE
 *   with `prologues`, where in turn only such a convolution reads the norm's value:
 *     the prologue kinds for that convolution, NORM_DX for the norm
 * A pair of layers uses them when all their plans are STATUS_OK. Returns how many, as plan_list. */
uint32_t plan_list_statistics(const struct graph *graph, uint32_t batch, bool prologues,
                              struct plan_request *requests);

#endif
