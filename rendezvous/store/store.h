/* What must survive: one SQLite file, DIR/state.db (WAL, synchronous=FULL), or rows in etcd, with a copy
 * in memory (remote.h). An edge: it decides nothing.
 *
 * All writes of one step of the core are one transaction: store_begin, writes, store_commit, and
 * only then the answers leave. A write that fails (disk full, I/O error, fsync error) ends the
 * process with exit code STORE_EXIT_CODE and one clear line: after a failed fsync the kernel may
 * have marked the page clean, so nothing may be tried again on it (Rebello et al., ATC 2020); the
 * next start reads what is on the disk, and writes the log again before it trusts it. So writes return
 * nothing, and reads return whether the row is there.
 *
 * The environment of a job may hold secrets, and keys are secrets: the directory is made 0700, the files 0600. */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/key.h"
#include "common/msg.h"
#include "common/status.h"
#include "rendezvous/core/rdzv.h"

#define STORE_EXIT_CODE 74       /* EX_IOERR of sysexits.h */
#define STORE_EVENTS_MAX 100000u /* older ones are dropped */

struct store;

/* What to run. Borrows from the arena it was read into. */
struct store_spec {
    const char *cwd;
    struct msg_text_list argv;
    struct msg_pair_list env, launch; /* empty where they were not asked for */
};

/* Who asks: rows of other users are as if they were not there. */
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

/* Who may connect over the network, see docs/protocol.md. */
struct store_principal {
    char name[NODE_NAME_BYTES_MAX]; /* unique among nodes and users */
    enum role role;
    int64_t created_ms, rotated_ms, seen_ms; /* wall clock; 0: never */
    uint32_t secret_count;
    struct store_secret secrets[SECRETS_PER_PRINCIPAL_MAX]; /* the newest first */
};

/* Makes DIR, with its parents, and locks it as long as `lock_fd` is open: for a server whose rows are elsewhere. Errors:
 * STATUS_BUSY with the pid that holds it; STATUS_IO. */
enum status store_hold(const char *dir, int *lock_fd, struct err *err);
/* Open or make DIR/state.db; DIR is made where it is missing (its parents too). One process per
 * directory. `survives_power`: a commit is on the disk; without it, in the kernel: kill -9 of this
 * process loses nothing, the end of the machine may. Errors: STATUS_BUSY with the pid that holds
 * it; STATUS_UNSUPPORTED for a newer schema or a foreign file, which is left as it was; STATUS_IO.
 */
enum status store_open(struct store **store, const char *dir, bool survives_power, struct err *err);
/* How a server that leads uses a state on etcd. */
struct etcd_client;
struct store_copy;
struct store_lead {
    struct etcd_client *client; /* the caller's, for as long as the store is open */
    const char *prefix;         /* "/ddp/" (etcd_url_parse); borrowed as long */
    int64_t revision;           /* at which this server created the key PREFIX "leader" */
    uint64_t quota_bytes;       /* etcd's --quota-backend-bytes */
    struct store_copy *copy;    /* its rows are used (store_copy.h); NULL: all are read */
    /* Called before each request: until when this server may act, by clock_boot_us. It may renew its
     * lease meanwhile. NULL: for ever. */
    uint64_t (*until_us)(void *context);
    /* What was not acknowledged may be written or not, and this server must not act any more: does not
     * return. NULL: the process ends with STORE_EXIT_CODE and a line. */
    void (*on_lost)(const char *why, void *context);
    void *context;
};
/* Takes the state that is there, or makes one. Errors: STATUS_CONFLICT: another server leads; STATUS_TIMEOUT:
 * etcd does not answer; STATUS_UNSUPPORTED as above; STATUS_IO. */
enum status store_open_etcd(struct store **store, const struct store_lead *lead, struct err *err);
/* The keys that are there now, for a server that stands by. Of `lead` client, prefix and until_us count. Errors: as
 * store_open_etcd. */
typedef void store_on_principal(const struct store_principal *principal, void *context);
enum status store_read_principals(const struct store_lead *lead, store_on_principal *on_principal,
                                  void *context, struct err *err);
void store_close(struct store **store); /* commits what is open */
/* Random for each state directory, 32 hex digits. */
const char *store_cluster(const struct store *store);
/* One above the greatest id ever given to a job. */
uint64_t store_next_job_id(struct store *store);

/* Writing. store_begin again within a transaction is nothing. store_commit returns when all is
 * durable; nothing when no transaction is open. */
void store_begin(struct store *store);
void store_commit(struct store *store);
uint64_t store_writes(const struct store *store); /* transactions since it was opened */
bool store_is_dirty(const struct store *store);   /* a transaction is open */
/* The disk is nearly full: take no work that needs more of it. Events are not stored then. */
bool store_is_low(struct store *store);
/* Insert or replace. A record with parts also makes the rows of its ranks for its generation, so
 * that its logs are found even if the server ends now. */
void store_write_job(struct store *store, const struct rdzv_record *record);
/* argv, env, launch, cwd and the request id of a new job, or of the first of an array for all of it; again
 * is nothing. */
void store_write_spec(struct store *store, uint64_t job_id, const char *user,
                      const struct msg_submit *submit);
