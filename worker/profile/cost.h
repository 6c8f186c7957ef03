/* What the layers of a graph must compute and move in a step, on any backend. Pure functions.
 *
 * flop:  2 per multiply-add of convolutions and linear layers; other operations count as 0.
 * Backward
 *        has the gradient of the weights, and that of the input if it is needed.
 * bytes: a lower bound, per layer: each kernel reads its inputs and writes its outputs once. A
 *        convolution and a linear layer have three kernels (forward, data gradient, weight
 *        gradient), any other layer has one forward and one backward. So a batch norm counts as one
 *        pass, though most implementations read their input twice. Masks and padding are left out.
 */
#ifndef WORKER_PROFILE_COST_H
#define WORKER_PROFILE_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/graph/graph.h"
#include "worker/net/optim.h"

struct cost {
    double flop, bytes;
};

struct cost_layer {
    struct cost forward, backward;
};

/* The costs of one step with `images` images.
 *   stores_types: 16-bit types take 2 bytes in memory, else 4
 *   costs: [layer_count], written */
void cost_of_layers(const struct graph *graph, uint32_t images, bool stores_types,
                    struct cost_layer *costs);
/* Bytes of one optimizer step: gradients read, parameters and states read and written, half copies
 * written. */
double cost_of_update(const struct graph *graph, const struct optim *optim, bool stores_types);

#endif
