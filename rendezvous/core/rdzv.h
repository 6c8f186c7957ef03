/* The server's core: jobs, generations, the join round, loss of nodes, restarts. Pure:
 * rdzv_step(state, event) -> actions.
 *
 * Nodes report what is on them: a beat lists the node's shims; a report describes one shim in full and is
 * repeated until it is acknowledged. The core holds what should be there and orders what closes the gap.
 * Every order is idempotent and fenced by (job, generation).
 *
 * The edge (rendezvous/server) carries the actions out in order. All RDZV_PERSIST... of one step are one
 * durable transaction, committed before the first message of that step leaves. So everything that is
 * acknowledged is durable, and a generation is stored before it is used.
 *
 * A generation:
 *   START to every node      a shim is prepared on each and reports ready
 *   GO, when all are ready   workers spawn, and join
 *   WORLD, when all joined   every member gets rank 0's blob; training begins
 *   every rank exits 0       every shim ends: FORGET, the job has succeeded
 * A failure:
 *   the first cause is recorded, STOP to every node
 *   when every shim has ended or its node is lost, the restart policy (restart.h) decides: the next
 *   generation, or the end of the job */
#ifndef RENDEZVOUS_CORE_RDZV_H
#define RENDEZVOUS_CORE_RDZV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/array_spec.h"
#include "common/limits.h"
#include "common/msg.h"
#include "rendezvous/core/record.h"

struct rdzv; /* opaque; its size: rdzv_bytes() */

struct rdzv_options {
    uint32_t jobs_max;  /* <= JOBS_ACTIVE_MAX */
    uint32_t nodes_max; /* <= NODES_MAX */
    uint64_t lease_us;
    uint64_t lease_before_us; /* the longest that a server before this one may have given */
    bool
        is_copy; /* the state is a restored copy, of whose jobs leases of before it may be out (history.h) */
    bool is_of_past;      /* the store knows that more was done since its state: */
    const char *past_why; /* how; borrowed */
    bool may_be_past;     /* the store cannot tell that its state is the newest (history.h) */
    uint64_t beat_interval_us;
    uint64_t suspect_us, lost_us; /* since the last beat */
    uint64_t grow_us; /* how long a generation runs before its job may grow (elastic.h) */
    uint64_t hang_least_us, hang_first_us; /* see hang.h; 0: the defaults there */
    bool waits_for_lease;                  /* before a job restarts elsewhere (fence.h) */
    uint32_t max_queued_per_user;          /* jobs that have not started; 0: no limit */
    uint64_t max_stored_per_user;          /* bytes in the store; 0: no limit */
    uint32_t max_slots_per_user;           /* in use at a time; 0: no limit */
    bool preempts;                         /* by priority, see preempt.h */
    bool is_one_machine;  /* all nodes are on it, and no other ones come: see failure.h */
    uint32_t id_gap;      /* numbers that a state of the past leaves out (history.h): */
    uint32_t id_gap_span; /* so many times that, drawn from 1 to this; 0: once */
    uint64_t seed;        /* for the jitter of back-off */
    char cluster[33];
    char boot_id[64]; /* of this machine, as a node says its own; "": not known */
};

/* An operator's drain: the node or slot gets no new ranks until an operator resumes it. */
struct rdzv_drain {
    char node[NODE_NAME_BYTES_MAX];
    uint32_t slot; /* RDZV_WHOLE_NODE: all of it */
    char user[USER_NAME_BYTES_MAX];
    char reason[REASON_BYTES_MAX];
    int64_t at_ms; /* wall clock */
};
#define RDZV_WHOLE_NODE SLOTS_PER_NODE_MAX

/* Slots of a node whose parts were given up unseen: an earlier launcherd of that name may still run
 * them until its lease ends. Stored, so that a new server knows it too; it then counts a lease from
 * its own start. */
