/* Which job gets which slots, and why one waits, as text.
 *
 * Jobs start in the order of the queue (queue.h), each as a whole. The first that has to wait gets a
 * reservation (reserve.h). Jobs behind it may start on other slots, or on reserved ones if their
 * time limit is over before the reservation's time: they cannot delay it. Not the first that waits
 * are, and nobody behind them is held up by
 *   a job that waits for its next try: its slots are kept for it
 *   a job of a user who has all the slots that a user may have
 *   a job that waits for other jobs to end, or for its turn in its array (after.h)
 *   a job that too few nodes could ever run, as they are now
 *
 * A pass over the queue is made when something has changed that a job could wait for. */
#ifndef RENDEZVOUS_CORE_SCHED_H
#define RENDEZVOUS_CORE_SCHED_H

#include "rendezvous/core/queue.h"
#include "rendezvous/core/reserve.h"

/* A job that starts on reserved slots must be running after this; the time limit counts from then
 * on at the latest. */
#define START_ALLOWANCE_US 60000000u
/* So many jobs of the queue are told exactly what they wait for. */
#define REASONS_MAX 100u
#define VICTIMS_MAX 1024u /* jobs that one job can preempt */
#define VICTIM_NONE UINT32_MAX
#define NEWCOMER_NONE UINT32_MAX

/* What one pass works with. */
struct pass {
    struct pool free;                 /* for the first that waits and those before it */
    struct pool open;                 /* for those behind it: without what is reserved */
    struct pool able;                 /* what they could have if nothing ran */
    struct pool soon;                 /* as `free`, with slots that will be open in seconds */
    uint64_t held[NODES_MAX];         /* for jobs that wait for their next try */
    uint32_t reasons;                 /* jobs that were told */
    bool is_blocked;                  /* there is a first that waits: */
    uint32_t first_user, first_slots; /* the slots that its user has not in use yet */
    bool is_complete;      /* it came to the end of the queue: the pools hold until a change */
    bool has_held;         /* a job waits for its next try */
    bool is_out_of_memory; /* the job at hand has slots, and there is no memory for its ranks */
    struct queued first;   /* the first that waits, where is_blocked */
    bool has_preempted;    /* a job waits for the one that has preempted it */
    bool again; /* what the pass has done changes what others wait for: another one follows */
    uint64_t array_job; /* the array at hand, and how many of its jobs are active */
    uint32_t array_active;
    bool is_settling; /* a server that has just started waits for nodes */
    /* of reserve.c */
    uint64_t known[NODES_MAX], unknown[NODES_MAX];
    uint64_t (*slot_ends)[SLOTS_PER_NODE_MAX];     /* [options.nodes_max] */
    struct reserve_option best[NODES_PER_JOB_MAX]; /* this and the next: not cleared */
    /* of preempt.c */
    struct pool room;
    uint32_t victims[VICTIMS_MAX];
};

/* A job has been put into the queue. Where nothing else has changed since the last pass, it alone is
 * looked at. */
void sched_newcomer(struct rdzv *rdzv, const struct job *job);
/* Starts every job that can be started now. With too little room, the rest in the next steps. */
void sched_run(struct rdzv *rdzv);
/* Whether some nodes that the server knows could run so large a job, were they empty and connected;
 * if not, why, as text. */
bool sched_is_possible(const struct rdzv *rdzv, uint32_t nodes, uint32_t slots,
                       char why[REASON_BYTES_MAX]);

#endif
