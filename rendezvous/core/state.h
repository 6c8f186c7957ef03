/* All that the core knows: the tables of its layers in one struct. Only files of this folder may include it.
 * A layer calls those above it in this list, never one below:
 *
 *   actions      what a step produces; blocks: memory; gang: the memory of one generation
 *   job          jobs: table, state, publishing; queue: those that wait, and users
 *   after        jobs that wait for other jobs
 *   spare_table  slots that are held as spares
 *   slots        which slots of a node are closed
 *   trouble      nodes that are up and do not carry out orders
 *   identity     who a launcherd is, beside its node's name
 *   roster       nodes: which are connected, what they list, when a silent one is lost; claim: which
 *                launcherd may have a name
 *   linger       how long ranks on a lost node keep what follows their job waiting
 *   fence        how long a lost node keeps a job from restarting
 *   failure      the class of a failure; nodes that are excluded for a job
 *   steps        where each part is on its way, and when that is overdue
 *   generation   the life of one generation; orders: what it owes its nodes;
 *                parts: questions about all its parts
 *   deadline     parts that are overdue
 *   pace         hangs and stragglers; hang, straggler: their rules
 *   history      nodes that know more than this state, which is of the past then
 *   reconcile    what a node lists against what should be there; drains: requests of operators; warm:
 *                processes that wait on spares
 *   place        on which nodes a job fits
 *   preempt      which jobs stop for one of a higher priority
 *   sched        which job gets which slots; reserve: slots kept for the first job that waits;
 *                elastic: jobs whose number of nodes changes; spares: nodes held in case one is lost
 *   rdzv         the step; view: reading; check: invariants */
#ifndef RENDEZVOUS_CORE_STATE_H
#define RENDEZVOUS_CORE_STATE_H

#include <assert.h>

#include "rendezvous/core/actions.h"
#include "rendezvous/core/blocks.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/queue.h"
#include "rendezvous/core/roster.h"
#include "rendezvous/core/sched.h"
#include "rendezvous/core/spare_table.h"
#include "rendezvous/core/users.h"

struct rdzv {
    struct rdzv_options options;
    bool is_restored;
    uint64_t random; /* never 0 */
    uint64_t next_job_id;
    struct output out;
    uint32_t job_count;
    uint32_t check_next;   /* index of the job that the next step checks, */
    uint32_t check_part;   /* starting at this part */
    struct job_key *order; /* [options.jobs_max + 1]; jobs in the order of their ids */
    struct blocks blocks;  /* the memory of all gangs */
    uint32_t job_high;     /* entries of `jobs` that were ever used */
    uint32_t free_count, live_count, touched_count, owing_count;
    uint32_t *free_jobs;     /* entries that are free again, [free_count] */
    uint32_t *live;          /* jobs that are not in the queue, [live_count] */
    uint32_t *touched;       /* jobs that this step has changed, [touched_count] */
    uint32_t *owing;         /* jobs that owe orders, [owing_count] */
    uint32_t ended_count;    /* jobs that have ended and are not dropped yet */
    uint32_t linger_count;   /* of them, those of which ranks may still run (linger.h) */
    uint32_t restored_holds; /* nodes with held_is_restored */
    uint64_t
        linger_at_us; /* no job's ranks have ended by themselves earlier; UINT64_MAX: none linger */
    uint64_t limit_at_us;    /* no job reaches its time limit earlier; UINT64_MAX: none has one */
    uint64_t step_at_us;     /* no part of a job is overdue earlier (steps.h) */
    uint64_t pace_at_us;     /* no job needs judging for a hang earlier (pace.h) */
    uint64_t heard_since_us; /* end of the last time in which this server could not hear nodes */
    uint64_t roster_at_us;   /* no node is silent for too long earlier */
    uint64_t gone_at_us;     /* when elastic.c looks for gone nodes again; UINT64_MAX: never */
    bool doubts_itself;      /* more than half of the nodes are silent at once */
    bool any_lost_parts;     /* some node has has_lost_parts */
    struct node *nodes;      /* [options.nodes_max], as are the next three */
    struct part_beat_shim (*many_shims)[SHIMS_PER_NODE_MAX];
    struct node_slot (*slot_states)[SLOTS_PER_NODE_MAX];
    char (*slot_reasons)[SLOTS_PER_NODE_MAX][REASON_BYTES_MAX];
    struct job *jobs;                  /* [options.jobs_max + 1]; see job_add_refused */
    uint32_t queue_count, after_count; /* jobs waiting for slots; of them, for jobs */
    struct queued *queue;              /* [options.jobs_max + 1]; in the order of their places */
    struct user *users;                /* [USERS_MAX] */
    uint32_t node_count, node_most;    /* now; the most at any time */
    uint16_t by_name[NODES_MAX];       /* indices into `nodes`, sorted by name */
    struct node_view views[NODES_MAX];
    uint16_t conn_nodes[2 * NODES_MAX]; /* [conn modulo size]: index of a node */
    struct node_parts *parts_on;        /* [options.nodes_max] */
    struct node_spares *spares_on;      /* [options.nodes_max] */
    uint32_t spare_jobs;                /* jobs that want spares */
    uint32_t sched_new;      /* the only change since the last pass is this new job; NONE: not so */
    bool any_new_checkpoint; /* from an elastic job that could grow */
    bool sched_due;          /* what jobs could start has changed since the last pass */
    uint64_t sched_at_us;    /* when that changes by itself; UINT64_MAX: it does not */
    uint64_t settled_at_us;  /* until then a restarted server waits for its nodes */
    uint64_t restored_at_us; /* when this server began */
    bool is_of_past;         /* somebody knows more than the store did (history.h): */
    char past_why[REASON_BYTES_MAX]; /* who, and what */
    uint64_t held_job_id;            /* jobs up to this one do not start */
    uint64_t held_until_us;          /* before this time */
    bool is_unsure;                  /* they are held since the state may not be the newest */
    struct reservation reservation;
    struct pass *pass; /* the current or last pass */
    uint32_t drain_count;
    struct rdzv_drain drains[DRAINS_MAX];
};

#endif
