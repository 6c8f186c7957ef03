/* The durable state: one SQLite file, DIR/state.db (WAL, synchronous=FULL), or rows in etcd with a
 * copy in memory (remote.h). An edge: it decides nothing.
 *
 * All writes of one step of the core are one transaction: store_begin, writes, store_commit. Only
 * then are answers sent. A write that fails (disk full, I/O error, fsync error) ends the process
 * with exit code STORE_EXIT_CODE and one clear line: after a failed fsync the kernel may have
 * marked the page clean, so a retry could succeed without writing it (Rebello et al., ATC 2020).
 * The next start reads what is on the disk and writes the log again before trusting it. So writes
 * return nothing, and reads return whether the row exists. A read that finds the file damaged ends the process, too, with
 * STORE_DAMAGED_EXIT_CODE: the next start mends it if it can (mend.c).
 *
 * The environment of a job may hold secrets, and keys are secrets: the directory is made 0700, the
 * files 0600. */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/io/folder_lock.h"
#include "common/key.h"
#include "common/msg.h"
#include "common/status.h"
#include "rendezvous/core/rdzv.h"

#define STORE_EXIT_CODE 74 /* EX_IOERR of sysexits.h */
#define STORE_DAMAGED_EXIT_CODE 1
#define STORE_ID_GAP 10000u     /* numbers of jobs and events that a state of the past leaves out */
#define STORE_ID_GAP_SPAN 1000u /* it leaves out 1 to so many times that, drawn by lot */
#define STORE_EVENTS_MAX 100000u /* older ones are dropped */

struct store;

/* What to run. Borrows from the arena that it was read into. */
struct store_spec {
    const char *cwd;
    struct msg_text_list argv;
    struct msg_pair_list env, launch; /* empty if they were not asked for */
};

/* A staged working directory. */
struct store_staged {
    char hash[STAGE_HASH_CHARS + 1];
    bool is_named;   /* by a job that has not ended: always, of what store_staged returns */
    bool is_of_user; /* it is one of those of the user who was asked for */
};

/* Who asks. Rows of other users are hidden from this viewer. */
struct store_viewer {
    const char *user; /* the name of an account; borrowed for the call */
    bool sees_all;
};

/* One moment on two clocks. */
struct store_clock {
    uint64_t boot_us;
    int64_t wall_ms;
};

/* One secret of a principal; the newest has no end. */
struct store_secret {
    uint8_t bytes[KEY_SECRET_BYTES];
    int64_t until_ms; /* wall clock: valid before it; 0: until it is removed */
};

/* A node or user that may connect over the network (docs/protocol.md). */
struct store_principal {
    char name[NODE_NAME_BYTES_MAX]; /* unique among nodes and users */
    enum role role;
    int64_t created_ms, rotated_ms, seen_ms; /* wall clock; 0: never */
    uint32_t secret_count;
    struct store_secret secrets[SECRETS_PER_PRINCIPAL_MAX]; /* the newest first */
};

/* For a server whose rows are elsewhere: makes DIR with its parents and locks it until `lock` is
 * released. Errors: STATUS_BUSY with the pid that holds it; STATUS_IO. */
enum status store_hold(const char *dir, struct folder_lock *lock, struct err *err);
/* Opens or makes DIR/state.db, and DIR with its parents. One process per directory. `survives_power`: a
 * commit is on the disk when it returns; otherwise it is in the kernel, so that kill -9 loses nothing but a
 * crash of the machine may. Errors: STATUS_BUSY with the pid that holds it; STATUS_UNSUPPORTED: a newer schema
 * or a file of another program, which is not changed; STATUS_REFUSED: DIR has lost its state (state.db is missing or
 * empty, and what else is there shows that it had one), or what is there is not ours; STATUS_IO. */
enum status store_open(struct store **store, const char *dir, bool survives_power, struct err *err);
/* The same for an administrator who makes a state: DIR may have had another one. */
enum status store_open_new(struct store **store, const char *dir, struct err *err);
/* The same for backup_restore. A state that this makes is marked as half of a restored backup, before it is there, and
 * nobody opens it until backup_restore has ended. */
