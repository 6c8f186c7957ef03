/* Why a job waits, as one sentence. */
#ifndef RENDEZVOUS_CORE_EXPLAIN_H
#define RENDEZVOUS_CORE_EXPLAIN_H

#include "rendezvous/core/sched.h"

/* It has too few free slots. */
void explain_blocked(struct rdzv *rdzv, const struct pass *pass, struct job *job);
/* The slots that it could have are reserved, or others are too few. */
void explain_behind(struct rdzv *rdzv, struct job *job);
void explain_many(struct rdzv *rdzv, struct job *job);
void explain_quota(struct rdzv *rdzv, struct job *job);
void explain_settling(struct rdzv *rdzv, struct job *job);
/* For other jobs; for others of its array. */
void explain_after(struct rdzv *rdzv, struct job *job);
void explain_array(struct rdzv *rdzv, struct job *job);
/* For the job that has preempted it. */
void explain_preempted(struct rdzv *rdzv, struct job *job);
void explain_memory(struct rdzv *rdzv, struct job *job);

#endif
