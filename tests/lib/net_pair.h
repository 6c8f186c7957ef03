/* Two nets of one model with equal weights, one on the CPU backend and one on another backend. They
 * get the same batches, and their losses, gradients, parameters, buffers and scalers are
 * compared. */
#ifndef TESTS_LIB_NET_PAIR_H
#define TESTS_LIB_NET_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/model/model.h"
#include "worker/net/net.h"

/* Each kind of optimizer, with every term of its formula in use. */
#define PAIR_OPTIMS 8
extern const struct optim pair_optims[PAIR_OPTIMS];

struct pair_options {
    const char *arch, *level;
    struct graph *graph;      /* instead of arch; borrowed */
    struct model_shape shape; /* 0: 1 x 12 x 12, 10 classes */
    uint32_t batch;           /* 0: 4 */
    bool accumulate, clips, bf16, deterministic;
    bool bytes;     /* the other net gets its images as bytes, normalised as ImageNet's; the first
                       one as floats of them */
    bool overflows; /* a dynamic loss scale: steps may be skipped */
    bool halves;    /* the other backend has a reducer that halves; the CPU halves by its scale */
    float label_smoothing;
    const struct backend *backend; /* NULL: backend_cuda */
    const struct backend *plain;   /* what it is held against; NULL: the CPU, which then merges
                                      additions into batch norms where `backend` does */
    struct optim optim;            /* lr 0: SGD with momentum */
};

struct pair {
    struct pair_options options;
    struct amp amp;
    struct net *cpu, *other;
    uint32_t step;
    double tolerance; /* relative, of losses and of a tensor's norm */
};

/* Combinations of layers that the built-in models do not have: channels that are no multiple of 8,
 * also after a flatten, a value added to itself, residuals of one and two types, biases everywhere.
 * For images of 3 x 12 x 12 and 10 classes. */
struct graph *pair_odd_graph(void);

/* Residual blocks of 64 and 128 channels, a shortcut with a convolution, a sum without a ReLU: all
 * cases of fusing additions and ReLUs into batch norms, and batch norms into convolutions. For
 * images of 3 x 8 x 8 and 10 classes. */
struct graph *pair_residual_graph(void);

struct pair pair_new(const struct pair_options *options);
/* A pair of nets of pair_residual_graph. */
struct pair pair_new_residual(const char *level, bool bf16, const struct backend *plain);
void pair_free(struct pair *pair);
/* Trains `steps` steps on seeded noise and compares after each. */
void pair_train(struct pair *pair, uint32_t steps);
/* One step of `n` images. `whole`: nothing is compared within the step, so the step is declared
 * graphable. */
void pair_step(struct pair *pair, uint32_t n, bool whole);
void pair_check(struct pair *pair);
/* Trains only `plain`, then copies its whole state to the other net through the host. */
void pair_resume(struct pair *pair, uint32_t steps);
/* One forward pass in evaluation mode, on both nets. */
void pair_evaluate(struct pair *pair, uint32_t n);

#endif
