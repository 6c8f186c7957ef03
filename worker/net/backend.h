/* What the net asks of a backend: a table of functions, one for the CPU and one for CUDA.
 *
 * Who owns what: the net owns the arenas (parameters, gradients, optimizer states) and walks the
 * layers; the backend owns values, workspaces and primitives, and decides in which layout each
 * tensor is stored. Only the backend reads or writes memory that it has allocated, since that may
 * be a GPU's. Layers and tensors are named by their index in the graph.
 *
 * Threads: one thread calls, except for view_open and view_close of a bucket. Calls that return no
 * status queue work that may run later, in order; a failure there is reported by a later call that
 * returns a status. */
#ifndef WORKER_NET_BACKEND_H
#define WORKER_NET_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"
#include "worker/net/net.h"
#include "worker/net/profile.h"
#include "worker/net/scaler.h"

#define BACKEND_LAYOUT_WORDS 32

/* Elements of one type in the backend's memory: fp16 and bf16 take 2 bytes an element where
 * backend.stores_types, else they are fp32 values that are rounded to the type. */
struct backend_span {
    void *memory;
    size_t count;
    enum graph_dtype dtype;
};

/* A trainable tensor for the optimizer; the same at every step. */
struct backend_param {
    float *param; /* fp32: the master weight where there is one */
    void *half;   /* the copy that layers compute with, in `dtype`; NULL: none */
    struct backend_span grad;
    float *states[OPTIM_STATES]; /* fp32; NULL where the optimizer has none */
    size_t count;                /* elements as stored, padding included */
    enum graph_dtype dtype;      /* the type that layers compute with */
    bool has_master;             /* else param and states are rounded to dtype */
    bool adapts;                 /* LARS and LARC scale its rate: no bias, no batch norm */
};

struct backend {
    const char *name;
    bool stores_types; /* 16-bit types take 16 bits in memory, and every parameter that is not fp32
                          has a copy in its type */
    bool fuses_pools;  /* a batch norm can include any max pool (pass_fuse_pools) */
    bool adds_half;    /* a batch norm can include an addition in 16-bit types too (pass_fuse) */
    bool rounds_norms; /* and can round before it (pass_fuse_adds) */

    /* -- life -- */

    /* Chooses layouts and makes primitives for the graph after its passes; the graph stays valid
     * until close. Errors: those of net_new. */
    enum status (*open)(void **state, const struct graph *graph, const struct net_options *options,
                        struct err *err);
    void (*close)(void **state);
    /* A reducer of this state that queues `collective` on the device. NULL: there is no device. */
    void (*device_reducer)(void *state, const struct device_collective *collective,
                           struct reducer *reducer);

    /* -- tensors and memory -- */

    /* Elements that tensor `index` takes in an arena, padding included. */
    size_t (*tensor_size)(const void *state, uint32_t index);
    /* Writes the layout as numbers, which are equal on two ranks exactly when the same bytes mean
     * the same values; returns how many. */
    uint32_t (*tensor_layout)(const void *state, uint32_t index,
                              uint64_t words[BACKEND_LAYOUT_WORDS]);
    /* Between row-major values on the host, [count], and the stored layout. Padding is written as
     * 0. Both wait for the device. */
    enum status (*tensor_pack)(void *state, uint32_t index, const float *row_major, float *stored,
                               struct err *err);
    enum status (*tensor_unpack)(void *state, uint32_t index, const void *stored,
                                 enum graph_dtype dtype, float *row_major, struct err *err);
    /* Zeroed memory that the backend's kernels can reach, 64-byte aligned; NULL: out of memory. */
    void *(*memory_new)(void *state, size_t bytes);
    void (*memory_free)(void *state, void *memory);
    /* Copies of host bytes from and to that memory. Both wait for what was queued before. */
    enum status (*memory_read)(void *state, const void *memory, void *host, size_t bytes,
                               struct err *err);
    enum status (*memory_write)(void *state, void *memory, const void *host, size_t bytes,
                                struct err *err);
    /* A span as fp32 values on the host: see net_state_open and net_bucket_open.
     *   bucket: GRAPH_NONE for the state; else the bucket whose gradients the span is, and the
     *           calls may come on another thread */
    enum status (*view_open)(void *state, const struct backend_span *span, uint32_t bucket,
                             float **values, struct err *err);
    enum status (*view_close)(void *state, const struct backend_span *span, uint32_t bucket,
                              float *values, struct err *err);
    /* Where the tensor, its 16-bit copy and its gradient are; `half` and `grad` may be NULL. */
    void (*bind)(void *state, uint32_t index, float *param, void *half, void *grad);
    /* The scaler is memory_new's; the loss's backward multiplies by its scale. */
    void (*bind_scaler)(void *state, struct scaler *scaler);