struct rdzv_hold {
    char node[NODE_NAME_BYTES_MAX];
    struct rdzv_identity identity; /* of that launcherd */
    uint64_t slot_mask;            /* 0: none */
};

/* One rank as last reported. Arrays of these are indexed by rank. */
struct rdzv_rank {
    uint32_t pid;
    uint32_t failed_ms; /* of the first that failed on its node: when, on the boot clock, the low 32
                         * bits; 0: not known */
    uint32_t moved_ms;  /* its newest progress, on the same clock; 0: none yet */
    uint8_t state;      /* enum rank_state */
    uint8_t exit_code;
    uint8_t signal;
    bool joined;
};

/* A range of job ids. */
struct rdzv_ids {
    uint64_t first, last;
    bool is_awaited;
};

/* The jobs that a job waits for (--after). It waits for all of them. */
struct rdzv_after {
    uint32_t count;
    struct rdzv_after_item {
        uint64_t first, last; /* by id: one job, or the jobs of an array */
        bool any;             /* until they have ended; false: until they have succeeded */
    } items[AFTER_MAX];
    /* A job that should have succeeded and did not, or is not stored any more; 0: none. */
    uint64_t failed_id;
    enum job_state failed_state; /* failed or cancelled; any other: it is not stored any more */
};

/* What has happened. Each line lists the fields that are set beside now_us, wall_ms, paused_us and
 * type.
 *   TICK           none: the timer has expired; allowed at any time
 *   RESTORE        record, after (failed_id and failed_state alone): at the start, each stored job that
 *                  has not ended, by rising id
 *   RESTORE_DRAIN  drain: at the start, each stored drain
 *   RESTORE_HOLD   hold: at the start, before the jobs, each stored hold
 *   RESTORED       next_job_id: ends the restore; before it no other event comes
 *   NODE_MSG       conn, msg: node_hello (first), beat, shim_report, progress or node_event; of a hello text: the
 *                  address of this machine that the node has called, NULL: it was a unix socket
 *   NODE_CLOSED    conn
 *   SUBMIT         client, msg, user, uid, is_admin, after: the store does not have the request id yet;
 *                  of an array one for each job, in one transaction (rdzv_has_more): array, array_place
 *   CANCEL         client, job_id, msg, user
 *   START_FAILED   job_id, generation, part, text: that SEND_START can never be carried out
 *   STAGE_LOST     conn, job_id, text: the node cannot have the staged directory of that job, which may be there for it
 *   LOOKED         job_id, generation, looks, look_count, all_answered, is_deaf, is_busy, text (where
 *                  the ranks stand, for people): the answers to a RDZV_LOOK
 *   NODE_DRAIN     client, msg, user
 *   NODE_RESUME    client, msg, user */
enum rdzv_event_type {
    RDZV_EVENT_TICK,
    RDZV_EVENT_RESTORE,
    RDZV_EVENT_RESTORE_DRAIN,
    RDZV_EVENT_RESTORE_HOLD,
    RDZV_EVENT_RESTORED,
    RDZV_EVENT_NODE_MSG,
    RDZV_EVENT_NODE_CLOSED,
    RDZV_EVENT_SUBMIT,
    RDZV_EVENT_CANCEL,
    RDZV_EVENT_START_FAILED,
    RDZV_EVENT_STAGE_LOST,
    RDZV_EVENT_LOOKED,
    RDZV_EVENT_NODE_DRAIN,
    RDZV_EVENT_NODE_RESUME,
};

/* What a user has in the store, and what a submit adds; 0: it is not counted. */
struct rdzv_stored {
    uint64_t has_bytes, adds_bytes;
    uint64_t free_bytes; /* what still fits into the store; UINT64_MAX: not known */
};

