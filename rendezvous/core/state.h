/* All that the core knows: the tables of its layers in one struct. For the files of this folder
 * alone. A layer calls those above it in this list, never one below:
 *
 *   actions     what a step produces; blocks: memory; gang: that of one generation
 *   job         jobs: table, state, publishing; queue: those that wait, and users
 *   after       what waits for other jobs
 *   spare_table  slots that are held as spares
 *   slots       which slots of a node are closed
 *   roster      nodes: who is here, what they list, when silence means lost
 *   fence       how long a lost node keeps a job from starting again
 *   failure     whose failure it was; nodes that are excluded for a job
 *   generation  the life of one generation; orders: what it owes its nodes;
 *               parts: what is known of all its parts
 *   pace        hangs and stragglers; hang, straggler: their rules
 *   reconcile   what a node lists against what should be; drains: what operators ask for; warm: processes
 *               that wait on spares
 *   preempt     which jobs stop for one of a higher priority
 *   sched       which job gets which slots; place: on which nodes; reserve: for the first that waits;
 *               elastic: jobs whose number of nodes changes; spares: nodes that are held for lost ones
 *   rdzv        the step; view: reading; check: invariants */
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
    uint32_t check_part;   /* from this part on */
    struct job_key *order; /* [options.jobs_max + 1]; jobs by rising id */
    struct blocks blocks;  /* of gangs */
    uint32_t job_high;     /* entries of `jobs` that were ever used */
    uint32_t free_count, live_count, touched_count, owing_count;
    uint32_t *free_jobs;     /* entries that are free again, [free_count] */
    uint32_t *live;          /* jobs that are not in the queue, [live_count] */
    uint32_t *touched;       /* jobs that this step has changed, [touched_count] */
    uint32_t *owing;         /* jobs that owe orders, [owing_count] */
    uint32_t ended_count;    /* jobs that have ended, and are not dropped yet */
    uint64_t limit_at_us;    /* no time limit is over before; UINT64_MAX: there is none */
    uint64_t pace_at_us;     /* no job is to be judged for a hang before; see pace.h */
    uint64_t heard_since_us; /* nothing was heard before: this server was paused */
    uint64_t roster_at_us;   /* no node is silent for too long before */
    uint64_t gone_at_us;     /* then elastic.c looks for nodes that are gone; UINT64_MAX: never */
    bool doubts_itself;      /* more than half of the nodes are silent at once */
    bool any_lost_parts;     /* of some node */
    struct node *nodes;      /* [options.nodes_max], as are the next three */
    struct part_beat_shim (*many_shims)[SHIMS_PER_NODE_MAX];
    struct node_slot (*slot_states)[SLOTS_PER_NODE_MAX];
    char (*slot_reasons)[SLOTS_PER_NODE_MAX][REASON_BYTES_MAX];
    struct job *jobs;                  /* [options.jobs_max + 1]; see job_add_refused */
    uint32_t queue_count, after_count; /* those that wait for slots; of them, for other jobs */
    struct queued *queue;              /* [options.jobs_max + 1]; by place */
    struct user *users;                /* [USERS_MAX] */
    uint32_t node_count, node_most;    /* the most that there were at a time */
    uint16_t by_name[NODES_MAX];       /* indices into `nodes`, by name */
    struct node_view views[NODES_MAX];
    uint16_t conn_nodes[2 * NODES_MAX]; /* by connection, modulo: the index of a node that had it */
    struct node_parts *parts_on;        /* [options.nodes_max] */
    struct node_spares *spares_on;      /* [options.nodes_max] */
    uint32_t spare_jobs;                /* jobs that want spares */
    uint32_t sched_new;      /* a job that has come since, if nothing else has changed; else NONE */
    bool any_new_checkpoint; /* of an elastic job that could be larger */
    bool sched_due;          /* what jobs could start has changed since the last pass */
    uint64_t sched_at_us;    /* or changes by then; UINT64_MAX: it does not */
    uint64_t settled_at_us;  /* until then a restarted server waits for its nodes */
    struct reservation reservation;
    struct pass *pass; /* of the pass at hand */
    uint32_t drain_count;
    struct rdzv_drain drains[DRAINS_MAX];
};

#endif
