/* A second, slow opinion on a graph: its forward pass in double, straight from the definitions,
 * layer by layer and not fused. Central differences over it give the gradients that ours are held
 * against. */
#ifndef TESTS_NUMERICS_NET_NET_REFERENCE_H
#define TESTS_NUMERICS_NET_NET_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/graph.h"

/* tensors[i]: [graph->tensors[i].count]; images [n][channels][h][w]. Running statistics in
 * `tensors` are read in evaluation and, where `update`, moved in training. `smoothing` of the
 * labels counts in training alone. Returns the mean loss over the n images. */
double reference_loss(const struct graph *graph, double *const *tensors, const float *images,
                      const int64_t *labels, uint32_t n, double smoothing, bool training,
                      bool update);

#endif
