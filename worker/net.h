/* A network made ready to train: a graph, its parameters, one backend. The face of the executor.
 *
 * Life: model_*_build() makes a graph -> passes (types, fusion, buckets) -> net_new() picks layouts
 * and makes every primitive and buffer -> per step net_forward(), net_backward(), net_update(). No
 * allocation in a step. Parameters live in one arena in forward order, gradients in one arena in
 * reverse order, both in the layout that the backend chose; a bucket is a slice of the gradient
 * arena. One thread calls; buckets are handed to a callback. */
#ifndef WORKER_NET_H
#define WORKER_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/amp.h"
#include "worker/graph.h"
#include "worker/optim.h"
#include "worker/scaler.h"

#define NET_DIMS_MAX 4

struct backend;
struct net;

/* A named tensor of the state: PyTorch's state_dict name and shape, row-major when read or written
 * here; fp32: the master where there is one. */
struct net_tensor {
    const char *name; /* "layer1.0.weight", "layer1.1.running_mean"; owned by the net */
    uint32_t dims[NET_DIMS_MAX];
    uint32_t dim_count; /* 0 for a scalar */
    size_t count;       /* elements */
    bool trainable;     /* false: a buffer (running statistics) */
};

/* A slice of the gradient arena: complete when backward has passed its last layer. */
struct net_bucket {
    size_t at;    /* its first element, counted over all buckets */
    size_t count; /* elements, padding included */
    enum graph_dtype dtype;
};

/* Values of the net in the host's hands, between an open and a close: the backend's own memory
 * where the host can reach that, a copy elsewhere. The host reaches no other memory of the net. */
struct net_view {
    float *values; /* [count] */
    size_t count;
};

enum net_part { NET_PARAMS, NET_BUFFERS }; /* parameters and buffers behind them; buffers alone */

typedef void (*net_graph_seen)(void *user, const char *pass, const struct graph *graph);

/* Adds up `values` over all ranks, in place: what synchronised batch norms ask for in forward and
 * backward. On the caller's thread; blocks. Every rank asks in the same order. */
typedef enum status (*net_sum)(void *user, double *values, size_t count, struct err *err);

struct net_options {
    uint32_t batch_max;          /* images a step at most; smaller last batches are allowed */
    uint64_t bucket_first_bytes; /* 0: 1 MiB */
    uint64_t bucket_bytes;       /* 0: 25 MiB */
    bool evaluate_only;          /* no gradients, no optimizer state */
    bool deterministic;
    bool tf32;                 /* fp32 convolutions and linear layers may round their inputs to TF32
                                  where the device has it */
    bool emulate_low;          /* round to 16-bit types, even where the machine computes in them */
    bool accumulate;           /* net_grads_keep will be called */
    float label_smoothing;     /* of the training loss, 0 to 1; validation has none */
    bool profile;              /* time every layer, from the start: see net_profile */
    const struct amp *amp;     /* NULL: O0 */
    const struct optim *optim; /* whose states to keep room for; NULL: SGD */
    net_graph_seen graph_seen; /* NULL: none; called with the graph behind each pass */
    void *graph_seen_user;
    uint32_t image_channels; /* of what net_forward gets: 1 where the graph's input has more, and
                                every channel gets the same; 0: as the graph's input */
    net_sum
        norm_sum; /* statistics of batch norms are of all ranks (SyncBatchNorm); NULL: of this */
    void *norm_sum_user;
    const struct backend *backend; /* worker/net_backend.h; NULL: the CPU */
};

enum net_phase {
    NET_PHASE_INPUT, /* images on their way to the first layer */
    NET_PHASE_FORWARD,
    NET_PHASE_BACKWARD,
    NET_PHASE_REDUCE, /* gradients of all ranks, where the backend adds them up */
    NET_PHASE_OPTIMIZER,
    NET_PHASES
};

/* Time that one piece of work took while the profile was on. */
struct net_profile {
    const char *layer; /* "layer1.0"; of what belongs to no layer: what it is, "optimizer" */
    const char
        *work; /* "forward", "backward", ... ; "conv ..." is time inside oneDNN's convolutions */
    uint32_t index; /* of the layer in net_graph; GRAPH_NONE: it belongs to none */
    enum net_phase phase;
    bool is_beside; /* done while other work goes on: no part of the step's own time */
    uint64_t calls;
    uint64_t ns;
};

/* A convolution or linear layer in a 16-bit type. */
struct net_low_layer {
    const char *name;
    enum graph_dtype dtype;
    bool is_computed; /* by the hardware in that type; else in fp32, and the result is rounded */
};

