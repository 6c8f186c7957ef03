/* What the executor asks of a backend: a table of functions, so that the CPU and CUDA stand side by
 * side. Memory of the backend is never read or written by anybody else: it may be a GPU's.
 *
 * The executor (net.c) owns the arenas and walks the layers; the backend owns values, workspaces
 * and primitives, and decides in which layout each tensor is stored. Layers and tensors are named
 * by their index in the graph. */
#ifndef WORKER_NET_BACKEND_H
#define WORKER_NET_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph.h"
#include "worker/net.h"
#include "worker/scaler.h"

#define BACKEND_LAYOUT_WORDS 32

/* Elements of one type in memory of the backend. Fp16 and bf16 take 2 bytes an element where
 * backend.stores_types, else they are fp32 that is rounded. */
struct backend_span {
    void *memory;
    size_t count;
    enum graph_dtype dtype;
};

/* What one trainable tensor brings to the optimizer step; the same at every step. */
struct backend_param {
    float *param; /* fp32: the master where there is one */
    void *low;    /* the copy that layers compute with, in `dtype`; NULL: none */
    struct backend_span grad;
    float *states[OPTIM_STATES]; /* fp32; NULL where the optimizer has none */
    size_t count;                /* of stored elements */
    enum graph_dtype dtype;      /* what the layer computes with */
    bool has_master;             /* else param and states are rounded to dtype */
    bool adapts;                 /* LARS measures it: neither a bias nor of a batch norm */
};

struct backend {
    const char *name;
    bool stores_types; /* 16-bit types take 16 bits in memory; a low copy stands beside every
                          parameter that is not fp32 */
    bool takes_bytes;  /* images as bytes too */
    bool adds_low;     /* a batch norm takes an addition along in 16-bit types too (pass_fuse) */

    /* Choose layouts for the (already passed) graph, which stays valid until close. */
    enum status (*open)(void **state, const struct graph *graph, const struct net_options *options,
                        struct err *err);
    void (*close)(void **state);

    /* Elements that tensor `index` takes in the arena, padding included. */
    size_t (*tensor_size)(const void *state, uint32_t index);
    /* The layout as numbers, equal on two ranks exactly when the bytes mean the same. Returns how
     * many. */
    uint32_t (*tensor_layout)(const void *state, uint32_t index,
                              uint64_t words[BACKEND_LAYOUT_WORDS]);
    /* Between row-major [count] and the stored layout; padding is written as 0. */
    enum status (*tensor_pack)(void *state, uint32_t index, const float *row_major, float *stored,
                               struct err *err);
    enum status (*tensor_unpack)(void *state, uint32_t index, const void *stored,
                                 enum graph_dtype dtype, float *row_major, struct err *err);

    /* Zeroed memory that the backend's kernels can reach, 64-byte aligned; NULL when out of memory.
     */
    void *(*memory_new)(void *state, size_t bytes);
    void (*memory_free)(void *state, void *memory);
    /* Host bytes from and to that memory; both wait for what was queued before. */
    enum status (*memory_read)(void *state, const void *memory, void *host, size_t bytes,
                               struct err *err);
    enum status (*memory_write)(void *state, void *memory, const void *host, size_t bytes,
                                struct err *err);
    /* A span as fp32 on the host, and back. `bucket` is GRAPH_NONE for the state, else the bucket
     * whose gradients the span is, see bucket_ready; that may be on another thread. */
    enum status (*view_open)(void *state, const struct backend_span *span, uint32_t bucket,
                             float **values, struct err *err);
    enum status (*view_close)(void *state, const struct backend_span *span, uint32_t bucket,
                              float *values, struct err *err);
    /* Where the tensor and its gradient live from now on; `low` and `grad` may be NULL. */
    void (*bind)(void *state, uint32_t index, float *param, void *low, void *grad);

    /* What is queued behind the calls below may run later and in order; a failure there comes up in
     * a later call that can report it.
     *
     * One step: begin, then forward for layer 0, 1, ..., then backward for the last layer first.
     * step_whole is net_step_whole; images and labels are free when step_begin returns. */
    void (*step_whole)(void *state);
    enum status (*step_begin)(void *state, const struct net_images *images, const int64_t *labels,
                              uint32_t n, bool training, struct err *err);
    enum status (*layer_forward)(void *state, uint32_t layer, struct err *err);
    enum status (*layer_backward)(void *state, uint32_t layer, float grad_scale, struct err *err);
    /* Whether the backend can average gradients over ranks by itself; net_step_reduce. NULL: no. */
    bool (*reduces)(const void *state);
    void (*step_reduce)(void *state);
    /* See net_drop_records. NULL: there are none. */
    void (*drop_records)(void *state);
    /* Nothing that is queued from now on changes the gradients of this bucket. */
    void (*bucket_ready)(void *state, uint32_t bucket, const struct backend_span *grads);
    /* Of the last forward; waits. */
    enum status (*result)(void *state, struct net_result *result, struct err *err);

    /* The end of a step, on the device, in this order; the scaler is memory_new's, and the loss's
     * backward multiplies by its scale. */
    void (*bind_scaler)(void *state, struct scaler *scaler);
    /* Sets scaler->found_inf where one of the gradients is infinite or no number. */
    void (*finite)(void *state, const struct backend_span *grads, uint32_t count,
                   struct scaler *scaler);
    /* net_clip over all spans together, a no-op where found_inf is set. */
    void (*clip)(void *state, const struct backend_span *grads, uint32_t count,
                 const struct net_clip *clip, const struct scaler *scaler);
    /* The optimizer step of every parameter, low copies and rounding included; changes nothing
     * where found_inf is set. Lookahead's turn sees parameters that are rounded. */
    void (*update)(void *state, const struct backend_param *params, uint32_t count,
                   const struct optim *optim, const struct scaler *scaler);
    /* Takes note of a step with momentum unless it was skipped; then scaler_step. */
    void (*scaler_end)(void *state, struct scaler *scaler, bool used_momentum);
    /* The step is over: its outcome is kept for outcome_take, as net_outcome_take has it. */
    void (*step_end)(void *state, const struct scaler *scaler);
    enum status (*outcome_take)(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                                struct err *err);

    /* to += from, then from = 0 where asked. Equal counts. */
    void (*add)(void *state, const struct backend_span *to, const struct backend_span *from,
                bool clear);
    /* low = param rounded to dtype; a param without a master is rounded too. `low` may be NULL. */
    void (*refresh)(void *state, const struct backend_param *param);
    /* Whether all of it is finite; waits. */
    bool (*is_finite)(void *state, const struct backend_span *span);
    /* The first layer whose value of the last forward holds an infinity or a NaN; GRAPH_NONE. */
    uint32_t (*first_nonfinite)(void *state);

    /* Whether the hardware computes the layer in its type; asked of layers in fp16 or bf16. NULL:
     * as stores_types. */
    bool (*computes_low)(const void *state, uint32_t layer);
    size_t (*bytes)(const void *state);
    /* Time spent so far, where net_options.profile was set; false past the end. */
    bool (*profile)(const void *state, uint32_t index, struct net_profile *profile);
    /* net_profile_set. NULL: it is always on. */
    void (*profile_set)(void *state, bool is_on);
};

extern const struct backend backend_cpu;

#endif
