/* The jobs that wait for slots, in the order in which they start. A job's place is its time of
 * submission, less a minute for each point of its priority. Priorities span 2000 points, so a job
 * can only be overtaken by jobs of a higher priority that are submitted within the next 33 hours.
 * Among equals the smaller id comes first. */
#ifndef RENDEZVOUS_CORE_QUEUE_H
#define RENDEZVOUS_CORE_QUEUE_H

#include "rendezvous/core/job.h"

#define POINT_MS 60000 /* what a point of priority is worth */

/* A queued job, with the fields that the scheduler reads for every job. */
struct queued {
    int64_t place_ms;
    uint64_t job_id;
    uint32_t job; /* index into rdzv->jobs */
    uint32_t user;
    uint16_t nodes; /* the fewest that it can start on */
    uint8_t nproc;
    bool is_restarting;
    bool has_conditions; /* it waits for other jobs or its array's limit (after.h) */
    uint32_t told;       /* the reason that it shows now (sched.c); 0: none yet */
};

/* Adds a job that waits for slots at its place; removes it (does nothing if it is not there). */
void queue_add(struct rdzv *rdzv, struct job *job);
void queue_remove(struct rdzv *rdzv, struct job *job);
bool queue_is_before(const struct queued *a, const struct queued *b);
/* The entry that a job would have in the queue. */
struct queued queue_entry(const struct rdzv *rdzv, const struct job *job);
/* NULL: it is not there. */
struct queued *queue_find(const struct rdzv *rdzv, const struct job *job);
/* Whether the queue has the job at its proper place: for checks. */
bool queue_has(const struct rdzv *rdzv, const struct job *job);

#endif
