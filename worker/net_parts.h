/* What the files of the executor share; private to worker/net*.c. */
#ifndef WORKER_NET_PARTS_H
#define WORKER_NET_PARTS_H

#include "worker/net.h"
#include "worker/net_backend.h"

/* Where a tensor lives, in elements of its arena; a gradient has the optimizer's states at the
 * same offset. */
struct slot {
    size_t param_at, grad_at, size;
};

/* All memory here is the backend's: nobody else reads or writes it. */
struct net {
    const struct backend *backend;
    void *state;
    struct graph *graph; /* ours, behind the passes */
    struct net_tensor *tensors;
    struct slot *slots;
    float *params;
    float *states[OPTIM_STATES]; /* of the optimizer; NULL: it has no such state */
    void *grads;
    float *kept; /* sums of inner steps, one fp32 for each gradient; NULL: there are none */
    void *low;   /* copies of params in the types that layers compute with; NULL: there are none */
    bool low_is_stale, is_scale_dynamic;
    struct scaler *scaler;
    size_t param_count, buffer_at, grad_count;
    struct net_bucket *buckets;
    struct backend_span *spans;    /* [bucket_count]: the gradients of each */
    uint32_t *bucket_layer;        /* the layer whose backward completes the bucket */
    struct backend_param *updates; /* [update_count]: what the optimizer works on */
    uint32_t update_count;
    bool evaluate_only, trained_forward;
    bool accumulate, joins_kept;
};

/* The gradient of a trainable tensor; and all that the optimizer needs of a tensor. */
struct backend_span net_grad_span(const struct net *net, uint32_t index);
struct backend_param net_param(const struct net *net, uint32_t index);

#endif
