/* What the layers of a graph have to compute and to move in a step, whatever backend does it. Pure.
 *
 * flop: two for each multiplication with its addition, of convolutions and linear layers; the rest
 * is not counted. Backward: the gradient of the weights, and that of the input where somebody needs
 * it.
 *
 * bytes: the least that a layer by itself moves, as if it kept everything on chip in between: each
 * value that it reads or writes once a kernel. A convolution and a linear layer are three kernels
 * (forward, data gradient, weight gradient), everything else is one forward and one backward. So a
 * batch norm is one pass, although most read their input twice; masks and padding are left out. */
#ifndef WORKER_COST_H
#define WORKER_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/graph.h"
#include "worker/optim.h"

struct cost {
    double flop, bytes;
};

struct cost_layer {
    struct cost forward, backward;
};

/* costs: [layer_count], for `images` images. stores_types: 16-bit types take 2 bytes, else 4. */
void cost_of_layers(const struct graph *graph, uint32_t images, bool stores_types,
                    struct cost_layer *costs);
/* Bytes of one update of all parameters: gradients, parameters and states read, the latter two
 * written, and copies in a 16-bit type. */
double cost_of_update(const struct graph *graph, const struct optim *optim, bool stores_types);

#endif
