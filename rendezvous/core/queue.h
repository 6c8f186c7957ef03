/* The jobs that wait for slots, in the order in which they start.
 *
 * A job's place is its time of submission, less a minute for each point of its priority. So a job
 * that waits gains on every later one of a higher priority: at most those of the next 33 hours (2000
 * points) can go before it. Among equals the smaller id is first. */
#ifndef RENDEZVOUS_CORE_QUEUE_H
#define RENDEZVOUS_CORE_QUEUE_H

#include "rendezvous/core/job.h"

#define POINT_MS 60000 /* what a point of priority is worth */

/* One that waits, with what decides about it at a glance. */
struct queued {
    int64_t place_ms;
    uint64_t job_id;
    uint32_t job; /* index into rdzv->jobs */
    uint32_t user;
    uint16_t nodes; /* that it needs at least */
    uint8_t nproc;
    bool is_restarting;
    bool has_conditions; /* see after.h */
    uint32_t told;       /* the reason that it shows; see sched.c; 0: none yet */
};

/* A job that waits for slots takes its place; or it no longer waits (nothing if it is not there). */
void queue_add(struct rdzv *rdzv, struct job *job);
void queue_remove(struct rdzv *rdzv, struct job *job);
bool queue_is_before(const struct queued *a, const struct queued *b);
/* A job as it would be in the queue. */
struct queued queue_entry(const struct rdzv *rdzv, const struct job *job);
/* NULL: it is not there. */
struct queued *queue_find(const struct rdzv *rdzv, const struct job *job);
/* Whether a job that waits for slots is in the queue at its place: for checks. */
bool queue_has(const struct rdzv *rdzv, const struct job *job);

#endif
