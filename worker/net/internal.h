/* What the files of this folder share; private to it. */
#ifndef WORKER_NET_INTERNAL_H
#define WORKER_NET_INTERNAL_H

#include <stdatomic.h>

#include "worker/net/backend.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

/* Where a tensor lives, in elements of its arena; a gradient has the optimizer's states at the
 * same offset. */
struct slot {
    size_t param_at, grad_at, size;
};

/* All memory of values here is the backend's: only the backend reads or writes it. */
struct net {
    const struct backend *backend;
    void *state;
    struct graph *graph; /* ours, after the passes */
    struct net_tensor *tensors;
    struct slot *slots;
    float *params;
    float *states[OPTIM_STATES]; /* of the optimizer; NULL: it has no such state */
    void *grads;
    struct net_memory grad_memory; /* that gave it; .give_back NULL: the backend did */
    float *kept; /* sums of inner batches, one fp32 for each gradient; NULL: there are none */
    void *half;  /* copies of params in the types that layers compute with; NULL: there are none */
    bool half_is_stale, is_scale_dynamic;
    struct scaler *scaler;
    size_t param_count, buffer_at, grad_count;
    struct net_bucket *buckets;
    struct backend_span *spans;    /* [bucket_count]: the gradients of each, as backward writes */
    struct backend_span *sums;     /* [bucket_count]: those of the step, which are reduced, clipped
                                      and applied: `spans`, or with sums_kept slices of `kept` */
    uint32_t *bucket_layer;        /* the layer whose backward completes the bucket */
    struct backend_param *updates; /* [update_count]: what the optimizer works on */
    uint32_t update_count;
    bool evaluate_only, accumulate;
    bool trained_forward; /* backward may come */
    bool has_grads;       /* backward came: the gradients may be kept, clipped, applied */
    bool joins_kept;      /* the next backward adds what was kept */
    bool sums_kept;       /* gradients of 16 bit are accumulated: a step's are fp32, in `kept` */
    bool has_joined;      /* the last backward did */
    bool sums_are_old;    /* `kept` still has the gradients of the step before */
    bool state_open;      /* a view of the state is */
    uint32_t open_bucket; /* a view of it is open; GRAPH_NONE: of none. The reducer's alone */
    bool has_reducer;
    struct reducer reducer;
    _Atomic(uint32_t) walk; /* 2 * layer + 2, and 1 more in backward; 0: no walk goes on */
};

/* arena.c */

/* Describes the tensors, gives each its place, and cuts the gradients into buckets. Once the
 * backend is open: it knows the sizes. */
void net_lay_out(struct net *net);
/* Gives the buckets their memory, once net->grads is there. */
void net_place_buckets(struct net *net);
/* Whether a copy in the tensor's 16-bit type stands beside its fp32 values. */
bool net_has_half(const struct net *net, uint32_t index);
/* Bytes of an element in the backend's memory. */
size_t net_element_bytes(const struct net *net, enum graph_dtype dtype);
/* Bytes of the gradient arena. */
size_t net_grad_bytes(const struct net *net);
/* The gradient of a trainable tensor as backward writes it; that of the step, see net.sums; and all
 * that the optimizer needs of a tensor. */
struct backend_span net_written_span(const struct net *net, uint32_t index);
struct backend_span net_grad_span(const struct net *net, uint32_t index);
struct backend_param net_param(const struct net *net, uint32_t index);

#endif
