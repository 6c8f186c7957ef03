/* What a waiting job waits for besides slots: the end of other jobs (--after), and its turn in its
 * array (--array ...%N).
 *
 * A job can only wait for jobs with smaller ids, so two jobs never wait for each other. If a job waits
 * for the success of another, and that one fails or is cancelled, the waiting job ends as cancelled.
 * The store has only the list of jobs to wait for. After a restart of the server its edge looks up how
 * those jobs ended (rdzv_event.after). So the store keeps jobs whose success is needed
 * (rdzv_mark_awaited). */
#ifndef RENDEZVOUS_CORE_AFTER_H
#define RENDEZVOUS_CORE_AFTER_H

#include "rendezvous/core/queue.h"

enum after_answer {
    AFTER_READY, /* it waits for no other job */
    AFTER_WAITS,
    AFTER_LINGERS, /* all have ended, and ranks of them may still run (linger.h) */
    AFTER_NEVER,   /* a job whose success it waits for did not succeed */
};

/* Whether a queued job may start as far as other jobs are concerned. The first AFTER_READY for a
 * job that has waited is stored, which takes JOB_ACTIONS_MAX actions. With AFTER_NEVER the job's
 * reason says why; the caller ends the job. */
enum after_answer after_ask(struct rdzv *rdzv, struct job *job);
/* How many entries of its list the job still waits for; *first: the first of them. */
uint32_t after_left(const struct rdzv *rdzv, const struct job *job, struct rdzv_after_item *first);
/* A job that has ended, whose ranks may still run, and that this one waits for: because of --after, or with no such
 * list because of its array. NULL: none that is known. */
const struct job *after_lingering(const struct rdzv *rdzv, const struct job *job);
/* A job has ended. Other jobs may have waited for it. */
void after_ended(struct rdzv *rdzv, const struct job *ended);
/* How many jobs of an array are starting, running, or waiting for a restart. *lingering: how many have ended, and their
 * ranks may still run. */
uint32_t after_array_active(const struct rdzv *rdzv, const struct job *job, uint32_t *lingering);

#endif
