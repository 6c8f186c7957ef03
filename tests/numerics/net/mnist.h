/* MNIST of the shared folder and the ConvNet of seed 0, for tests against PyTorch. */
#ifndef TESTS_NUMERICS_NET_MNIST_H
#define TESTS_NUMERICS_NET_MNIST_H

#include <stddef.h>
#include <stdint.h>

#include "worker/amp.h"
#include "worker/net.h"

#define MNIST_PIXELS (28U * 28U)
#define MNIST_TRAIN_COUNT 60000U
#define MNIST_TEST_COUNT 10000U

struct mnist {
    unsigned char *pixels; /* [count][MNIST_PIXELS] */
    unsigned char *labels; /* [count] */
};

/* `prefix`: "train" or "t10k", of `count` images. Skips the test where the files are not there. */
void mnist_read(struct mnist *mnist, const char *prefix, uint32_t count);
void mnist_close(struct mnist *mnist);
/* The images order[0] to order[n - 1], pixel / 255; without `order` the first n. */
void mnist_batch(const struct mnist *mnist, const int64_t *order, uint32_t n, float *images,
                 int64_t *labels);
/* PyTorch's initial weights for seed 0. `amp`: NULL for fp32. The caller frees it. */
struct net *mnist_convnet(uint32_t batch_max, const struct amp *amp);

#endif