struct rdzv_event {
    uint64_t now_us; /* boot clock, when the edge saw it */
    int64_t wall_ms;
    /* For how long before now_us this process could not read what nodes sent, because it was
     * stopped or waited for a disk. Usually 0. */
    uint64_t paused_us;
    enum rdzv_event_type type;
    uint64_t conn;   /* of a node: chosen by the edge, higher for each new connection */
    uint64_t client; /* of a client's request, chosen likewise; returned in the answer */
    uint64_t job_id;
    uint32_t generation;
    uint32_t part;
    const char *text;
    const struct msg *msg; /* borrowed for the step */
    const char *user;
    uint32_t uid;
    bool is_admin; /* may ask for a priority above 0 */
    struct rdzv_stored stored;
    struct rdzv_after after;
    const struct array_spec *array; /* NULL: one job */
    uint32_t array_place;           /* from 0 */
    const struct rdzv_record *record;
    const struct rdzv_drain *drain;
    const struct rdzv_hold *hold;
    uint64_t next_job_id;
    const struct part_rank_look *looks; /* [look_count] */
    uint32_t look_count;
    bool all_answered, is_deaf, is_busy; /* all nodes answered; at least one is deaf, busy */
};

/* How the event begins that says so (history.h). */
#define RDZV_OF_PAST "this server's state is of the past"

/* What the edge must do. Each line lists the fields that are set beside type.
 *   PERSIST           job_id: write rdzv_job_record(job_id); of a new job also the event's spec
 *                     (argv, env, cwd)
 *   PERSIST_RANKS     job_id, generation: it has ended; write its ranks' last states from
 *                     rdzv_ended_ranks() and rdzv_ended_parts()
 *   PERSIST_FAILURE   job_id, generation: write rdzv_failure()
 *   PERSIST_DRAINS    write all of rdzv_drains() in place of what is stored
 *   PERSIST_HOLD      text (a node's name): write rdzv_hold(text), or remove it if its mask is 0
 *   PERSIST_GAP       job_id: no job up to this one is new, and some events may have been numbered since
 *   PERSIST_LEASE     lease_us: a server before this one has given it, and it may be out
 *   LOG_EVENT         job_id, generation, text: append to the events table, and log
 *   SEND_WELCOME      conn
 *   SEND_BEAT_ACK     conn, sent_us
 *   SEND_START        conn, job_id, generation, part: argv, env and cwd are in the store
 *   SEND_GO           conn, job_id, generation, text (master address), master_port
 *   SEND_WORLD        conn, job_id, generation, blob
 *   SEND_STOP         conn, job_id, generation, signal, grace_us, text
 *   SEND_FORGET       conn, job_id, generation
 *   SEND_REPORT_ACK   conn, job_id, generation, revision
 *   SEND_SLOT_RESUME  conn, slot, incident
 *   SEND_WARM         conn, job_id, slot_mask: may be dropped; argv, env and cwd are in the store
 *   SEND_COOL         conn, job_id
 *   LOOK              job_id, generation, with_stacks: ask every node of the job (msg look); LOOKED follows
 *   CLOSE_NODE        conn, status, text: send it as msg error, and close; no NODE_CLOSED
 *                     follows. STATUS_CONFLICT: another process has the node's name
 *   REPLY_SUBMITTED   client, job_id; of an array: its first job, with the event of its last one
 *   REPLY_CANCELLED   client, job_id: answer with job_info
 *   REPLY_NODE        client, text (its name): answer with nodes, of that one
 *   REPLY_ERROR       client, status, text
 *   JOB_CHANGED       job_id: its version grew; wake the requests that watch the job
 *   JOB_ENDED         job_id: after its PERSIST. The core drops the job in one of the next steps; the
 *                     store has all of it */
