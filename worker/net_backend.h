/* What the executor asks of a backend: a table of functions, so that the CPU and CUDA stand side by
 * side.
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

struct backend {
    const char *name;

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
    enum status (*tensor_unpack)(void *state, uint32_t index, const float *stored, float *row_major,
                                 struct err *err);

    /* Zeroed memory that the backend's kernels can reach, 64-byte aligned; NULL when out of memory.
     */
    void *(*memory_new)(void *state, size_t bytes);
    void (*memory_free)(void *state, void *memory);
    /* Where the tensor and its gradient live from now on; `grad` is NULL for buffers and in
     * evaluation. */
    void (*bind)(void *state, uint32_t index, float *param, float *grad);

    /* One step: begin, then forward for layer 0, 1, ..., then backward for the last layer first. */
    enum status (*step_begin)(void *state, const float *images, const int64_t *labels, uint32_t n,
                              bool training, struct err *err);
    enum status (*layer_forward)(void *state, uint32_t layer, struct err *err);
    enum status (*layer_backward)(void *state, uint32_t layer, float grad_scale, struct err *err);
    /* Valid once the last layer's forward has run. */
    void (*result)(void *state, struct net_result *result);

    /* The end of a step, on the device, in this order; the scaler is memory_new's, and the loss's
     * backward multiplies by its scale. */
    void (*bind_scaler)(void *state, struct scaler *scaler);
    /* Sets scaler->found_inf where one of the n gradients is infinite or no number. */
    void (*finite)(void *state, const float *grads, size_t n, struct scaler *scaler);
    /* optim_sgd over n stored elements; `momentum` may be NULL. */
    void (*sgd)(void *state, float *param, const float *grad, float *momentum, size_t n,
                const struct net_sgd *sgd, const struct scaler *scaler);
    /* to += from; and net_clip over n gradients, a no-op where found_inf is set. */
    void (*add)(void *state, float *to, const float *from, size_t n);
    void (*clip)(void *state, float *grads, size_t n, const struct net_clip *clip,
                 const struct scaler *scaler);
    /* to = from, rounded to `dtype`; in place allowed. */
    void (*cast)(void *state, const float *from, float *to, size_t n, enum graph_dtype dtype);
    /* Takes note of a step with momentum unless it was skipped; then scaler_step. */
    void (*scaler_end)(void *state, struct scaler *scaler, bool used_momentum);
    /* The first layer whose value of the last forward holds an infinity or a NaN; GRAPH_NONE. */
    uint32_t (*first_nonfinite)(void *state);

    size_t (*bytes)(const void *state);
    /* Time spent so far, where net_options.profile was set; false past the end. */
    bool (*profile)(const void *state, uint32_t index, struct net_profile *profile);
};

extern const struct backend backend_cpu;

#endif
