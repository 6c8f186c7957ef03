/* What a host sees of a net's memory: parameters, buffers, gradients, optimizer state, loss scaler.
 * By copy, tensor by tensor in PyTorch's names and shapes, for checkpoints; or by view, flat and in
 * the backend's layout, for collectives. */
#ifndef WORKER_NET_STATE_H
#define WORKER_NET_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"
#include "worker/net/net.h"

#define NET_DIMS_MAX 4

/* A named tensor in PyTorch's shape. */
struct net_tensor {
    const char *name; /* "layer1.0.weight", "layer1.1.running_mean"; owned by the net */
    uint32_t dims[NET_DIMS_MAX];
    uint32_t dim_count; /* 0 for a scalar */
    size_t count;       /* elements: the product of dims */
    bool trainable;     /* false: a buffer (running statistics) */
};

/* -- copies, row-major ------------------------------------------------------------------------ */

/* Tensors in PyTorch's state_dict order: parameters and buffers, without num_batches_tracked. */
uint32_t net_tensor_count(const struct net *net);
const struct net_tensor *net_tensor(const struct net *net, uint32_t index);

/* Tensor `index` out of and into the backend's layout. values: [count] f32, row-major; of a tensor
 * with a master weight, the master. All of these wait for the device. Errors: STATUS_LIBRARY. */
enum status net_tensor_read(struct net *net, uint32_t index, float *values, struct err *err);
enum status net_tensor_write(struct net *net, uint32_t index, const float *values, struct err *err);
/* The gradient of a trainable tensor after net_backward, as the loss scale left it. */
enum status net_grad_read(struct net *net, uint32_t index, float *values, struct err *err);
/* An optimizer state of a trainable tensor. */
enum status net_optim_read(struct net *net, enum optim_state state, uint32_t index, float *values,
                           struct err *err);
/* Writing a momentum sets the scaler's has_momentum. */
enum status net_optim_write(struct net *net, enum optim_state state, uint32_t index,
                            const float *values, struct err *err);
/* Whether the optimizer keeps `state` and a step has written it; before that its values are not
 * defined and no step reads them (PyTorch's first step with momentum sets buf = grad). */
bool net_has_state(struct net *net, enum optim_state state);

/* A copy of the loss scaler, for messages and checkpoints. Waits for the device. */
struct scaler net_scaler(struct net *net);
/* For a resume: takes scale, unskipped, skipped_in_a_row and applied. */
void net_scaler_write(struct net *net, const struct scaler *scaler);

/* SHA-256, for the comparison across ranks. index < count: of that tensor's name, shape, type and
 * layout; UINT32_MAX: of the whole net, layers included. Values do not count. */
void net_hash(const struct net *net, uint32_t index, uint8_t hash[32]);

/* -- views, in the backend's layout ----------------------------------------------------------- */

/* Values of the net that the host may read and write between an open and its close: the backend's
 * own memory where the host can reach that, else a copy. */
struct net_view {
    float *values; /* [count] */
    size_t count;
};

enum net_part {
    NET_PARAMS, /* parameters, then buffers */
    NET_BUFFERS /* buffers alone */
};

/* The state of all tensors as flat fp32 values, as rank 0 broadcasts it. Open waits for the device;
 * close writes the view's values back. One part is open at a time. Errors: STATUS_LIBRARY,
 * STATUS_MEMORY. */
enum status net_state_open(struct net *net, enum net_part part, struct net_view *view,
                           struct err *err);
enum status net_state_close(struct net *net, enum net_part part, const struct net_view *view,
                            struct err *err);

/* A slice of the gradient arena: complete when backward has passed its last layer. */
struct net_bucket {
    size_t at;    /* its first element, counted over all buckets */
    size_t count; /* elements, padding included */
    enum graph_dtype dtype;
};

/* 0 for a net that only evaluates: it has no gradients. */
uint32_t net_bucket_count(const struct net *net);
struct net_bucket net_bucket(const struct net *net, uint32_t index);
/* The gradients of a complete bucket as fp32. On any thread, also while backward goes on. Open
 * waits for this bucket alone; close writes the view's values back, rounded to the bucket's type.
 * One bucket is open at a time. Errors: STATUS_LIBRARY. */
enum status net_bucket_open(struct net *net, uint32_t index, struct net_view *view,
                            struct err *err);
enum status net_bucket_close(struct net *net, uint32_t index, const struct net_view *view,
                             struct err *err);
/* The whole gradient arena, the backend's memory, for NCCL to register. NULL for evaluation. */
void net_grad_arena(const struct net *net, void **memory, size_t *bytes);

#endif
