/* Which job gets which slots, and the reason, as text, why a job waits.
 *
 * Jobs start in the order of the queue (queue.h), each as a whole. The first job that has to wait gets a
 * reservation (reserve.h). Jobs behind it may start on other slots, or on reserved ones if their time limit
 * ends before the reservation's time: so they cannot delay it. These jobs never count as the first that
 * waits, and hold up nobody:
 *   a job that waits for its next try: its slots are kept for it
 *   a job of a user who has as many slots as one user may have
 *   a job that waits for other jobs to end, or for its turn in its array (after.h)
 *   a job that too few nodes could ever run, in their present state
 *
 * A pass over the queue is made when something has changed that a job could wait for. */
#ifndef RENDEZVOUS_CORE_SCHED_H
#define RENDEZVOUS_CORE_SCHED_H

#include "rendezvous/core/queue.h"
#include "rendezvous/core/reserve.h"

/* Time for a job that starts on reserved slots to get running. Its time limit counts from the end
 * of this time at the latest. */
#define START_ALLOWANCE_US 60000000u
/* How many queued jobs are told exactly what they wait for. */
#define REASONS_MAX 100u
#define VICTIMS_MAX 1024u /* the most jobs that one job can preempt */
#define VICTIM_NONE UINT32_MAX
#define NEWCOMER_NONE UINT32_MAX

/* The working state of one pass. */
struct pass {
    struct pool free;                 /* for the first job that waits and those before it */
    struct pool open;                 /* for the jobs behind it: without reserved slots */
    struct pool able;                 /* what jobs could get if nothing were running */
    struct pool soon;                 /* like `free`, plus slots that will be open in seconds */
    uint64_t held[NODES_MAX];         /* kept for jobs that wait for their next try */
    uint32_t reasons;                 /* how many jobs have been told their reason */
    bool is_blocked;                  /* a first job that waits has been found: */
    uint32_t first_user, first_slots; /* its user, and the slots that the user does not use yet */
    bool is_complete;      /* it saw the whole queue: the pools are valid until a change */
    bool has_held;         /* a job waits for its next try */
    bool is_out_of_memory; /* the current job has slots, but no memory for its ranks */
    struct queued first;   /* the first that waits, where is_blocked */
    bool has_preempted;    /* a job waits for the one that has preempted it */
    bool again;            /* it changed what others wait for: another pass follows */
    uint64_t array_job;    /* the current array, and how many of its jobs are active */
    uint32_t array_active;
    uint32_t array_lingering; /* of these, the ones that have ended (linger.h) */
    bool is_settling;         /* a server that has just started still waits for nodes */
    /* For reserve.c. */
    uint64_t known[NODES_MAX], unknown[NODES_MAX];
    uint64_t (*slot_ends)[SLOTS_PER_NODE_MAX];     /* [options.nodes_max] */
    struct reserve_option best[NODES_PER_JOB_MAX]; /* from here on: not cleared before a pass */
    /* For preempt.c. */
    struct pool room;
    uint32_t victims[VICTIMS_MAX];
};

/* A job has been put into the queue. If nothing else has changed since the last pass, only this job
 * is looked at. */
void sched_newcomer(struct rdzv *rdzv, const struct job *job);
/* Starts every job that can start now. If there is too little room for actions, the next steps
 * continue. */
void sched_run(struct rdzv *rdzv);
/* Whether the known nodes could run a job of this size if they were empty and connected. If not,
 * sets why, as text. */
bool sched_is_possible(const struct rdzv *rdzv, uint32_t nodes, uint32_t slots,
                       char why[REASON_BYTES_MAX]);

#endif
