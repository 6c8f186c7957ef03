/* Spare nodes of a job (--spares N): when one is held, used and dropped.
 *
 *   held     at the end of a pass, for each job that has a generation and fewer spares than it asked for: on
 *            nodes that have none of its parts, from slots that no waiting job could start on. Nobody else
 *            gets them while the job has a generation or waits for its next one
 *   used     the job that restarts may start on its spares, too. Nodes of the last generation keep their
 *            ranks; a spare comes before any other node for the ranks that are left (place.c). A job that
 *            could move away from a drained node, or from a straggler, ends its generation as planned
 *            (elastic.c)
 *   dropped  its node is lost, or the slots are drained or closed; the job is preempted, cannot start even with
 *            them, or has ended; with --preempt also, when a job of a higher priority needs no more than that. A job that runs does not notice, and another spare is sought
 *
 * Spares are not stored: a server that has restarted seeks them anew. */
#ifndef RENDEZVOUS_CORE_SPARES_H
#define RENDEZVOUS_CORE_SPARES_H

#include "rendezvous/core/sched.h"

/* Before a pass counts slots: drops spares that cannot be used any more. */
void spares_review(struct rdzv *rdzv);
/* While this job is considered, its spares are in the pools; afterwards not. */
void spares_lend(const struct rdzv *rdzv, struct pass *pass, const struct job *job);
void spares_take_back(const struct rdzv *rdzv, struct pass *pass, const struct job *job);
/* Its generation has begun: the nodes that it is on are its spares no longer. */
void spares_started(struct rdzv *rdzv, struct job *job);
/* At the end of a pass. False: no room was left. */
bool spares_seek(struct rdzv *rdzv, struct pass *pass);

#endif
