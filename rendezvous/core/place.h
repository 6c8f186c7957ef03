/* On which nodes a job starts: slots that may be given out, by node. */
#ifndef RENDEZVOUS_CORE_PLACE_H
#define RENDEZVOUS_CORE_PLACE_H

#include "rendezvous/core/job.h"

struct pool {
    uint64_t masks[NODES_MAX];            /* by index of the node */
    uint32_t fit[SLOTS_PER_NODE_MAX + 1]; /* [k]: nodes with at least k slots */
};

/* Into an empty pool. */
void pool_put(struct pool *pool, uint32_t node, uint64_t mask);
/* Beside what is there. */
void pool_add(struct pool *pool, uint32_t node, uint64_t mask);
/* Those of `mask` that are there. */
void pool_take(struct pool *pool, uint32_t node, uint64_t mask);
/* So many nodes have so many slots. */
bool pool_fits(const struct pool *pool, uint32_t nodes, uint32_t slots);

/* Places for all parts of a job on so many nodes, which the pool has, into parts [nodes]. Nodes that had a
 * part of its last generation keep it, with their ranks and, where they are free, their slots; where the
 * number of nodes is another one, they are the first, in the order that they had. Then come the job's spares. Of the others the
 * smallest hole that fits goes first, so that large holes stay whole; then by name. */
void place_job(const struct rdzv *rdzv, const struct pool *pool, const struct job *job,
               uint32_t nodes, struct rdzv_part *parts);

uint64_t lowest_bits(uint64_t mask, uint32_t count);

#endif
