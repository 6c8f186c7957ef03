/* A hash of a graph: two graphs with the same hash compute the same. */
#ifndef WORKER_GRAPH_HASH_H
#define WORKER_GRAPH_HASH_H

#include <stdint.h>

#include "worker/graph/graph.h"

/* SHA-256 over every layer: name, operation, inputs, shape, window, bias, constants, fused layers.
 * Types are not included, so a checkpoint can be resumed at another opt level. The same on every
 * machine. */
void graph_hash(const struct graph *graph, uint8_t hash[32]);

#endif
