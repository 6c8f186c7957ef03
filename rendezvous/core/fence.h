/* Two generations of one job must not run at once. A lost node may still run its part until its
 * lease ends. Workers that have all joined the worker protocol (ddp_join) have promised to be fenced by
 * their checkpoint folder and their secret, so their job restarts at once. Any other job waits until the
 * lease has ended, or until the node is back without the part: the same state directory, or the same
 * machine after a restart (identity.h). A checkpoint that was reported is no such promise. */
#ifndef RENDEZVOUS_CORE_FENCE_H
#define RENDEZVOUS_CORE_FENCE_H

#include "rendezvous/core/job.h"
#include "rendezvous/core/roster.h"

/* Whether the workers of the current generation have a fence of their own: all of them have joined, and this server
 * was told so. */
bool fence_is_own(const struct job *job);
/* Whether no worker of the current generation can have been spawned: this server has begun the generation, and has
 * not sent the go. */
bool fence_has_no_worker(const struct job *job);
/* A part of the job counts as ended although nobody has seen its end, because `node` was lost (NULL: it has no entry).
 * Call it before the generation ends. */
void fence_note(struct rdzv *rdzv, struct job *job, const struct node *node);
/* Called when the generation has ended, before the job restarts at job->retry_at_us. True: the restart has to wait
 * for a lease, and retry_at_us has been moved. Else record.over_generation says that it need not. */
bool fence_wait(struct rdzv *rdzv, struct job *job);
/* A server begins: jobs that may have to wait for a lease (record.over_generation) wait for a whole one from now on. */
void fence_restored(struct rdzv *rdzv);
/* Forget the fence: the job restarts, or has ended. */
void fence_drop(struct rdzv *rdzv, struct job *job);
/* The node has a launcherd that cannot know what runs of these jobs: its lists end no wait. */
void fence_keep(struct rdzv *rdzv, struct node *node);
/* The node has listed its shims. Jobs that waited only for this node may start if it no longer has
 * their parts. If it has, they wait until it has not, or until its lease of now is over. */
void fence_heard(struct rdzv *rdzv, struct node *node);

#endif