/* The last states of the ranks of a generation: `ranks` by rank, `parts`: where they ran. */
void store_write_ranks(struct store *store, uint64_t job_id, uint32_t generation,
                       const struct rdzv_part *parts, uint32_t part_count,
                       const struct rdzv_rank *ranks, struct store_clock clock);
/* How a generation failed, see rdzv_failure; again replaces it, but for what is NULL. `is_end_alone`:
 * where it is stored, only what became of its ranks and of the job is replaced. Of a job the first
 * FAILURES_FIRST_MAX are kept, and the newest, FAILURES_KEPT_MAX in all. Nothing where the disk is
 * nearly full: the record has the cause. */
void store_write_failure(struct store *store, uint64_t job_id, const struct part_failure *failure,
                         bool is_end_alone);
/* All of them, in place of what was there. */
void store_write_drains(struct store *store, const struct rdzv_drain *drains, uint32_t count);
/* Insert or replace, with all its secrets. */
void store_write_principal(struct store *store, const struct store_principal *principal);
void store_write_seen(struct store *store, const char *name, int64_t seen_ms);
void store_drop_principal(struct store *store, const char *name);
/* Looks at some jobs above `*after_id`, and removes those that ended before `before_ms`, with all
 * that belongs to them; returns how many. `*after_id` goes up; `*is_at_end`: there are no more. The
 * newest job stays, since numbers are not given twice. */
#define STORE_EXPIRE_LOOK 256u /* jobs that one call looks at */
#define STORE_EXPIRE_MAX 16u   /* jobs that it removes at most */
uint32_t store_expire(struct store *store, int64_t before_ms, uint64_t *after_id, bool *is_at_end);
/* Returns the event's id. */
uint64_t store_write_event(struct store *store, int64_t at_ms, uint64_t job_id, uint32_t generation,
                           const char *text);

/* Reading. */
/* How many, `max` at most. */
uint32_t store_drains(struct store *store, struct rdzv_drain *drains, uint32_t max);
/* All of them by rising name; one with a malformed row is left out, with a log line. `principal` is
 * borrowed for the call; the callback must not use the store. */
void store_principals(struct store *store,
                      void (*on_principal)(const struct store_principal *principal, void *context),
                      void *context);
bool store_find_request(struct store *store, const char *request_id, const char *user,
                        uint64_t *job_id);
/* "12" (a number), "12_3" (of an array), "@last" or a name: the newest of it. 0: none that this viewer may see. */
uint64_t store_find_job(struct store *store, const char *text, struct store_viewer viewer);
/* Of the jobs of a list, one that has failed, was cancelled or is not there any more: `failed_id` and
 * `failed_state` of `after`. Of its items those alone that must succeed. */
void store_find_failed(struct store *store, struct rdzv_after *after);
/* Its parts are in `arena`. */
bool store_get_job(struct store *store, uint64_t job_id, struct arena *arena,
                   struct rdzv_record *record);
/* Ids above `after_id` of jobs that have not ended, rising; how many, `max` at most. */
uint32_t store_active_ids(struct store *store, uint64_t after_id, uint64_t *ids, uint32_t max);
/* Jobs above `after_id` by rising id, `limit` at most. The callback must not use
 * the store. */
void store_list(struct store *store, struct store_viewer viewer, uint64_t after_id, uint32_t limit,
                void (*on_job)(const struct rdzv_record *, void *), void *context);
/* STATUS_NOT_FOUND; STATUS_BAD_INPUT: the row cannot be read; STATUS_MEMORY. */
enum status store_spec(struct store *store, uint64_t job_id, bool with_env, struct arena *arena,
                       struct store_spec *spec);
/* Has a job that has not ended this working directory? Looks at every such job. */
bool store_cwd_is_used(struct store *store, const char *cwd);
/* The ranks of one generation from `first` on, by rising rank; how many there are in `ranks`, `max`
 * at most. */
uint32_t store_ranks(struct store *store, uint64_t job_id, uint32_t generation, uint32_t first,
                     struct arena *arena, struct part_job_rank *ranks, uint32_t max);
/* The failures of a job that are kept, by generation; how many. The texts are in `arena`. */
uint32_t store_failures(struct store *store, uint64_t job_id, struct arena *arena,
                        struct part_failure failures[FAILURES_KEPT_MAX]);
/* The ranks of an ended generation that failed by themselves, the first first; how many, `max` at most. */
uint32_t store_failed_ranks(struct store *store, uint64_t job_id, uint32_t generation,
                            struct arena *arena, struct part_failed_rank *ranks, uint32_t max);
/* The node that ran that rank in that generation. */
bool store_rank_node(struct store *store, uint64_t job_id, uint32_t generation, uint32_t rank,
                     char node[NODE_NAME_BYTES_MAX]);
/* Events above `after_id` by rising id, of one job or (0) of all; how many, `limit` at most. */
uint32_t store_events(struct store *store, struct store_viewer viewer, uint64_t job_id,
                      uint64_t after_id, uint32_t limit, struct arena *arena,
                      struct part_event *events);
/* The newest event's id; 0: none yet. */
uint64_t store_last_event_id(const struct store *store);

#endif
