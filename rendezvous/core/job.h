/* One active job in the core, and the table of them. */
#ifndef RENDEZVOUS_CORE_JOB_H
#define RENDEZVOUS_CORE_JOB_H

#include "rendezvous/core/gang.h"
#include "rendezvous/core/rdzv.h"

/* Why a generation is being stopped. STOP_PLANNED: the job goes on with another generation, which
 * counts against no budget. */
enum stop_cause { STOP_NONE, STOP_FAILURE, STOP_CANCEL, STOP_TIME, STOP_PLANNED };

/* Finds a job of the table by its id. */
struct job_key {
    uint64_t job_id;
    uint32_t job; /* index into rdzv->jobs */
};

/* A node that has failed a job. */
struct node_fault {
    char node[NODE_NAME_BYTES_MAX];
    uint32_t failures; /* counted up to EXCLUDE_FAILURES */
    bool is_late;      /* with a start: not used until then if the job can run without it */
    uint64_t until_us; /* with EXCLUDE_FAILURES failures: excluded until then */
};

/* How the newest failed generation failed. Other texts are borrowed: `tail` from the record,
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
    bool is_queued;                         /* it is in rdzv->queue; otherwise in rdzv->live, */
    uint32_t live_index;                    /* at this index */
    bool is_owing;                          /* it is in rdzv->owing */
    uint32_t user;                          /* index into rdzv->users; USER_NONE: none */
    uint32_t counted_queued, counted_slots; /* its share of its user's counts */
    bool dirty, changed; /* since it was last published: write it; wake its watchers */
    uint64_t version;
    /* The current generation; valid while record.part_count > 0. */
    uint64_t failed_at_us; /* stopping for a failure: when it happened; 0: before this server */
    bool failed_by_peer;   /* record.failed_rank, if a rank did, says that it lost another one */
    uint32_t
        exception_mark; /* of the newest failure (failure_alike.h); 0: unknown, or of no exception */
    uint64_t running_at_us;   /* since when all its ranks run; UINT64_MAX: they do not */
    uint64_t limit_at_us;     /* running: the time limit; UINT64_MAX: none */
    uint32_t told_generation; /* the record's progress is from this one; 0: unknown */
    bool is_ours;             /* this server has begun it: what it has not sent, nobody has */
    bool went_elsewhere;      /* from a node that cannot run or have what it needs (failure.h) */
    bool has_no_stage; /* no folder is staged for it; false: it is, or this server does not know */
    bool go_sent, world_sent; /* to all parts; a part whose beat lacks it gets it again */
    uint32_t blob_byte_count;
    uint64_t retry_at_us; /* restarting: not before this time */
    uint64_t
        more_until_us; /* restarting: until then it waits for slots of more nodes; 0: not yet */
    bool has_new_checkpoint; /* since the last pass: it may grow or leave a straggler */
    bool wants_spares;       /* it has --spares, and has not ended */
    uint32_t spare_count;    /* the spares that it holds (spare_table.h) */
    uint32_t warm_count;     /* spares with warm processes */
    uint32_t fault_count;
    struct node_fault faults[NODE_FAULTS_MAX]; /* oldest failure first */
    /* See fence.h. */
    uint64_t fence_until_us; /* 0: no lease to wait for */
    uint64_t unfenced_at_us; /* is_fenced: what retry_at_us would be without the fence */
    bool has_unseen;         /* a part was given up whose ranks may run without a fence */
    uint16_t fence_node;     /* index into rdzv->nodes; NODE_NONE: several nodes */
    bool is_fenced;          /* it waits for a lease, and the node's list can end the wait */
    /* See linger.h. */
    uint16_t linger_node; /* index into rdzv->nodes; NODE_NONE: several, or not known */
    uint64_t
        linger_until_us; /* ranks of lost parts, of any generation, may run until then; 0: none */
    struct gang gang;    /* the current generation */
    struct gang last;    /* the last generation that ended; see job_gang_new */
    uint32_t ended_generation;
    uint32_t seen_generation; /* a node has seen this one; 0: none above the record's (history.h) */
    struct rdzv_record record;    /* what is stored; its parts lie in the gang */
    uint8_t blob[BLOB_BYTES_MAX]; /* rank 0's blob of the current generation */
    struct hang_job hang;         /* of the current generation, as are pace and slow */
    struct straggler_job pace;
    char slow[REASON_BYTES_MAX]; /* describes the slowest straggler; empty: none */
    char silent
        [REASON_BYTES_MAX]; /* describes a shim that does not answer, or a stop that is not carried out; or empty */
    struct failure_note note;
    uint64_t after_failed_id;          /* fields of rdzv_after; the record has the rest */
    enum job_state after_failed_state; /* (after_list.h) */
};

