/* What a waiting job waits for beside slots: the end of other jobs (--after), and its turn in its
 * array (--array ...%N).
 *
 * Jobs that are waited for have smaller ids, so no two wait for each other. A job that waits for the
 * success of one that fails, or is cancelled, ends as cancelled. What the store has is the wait alone;
 * a restarted server is told by its edge how those jobs have ended (rdzv_event.after). */
#ifndef RENDEZVOUS_CORE_AFTER_H
#define RENDEZVOUS_CORE_AFTER_H

#include "rendezvous/core/queue.h"

enum after_answer {
    AFTER_READY, /* it waits for no job */
    AFTER_WAITS,
    AFTER_NEVER, /* one that it waits for has not succeeded */
};

/* About a job in the queue. The first READY of a job that has waited is stored: it needs
 * JOB_ACTIONS_MAX. With NEVER its reason says why; its end is left to the caller. */
enum after_answer after_ask(struct rdzv *rdzv, struct job *job);
/* For how many entries of its list it still waits; *first: the first of them. */
uint32_t after_left(const struct rdzv *rdzv, const struct job *job, struct rdzv_after_item *first);
/* A job has ended, and may be one that others wait for. */
void after_ended(struct rdzv *rdzv, const struct job *ended);
/* How many jobs of an array run, start, or wait for their next try. */
uint32_t after_array_active(const struct rdzv *rdzv, const struct job *job);

#endif
