/* A net that trains: a graph, its parameters and a backend. The face of this folder: making a net,
 * and its step. worker/net/state.h has what a host sees of the parameters, worker/net/profile.h
 * what a net reports about itself, worker/net/reducer.h who reduces gradients, worker/net/backend.h
 * what a backend implements.
 *
 * The life of a net:
 *   model_build              makes a graph
 *   net_new                  runs the passes (types, fusion, buckets), asks the backend for
 *                            layouts, makes every primitive and buffer
 *   net_set_reducer          with several ranks
 *   net_forward, net_backward_reduce, net_clip, net_update
 *                            one training step; none of them allocates
 *   net_free
 * Parameters live in one arena in forward order, gradients in one arena in reverse order, both in
 * the layout that the backend chose. A bucket is a slice of the gradient arena.
 *
 * One thread calls, except for net_bucket_open, net_bucket_close and net_now. Calls queue work on the backend:
 * a failure of the device may be reported by a later call. */
#ifndef WORKER_NET_NET_H
#define WORKER_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/amp.h"
#include "worker/graph/graph.h"
#include "worker/net/optim.h"
#include "worker/net/reducer.h"
#include "worker/net/scaler.h"

struct backend;
struct net;

/* -- making ----------------------------------------------------------------------------------- */

/* Called with the graph after each pass: "model", "amp", "fuse", "buckets". */
typedef void (*net_graph_seen)(void *user, const char *pass, const struct graph *graph);

/* Sums `values`, [count], over all ranks in place, for synchronised batch norms, in forward and in
 * backward. On the caller's thread; blocks. Every rank calls it in the same order. */
typedef enum status (*net_sum)(void *user, double *values, size_t count, struct err *err);

/* Where gradients lie, if not in the backend's own memory: NCCL is faster on memory that it
 * allocated. */
struct net_memory {
    void *context;
    /* Memory of the backend's device, 256-byte aligned, with any contents. NULL: there is none, and
     * the backend's is taken. */
    void *(*make)(void *context, size_t bytes);
    void (*give_back)(void *context, void *memory);
};

#define NET_TUNE_ALL UINT64_MAX

struct net_options {
    uint32_t batch_max;          /* images per step, at most; smaller last batches are allowed */
    uint64_t bucket_first_bytes; /* 0: 1 MiB */
    uint64_t bucket_bytes;       /* 0: 25 MiB */
    bool evaluate_only;          /* no gradients, no optimizer state */
    bool deterministic;
    uint32_t threads;      /* of the CPU backend's primitives; 0: OpenMP's choice */
    bool tf32;             /* fp32 convolutions and linear layers may round their inputs to TF32 */
    bool emulate_half;     /* round to 16-bit types, even where the machine computes in them */
    bool accumulate;       /* net_grads_keep will be called */
    bool profile;          /* time every layer, from the start: see net_profile */
    float label_smoothing; /* of the training loss, 0 to 1; validation has none */
    uint32_t image_channels;       /* of the images: 1 where the graph's input has more, then every
                                      channel gets the same; 0: as the graph's input */
    const struct amp *amp;         /* NULL: O0 */
    const struct optim *optim;     /* decides which optimizer states are kept; NULL: SGD */
    const struct backend *backend; /* NULL: the CPU */
    net_graph_seen graph_seen;     /* NULL: none */
    void *graph_seen_user;
    net_sum norm_sum; /* batch norms have statistics over all ranks (SyncBatchNorm); NULL: over
                         this rank's images */
    void *norm_sum_user;
    uint32_t batch_last; /* images of the last step of an epoch: a backend may prepare it while
                            steps run; 0: as the others */
    uint64_t tune_us;    /* how long a backend may time which way of computing is the fastest, when
                            the net is made; 0: not at all; NET_TUNE_ALL: all there is, for
                            batch_last too */
    bool tunes_cold;     /* also where it had to build much for the first time */
    uint32_t
        collective_sms; /* of a GPU, that collectives beside backward take; 0: there are none */
    const struct net_memory *grad_memory; /* copied; its context is used until net_free. NULL: the
                                             backend's */
};

/* `graph` is borrowed for the call; `*net` is owned by the caller, NULL on failure. Errors:
 * STATUS_UNSUPPORTED (the backend cannot do a layer; named), STATUS_MEMORY, STATUS_LIBRARY. */
enum status net_new(struct net **net, const struct graph *graph, const struct net_options *options,
                    struct err *err);
/* `*net` may be NULL. */
void net_free(struct net **net);

/* Between two steps: who reduces from now on. Copied; NULL: nobody. A captured step contains its
 * reducer's work, so a graphable reducer is set before the first step and stays. Not for a net that
 * only evaluates. */
void net_set_reducer(struct net *net, const struct reducer *reducer);
/* Makes a reducer for net_set_reducer that queues `collective` on the device. `collective` is
 * copied, its context borrowed until the last step. Errors: STATUS_UNSUPPORTED (the backend has no
 * device). */
enum status net_device_reducer(struct net *net, const struct device_collective *collective,
                               struct reducer *reducer, struct err *err);

/* -- a step ----------------------------------------------------------------------------------- */

/* What batches gave, as sums, so that batches and ranks add up exactly. */
struct net_result {
    double loss_sum; /* over images, of the cross-entropy */
    uint32_t images;
    uint32_t top1; /* images whose label had the highest score */
    uint32_t top5; /* ... one of the five highest */
};

/* What a training step gave: its last forward's result, and the loss scaler after net_update. */
struct net_outcome {
    struct net_result result;
    struct scaler scaler;
    uint64_t ended_us; /* mono_us() when the device had done the step, however late it is taken */
};

/* Outcomes that a net keeps until they are taken. A further net_update drops the oldest. */
#define NET_OUTCOMES 2

