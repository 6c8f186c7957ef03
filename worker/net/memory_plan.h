/* Packs the buffers of a step into one arena: buffers that are not alive at the same time share
 * memory. Time is the step's order of work: forward of layer i is at time i, its backward at
 * 2 * layers - 1 - i. */
#ifndef WORKER_NET_MEMORY_PLAN_H
#define WORKER_NET_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/graph/graph.h"

struct memory_plan_item {
    size_t bytes;
    uint32_t birth, death; /* alive from birth to death, both included */
    size_t offset;         /* the result: a multiple of 64 */
};

/* Sets the offset of each item: first fit, the largest item first. Returns the arena's size in
 * bytes. `scratch`: [2 * count], any content. */
size_t memory_plan(struct memory_plan_item *items, uint32_t count, uint32_t *scratch);

/* The values of a graph as a backend stores them. A view has no memory of its own: its value is
 * that of its first input. */
struct memory_values {
    const struct graph *graph;
    bool (*is_view)(const void *backend, uint32_t layer);
    const void *backend; /* passed to is_view */
};

/* The layer that owns the memory of the value of `layer`. */
uint32_t memory_root(struct memory_values values, uint32_t layer);
/* Whether input `input` (0 or 1) of layer `user` is the value of `root`. False where `user` is a
 * view: it computes nothing. */
bool memory_reads(struct memory_values values, uint32_t user, uint32_t input, uint32_t root);
/* The last layer that reads the value of `root`: the first in backward that writes its gradient.
 * GRAPH_NONE: nobody reads it. */
uint32_t memory_last_user(struct memory_values values, uint32_t root);
/* The time of the layer's backward. */
uint32_t memory_backward_time(const struct graph *graph, uint32_t layer);
/* The later of two times. */
uint32_t memory_later(uint32_t a, uint32_t b);

#endif
