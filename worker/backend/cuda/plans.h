/* The heavy layers as prepared plans: what cuDNN and cublasLt do for us, behind a table of
 * functions of the CUDA module, so that a test can stand in a table that calls plain C on host
 * memory.
 *
 * Life: open a set for a device -> build() for every want of a net at once (in parallel threads;
 * from the cache on disk where it has them; candidates timed where there is a device) -> run() in a
 * step, which allocates nothing and waits for nothing, so that steps can be captured -> close.
 *
 * Storage. Values are [n][h][w][c] of one type, linear ones [n][c]; c is the stored number of
 * channels (plan_stored_channels), what is over is 0 on the way in and comes out as 0. Weights are
 * [k][r][s][c], linear ones [k][c], of the values' type; so are the gradients of weights and biases
 * (fp16 weights give fp16 gradients). Batch norms keep scale, shift, their gradients, statistics
 * and running statistics in f32 [c]. All pointers are 16-byte aligned. Sums are made in f32. */
#ifndef WORKER_BACKEND_CUDA_PLANS_H
#define WORKER_BACKEND_CUDA_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph.h"

struct CUstream_st; /* what CUDA's cudaStream_t points to */

/* X(name, words, ports): what a plan computes, and the pointers that run() takes. Those in brackets
 * are wanted where the want says has_bias, has_add, has_relu.
 *   mask: [n][h][w][c], where ReLU let the value through: read by plans alone, in whatever form
 * they write it, with room for 1 byte an element (cuDNN takes a bit). */
#define PLAN_KIND_TABLE(X)                                                                         \
    /* y = x * w [+ bias]: X, W, [BIAS], Y */                                                      \
    X(CONV_FORWARD, "convolution forward")                                                         \
    /* dx = dy * w: DY, W, DX */                                                                   \
    X(CONV_DGRAD, "convolution data gradient")                                                     \
    /* dw = dy * x: DY, X, DW; a bias's gradient is a sum over dy, see kernels.h */                \
    X(CONV_WGRAD, "convolution weight gradient")                                                   \
    /* y = [relu] (norm(x) * scale + shift [+ add]) by the batch's statistics: X, SCALE, SHIFT,    \
       [ADD], Y, MEAN, INV_STD, RUNNING_MEAN, RUNNING_VAR (updated in place, the variance          \
       unbiased), [MASK where has_relu] */                                                         \
    X(NORM_FORWARD, "batch norm forward")                                                          \
    /* the same by given statistics: X, SCALE, SHIFT, [ADD], Y, MEAN, INV_STD */                   \
    X(NORM_EVALUATE, "batch norm evaluation")                                                      \
    /* of NORM_FORWARD: DY, [MASK], X, SCALE, MEAN, INV_STD, DX, DSCALE, DSHIFT, [DADD where       \
       has_add: the masked dy, which is the gradient of ADD] */                                    \
    X(NORM_BACKWARD, "batch norm backward")                                                        \
    /* y = x * w^T [+ bias]: X, W, [BIAS], Y */                                                    \
    X(LINEAR_FORWARD, "linear forward")                                                            \
    /* DY, W, DX */                                                                                \
    X(LINEAR_DGRAD, "linear data gradient")                                                        \
    /* DY, X, DW, [DBIAS] */                                                                       \
    X(LINEAR_WGRAD, "linear weight gradient")                                                      \
    /* Stage two, where the statistics come out of the convolution before and the normalised       \
       value is never written. y = x * w; and per channel: X, W, Y, SUM, SQ_SUM (f32 [k]) */       \
    X(CONV_STATS, "convolution forward with statistics")                                           \
    /* y = relu(x * eq_scale + eq_shift) * w, and per channel the statistics: X, EQ_SCALE,         \
       EQ_SHIFT (`type` [c]), W, Y, SUM, SQ_SUM */                                                 \
    X(CONV_STATS_PROLOGUE, "convolution of a normalised value with statistics")                    \
    /* statistics of n * h * w values: SUM, SQ_SUM, SCALE, SHIFT, MEAN, INV_STD, RUNNING_MEAN,     \
       RUNNING_VAR (in place), EQ_SCALE, EQ_SHIFT (`type` [c]) */                                  \
    X(STATS_FINALIZE, "batch norm statistics")                                                     \
    /* y = relu(x * eq_scale + eq_shift [+ add]): X, EQ_SCALE, EQ_SHIFT, [ADD], Y, [MASK] */       \
    X(NORM_APPLY, "batch norm application")                                                        \
    /* dw = dy * relu(x * eq_scale + eq_shift): DY, X, EQ_SCALE, EQ_SHIFT, DW */                   \
    X(CONV_WGRAD_PROLOGUE, "convolution weight gradient of a normalised value")                    \
    /* Its data gradient, as far as the batch norm: dadd = dy * w where the ReLU let               \
       norm(x) * scale + shift through, which is made again; and the norm's gradients: DY, W, X,   \
       MEAN, INV_STD, SCALE, SHIFT, DADD, DSCALE, DSHIFT, DY_FACTOR, X_FACTOR, TERM (f32 [c]) */   \
    X(CONV_DGRAD_NORM, "convolution data gradient of a normalised value")                          \
    /* The rest of it: dx = dadd * dy_factor + x * x_factor + term: DADD, X, DY_FACTOR, X_FACTOR,  \
       TERM, DX */                                                                                 \
    X(NORM_DX, "batch norm data gradient")

