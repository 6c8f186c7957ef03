/* How fast the ranks of running jobs are: hangs and stragglers. What they tell comes here; what follows
 * from it (hang.h, straggler.h) is asked of nodes, logged, and ends a generation that hangs.
 *
 * A hang, step by step:
 *   hang_judge doubts      RDZV_LOOK: the edge asks every node of the job, in parallel
 *   RDZV_EVENT_LOOKED      what they have answered within 10 s: who idles, where each rank stands
 *   it still hangs         the stacks are kept with the failure, and the generation is stopped as failed */
#ifndef RENDEZVOUS_CORE_PACE_H
#define RENDEZVOUS_CORE_PACE_H

#include "rendezvous/core/roster.h"

/* Of a rank of the generation at hand, which is not being stopped. True: the rank has moved. */
bool pace_progress(struct rdzv *rdzv, struct job *job, uint32_t rank,
                   const struct msg_progress *progress);
/* The node could not be heard for a while: the time of its jobs begins anew. */
void pace_heard_again(struct rdzv *rdzv, const struct node *node);
/* Before a beat of the node is taken: it is late by more than load explains. */
bool pace_is_late(const struct rdzv *rdzv, const struct node *node);
/* Nobody could be heard. */
void pace_paused(struct rdzv *rdzv);
/* What nodes have answered. */
void pace_looked(struct rdzv *rdzv, const struct rdzv_event *event);
/* In each step. */
void pace_tick(struct rdzv *rdzv);

/* The slowest rank of a job that runs, if one is slow now. */
bool straggler_find(const struct job *job, struct straggler *out);

#endif
