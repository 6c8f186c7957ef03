/* A graph as one number, to see whether two are the same. */
#ifndef WORKER_GRAPH_HASH_H
#define WORKER_GRAPH_HASH_H

#include <stdint.h>

#include "worker/graph.h"

/* SHA-256 over every layer: name, operation, inputs, shape, window, bias, constants and what was
 * fused; types are left out. The same on every machine. */
void graph_hash(const struct graph *graph, uint8_t hash[32]);

#endif