    /* -- a step, in the order of the calls -- */

    /* See net_images_new. NULL: any memory will do, and images are the caller's on return. */
    void *(*images_new)(void *state, size_t bytes);
    void (*images_free)(void *state, void *memory);
    enum status (*images_settle)(void *state, const void *memory, struct err *err);
    uint32_t images_held; /* see net_images_held */
    /* See net_step_graphable. */
    void (*step_graphable)(void *state);
    /* Images, unless in memory of images_new, and labels are the caller's again on return. */
    enum status (*step_begin)(void *state, const struct net_images *images, const int64_t *labels,
                              uint32_t n, bool training, struct err *err);
    /* For layers 0, 1, ... */
    enum status (*layer_forward)(void *state, uint32_t layer, struct err *err);
    /* Of the last forward. Waits. */
    enum status (*result)(void *state, struct net_result *result, struct err *err);
    /* For the last layer first. */
    enum status (*layer_backward)(void *state, uint32_t layer, float grad_scale, struct err *err);
    /* to += from; then from = 0 where `clear`. Equal counts. */
    void (*add)(void *state, const struct backend_span *to, const struct backend_span *from,
                bool clear);
    /* The bucket is complete: no later layer_backward changes it. In the order of the buckets. */
    void (*bucket_ready)(void *state, uint32_t bucket, const struct backend_span *grads);
    /* After the last bucket, and after the reducer's finish where the step is reduced; not where
     * one of the calls before has failed. NULL: nothing to do. */
    enum status (*backward_end)(void *state, struct err *err);
    /* Sets scaler->found_inf where a gradient is infinite or NaN. */
    void (*finite)(void *state, const struct backend_span *grads, uint32_t count,
                   struct scaler *scaler);
    /* net_clip over all spans together. Nothing where found_inf is set. */
    void (*clip)(void *state, const struct backend_span *grads, uint32_t count,
                 const struct net_clip *clip, const struct scaler *scaler);
    /* One optimizer step of every parameter, with its rounding and its 16-bit copy. Nothing where
     * found_inf is set. Lookahead reads parameters after they are rounded. */
    void (*update)(void *state, const struct backend_param *params, uint32_t count,
                   const struct optim *optim, const struct scaler *scaler);
    /* Sets scaler->has_momentum after an unskipped step with momentum; then scaler_step. */
    void (*scaler_end)(void *state, struct scaler *scaler, bool used_momentum);
    /* Keeps the step's outcome for outcome_take. */
    void (*step_end)(void *state, const struct scaler *scaler);
    /* See net_outcome_take. */
    enum status (*outcome_take)(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                                struct err *err);

    /* -- between steps -- */

    /* half = param rounded to dtype; a param without a master is rounded itself. `half` may be
     * NULL. */
    void (*refresh)(void *state, const struct backend_param *param);
    /* Whether all of the span is finite. Waits. */
    bool (*is_finite)(void *state, const struct backend_span *span);
    /* The first layer whose value in the last forward has an infinity or a NaN, or GRAPH_NONE.
     * Waits. */
    uint32_t (*first_nonfinite)(void *state);
    /* See net_drop_captures. NULL: nothing to do. */
    void (*drop_captures)(void *state);

    /* -- reports -- */

    /* Whether the hardware computes the layer, one in fp16 or bf16, in its type. NULL: as
     * stores_types. */
    bool (*computes_half)(const void *state, uint32_t layer);
    /* Threads of the CPU with which the backend computes for the calling thread. NULL: a device
     * computes. */
    uint32_t (*threads)(void);
    /* Bytes that the backend has allocated for itself. */
    size_t (*bytes)(const void *state);
    /* See net_profile and net_profile_set. profile_set NULL: the profile is always on. */
    bool (*profile)(const void *state, uint32_t index, struct net_profile *profile);
    void (*profile_set)(void *state, bool is_on);
};

extern const struct backend backend_cpu;

#endif
