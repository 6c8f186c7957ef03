/* One active job in the core, and the table of them. */
#ifndef RENDEZVOUS_CORE_JOB_H
#define RENDEZVOUS_CORE_JOB_H

#include "rendezvous/core/gang.h"
#include "rendezvous/core/rdzv.h"

/* STOP_PLANNED: the job goes on with another generation, which counts for no budget. */
enum stop_cause { STOP_NONE, STOP_FAILURE, STOP_CANCEL, STOP_TIME, STOP_PLANNED };

/* A job of the table by its id. */
struct job_key {
    uint64_t job_id;
    uint32_t job; /* index into rdzv->jobs */
};

/* A node that has failed a job for its own reasons. */
struct node_fault {
    char node[NODE_NAME_BYTES_MAX];
    uint32_t failures; /* EXCLUDE_FAILURES: that many or more */
    uint64_t until_us; /* with that many it is excluded until then */
};

/* How the newest failed generation failed. Texts that are not here are borrowed: `tail` from the record,
 * `error` from the report of this step. */
struct failure_note {
    bool is_dirty, is_restored;  /* see rdzv_failure */
    struct part_failure failure; /* generation 0: none */
    char node[NODE_NAME_BYTES_MAX];
    char cause[REASON_BYTES_MAX], core[REASON_BYTES_MAX], decision[REASON_BYTES_MAX];
};

struct job {
    bool used;
    bool ended;                             /* its record has a final state */
    bool is_announced;                      /* JOB_ENDED was among the actions */
    bool is_queued;                         /* it is in rdzv->queue; else in rdzv->live, */
    uint32_t live_index;                    /* here */
    bool is_owing;                          /* it is in rdzv->owing */
    uint32_t user;                          /* index into rdzv->users; USER_NONE: none */
    uint32_t counted_queued, counted_slots; /* what it adds to its user's */
    bool dirty, changed; /* since it was last published: write it; wake who watches it */
    uint64_t version;
    /* the generation at hand; valid while record.part_count > 0 */
    uint64_t failed_at_us;    /* stopping for a failure: when it happened */
    uint64_t running_at_us;   /* since when all its ranks run; UINT64_MAX: they do not */
    uint64_t limit_at_us;     /* running: the time limit; UINT64_MAX: none */
    bool go_sent, world_sent; /* to every part once; a part that beats without it gets it again */
    uint32_t blob_byte_count;
    uint64_t retry_at_us; /* restarting: not before */
    uint64_t
        more_until_us; /* restarting: until then it waits for slots of more nodes; 0: not yet */
    bool has_new_checkpoint; /* since the last pass: it may grow, or leave a straggler */
    bool wants_spares;       /* --spares, and it has not ended */
    uint32_t spare_count;    /* those that it has, see spare_table.h, */
    uint32_t warm_count;     /* and on which processes of it wait */
    uint32_t fault_count;
    struct node_fault faults[NODE_FAULTS_MAX]; /* the newest is the last */
    /* see fence.h */
    uint64_t fence_until_us; /* 0: nothing to wait for */
    uint64_t unfenced_at_us; /* is_fenced: retry_at_us without it */
    uint16_t fence_node;     /* index into rdzv->nodes; NODE_NONE: several nodes */
    bool is_fenced;          /* it waits, and the node can end that */
    struct gang gang;        /* of the generation at hand */
    struct gang last;        /* of the last one that ended, see job_gang_new */
    uint32_t ended_generation;
    struct rdzv_record record;    /* what is stored; its parts are the gang's */
    uint8_t blob[BLOB_BYTES_MAX]; /* of the generation at hand */
    struct hang_job hang;         /* of the generation at hand, as the next two */
    struct straggler_job pace;
    char slow[REASON_BYTES_MAX]; /* the slowest straggler, for people; empty: none */
    struct failure_note note;
    uint64_t after_failed_id;          /* of rdzv_after: the record has the rest, */
    enum job_state after_failed_state; /* see after_list.h */
};

/* NULL: no such job in the table. */
struct job *job_find(const struct rdzv *rdzv, uint64_t job_id);
/* The i-th by rising id, i < rdzv->job_count. */
struct job *job_at(const struct rdzv *rdzv, uint32_t index);
/* The place by rising id of the first job whose id is not below this one; job_count: none. */
uint32_t job_index_from(const struct rdzv *rdzv, uint64_t job_id);
/* Append a zeroed job; its id must be above those before. NULL: options.jobs_max are active. */
struct job *job_add(struct rdzv *rdzv, uint64_t job_id);
/* The same with one entry more, for a job that fails in the step that it is added in. */
struct job *job_add_refused(struct rdzv *rdzv, uint64_t job_id);
/* Ended jobs go once their end was published and their last orders have left. */
void jobs_drop_ended(struct rdzv *rdzv);
/* Into rdzv->live, out of it: a job that waits is in the queue instead. */
void job_live_add(struct rdzv *rdzv, struct job *job);
void job_live_remove(struct rdzv *rdzv, struct job *job);
/* The i-th that does not wait, i < rdzv->live_count; in no order. */
struct job *job_live(const struct rdzv *rdzv, uint32_t index);

/* Memory for a generation. Where there is none left, gangs of generations that have ended before this
 * step are given up: they keep ranks on their nodes in a restart, and forget shims at once, which a
 * node that goes on listing them is told anyway. False: full. */
bool job_gang_new(struct rdzv *rdzv, struct gang *gang, uint32_t part_count, uint32_t world);

static inline uint32_t job_world(const struct job *job)
{
    return job->record.nodes * job->record.nproc_per_node;
}
/* It is to be published: written to the store, or shown to who watches it. */
void job_set_dirty(struct rdzv *rdzv, struct job *job);
void job_set_changed(struct rdzv *rdzv, struct job *job);
/* Changes the state, marks the job and logs it; nothing when it is the state already. */
void job_set_state(struct rdzv *rdzv, struct job *job, enum job_state state);
/* Why it waits, as text for people. */
void job_set_reason(struct rdzv *rdzv, struct job *job, const char *text);
/* Log an event about the job and its generation. */
void job_log(struct rdzv *rdzv, const struct job *job, const char *text);
/* PERSIST, PERSIST_FAILURE, JOB_CHANGED and JOB_ENDED of every job that this step has changed. */
void jobs_publish(struct rdzv *rdzv);

#endif
