/* MNIST of the shared folder and the ConvNet of seed 0, for tests against PyTorch. */
#ifndef TESTS_NUMERICS_NET_MNIST_H
#define TESTS_NUMERICS_NET_MNIST_H

#include <stddef.h>
#include <stdint.h>

#include "worker/graph/amp.h"
#include "worker/net/net.h"

#define MNIST_PIXELS (28U * 28U)
#define MNIST_TRAIN_COUNT 60000U
#define MNIST_BATCH 100U

struct mnist {
    unsigned char *pixels; /* [count][MNIST_PIXELS] */
    unsigned char *labels; /* [count] */
};

/* `prefix`: "train" or "t10k", of `count` images. Skips the test where the files are not there. */
void mnist_read(struct mnist *mnist, const char *prefix, uint32_t count);
void mnist_close(struct mnist *mnist);
/* Trains one step for each of losses[0] to losses[steps - 1], on batches in PyTorch's order for
 * seed 0. Fails the test where a loss is further than `tolerance` from its expectation, or the
 * loss scale before a step is not `scale` (0: not compared). Returns the largest difference of a
 * loss. */
double mnist_train(struct net *net, const struct mnist *train, const struct optim *optim,
                   const float *losses, float scale, uint32_t steps, double tolerance);
/* PyTorch's initial weights for seed 0. `amp`: NULL for fp32. For batches of MNIST_BATCH. The
 * caller frees it. */
struct net *mnist_convnet(const struct amp *amp);

#endif
