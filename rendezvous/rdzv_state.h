/* Inside the server's core: its tables, and what its files share. Not for the edge. */
#ifndef RENDEZVOUS_RDZV_STATE_H
#define RENDEZVOUS_RDZV_STATE_H

#include <assert.h>

#include "rendezvous/rdzv.h"

enum stop_cause { STOP_NONE, STOP_FAILURE, STOP_CANCEL, STOP_TIME };

/* What the server knows of one part of the current generation. */
struct part_state {
    bool is_reported; /* a report came since the start order, or since this server started */
    bool is_lost;     /* its node was lost, or no longer knows it: counts as ended */
    bool has_world;
    enum shim_phase phase;
    uint32_t master_port;
};

struct job {
    bool used, ended; /* ended: kept until the next step for the edge to read */
    bool dirty, changed;
    struct rdzv_record record;
    uint64_t version;
    enum stop_cause stopping;
    uint32_t stop_signal;
    uint64_t stop_grace_us;
    uint32_t errno_exit;
    int32_t failed_exit;
    uint32_t failed_signal;
    uint64_t retry_at_us; /* restarting: not before */
    uint64_t limit_at_us; /* running: the time limit; UINT64_MAX: none */
    bool go_sent;
    struct msg_progress progress; /* newest of the job; type's ids are not used */
    uint32_t blob_byte_count;
    uint8_t blob[BLOB_BYTES_MAX];
    struct part_state parts[NODES_PER_JOB_MAX];
    struct rdzv_rank ranks[RANKS_PER_JOB_MAX];
    uint32_t ended_part_count; /* the generation before */
    struct rdzv_part ended_parts[NODES_PER_JOB_MAX];
    struct rdzv_rank ended_ranks[RANKS_PER_JOB_MAX];
};

/* What a node says of one of its slots. */
struct node_slot {
    enum slot_state state; /* FREE: may be given out; never BUSY */
    uint64_t incident;
    uint64_t resume_incident; /* an operator has resumed this one; said until the node takes it */
    int64_t since_ms;         /* wall clock */
    bool noted;               /* as closed; its opening will be, too */
    char reason[REASON_BYTES_MAX];
};

struct node {
    bool used;
    char name[NODE_NAME_BYTES_MAX];
    char boot_id[64];
    char address[ADDRESS_BYTES_MAX];
    char version[32];
    uint64_t instance;
    uint64_t conn; /* 0: none */
    enum node_state state;
    bool has_beat;
    uint64_t beat_at_us;
    uint64_t lost_at_us; /* when it counts as lost, if nothing comes */
    uint32_t pid, slots, gpus;
    uint32_t shim_count; /* as it last said */
    struct part_beat_shim shims[SHIMS_PER_NODE_MAX];
    struct node_slot slot_states[SLOTS_PER_NODE_MAX];
    bool is_drained;     /* as a whole, by an operator */
    uint64_t drain_mask; /* slots, by an operator */
};

#define RDZV_TEXTS_BYTES (256u * 1024u)

struct rdzv {
    struct rdzv_options options;
    bool is_restored;
    uint64_t now_us;
    int64_t wall_ms;
    uint64_t random;
    uint64_t next_job_id;
    uint32_t job_count;
    uint32_t node_count;
    struct rdzv_actions *out;
    uint32_t texts_used;
    char texts[RDZV_TEXTS_BYTES];    /* what the actions of this step point at */
    uint16_t order[JOBS_ACTIVE_MAX]; /* active jobs by rising id: indices into jobs */
    struct node *nodes;              /* [options.nodes_max] */
    struct job *jobs;                /* [options.jobs_max] */
    uint32_t drain_count;
    struct rdzv_drain drains[DRAINS_MAX];
};

/* rdzv.c: actions */
struct rdzv_action *rdzv_act(struct rdzv *rdzv, enum rdzv_action_type type);
const char *rdzv_text(struct rdzv *rdzv, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rdzv_reply_error(struct rdzv *rdzv, uint64_t client, enum status status, const char *text);
void rdzv_note(struct rdzv *rdzv, const struct job *job, const char *text);
bool rdzv_has_room(const struct rdzv *rdzv, uint32_t action_count);
void rdzv_wake_at(struct rdzv *rdzv, uint64_t at_us);
struct job *rdzv_find_job(const struct rdzv *rdzv, uint64_t job_id);

/* generation.c: the life of one generation */
void generation_start(struct rdzv *rdzv, struct job *job, const struct rdzv_part *parts);
void generation_report(struct rdzv *rdzv, struct job *job, uint32_t part,
                       const struct msg_shim_report *report);
void generation_fail(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause);
void generation_stop(struct rdzv *rdzv, struct job *job, enum stop_cause why, uint32_t signal,
                     uint64_t grace_us);
void generation_part_lost(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause);
void generation_listed(struct rdzv *rdzv, struct job *job, uint32_t part, enum shim_phase phase);
void generation_unlisted(struct rdzv *rdzv, struct job *job, uint32_t part);
/* Whatever follows from what is known now: go, world, running, the end. */
void generation_settle(struct rdzv *rdzv, struct job *job);
void job_end(struct rdzv *rdzv, struct job *job, enum job_state state, int32_t exit_code,
             uint32_t signal, bool is_ours);
/* The job's part on `node` in its current generation; UINT32_MAX: none. */
uint32_t job_part_on(const struct job *job, const char *node);

/* roster.c: nodes */
struct node *roster_find(const struct rdzv *rdzv, const char *name);
struct node *roster_find_conn(const struct rdzv *rdzv, uint64_t conn);
void roster_hello(struct rdzv *rdzv, uint64_t conn, const struct msg_node_hello *hello);
void roster_beat(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat);
void roster_phase(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase);
void roster_closed(struct rdzv *rdzv, struct node *node);
void roster_expect(struct rdzv *rdzv, const char *name);
void roster_tick(struct rdzv *rdzv);
/* An order for something that should not be there (any more). */
void roster_clear(struct rdzv *rdzv, struct node *node, uint64_t job_id, uint32_t generation,
                  enum shim_phase phase);
uint64_t roster_free_mask(const struct rdzv *rdzv, const struct node *node);
uint32_t bits_count(uint64_t mask);

/* slots.c: which slots may be given out */
void slots_take(struct rdzv *rdzv, struct node *node, const struct part_slot_closed *closed,
                uint32_t count);
/* A shim has left them: with a GPU they are closed until the node's next word on them. */
void slots_left(struct rdzv *rdzv, struct node *node, uint64_t mask);
uint64_t slots_closed_mask(const struct node *node);
/* Of a closed slot, in words: "slot 3 of gpu01 is quarantined: ..." */
const char *slots_why(struct rdzv *rdzv, const struct node *node, uint32_t slot);
/* What operators want of this node, into the node. */
void slots_apply_drains(const struct rdzv *rdzv, struct node *node);
/* NULL: none of that node, or slot. */
const struct rdzv_drain *slots_drain_of(const struct rdzv *rdzv, const char *node, uint32_t slot);
void slots_on_restore(struct rdzv *rdzv, const struct rdzv_drain *drain);
void slots_on_drain(struct rdzv *rdzv, const struct rdzv_event *event);
void slots_on_resume(struct rdzv *rdzv, const struct rdzv_event *event);
void slots_on_event(struct rdzv *rdzv, const struct node *node, const struct msg_node_event *said);

/* sched.c: who runs where, next */
void sched_run(struct rdzv *rdzv);

#endif
