/* Two generations of one job must not run at once. A node that was lost may still run its part until
 * the lease is over there. Workers that speak the worker protocol are fenced by their checkpoint folder
 * and their secret, so their job starts again at once. A job of other programs waits until the lease
 * has ended, or until the node is back and no longer has the part. */
#ifndef RENDEZVOUS_CORE_FENCE_H
#define RENDEZVOUS_CORE_FENCE_H

#include "rendezvous/core/job.h"
#include "rendezvous/core/roster.h"

/* Its workers have a fence of their own. */
bool fence_is_own(const struct job *job);
/* A part of the job counts as ended because `node` was lost. Call it before the generation ends. */
void fence_note(struct rdzv *rdzv, struct job *job, const struct node *node);
/* The job is to start again at job->retry_at_us, which is put off if necessary: then true. */
bool fence_wait(struct rdzv *rdzv, struct job *job);
/* The job starts again, or has ended. */
void fence_drop(struct rdzv *rdzv, struct job *job);
/* The node has told its shims: jobs that waited for it alone, and that it no longer has, may start. */
void fence_heard(struct rdzv *rdzv, struct node *node);

#endif
