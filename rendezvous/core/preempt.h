/* Preemption by priority (rendezvous --preempt priority): the first job that waits may take the slots of
 * running jobs with a lower priority.
 *
 *   who      Only the first job that waits, and only from jobs with a lower --priority. A priority above 0
 *            is for admins alone. So a user who is no admin can only take slots from jobs that asked for
 *            less than 0 themselves. Equal priorities never preempt one another
 *   victims  Lowest priority first; then jobs that can go on with fewer nodes; then the youngest. As few as
 *            are needed, and none if all of them together would not be enough. Slots that are about to be
 *            free count as free
 *   how      A planned end of the generation (generation_stop_planned): SIGTERM, the job's grace, no
 *            budget. The job is queued again with its id and its place. It starts after the job that
 *            preempted it, or when that one could not start even if slots were free */
#ifndef RENDEZVOUS_CORE_PREEMPT_H
#define RENDEZVOUS_CORE_PREEMPT_H

#include "rendezvous/core/sched.h"

/* `job` is the first that waits. True: other jobs are being stopped for it, so its reservation has
 * to be computed again. If there is no room for all their actions, the rest of them are stopped in
 * the next steps. */
bool preempt_for(struct rdzv *rdzv, struct pass *pass, struct job *job);
/* The job that has preempted this queued one, and that it must wait for; NULL: none, or it has
 * started since, or the nodes that it could use are too few. */
const struct job *preempt_holder(const struct rdzv *rdzv, const struct pass *pass,
                                 const struct job *job);
/* Sets the job's reason to wait: the jobs that are being stopped for it. False: there are none. */
bool preempt_explain(struct rdzv *rdzv, struct job *job);

#endif
