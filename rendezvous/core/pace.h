/* How fast the ranks of running jobs are: hangs and stragglers. This part receives what ranks report, asks
 * nodes and writes the log as hang.h and straggler.h decide, and ends a generation that hangs.
 *
 * A hang, step by step:
 *   hang_judge suspects one  RDZV_LOOK: the edge asks every node of the job, in parallel
 *   RDZV_EVENT_LOOKED        what they answered within 10 s: which ranks are idle, where each rank is
 *   it still hangs           the stacks are kept with the failure, and the generation is stopped as failed */
#ifndef RENDEZVOUS_CORE_PACE_H
#define RENDEZVOUS_CORE_PACE_H

#include "rendezvous/core/roster.h"

/* Takes a progress message of a rank of the current generation, which is not being stopped. True:
 * the rank has made progress. */
bool pace_progress(struct rdzv *rdzv, struct job *job, uint32_t rank,
                   const struct msg_progress *progress);
/* The node could not be heard for a while: the limits of its jobs start again. */
void pace_heard_again(struct rdzv *rdzv, const struct node *node);
/* Call before a beat of the node is taken. True: it is later than load alone explains. */
bool pace_is_late(const struct rdzv *rdzv, const struct node *node);
/* The server could not hear any node for a while. */
void pace_paused(struct rdzv *rdzv);
/* Takes the answers of nodes to a RDZV_LOOK. */
void pace_looked(struct rdzv *rdzv, const struct rdzv_event *event);
/* In each step. */
void pace_tick(struct rdzv *rdzv);

/* The slowest rank of a running job. False: none is a straggler now. */
bool straggler_find(const struct job *job, struct straggler *out);

#endif