/* NULL: no such job in the table. */
struct job *job_find(const struct rdzv *rdzv, uint64_t job_id);
/* The job with the i-th smallest id, i < rdzv->job_count. */
struct job *job_at(const struct rdzv *rdzv, uint32_t index);
/* The index, in order of ids, of the first job whose id is at least `job_id`; job_count: none. */
uint32_t job_index_from(const struct rdzv *rdzv, uint64_t job_id);
/* Appends a zeroed job. Its id must be higher than all others. NULL: options.jobs_max jobs are
 * active. */
struct job *job_add(struct rdzv *rdzv, uint64_t job_id);
/* The same with one entry beyond jobs_max, for a job that fails in the step that adds it. */
struct job *job_add_refused(struct rdzv *rdzv, uint64_t job_id);
/* Removes jobs that have ended, once their end is published, their last orders have left, and none of their ranks may
 * still run (linger.h). */
void jobs_drop_ended(struct rdzv *rdzv);
/* Adds a job to rdzv->live or removes it. Waiting jobs are in the queue instead. */
void job_live_add(struct rdzv *rdzv, struct job *job);
void job_live_remove(struct rdzv *rdzv, struct job *job);
/* The i-th job that is not waiting, i < rdzv->live_count; in no particular order. */
struct job *job_live(const struct rdzv *rdzv, uint32_t index);

/* Memory for a new generation. If none is left, the gangs of generations that ended before this
 * step are freed. Those gangs only serve to keep ranks on their nodes in a restart, and to send
 * FORGETs at once; a node that goes on listing the shims is told to forget them anyway. False:
 * full. */
bool job_gang_new(struct rdzv *rdzv, struct gang *gang, uint32_t part_count, uint32_t world);

static inline uint32_t job_world(const struct job *job)
{
    return job->record.nodes * job->record.nproc_per_node;
}
/* Marks the job as to be published: written to the store, or shown to its watchers. */
void job_set_dirty(struct rdzv *rdzv, struct job *job);
void job_set_changed(struct rdzv *rdzv, struct job *job);
/* Changes the state, marks the job and logs it. Does nothing if the state is the same. */
void job_set_state(struct rdzv *rdzv, struct job *job, enum job_state state);
#define JOB_TITLE_BYTES (JOB_NAME_BYTES_MAX + 40u)
/* "job 2 (train)", for a text that the user of `reader` sees. Of another user's job it is "job 2": its name is nobody else's
 * business. Returns `title`. */
const char *job_title(const struct job *other, const struct job *reader,
                      char title[JOB_TITLE_BYTES]);
/* Sets the text that tells people why the job waits. */
void job_set_reason(struct rdzv *rdzv, struct job *job, const char *text);
/* Logs an event about the job and its generation. */
void job_log(struct rdzv *rdzv, const struct job *job, const char *text);
/* Adds PERSIST, PERSIST_FAILURE, JOB_CHANGED and JOB_ENDED for every job that this step has
 * changed. */
void jobs_publish(struct rdzv *rdzv);
/* Before a new generation: its number will be above those that nodes have seen (history.h). */
void job_skip_seen(struct job *job);

#endif