/* 0: off. With both, values are clipped first, so that the norm holds at the end.
 * Sources: torch.nn.utils.clip_grad_value_ and clip_grad_norm_. */
struct net_clip {
    float value; /* every gradient is brought to within -value .. value */
    float norm;  /* all gradients are multiplied by min(1, norm / (their L2 norm + 1e-6)) */
};

/* What a byte of an image means, in fp32 and in this order: (byte / 255 - mean) / std, per channel
 * of the net's input. Source: torchvision's ToTensor and Normalize. */
#define NET_NORMAL_CHANNELS 4
struct net_normal {
    float mean[NET_NORMAL_CHANNELS];
    float std[NET_NORMAL_CHANNELS]; /* > 0 */
};

/* Images of a step: floats [n][channels][height][width], taken as they are, or bytes
 * [n][height][width][channels], a quarter of what there is to copy to a device. The other pointer is
 * NULL. */
struct net_images {
    const float *floats;
    const uint8_t *bytes;
    const struct net_normal *normal; /* of bytes; NULL: mean 0, std 1 */
};

/* Memory for the bytes of steps' images, aligned to 64 bytes, from which the backend's device reads
 * them without a further copy. Images in it are the net's from net_forward_images until
 * net_images_settle: nobody writes them meanwhile. NULL: out of memory. To be freed before the net.
 * The same thread calls as for everything else. */
void *net_images_new(struct net *net, size_t bytes);
void net_images_free(struct net *net, void *memory);
/* Waits until the device has read all images of earlier steps in this memory. Errors:
 * STATUS_LIBRARY. */
enum status net_images_settle(struct net *net, const void *memory, struct err *err);
/* The number of further steps after which net_images_settle does not have to wait. */
uint32_t net_images_held(const struct net *net);

/* Promises that the step that begins with the next call consists of a training net_forward without
 * `result`, net_backward_reduce, net_clip (in every such step or in none) and net_update, with the
 * same options in all promised steps except for the learning rates. net_outcome_take may come
 * anywhere between. So the backend may capture the step once and replay it. Has no effect if the
 * reducer is not graphable. */
void net_step_graphable(struct net *net);
/* Frees the captured steps; there are no further steps. Call before destroying a communicator: NCCL
 * waits for every captured graph that contains one of its collectives, even on abort. Does not wait
 * for the device. */
void net_drop_captures(struct net *net);

/* labels: [n], each < classes; 0 < n <= batch_max.
 * training: batch statistics, and values are kept for backward; else running statistics.
 * result: waits for the device; NULL: does not wait, see net_outcome_take.
 * Images, unless in memory of net_images_new, and labels are the caller's again on return.
 * Errors: STATUS_LIBRARY, STATUS_BAD_INPUT (a label out of range). */
enum status net_forward_images(struct net *net, const struct net_images *images,
                               const int64_t *labels, uint32_t n, bool training,
                               struct net_result *result, struct err *err);
/* The same with floats: images: [n][channels][height][width]. */
enum status net_forward(struct net *net, const float *images, const int64_t *labels, uint32_t n,
                        bool training, struct net_result *result, struct err *err);

/* Gradients of the mean loss over the n images of the last training forward, once for each such
 * forward. They are written (not added) into the gradient arena, each multiplied by `grad_scale`
 * and by the reducer's prescale. Of this rank alone. Errors: STATUS_LIBRARY. */
enum status net_backward(struct net *net, float grad_scale, struct err *err);
/* The same, then reduced over all ranks by the net's reducer; without one it is net_backward.
 * Returns when the reducer's finish has. Errors: also those of the reducer. */
enum status net_backward_reduce(struct net *net, float grad_scale, struct err *err);

/* Gradient accumulation, with net_options.accumulate. Each inner batch of a step is a net_backward
 * and a net_grads_keep, which adds its gradients to a sum in fp32. Before the last batch's
 * backward, net_grads_join makes that one add the sum to each bucket before the bucket is complete.
 * So the inner batches are not reduced, and the sum is empty again.
 *
 * Where gradients are of 16 bit, the sum is never rounded to them: buckets, clipping and the
 * optimizer have the fp32 sum, as Apex's have that of the master gradients. Then every step calls
 * net_grads_join, also one of a single batch. */
void net_grads_keep(struct net *net);
void net_grads_join(struct net *net);

/* Clips the reduced gradients of the whole net, before net_update. Values and norm are those of the
 * gradients divided by the loss scale. Gradients of a step that a dynamic loss scale will skip stay
 * as they are. */
void net_clip(struct net *net, const struct net_clip *clip);
/* One optimizer step with the gradients as they are. With a dynamic loss scale, a step whose
 * gradients are not all finite changes the scaler alone. `optim` has the optimizer states that
 * net_options.optim had; rates may differ from step to step. */
void net_update(struct net *net, const struct optim *optim);

/* The outcome of the oldest net_update that was not taken yet. `*taken` is false where there is
 * none and, without `wait`, while the device is still at work on it. Errors: STATUS_LIBRARY, of
 * anything that the device reported since. */
enum status net_outcome_take(struct net *net, bool wait, struct net_outcome *outcome, bool *taken,
                             struct err *err);
/* Where the walk over the layers is: "forward conv1 (conv2d)", "backward layer1.0 (relu)"; empty
 * outside of a walk. This is what the host does; a device may be behind. May be called from any
 * thread, until net_free. */
void net_now(const struct net *net, char *text, size_t byte_limit);
/* Names the first infinity or NaN of the last step: "the output of layer NAME" in forward order,
 * else "the gradient of NAME" in backward order; "" when all are finite. After net_update, before
 * the next forward. */
void net_describe_nonfinite(struct net *net, char *text, size_t byte_limit);

#endif