enum status store_open_restore(struct store **store, const char *dir, struct err *err);
/* How a server that leads uses a state on etcd. */
struct etcd_client;
struct store_copy;
struct seen_keeper;
struct store_lead {
    struct etcd_client *client; /* owned by the caller; used until the store is closed */
    const char *prefix;         /* "/ddp/" (etcd_url_parse); borrowed as long */
    int64_t revision;           /* at which this server created the key PREFIX "leader" */
    uint64_t quota_bytes;       /* etcd's --quota-backend-bytes */
    struct store_copy *copy;    /* its rows are used (store_copy.h); NULL: reads all */
    struct seen_keeper *seen;   /* of the file of seen.h, borrowed; NULL: none */
    bool is_restore;            /* as store_open_restore */
    /* Called before each request. Returns until when this server may act, on clock_boot_us. It may
     * renew the lease first. NULL: no limit. */
    uint64_t (*until_us)(void *context);
    /* Called when this server must not act any more; must not return. Unacknowledged writes may or
     * may not have been carried out. NULL: the process ends with STORE_EXIT_CODE and a log line. */
    void (*on_lost)(const char *why, void *context);
    void *context;
};
/* Takes over the state on etcd, or makes a new one. Errors: STATUS_NOT_FOUND: etcd has no state, and the file at
 * `seen` says that it had one; STATUS_CONFLICT: another server leads; STATUS_TIMEOUT: etcd does not answer;
 * STATUS_UNSUPPORTED as above; STATUS_IO. */
enum status store_open_etcd(struct store **store, const struct store_lead *lead, struct err *err);
/* Reads the keys of nodes and users, for a server that stands by. Of `lead` only client, prefix and
 * until_us are used. Errors: as store_open_etcd. */
typedef void store_on_principal(const struct store_principal *principal, void *context);
enum status store_read_principals(const struct store_lead *lead, store_on_principal *on_principal,
                                  void *context, struct err *err);
void store_close(struct store **store); /* commits what is open */
/* The file, for messages. */
const char *store_path(const struct store *store);
/* The cluster id: 32 hex digits, random for each state. */
const char *store_cluster(const struct store *store);
/* One above the highest id ever given to a job. */
uint64_t store_next_job_id(struct store *store);

/* Writing. store_begin within a transaction does nothing. store_commit returns when everything is
 * durable; without an open transaction it does nothing. */
void store_begin(struct store *store);
void store_commit(struct store *store);
bool store_was_made(const struct store *store);   /* by this store_open: its file was not there */
uint64_t store_writes(const struct store *store); /* transactions since it was opened */
bool store_is_dirty(const struct store *store);   /* a transaction is open */
/* Whether the disk is nearly full: accept no work that needs more of it. Events are not stored
 * then. */
bool store_is_low(struct store *store);
/* Inserts or replaces a job. If the record has parts, also adds rows for the ranks of its
 * generation, so that their logs can be found even if the server ends now. */
void store_write_job(struct store *store, const struct rdzv_record *record);
/* argv, env, launch, cwd and the request id of a new job; for an array once, with its first job.
 * Writing it again does nothing. */
void store_write_spec(struct store *store, uint64_t job_id, const char *user,
                      const struct msg_submit *submit);
/* When all these jobs, one or those of an array, have ended: keeps of their spec what is shown, and
 * drops the rest. `is_small_too`: also of one that is no larger than what is kept of a large one. True:
 * it was shortened. store_write_job does this for a job that has ended. */
bool store_trim_spec(struct store *store, struct rdzv_ids jobs, bool is_small_too);
/* The last states of a generation's ranks. `ranks`: by rank; `parts`: where they ran. */
void store_write_ranks(struct store *store, uint64_t job_id, uint32_t generation,
                       const struct rdzv_part *parts, uint32_t part_count,
                       const struct rdzv_rank *ranks, struct store_clock clock);
