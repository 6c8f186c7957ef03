/* Spare nodes of a job (--spares N): when a spare is held, used and dropped.
 *
 *   held     At the end of a pass, for each job that has a generation and fewer spares than it asked for: on
 *            nodes that have none of its parts, from slots that no waiting job could start on. Nobody else
 *            gets these slots while the job has a generation or waits for its next one
 *   used     A restarting job may start on its spares, too. Nodes of the last generation keep their ranks; for
 *            the remaining ranks a spare comes before any other node (place.c). With a spare a job can also
 *            leave a drained node or a straggler: it ends its generation as planned (elastic.c)
 *   dropped  When its node is lost; when its slots are drained or closed; when the job is preempted, has ended,
 *            or cannot start even with its spares; and with --preempt, when giving it up is enough for a job of a
 *            higher priority. The running job does not notice, and another spare is sought
 *
 * Spares are not stored: a restarted server seeks them again. */
#ifndef RENDEZVOUS_CORE_SPARES_H
#define RENDEZVOUS_CORE_SPARES_H

#include "rendezvous/core/sched.h"

/* Before a pass counts slots: drops spares that cannot be used any more. */
void spares_review(struct rdzv *rdzv);
/* Adds the job's spares to the pools while the job is considered; removes them afterwards. */
void spares_lend(const struct rdzv *rdzv, struct pass *pass, const struct job *job);
void spares_take_back(const struct rdzv *rdzv, struct pass *pass, const struct job *job);
/* The job's generation has begun: the nodes that it runs on are no longer its spares. One log line
 * tells of all of them, since a step has room for few. */
void spares_started(struct rdzv *rdzv, struct job *job);
/* At the end of a pass: holds spares for jobs that lack some. False: no room was left for
 * actions. */
bool spares_seek(struct rdzv *rdzv, struct pass *pass);

#endif
