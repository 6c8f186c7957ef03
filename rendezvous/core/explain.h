/* Why a job waits. Each function sets the reason of the job to one sentence; the comment above it is
 * the case. */
#ifndef RENDEZVOUS_CORE_EXPLAIN_H
#define RENDEZVOUS_CORE_EXPLAIN_H

#include "rendezvous/core/sched.h"

/* Too few slots are free for it. */
void explain_blocked(struct rdzv *rdzv, const struct pass *pass, struct job *job);
/* Its slots are reserved for another job, or too few other slots are free. */
void explain_behind(struct rdzv *rdzv, struct job *job);
void explain_many(struct rdzv *rdzv, struct job *job);
void explain_quota(struct rdzv *rdzv, struct job *job);
void explain_settling(struct rdzv *rdzv, struct job *job);
/* It waits for other jobs, or for other jobs of its array. */
void explain_after(struct rdzv *rdzv, struct job *job);
void explain_array(struct rdzv *rdzv, struct job *job);
/* These have ended, and ranks of them may still run (linger.h). */
void explain_linger(struct rdzv *rdzv, struct job *job);
/* It waits for the job that preempted it. */
void explain_preempted(struct rdzv *rdzv, struct job *job);
/* It may still run in a generation that the state does not know (history.h). */
void explain_held(struct rdzv *rdzv, struct job *job);
void explain_memory(struct rdzv *rdzv, struct job *job);

#endif