/* What one batch gave. Sums, so that batches and ranks add up exactly. */
struct net_result {
    double loss_sum; /* sum over images of the cross-entropy */
    uint32_t images;
    uint32_t top1; /* images whose label had the highest score */
    uint32_t top5; /* ... one of the five highest */
};

/* Sources: torch.nn.utils.clip_grad_value_ and clip_grad_norm_. 0: not. With both the values come
 * first, so that the norm holds at the end. */
struct net_clip {
    float value; /* every gradient is brought to within -value .. value */
    float norm;  /* all gradients times min(1, norm / (their L2 norm + 1e-6)) */
};

/* What a whole step gave: of the last forward, and the loss scaler behind net_update. */
struct net_outcome {
    struct net_result result;
    struct scaler scaler;
};

#define NET_OUTCOMES 2 /* that wait to be taken; older ones are dropped */

/* Called by net_backward() on the caller's thread as soon as bucket `index` is complete; must not
 * block. Buckets complete in the order of their indices. */
typedef void (*net_bucket_ready)(void *user, uint32_t index);

/* `graph` is borrowed for the call. `*net` is owned by the caller. Errors: STATUS_UNSUPPORTED (a
 * layer that the backend cannot do, by name), STATUS_MEMORY, STATUS_LIBRARY. */
enum status net_new(struct net **net, const struct graph *graph, const struct net_options *options,
                    struct err *err);
void net_free(struct net **net);

/* Parameters in PyTorch's state_dict order (buffers included, num_batches_tracked left out). */
uint32_t net_tensor_count(const struct net *net);
const struct net_tensor *net_tensor(const struct net *net, uint32_t index);
/* Copy out of / into the backend's layout; `values` is [count] f32, row-major. */
enum status net_tensor_read(struct net *net, uint32_t index, float *values, struct err *err);
enum status net_tensor_write(struct net *net, uint32_t index, const float *values, struct err *err);
/* Gradient of a trainable tensor after net_backward, row-major; for tests. */
enum status net_grad_read(struct net *net, uint32_t index, float *values, struct err *err);
/* One of the optimizer's states of a trainable tensor, same layout rules. net_has_state: the
 * optimizer keeps it and it holds something yet; until then nothing reads it (PyTorch's first step
 * with momentum sets buf = grad). Writing the momentum makes it hold something; for the others the
 * scaler's count of steps does. */
bool net_has_state(struct net *net, enum optim_state state);
enum status net_optim_read(struct net *net, enum optim_state state, uint32_t index, float *values,
                           struct err *err);
enum status net_optim_write(struct net *net, enum optim_state state, uint32_t index,
                            const float *values, struct err *err);

/* The state in the backend's layout as flat fp32 values: what rank 0 broadcasts at the start, and
 * what DDP broadcasts of the buffers. Open waits for the device; close makes the net take what the
 * view holds by then. One view at a time. Errors: STATUS_LIBRARY, STATUS_MEMORY. */
enum status net_state_open(struct net *net, enum net_part part, struct net_view *view,
                           struct err *err);
enum status net_state_close(struct net *net, enum net_part part, const struct net_view *view,
                            struct err *err);
/* SHA-256 over names, shapes, types, order and the backend's layouts, for the comparison across
 * ranks; `index` < count hashes that tensor alone, UINT32_MAX the whole net, layers included. */
void net_hash(const struct net *net, uint32_t index, uint8_t hash[32]);

uint32_t net_bucket_count(const struct net *net);
struct net_bucket net_bucket(const struct net *net, uint32_t index);
/* All gradients, buckets and what lies between them: memory of the backend. */
void net_grad_arena(const struct net *net, void **memory, size_t *bytes);
/* The gradients of a complete bucket, rounded to its type; allowed on another thread while
 * net_backward goes on. Open waits for the bucket alone; close makes the net take what the view
 * holds by then, rounded to the type. One bucket at a time. Errors: STATUS_LIBRARY. */
enum status net_bucket_open(struct net *net, uint32_t index, struct net_view *view,
                            struct err *err);
enum status net_bucket_close(struct net *net, uint32_t index, const struct net_view *view,
                             struct err *err);

/* Images of a step, [n][channels][h][w]: as floats, or as bytes where net_takes_bytes, a byte
 * counting as byte / 255. The other one is NULL. */
struct net_images {
    const float *floats;
    const uint8_t *bytes;
};