enum plan_kind {
#define PLAN_KIND_ENUM(name, words) PLAN_##name,
    PLAN_KIND_TABLE(PLAN_KIND_ENUM)
#undef PLAN_KIND_ENUM
        PLAN_KINDS
};

/* Places in run()'s pointers; NULL where a plan does not take one. */
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

/* What is computed, in numbers; two wants that differ in `layer` alone share a plan. */
struct plan_want {
    enum plan_kind kind;
    uint32_t layer; /* in the graph; for messages and for the caller */
    char name[GRAPH_NAME_MAX];
    enum graph_dtype type;
    uint32_t n, c, h, w;        /* the layer's input, stored channels; linear: h = w = 1 */
    uint32_t k;                 /* stored output channels; norms: c */
    uint32_t out_h, out_w;      /* convolutions */
    struct graph_window window; /* convolutions */
    bool has_bias, has_add, has_relu;
    float eps, momentum; /* norms; momentum as PyTorch's: weight of the new statistics */
};

/* What came of a want. */
struct plan_info {
    enum status status;     /* UNSUPPORTED: no engine does this here; use another way */
    size_t workspace_bytes; /* one workspace of the largest serves all plans of a stream */
    bool from_cache;
    bool lacks_bias;   /* LINEAR_WGRAD with a bias: DBIAS is not written, no engine could */
    bool needs_driver; /* nothing but a driver is missing: an engine compiles its kernel */
    float time_us;     /* measured for the chosen candidate, maybe when it was put into the cache;
                          0: not measured */
    char engine[96];   /* the chosen engine, or why there is none, in words */
};

struct plan_options {
    uint32_t device_index;
    bool deterministic;     /* the same bits in every run: engines without that note are left out */
    bool tf32;              /* f32 convolutions and linear layers may round their inputs to TF32 */
    uint32_t candidates;    /* timed on the device for each want, 1: the heuristics' first; 0: 8 */
    uint32_t threads;       /* that build; 0: one a processor, at most 16 */
    size_t workspace_limit; /* bytes; 0: 1 GiB */
    const char *cache_folder; /* NULL: the user's cache folder (ddp/plans in it); "": no cache */
    const char *cudnn_name;   /* libraries, for tests; NULL: libcudnn.so.9, libcublasLt.so.13 */
    const char *cublaslt_name;
    void (*note)(void *user, const char *text); /* a cache that is not usable; NULL: nobody */
    void *note_user;
    const char *device_file; /* a description of a device in cuDNN's JSON, to build plans where
                                there is none; such plans cannot run; NULL: the device */
};

struct plan_set;

/* One thread calls; run() may be called during a capture. */
struct cuda_plans {
    /* Loads the libraries and makes their handles. Errors: STATUS_NOT_FOUND (a library is missing),
     * STATUS_UNSUPPORTED (too old; no device), with name, version and remedy. */
    enum status (*open)(struct plan_set **set, const struct plan_options *options, struct err *err);
    void (*close)(struct plan_set **set);
    /* A plan for each want; once for a set. A want that nothing can do is no error here, see info.
     * Blocks for seconds to minutes without a cache. Errors: STATUS_MEMORY, STATUS_LIBRARY. */
    enum status (*build)(struct plan_set *set, const struct plan_want *wants, uint32_t count,
                         struct err *err);
    const struct plan_info *(*info)(const struct plan_set *set, uint32_t index);
    /* Queue plan `index` on the stream. pointers: [PLAN_PORTS], device memory; workspace: the bytes
     * of info, 256-byte aligned, free again when the stream has passed. Errors: STATUS_LIBRARY,
     * with the layer's name. */
    enum status (*run)(struct plan_set *set, uint32_t index, struct CUstream_st *stream,
                       void *workspace, void *const *pointers, struct err *err);
};

extern const struct cuda_plans cuda_plans; /* in the module alone */

const char *plan_kind_name(enum plan_kind kind);
const char *plan_port_name(enum plan_port port);
const char *plan_type_name(enum graph_dtype type); /* "fp16" */
/* Whether a plan of this want takes a pointer there. */
bool plan_takes(const struct plan_want *want, enum plan_port port);

/* Bytes that the port's memory has for this want. */
size_t plan_port_bytes(const struct plan_want *want, enum plan_port port);

/* How many channels (or features) memory has for `channels`: the next multiple of 8; of 4 for the
 * network's input, which then needs no workspace in the first convolution. */
uint32_t plan_stored_channels(uint32_t channels, bool is_input);

/* Which plans a net needs: those of every convolution, batch norm and linear layer of the (passed)
 * graph for a training step and a forward one, in layer order, forward before backward; no data
 * gradient of what reads the network's input. Returns how many; `wants` NULL: only counts. */
uint32_t plan_list(const struct graph *graph, uint32_t batch, bool evaluate_only,
                   struct plan_want *wants);
/* Stage two, beside plan_list's: wherever a convolution without bias, of a multiple of 64 channels
 * in fp16, is read by a batch norm alone, CONV_STATS and STATS_FINALIZE, and where that has a ReLU
 * NORM_APPLY. With `prologues`, where the norm's value in turn is read by such a convolution alone,
 * also the prologue kinds for that one and NORM_DX for the norm. A caller takes this way for a pair
 * of layers when all their plans are STATUS_OK. Returns how many, as plan_list. */
uint32_t plan_list_statistics(const struct graph *graph, uint32_t batch, bool prologues,
                              struct plan_want *wants);

#endif