/* How a generation failed (rdzv_failure). Writing it again replaces it, except what is NULL.
 * `is_end_alone`: if it is stored already, only the outcome of its ranks and of the job is
 * replaced. For each job the first FAILURES_FIRST_MAX are kept and the newest ones,
 * FAILURES_KEPT_MAX in all. Does nothing when the disk is nearly full: the record has the cause. */
void store_write_failure(struct store *store, uint64_t job_id, const struct part_failure *failure,
                         bool is_end_alone);
/* Replaces all stored drains. */
void store_write_drains(struct store *store, const struct rdzv_drain *drains, uint32_t count);
/* Writes the hold of a node, or removes it if its mask is 0. */
void store_write_hold(struct store *store, const struct rdzv_hold *hold);
/* The longest lease that servers of this state may have given to what still runs; 0: not known. */
uint64_t store_lease_us(struct store *store);
void store_write_lease(struct store *store, uint64_t lease_us);
/* Whether nothing can have been done since this state: it is new, or as an orderly end has left it, or this server has
 * followed it until now. */
bool store_is_newest(const struct store *store);
#define STORE_ALIVE_MS 1000u
/* Its server runs. To be called every STORE_ALIVE_MS; touches no file. */
void store_alive(struct store *store);
/* Whether it was noticed that more was done since: numbers are left out, and store_is_copy. */
bool store_is_of_past(const struct store *store);
/* Then: what says so, in words. */
const char *store_past_why(const struct store *store);
/* Whether it is a restored copy, and leases from before the restore may still be out. */
bool store_is_copy(struct store *store);
/* Such leases are out. */
void store_write_copy(struct store *store);
/* They have ended. */
void store_write_copy_over(struct store *store);
/* For a state on etcd: a commit by which those that stand by know that a server leads. */
void store_write_alive(struct store *store);
/* No job up to this one is new, and STORE_ID_GAP numbers of events are left out. */
void store_write_gap(struct store *store, uint64_t job_id);
/* When it was noticed that the keys are those of an earlier state; 0: they are not, or an administrator has checked
 * them. Wall clock. */
int64_t store_keys_lost_ms(struct store *store);
void store_write_keys_lost(struct store *store, int64_t lost_ms);
/* Inserts or replaces a principal with all its secrets. */
void store_write_principal(struct store *store, const struct store_principal *principal);
void store_write_seen(struct store *store, const char *name, int64_t seen_ms);
void store_drop_principal(struct store *store, const char *name);
/* Removes old jobs piece by piece: looks at some jobs above `*after_id` and removes those that
 * ended before `before_ms`, with everything that belongs to them; the jobs of an array only when all
 * of them did. Returns how many; `*after_id` advances. `*is_at_end`: there are no more. The newest
 * job is kept, with its array, since ids are never reused. `mark` (may be NULL) marks the jobs and
 * arrays that are kept because other jobs wait for them. */
#define STORE_EXPIRE_LOOK 256u /* jobs that one call looks at */
#define STORE_EXPIRE_MAX 16u   /* jobs that it removes or that are marked, at most */
typedef void store_mark(const void *context, struct rdzv_ids *ids, uint32_t count);
uint32_t store_expire(struct store *store, int64_t before_ms, store_mark *mark, const void *context,
                      uint64_t *after_id, bool *is_at_end);
/* Returns the event's id. */
uint64_t store_write_event(struct store *store, int64_t at_ms, uint64_t job_id, uint32_t generation,
                           const char *text);

/* Reading. */
/* What the jobs of a user take in the store, about: rows of the jobs with their commands, environments,
 * ranks and failures, also of ended ones. */
uint64_t store_user_bytes(struct store *store, const char *user);
#define STORE_JOB_BYTES 512u /* what one job adds to that, without its spec */
/* What the spec of a submit would add. */
uint64_t store_spec_bytes(const struct msg_submit *submit);
/* The largest spec that the store takes, in JSON; SIZE_MAX: any. */
size_t store_spec_bytes_max(const struct store *store);
/* How much more fits before store_is_low; UINT64_MAX: not known. */
uint64_t store_free_bytes(struct store *store);
/* How many, `max` at most. */
uint32_t store_drains(struct store *store, struct rdzv_drain *drains, uint32_t max);
/* The hold of the first node whose name comes after `node`. False: there is none. */
bool store_hold_after(struct store *store, const char *node, struct rdzv_hold *hold);
/* Calls back for all principals in the order of their names. A malformed row is skipped with a log
 * line; false: there was one. `principal` is borrowed for the call; the callback must not use the
 * store. */
