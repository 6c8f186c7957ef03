/* The server's core: jobs, generations, the join round, loss of nodes, restarts. Pure:
 * rdzv_step(state, event) -> actions.
 *
 * Nodes state what is (beats list their shims, reports say all about one shim, again and again
 * until acked); the core holds what should be, and orders whatever closes the gap. Every order is
 * idempotent and fenced by (job, generation). The edge (rdzv_io.c) carries out actions in order;
 * all RDZV_PERSIST of one step are one durable transaction that is over before the first message of
 * that step leaves: acknowledged means durable, a generation is persisted before it is used.
 *
 * A generation: START to every node -> every shim reports ready -> GO (workers spawn) -> workers
 * join -> WORLD with rank 0's blob -> every rank exits 0 -> all shims ended -> FORGET. A failure:
 * first cause recorded -> STOP to all -> all ended (or their node lost) -> restart policy
 * (restart.h) -> next generation, or the end of the job. */
#ifndef RENDEZVOUS_RDZV_H
#define RENDEZVOUS_RDZV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct rdzv; /* opaque size is known through rdzv_bytes() */

struct rdzv_options {
    uint32_t jobs_max;  /* <= JOBS_ACTIVE_MAX */
    uint32_t nodes_max; /* <= NODES_MAX */
    uint64_t lease_us;
    uint64_t beat_interval_us;
    uint64_t suspect_us, lost_us; /* since the last beat */
    uint64_t seed;                /* for the jitter of back-off */
    char cluster[33];
};

/* One node's share of a generation. */
struct rdzv_part {
    char node[NODE_NAME_BYTES_MAX];
    uint32_t rank_base;
    uint32_t local_count;
    uint64_t slot_mask;
};

/* What must survive: one row of the store for each job. Written whole by RDZV_PERSIST. */
struct rdzv_record {
    uint64_t job_id;
    char request_id[REQUEST_ID_CHARS + 1];
    char name[JOB_NAME_BYTES_MAX];
    char user[USER_NAME_BYTES_MAX];
    uint32_t uid;
    uint32_t nodes, nproc_per_node, max_restarts;
    uint64_t grace_us, time_limit_us;
    enum job_state state;
    uint32_t generation; /* 0: none yet */
    uint32_t restarts;   /* generations after the first */
    uint32_t restarts_without_progress;
    uint64_t checkpoint_step; /* newest that a worker said it committed */
    bool cancel_wanted;
    char reason[REASON_BYTES_MAX];
    int32_t exit_code; /* valid once the state is an end */
    uint32_t signal;
    bool exit_is_ours;
    int64_t submitted_ms, started_ms, ended_ms; /* wall clock, for people */
    int32_t failed_rank; /* first cause of the last failed generation; -1: none */
    char failed_node[NODE_NAME_BYTES_MAX];
    char tail[TAIL_BYTES_MAX];
    uint32_t part_count; /* of the current generation; 0 while it has none */
    struct rdzv_part parts[NODES_PER_JOB_MAX];
};

/* Where an operator wants no new ranks: it stands until it is resumed, whatever the node does. */
struct rdzv_drain {
    char node[NODE_NAME_BYTES_MAX];
    uint32_t slot; /* RDZV_WHOLE_NODE: all of it */
    char user[USER_NAME_BYTES_MAX];
    char reason[REASON_BYTES_MAX];
    int64_t at_ms; /* wall clock */
};
#define RDZV_WHOLE_NODE SLOTS_PER_NODE_MAX

/* One rank as last reported. rank = index. */
struct rdzv_rank {
    uint32_t pid;
    uint8_t state; /* enum rank_state */
    uint8_t exit_code;
    uint8_t signal;
    bool joined;
};

enum rdzv_event_type {
    RDZV_EVENT_TICK,    /* the timer, or any time */
    RDZV_EVENT_RESTORE, /* at the start, once for each stored job that has not ended, by rising id:
                           `record` */
    RDZV_EVENT_RESTORE_DRAIN, /* likewise, for each stored drain: `drain` */
    RDZV_EVENT_RESTORED,      /* after these: `next_job_id`; before it no other event comes */
    RDZV_EVENT_NODE_MSG, /* `conn`, `msg`: one of node_hello (first), beat, shim_report, progress,
                             node_event */
    RDZV_EVENT_NODE_CLOSED, /* `conn` */
    RDZV_EVENT_SUBMIT, /* `client`, `msg` (submit), `user`, `uid`; the edge has looked the request
                        * id up in the store before: it is new */
    RDZV_EVENT_CANCEL, /* `client`, `job_id`, `msg` (cancel) */
    RDZV_EVENT_NODE_DRAIN,  /* `client`, `msg` (node_drain), `user` */
    RDZV_EVENT_NODE_RESUME, /* `client`, `msg` (node_resume), `user` */
};

struct rdzv_event {
    uint64_t now_us; /* boot clock, when the edge saw it */
    int64_t wall_ms;
    enum rdzv_event_type type;
    uint64_t conn;   /* of a node: chosen by the edge, never used twice while the process lives */
    uint64_t client; /* of a client's request, likewise; comes back in the answer */
    uint64_t job_id;
    const struct msg *msg; /* borrowed for the step */
    const char *user;
    uint32_t uid;
    const struct rdzv_record *record;
    const struct rdzv_drain *drain;
    uint64_t next_job_id;
};