enum rdzv_action_type {
    RDZV_PERSIST,
    RDZV_PERSIST_RANKS,
    RDZV_PERSIST_FAILURE,
    RDZV_PERSIST_DRAINS,
    RDZV_PERSIST_HOLD,
    RDZV_PERSIST_GAP,
    RDZV_PERSIST_LEASE,
    RDZV_LOG_EVENT,
    RDZV_SEND_WELCOME,
    RDZV_SEND_BEAT_ACK,
    RDZV_SEND_START,
    RDZV_SEND_GO,
    RDZV_SEND_WORLD,
    RDZV_SEND_STOP,
    RDZV_SEND_FORGET,
    RDZV_SEND_REPORT_ACK,
    RDZV_SEND_SLOT_RESUME,
    RDZV_SEND_WARM,
    RDZV_SEND_COOL,
    RDZV_CLOSE_NODE,
    RDZV_REPLY_SUBMITTED,
    RDZV_REPLY_CANCELLED,
    RDZV_REPLY_NODE,
    RDZV_REPLY_ERROR,
    RDZV_LOOK,
    RDZV_JOB_CHANGED,
    RDZV_JOB_ENDED,
};

struct rdzv_action {
    enum rdzv_action_type type;
    uint32_t generation;
    uint64_t conn, client, job_id;
    uint64_t sent_us, grace_us, lease_us;
    uint32_t part, signal, master_port, revision, slot;
    uint64_t incident, slot_mask;
    enum status status;
    bool with_stacks;
    const char *text;      /* borrowed until the next step */
    struct msg_bytes blob; /* borrowed until the next step */
};

/* The most actions of one step. Work that does not fit is left to the next step, and timer_at_us is
 * now. */
#define RDZV_ACTIONS_MAX 2048u
struct rdzv_actions {
    uint32_t count;
    uint64_t timer_at_us; /* send a TICK at the latest then; UINT64_MAX: none needed */
    struct rdzv_action items[RDZV_ACTIONS_MAX];
};

/* The size of the memory that rdzv_init needs. */
uint64_t rdzv_bytes(const struct rdzv_options *options);
/* `memory`: rdzv_bytes(options) zeroed bytes, aligned for any type. The caller owns them and frees
 * them after the last call. */
struct rdzv *rdzv_init(void *memory, const struct rdzv_options *options);
/* Takes one event and overwrites `actions`. */
void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_actions *actions);

/* Of a SUBMIT: true if further jobs of the same array must come with the next events, in the same
 * transaction, unless this one is refused. */
bool rdzv_has_more(const struct rdzv_event *event);
/* Whether an action is carried out on a node's connection: SEND_..., CLOSE_NODE. */
bool rdzv_is_for_node(enum rdzv_action_type type);
/* Makes the message to a node for one of the last step's actions; it borrows from the core. False:
 * the action is no message, or one that the core cannot make (SEND_WELCOME). The core does not have
 * everything: for a START the caller adds cluster, cwd, argv, env and the nodes; for a WARM the
 * same without the nodes. */
bool rdzv_order(const struct rdzv *rdzv, const struct rdzv_action *action, struct msg *msg);

/* The nodes of the job's generation with the addresses of their workers, for the START of its first
 * part. Returns how many; 0: some address is not known yet, because its node has not connected
 * since the server started. `out`: [NODES_PER_JOB_MAX]; borrows from the core. */
uint32_t rdzv_job_nodes(const struct rdzv *rdzv, uint64_t job_id, struct msg_pair *out);

/* Asserts that the tables agree with one another. Each step checks a part of this; tests call it
 * for all. */
void rdzv_check(const struct rdzv *rdzv);

/* Reading, for the edge and for tests. NULL: the core has no such active job. */
const struct rdzv_record *rdzv_job_record(const struct rdzv *rdzv, uint64_t job_id);
const struct rdzv_rank *rdzv_ranks(const struct rdzv *rdzv,
                                   uint64_t job_id); /* [world] while the record has parts */
/* How a generation failed, for a RDZV_PERSIST_FAILURE of the last step. The result borrows from the
 * core and from that step's event. If `error`, `stacks` or `core` is NULL, the stored one stays.
 * `*is_restored`: this server was started during the failure and saw only its end; keep what is
 * stored about its beginning. */