bool store_principals(struct store *store,
                      void (*on_principal)(const struct store_principal *principal, void *context),
                      void *context);
bool store_find_request(struct store *store, const char *request_id, const char *user,
                        uint64_t *job_id);
/* Finds a job by "12" (an id), "12_3" (an array's job), "@last", or a name (the newest job of that
 * name). 0: none that this viewer may see. */
uint64_t store_find_job(struct store *store, const char *text, struct store_viewer viewer);
/* Of the jobs in a list that must succeed, finds one that failed, was cancelled or is no longer
 * stored, and sets `failed_id` and `failed_state` of `after`. */
void store_find_failed(struct store *store, struct rdzv_after *after);
/* Reads a job; its parts are put into `arena`. */
bool store_get_job(struct store *store, uint64_t job_id, struct arena *arena,
                   struct rdzv_record *record);
/* When the job was submitted, by the wall clock; 0: there is no such job. */
int64_t store_submitted_ms(struct store *store, uint64_t job_id);
/* The ids above `after_id` of jobs that have not ended, ascending. Returns how many, at most
 * `max`. */
uint32_t store_active_ids(struct store *store, uint64_t after_id, uint64_t *ids, uint32_t max);
/* Calls back for jobs above `after_id`, by ascending id, at most `limit`. The callback must not use
 * the store. */
void store_list(struct store *store, struct store_viewer viewer, uint64_t after_id, uint32_t limit,
                void (*on_job)(const struct rdzv_record *, void *), void *context);
/* STATUS_NOT_FOUND; STATUS_BAD_INPUT: the row cannot be read; STATUS_MEMORY. */
enum status store_spec(struct store *store, uint64_t job_id, bool with_env, struct arena *arena,
                       struct store_spec *spec);
/* The hashes of the staged working directories (common/stage.h) of jobs that have not ended, ascending, and which of them
 * jobs of this user name. The caller frees them. NULL: no memory. Scans all such jobs. */
struct store_staged *store_staged(struct store *store, const char *user, uint32_t *count);
/* The ids above `after_id` of jobs that have not ended and whose staged directory has this hash, ascending. Returns how many, at
 * most `max`. Scans such jobs. */
uint32_t store_stage_jobs(struct store *store, const char *hash, uint64_t after_id, uint64_t *ids,
                          uint32_t max);
/* The ranks of one generation from `first` on, ascending. Returns how many, at most `max`. */
uint32_t store_ranks(struct store *store, uint64_t job_id, uint32_t generation, uint32_t first,
                     struct arena *arena, struct part_job_rank *ranks, uint32_t max);
/* The stored failures of a job, by generation. Returns how many. Texts are in `arena`. */
uint32_t store_failures(struct store *store, uint64_t job_id, struct arena *arena,
                        struct part_failure failures[FAILURES_KEPT_MAX]);
/* The ranks of an ended generation that failed by themselves, in the order of their failures.
 * Returns how many, at most `max`. */
uint32_t store_failed_ranks(struct store *store, uint64_t job_id, uint32_t generation,
                            struct arena *arena, struct part_failed_rank *ranks, uint32_t max);
/* The node on which that rank ran in that generation. */
bool store_rank_node(struct store *store, uint64_t job_id, uint32_t generation, uint32_t rank,
                     char node[NODE_NAME_BYTES_MAX]);
/* Events above `after_id`, by ascending id, of one job or (job_id 0) of all. Returns how many, at
 * most `limit`. */
uint32_t store_events(struct store *store, struct store_viewer viewer, uint64_t job_id,
                      uint64_t after_id, uint32_t limit, struct arena *arena,
                      struct part_event *events);
/* The newest event's id; 0: none yet. */
uint64_t store_last_event_id(const struct store *store);

#endif
