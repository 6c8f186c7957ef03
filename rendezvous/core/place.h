/* Choosing the nodes that a job starts on, from a pool of free slots by node. */
#ifndef RENDEZVOUS_CORE_PLACE_H
#define RENDEZVOUS_CORE_PLACE_H

#include "rendezvous/core/job.h"

struct pool {
    uint64_t masks[NODES_MAX];            /* by index of the node */
    uint32_t fit[SLOTS_PER_NODE_MAX + 1]; /* [k]: nodes with at least k slots */
};

/* Puts a node's slots into a pool that does not have the node yet. */
void pool_put(struct pool *pool, uint32_t node, uint64_t mask);
/* Adds slots to those that the pool has. */
void pool_add(struct pool *pool, uint32_t node, uint64_t mask);
/* Removes those slots of `mask` that the pool has. */
void pool_take(struct pool *pool, uint32_t node, uint64_t mask);
/* Whether at least `nodes` nodes have at least `slots` slots each. */
bool pool_fits(const struct pool *pool, uint32_t nodes, uint32_t slots);

/* Chooses places for all parts of a job on `nodes` nodes, which the pool must have, into parts
 * [nodes]. The node whose failure ended the last generation is left out if the others have room, and so is one that
 * was late with a start of the job within ten minutes. The order of preference: 1. Nodes that had a part of the job's
 * last generation keep it, with their ranks and, where they are free, their slots. If the number of nodes changes, they
 * come first, in their old order. 2. The job's spares. 3. The nodes with the fewest free slots that still fit, so that
 * large nodes stay free for large jobs; among equals by name. Those that do not carry out their orders (trouble.h) come
 * last. */
void place_job(const struct rdzv *rdzv, const struct pool *pool, const struct job *job,
               uint32_t nodes, struct rdzv_part *parts);

uint64_t lowest_bits(uint64_t mask, uint32_t count);

#endif
