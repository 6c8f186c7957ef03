/* Optimizers by name, and the state that each keeps for every parameter.
 *
 * An optimizer is plain data; a backend runs it for all tensors in one call. A state has one fp32
 * value for each stored element, and the name that it has in a checkpoint
 * ("optimizer.exp_avg.conv1.weight"). Adam's bias correction and Lookahead's turns count steps by
 * scaler.applied: those that were not skipped. */
#ifndef WORKER_NET_OPTIM_H
#define WORKER_NET_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/net/scaler.h"

enum optim_kind {
    OPTIM_SGD,   /* torch.optim.SGD */
    OPTIM_ADAM,  /* torch.optim.Adam: weight decay is added to the gradient */
    OPTIM_ADAMW, /* torch.optim.AdamW: weight decay is subtracted from the parameter */
    OPTIM_LARS, /* You et al. 2017, "Large Batch Training of Convolutional Networks", algorithm 1 */
    OPTIM_LARC, /* Apex's LARC around SGD, with its clip: a layer's rate is never above lr */
};

/* With either, every `every` steps: slow += alpha * (param - slow); param = slow. */
enum optim_lookahead {
    OPTIM_LOOKAHEAD_NONE,
    OPTIM_LOOKAHEAD_PAPER, /* Zhang et al. 2019, algorithm 1: slow begins as the parameters before
                              step 1; turns are at steps k, 2k, ... */
    OPTIM_LOOKAHEAD_SEED,  /* alphadl/lookahead.pytorch: slow begins as the parameters after step
                              1; turns are at steps k + 1, 2k + 1, ... */
};

/* A state is an fp32 arena; a new one is 0. */
enum optim_state {
    OPTIM_MOMENTUM, /* SGD, LARS, LARC; written by the first step with momentum */
    OPTIM_EXP_AVG,
    OPTIM_EXP_AVG_SQ,
    OPTIM_SLOW, /* Lookahead's slow weights */
};
#define OPTIM_STATES 4

struct optim {
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    enum optim_kind kind;
    double beta1, beta2; /* Adam: doubles, since 1 - beta has far fewer digits in fp32 */
    float eps;           /* Adam, LARC */
    float trust;         /* LARS, LARC: the trust coefficient */
    enum optim_lookahead lookahead;
    uint32_t every; /* Lookahead: k, at least 1 */
    float alpha;
};

/* -1: there is no such optimizer. */
int optim_kind_named(const char *name);
const char *optim_kind_name(enum optim_kind kind);
const char *optim_state_name(enum optim_state state);
/* Whether this optimizer keeps that state. */
bool optim_uses(const struct optim *optim, enum optim_state state);
/* Whether a step has written the state; before that it is neither saved nor read. */
bool optim_is_set(enum optim_state state, const struct scaler *scaler);

/* One step of one tensor, in place, by the C reference of the CUDA kernel. The gradient is divided
 * by scaler->scale; nothing is written where scaler->found_inf is set. An element that is 0 in all
 * arrays stays 0, so the arrays may contain a layout's padding.
 *   adapts: LARS and LARC scale this tensor's rate by its norms; else the rate is lr */
struct optim_tensor {
    float *param;                /* [count] */
    const float *grad;           /* [count] */
    float *states[OPTIM_STATES]; /* [count] each; NULL where optim_uses says no */
    size_t count;
    bool adapts;
};
void optim_step(const struct optim_tensor *tensor, const struct optim *optim,
                const struct scaler *scaler);
/* After optim_step, and after rounding the parameter where its type asks for that: Lookahead's
 * update of the slow weights, in the steps that have one. */
void optim_look_ahead(const struct optim_tensor *tensor, const struct optim *optim,
                      const struct scaler *scaler);

#endif