/* Bytes are welcome: a quarter of what there is to copy to a device. */
bool net_takes_bytes(const struct net *net);

/* labels: [n], < classes; n <= batch_max. `training`: batch statistics and what backward needs;
 * else running statistics. `result` waits for the device; NULL: nothing is waited for, see
 * net_outcome_take. Both arrays are free when this returns. Errors: STATUS_LIBRARY,
 * STATUS_BAD_INPUT (a label out of range). */
enum status net_forward_images(struct net *net, const struct net_images *images,
                               const int64_t *labels, uint32_t n, bool training,
                               struct net_result *result, struct err *err);
/* The same of floats. */
enum status net_forward(struct net *net, const float *images, const int64_t *labels, uint32_t n,
                        bool training, struct net_result *result, struct err *err);
/* Gradients of the mean loss over the n images of the last training forward, written (not added)
 * into the gradient arena, each multiplied by `grad_scale` (1/world for DDP: divided before the
 * reduce). */
enum status net_backward(struct net *net, float grad_scale, net_bucket_ready ready, void *user,
                         struct err *err);
/* The oldest outcome of a net_update that was not taken yet. Without `wait`, `*taken` is false
 * while the device is still at work on it; with it only where there is none. Errors:
 * STATUS_LIBRARY, what the device reported since. */
enum status net_outcome_take(struct net *net, bool wait, struct net_outcome *outcome, bool *taken,
                             struct err *err);
/* Before net_forward: a promise that the next calls are a training net_forward without `result`,
 * net_backward, net_clip where every such step has one, and net_update, outcomes taken in between
 * or not, with the same options but for the rates. So the backend may record the step once and
 * repeat it. */
void net_step_whole(struct net *net);
/* No more steps: what the backend recorded is given back. Before what does the reduction is closed,
 * as NCCL waits for the end of every record that it is in, when it is aborted too. Does not wait
 * for the device. */
void net_drop_records(struct net *net);
/* Whether the backend averages gradients over ranks by itself, on the device. Then, before
 * net_backward: it does so with that one's buckets, as they are ready, and nobody opens them. */
bool net_reduces(const struct net *net);
void net_step_reduce(struct net *net);
/* The loss scaler's state: a copy out, for messages and checkpoints (waits for the device), and in,
 * for a resume: `scale`, `unskipped`, `skipped_in_a_row` and `applied` are taken. */
struct scaler net_scaler(struct net *net);
void net_scaler_write(struct net *net, const struct scaler *scaler);
/* Where the last step's first infinity or NaN is: a layer's value in forward order, else a gradient
 * in backward order, in words; "" when all are finite. After net_update, before the next forward.
 */
void net_describe_nonfinite(struct net *net, char *text, size_t byte_limit);

/* Gradient accumulation, with net_options.accumulate. net_grads_keep adds the gradients of the last
 * net_backward to what is kept, in fp32. net_grads_join makes the next net_backward add what is
 * kept to every bucket before it hands that bucket out; then nothing is kept any more. So the inner
 * steps of a group keep, and only the last one is reduced. */
void net_grads_keep(struct net *net);
void net_grads_join(struct net *net);
/* Clips the gradients of the whole net as they are now, between the reduce and net_update; the loss
 * scale is taken into account. Gradients that a dynamic loss scale will skip stay as they are. */
void net_clip(struct net *net, const struct net_clip *clip);
/* One optimizer step on the gradient arena as it is now; with a dynamic loss scale a step whose
 * gradients are not all finite changes nothing but the scaler. `optim` keeps the states that it had
 * in net_new. */
void net_update(struct net *net, const struct optim *optim);

/* The layers of that kind, one by one; false past the last. */
bool net_low_layer(const struct net *net, uint32_t index, struct net_low_layer *low);
/* Entry `index` of the profile; false past the end or without net_options.profile. On a GPU it has
 * the steps that net_update has ended, each of which waited for the device. */
bool net_profile(const struct net *net, uint32_t index, struct net_profile *profile);
/* Between two steps: whether those to come are timed; with net_options.profile alone. What was
 * counted stays. Steps that are not timed run as in any net. */
void net_profile_set(struct net *net, bool is_on);
/* The graph as it runs, behind all passes; the net's. And whether values of 16-bit types take 16
 * bits in memory. */
const struct graph *net_graph(const struct net *net);
bool net_stores_types(const struct net *net);

/* Bytes allocated, for --print-graph and the benchmark. */
size_t net_bytes(const struct net *net);

#endif