enum rdzv_action_type {
    RDZV_PERSIST, /* job_id: write rdzv_record(job_id); for a new job also its spec (argv, env, cwd
                     of the event) */
    RDZV_PERSIST_RANKS,   /* job_id, generation: it has ended; keep its ranks' last states, from
                           * rdzv_ended_ranks() and rdzv_ended_parts() (the next generation may have
                           * begun within the same step) */
    RDZV_PERSIST_DRAINS,  /* write all of rdzv_drains() in place of what is stored */
    RDZV_EVENT_NOTE,      /* job_id, generation, text: append to the events table, and log */
    RDZV_SEND_WELCOME,    /* conn */
    RDZV_SEND_BEAT_ACK,   /* conn, sent_us */
    RDZV_SEND_START,      /* conn, job_id, generation, part: msg start, with argv, env, cwd from the
                             store */
    RDZV_SEND_GO,         /* conn, job_id, generation, text (master address), master_port */
    RDZV_SEND_WORLD,      /* conn, job_id, generation, blob */
    RDZV_SEND_STOP,       /* conn, job_id, generation, signal, grace_us, text */
    RDZV_SEND_FORGET,     /* conn, job_id, generation */
    RDZV_SEND_REPORT_ACK, /* conn, job_id, generation, revision */
    RDZV_SEND_SLOT_RESUME, /* conn, slot, incident */
    RDZV_CLOSE_NODE,       /* conn, text: say why (msg error) and close; no NODE_CLOSED follows */
    RDZV_REPLY_SUBMITTED,  /* client, job_id */
    RDZV_REPLY_CANCELLED,  /* client, job_id: answer with job_info */
    RDZV_REPLY_NODE,       /* client, text (its name): answer with nodes, of that one */
    RDZV_REPLY_ERROR,      /* client, status, text */
    RDZV_JOB_CHANGED,      /* job_id: its version grew; wake those who wait for it */
    RDZV_JOB_ENDED, /* job_id: the state is an end; comes after its PERSIST; the core has dropped
                     * the job when the step returns, the store has all of it */
};

struct rdzv_action {
    enum rdzv_action_type type;
    uint32_t generation;
    uint64_t conn, client, job_id;
    uint64_t sent_us, grace_us;
    uint32_t part, signal, master_port, revision, slot;
    uint64_t incident;
    enum status status;
    const char *text;      /* borrowed from the core until the next step */
    struct msg_bytes blob; /* likewise */
};

#define RDZV_ACTIONS_MAX 8192
struct rdzv_actions {
    uint32_t count;
    uint64_t timer_at_us; /* send a TICK then at the latest; UINT64_MAX: no need */
    struct rdzv_action items[RDZV_ACTIONS_MAX];
};

/* Bytes that rdzv_init needs, zeroed and aligned for any type, from the caller. */
uint64_t rdzv_bytes(const struct rdzv_options *options);
/* `memory`: rdzv_bytes(options) zeroed bytes, owned by the caller, in use until it is freed. */
struct rdzv *rdzv_init(void *memory, const struct rdzv_options *options);
/* `actions` is overwritten. */
void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_actions *actions);

/* The message to a node that `action` stands for, of one of the actions of the last step; it
 * borrows from the core. False: not one that the core knows all of (SEND_WELCOME), or none. Of a
 * START the caller adds cluster, cwd, argv and env, which are not in the core. */
bool rdzv_order(const struct rdzv *rdzv, const struct rdzv_action *action, struct msg *msg);

/* Reading, for the edge and for tests. NULL: no such active job. */
const struct rdzv_record *rdzv_record(const struct rdzv *rdzv, uint64_t job_id);
const struct rdzv_rank *rdzv_ranks(const struct rdzv *rdzv,
                                   uint64_t job_id); /* [nodes * nproc_per_node] */
/* Of the last generation that ended: ranks [sum of local_count], and the parts they ran on. */
const struct rdzv_rank *rdzv_ended_ranks(const struct rdzv *rdzv, uint64_t job_id);
const struct rdzv_part *rdzv_ended_parts(const struct rdzv *rdzv, uint64_t job_id,
                                         uint32_t *part_count);
/* A job's summary from its record alone (stored ones too); `out` borrows from `record` and `where`.
 */
void rdzv_summary(const struct rdzv_record *record, const char *where, struct part_job *out);
/* "node0,node1": the names of the parts, cut with a count where they do not fit. Returns its
 * length. */
uint32_t rdzv_where(const struct rdzv_part *parts, uint32_t part_count, char *out, uint32_t bytes);
/* The same with progress, of an active job (and, of an ended one, until the next step). `where`
 * backs the text. */
void rdzv_job_part(const struct rdzv *rdzv, uint64_t job_id, char where[REASON_BYTES_MAX],
                   struct part_job *out);
/* Progress, version: 0 when there is no such active job. */
uint64_t rdzv_job_version(const struct rdzv *rdzv, uint64_t job_id);
uint32_t rdzv_job_count(const struct rdzv *rdzv);
/* The i-th active job by rising id. */
uint64_t rdzv_job_at(const struct rdzv *rdzv, uint32_t index);
uint32_t rdzv_node_count(const struct rdzv *rdzv);
void rdzv_node_at(const struct rdzv *rdzv, uint32_t index, uint64_t now_us, struct part_node *out);
/* Slots, by node and number: the closed ones of all nodes, or (`node` not NULL) all of that one. At
 * most `max`; borrows from the core. Returns how many. */
uint32_t rdzv_slots(const struct rdzv *rdzv, const char *node, struct part_slot *out, uint32_t max);
bool rdzv_has_node(const struct rdzv *rdzv, const char *name);
/* [*count] */
const struct rdzv_drain *rdzv_drains(const struct rdzv *rdzv, uint32_t *count);
/* The connection of a node that is up, 0 when there is none: to forward log_read. */
uint64_t rdzv_node_conn(const struct rdzv *rdzv, const char *name);

#endif