const struct part_failure *rdzv_failure(const struct rdzv *rdzv, uint64_t job_id,
                                        bool *is_restored);
/* Since when all ranks of the current generation have been running; UINT64_MAX: not all are
 * running. */
uint64_t rdzv_running_since(const struct rdzv *rdzv, uint64_t job_id);
/* The nodes that the job does not use now, since they have failed it: "gpu02 gpu07"; "": none. */
void rdzv_avoided(const struct rdzv *rdzv, uint64_t job_id, char text[AVOIDED_BYTES_MAX]);
/* The ranks of the last generation that ended, [sum of local_count], and the parts that they ran
 * on. */
const struct rdzv_rank *rdzv_ended_ranks(const struct rdzv *rdzv, uint64_t job_id);
const struct rdzv_part *rdzv_ended_parts(const struct rdzv *rdzv, uint64_t job_id,
                                         uint32_t *part_count);
/* The summary of an active job, with the number of its running ranks. */
void rdzv_job_part(const struct rdzv *rdzv, uint64_t job_id, struct part_job *out);
/* Grows with every change; 0: no such active job. */
uint64_t rdzv_job_version(const struct rdzv *rdzv, uint64_t job_id);
uint32_t rdzv_job_count(const struct rdzv *rdzv);
/* A node, or the store's directory, knows more than the state that this server began with. */
bool rdzv_is_of_past(const struct rdzv *rdzv);
/* Who knows what; empty: nobody does. */
const char *rdzv_past_why(const struct rdzv *rdzv);
/* The active job with the index-th smallest id. */
uint64_t rdzv_job_at(const struct rdzv *rdzv, uint32_t index);
/* Marks those of the ranges that have a job whose success a waiting job needs (--after). */
void rdzv_mark_awaited(const struct rdzv *rdzv, struct rdzv_ids *ids, uint32_t count);
uint32_t rdzv_node_count(const struct rdzv *rdzv);
/* The index-th node by name; borrows from the core. */
void rdzv_node_at(const struct rdzv *rdzv, uint32_t index, uint64_t now_us, struct part_node *out);
/* The index of the first node whose name comes after `name`, which need not exist; "": the first
 * node. */
uint32_t rdzv_node_after(const struct rdzv *rdzv, const char *name);
/* The slots of the index-th node by name: all of them, or only the closed ones. Returns how many;
 * borrows from the core. */
uint32_t rdzv_node_slots(const struct rdzv *rdzv, uint32_t index, bool all,
                         struct part_slot out[SLOTS_PER_NODE_MAX]);
/* The address at which the node `other` reaches that node, as far as is known; "": there is none. */
const char *rdzv_address_for(const struct rdzv *rdzv, const char *name, const char *other);
bool rdzv_has_node(const struct rdzv *rdzv, const char *name);
/* Nodes that are away: an operator drained them or some of their slots, and they have not connected
 * since the server started. The name of the first one after `name`, and before `end` unless that is
 * NULL; NULL: there is none. */
const char *rdzv_away_after(const struct rdzv *rdzv, const char *name, const char *end);
bool rdzv_is_away(const struct rdzv *rdzv, const char *name);
/* Such a node, or one whose drain was just resumed, as a lost one. Borrows from the core, and
 * `name`. */
void rdzv_away(const struct rdzv *rdzv, const char *name, struct part_node *out);
/* Its drained slots; returns how many. */
uint32_t rdzv_away_slots(const struct rdzv *rdzv, const char *name,
                         struct part_slot out[SLOTS_PER_NODE_MAX]);
/* [*count] */
const struct rdzv_drain *rdzv_drains(const struct rdzv *rdzv, uint32_t *count);
void rdzv_hold(const struct rdzv *rdzv, const char *node, struct rdzv_hold *out);
/* The connection of a node that is up, to forward log_read; 0: it has none. */
uint64_t rdzv_node_conn(const struct rdzv *rdzv, const char *name);

#endif
