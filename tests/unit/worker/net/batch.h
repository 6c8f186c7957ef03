/* What the tests of this folder share: a ConvNet and seeded batches. */
#ifndef TESTS_UNIT_WORKER_NET_BATCH_H
#define TESTS_UNIT_WORKER_NET_BATCH_H

#include <stdint.h>

#include "worker/net/net.h"

/* The ConvNet for images of 1 x side x side, with parameters that are the same in every call. Owned
 * by the caller; a failure fails the test. */
struct net *batch_net(const struct net_options *options, uint32_t side, uint32_t classes);
/* Draws from `seed`: images: [n][side][side] in low..1; labels: [n] in 0..9. */
void batch_draw(uint32_t seed, float low, uint32_t n, uint32_t side, float *images,
                int64_t *labels);

#endif
