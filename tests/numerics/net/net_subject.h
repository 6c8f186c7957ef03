/* Checks a small network, every element type of it, against net_reference.h. */
#ifndef TESTS_NUMERICS_NET_NET_SUBJECT_H
#define TESTS_NUMERICS_NET_NET_SUBJECT_H

#include <stdint.h>

#include "worker/graph/graph.h"

#define SUBJECT_CLASSES 5

/* The end of a network: flatten, a linear layer "fc" and the loss. */
void subject_finish(struct graph *graph, uint32_t x);

/* Loss, gradients and running statistics of what `build` builds, with parameters and images from
 * `seed`: a full batch, a smaller one, the full one again, then evaluation. `smoothing` is of the
 * labels. Fails the test where ours differ from double arithmetic and its central differences. */
void subject_check(void (*build)(struct graph *), double smoothing, uint32_t seed);
/* subject_check() without smoothing, for two seeds. */
void subject_check_seeds(void (*build)(struct graph *));

#endif
