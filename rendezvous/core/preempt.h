/* Preemption by priority (rendezvous --preempt priority): the first job that waits may take the slots of
 * running jobs whose priority is lower.
 *
 *   who      only the first job that waits, and only from jobs of a lower --priority. Above 0 is for admins
 *            alone, so nobody but an admin takes slots of a job that did not ask for less than 0 itself.
 *            Equals never preempt one another
 *   victims  of the lowest priority first; then jobs that can go on with fewer nodes; then the youngest. As
 *            few as make room, and none where even all of them would not. Slots that are about to be free
 *            count as free
 *   how      a planned end of the generation (generation_stop_planned): SIGTERM, the job's grace, no
 *            budget. The job is queued again with its id and its place, and starts after the one that it
 *            made room for. */
#ifndef RENDEZVOUS_CORE_PREEMPT_H
#define RENDEZVOUS_CORE_PREEMPT_H

#include "rendezvous/core/sched.h"

/* The job is the first that waits. True: it makes others stop, so that what is reserved for it has to be
 * found anew. Where no room is left for their actions, the rest of them stop in the next steps. */
bool preempt_for(struct rdzv *rdzv, struct pass *pass, struct job *job);
/* A job in the queue that was preempted waits until the other one has started, or cannot. */
bool preempt_holds(const struct rdzv *rdzv, const struct pass *pass, const struct job *job);
/* Says which jobs stop for this one as its reason to wait. False: none does. */
bool preempt_explain(struct rdzv *rdzv, struct job *job);

#endif
