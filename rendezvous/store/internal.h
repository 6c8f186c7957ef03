/* Shared between the files of this folder. */
#ifndef RENDEZVOUS_STORE_INTERNAL_H
#define RENDEZVOUS_STORE_INTERNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/disk.h"
#include "rendezvous/store/seen.h"
#include "rendezvous/store/store.h"

/* When the log has so many pages of 4 KiB it is copied into the file. SQLite's default; that of a private run. */
#define STORE_LOG_PAGES 1000
#define STORE_LOG_PAGES_PRIVATE 64

/* Statements that are prepared once. store.c has their SQL. */
enum store_statement {
    STORE_BEGIN,
    STORE_COMMIT,
    STORE_JOB_WRITE,
    STORE_JOB_GET,
    STORE_JOB_ACTIVE,
    STORE_JOB_LIST,
    STORE_JOB_LAST,
    STORE_JOB_NAMED,
    STORE_JOB_NUMBER,
    STORE_JOB_ELEMENT,
    STORE_JOB_FAILED,
    STORE_JOB_COUNT,
    STORE_JOB_NEXT,
    STORE_JOB_FLOOR,
    STORE_LEASE_GET,
    STORE_LEASE_WRITE,
    STORE_COMMITS_WRITE,
    STORE_COPY_GET,
    STORE_ALIVE_WRITE,
    STORE_COPY_WRITE,
    STORE_COPY_DROP,
    STORE_KEYS_GET,
    STORE_KEYS_WRITE,
    STORE_JOB_SUBMITTED,
    STORE_JOB_ENDED,
    STORE_ARRAY_KEPT,
    STORE_JOB_DROP,
    STORE_ID_STRAY,
    STORE_REQUEST_WRITE,
    STORE_REQUEST_FIND,
    STORE_REQUEST_DROP,
    STORE_SPEC_WRITE,
    STORE_SPEC_GET,
    STORE_SPEC_STAGED,
    STORE_SPEC_STAGE_JOBS,
    STORE_SPEC_ENDED,
    STORE_SPEC_TRIM,
    STORE_SPEC_DROP,
    STORE_RANK_WRITE,
    STORE_RANK_LIST,
    STORE_RANK_NODE,
    STORE_RANK_DROP,
    STORE_RANK_FAILED,
    STORE_FAILURE_WRITE,
    STORE_FAILURE_LIST,
    STORE_FAILURE_TRIM,
    STORE_FAILURE_DROP,
    STORE_DRAIN_WRITE,
    STORE_DRAIN_DROP,
    STORE_DRAIN_LIST,
    STORE_HOLD_WRITE,
    STORE_HOLD_DROP,
    STORE_HOLD_AFTER,
    STORE_PRINCIPAL_WRITE,
    STORE_PRINCIPAL_SEEN,
    STORE_PRINCIPAL_DROP,
    STORE_PRINCIPAL_LIST,
    STORE_SECRET_WRITE,
    STORE_SECRET_DROP,
    STORE_EVENT_WRITE,
    STORE_EVENT_DROP,
    STORE_EVENT_DROP_JOB,
    STORE_EVENT_LIST,
    STORE_EVENT_LIST_JOB,
    STORE_EVENT_NEXT,
    STORE_CLUSTER_GET,
    STORE_MARK_GET,
    STORE_STATEMENT_COUNT
};

struct store {
    const struct store_disk *disk;
    sqlite3 *db;
    sqlite3_stmt *statements[STORE_STATEMENT_COUNT];
    char path[4096];                           /* of state.db, for messages */
    bool watches_room, is_low, cannot_reserve; /* see room.c */
    bool is_wanted_new;                        /* store_open_new, store_open_restore */
    bool is_restore;                           /* store_open_restore */
    bool is_new, may_have_holes;               /* its free pages may have no blocks yet */
    int room_fd;                               /* of state.db; -1: none */
    uint64_t transactions, writes;
    char cluster[33];
    struct folder_lock lock;
    bool survives_power, in_transaction;
    int checkpoint_code; /* SQLite's, of the newest copy of the log into the file */
    uint64_t next_event_id;
    sqlite3_stmt *usage; /* what a user has; NULL: not known */
    bool usage_is_opened;
    struct remote *remote; /* for a state on etcd; NULL: the file is durable */
    uint64_t seen_at_us;   /* when seen.h's file was written */
    struct seen seen; /* what it said when the store was opened, and since then what it says next */
    bool has_seen, is_seen_failed;
    bool has_news;   /* to write at once: jobs got numbers, or there is another lease */
    bool seen_hangs; /* on etcd: the last note took too long */
    bool
        has_followed; /* on etcd: another server has committed while this one followed the rows, without a gap since */
    bool is_newest;          /* store_is_newest */
    bool is_of_past;         /* store_is_of_past */
    char past_why[160];      /* store_past_why */
    bool is_log_lost;        /* state.db-shm has lost its -wal */
    struct witness *witness; /* NULL: nothing is known outside of the directory */
    uint64_t commits;        /* of state.db */
    struct seen known;       /* what its directory said when the store was opened */
};

/* state.db.restoring is there while a restore makes state.db. */
#define STORE_RESTORING_END ".restoring"
/* Marks a state as half of a restored backup. */
#define STORE_RESTORING_SQL "INSERT OR REPLACE INTO main.meta VALUES ('restoring', '1')"

/* In the first transaction of a new file: makes its free pages. */
enum status store_room_fill(struct store *store, struct err *err);
/* At the end of store_open. */
void store_room_open(struct store *store);
/* usage.c: once, at the end of store_prepare or later. */
void store_usage_open(struct store *store);
/* Called when the store closes. The log is kept if the disk is nearly full. */
void store_room_close(struct store *store);
/* Called when a transaction begins. */
void store_room_used(struct store *store);
/* Ends the process (store.h). `doing` completes the sentence "cannot ...". */
__attribute__((noreturn)) void store_fail(struct store *store, const char *doing);
/* Whether this error of SQLite, plain or extended, says that the file is damaged. */
bool store_is_damage(int code);
/* Whether the store can go on after this SQLite error: no room, or another program has locked the
 * file. */
bool store_is_passing(const struct store *store, int code);
/* A prepared statement, reset and without bound values. */
sqlite3_stmt *store_use(struct store *store, enum store_statement which);
/* Step a statement that gives no rows. */
void store_run(struct store *store, sqlite3_stmt *stmt, const char *doing);
/* Steps a query. True: there is a row. */
bool store_row(struct store *store, sqlite3_stmt *stmt, const char *doing);

/* Never NULL: a damaged file may have a NULL, or an empty blob, in any column. */
const char *store_text(sqlite3_stmt *stmt, int column);

/* store.c: prepares the statements of a database that has its tables, and reads the cached
 * values. */
enum status store_prepare(struct store *store, struct err *err);
/* Reads the cached values again. */
void store_read_values(struct store *store);
/* Frees a store after a failed store_open. */
void store_release(struct store *store);

/* memory.c: makes a store in memory without rows, with its remote part. Unless *store is NULL,
 * release it whatever is returned. */
enum status store_make_empty(struct store **store, const struct store_lead *lead, struct err *err);
/* memory.c: an empty database in memory, with its tables. */
enum status store_open_memory(struct store *store, struct err *err);

/* commit_etcd.c: sends what was written to etcd. Ends the process if that is impossible. */
void store_commit_remote(struct store *store);
void store_close_remote(struct store *store);

/* gap.c: for a copy of an earlier state. Numbers may have been given since it was made, so STORE_ID_GAP
 * numbers above the known ones are left out. */
struct store_gap {
    const char *cluster;       /* its new cluster id */
    int64_t now_ms;            /* of the wall clock */
    uint64_t job_id, event_id; /* known to have been given; 0: no more than in the state */
    const char *event_sql;     /* the text of the event that says it, as SQL */
};
/* The same without a new cluster id: what still runs of it, and is known, goes on. */
enum status store_skip_numbers(struct store *store, const struct store_gap *gap, struct err *err);
enum status store_leave_gap(struct store *store, const struct store_gap *gap, struct err *err);
/* Leaves out numbers of jobs that may have been given. */
enum status store_skip_jobs(struct store *store, struct err *err);
/* The state may be of the past: from now on it is a copy (store_is_copy). */
enum status store_mark_copy(struct store *store, int64_t now_ms, struct err *err);
/* Gives this state another seen_id. From then on those that came before are known as such: its own of now, its lineage,
 * and those of `other`, if not NULL. */
enum status store_begin_history(struct store *store, const struct seen *other, struct err *err);

/* The number that the table meta has under that name; 0: none. */
#define STORE_META_SQL(name)                                                                       \
    "coalesce((SELECT CAST(value AS INTEGER) FROM main.meta WHERE name = '" name "'), 0)"
/* The highest number of a job that may have been given. */
#define STORE_NEWEST_JOB_SQL                                                                       \
    "max(coalesce((SELECT max(id) FROM main.jobs), 0), " STORE_META_SQL("job_id_floor") ")"

/* seen_state.c: the state on etcd as this server sees it now. */
enum status store_seen(struct store *store, struct seen *seen, uint64_t commit, struct err *err);
/* Writes that to the leader's file: at once if it has news or `now`, else at most once a second. */
void store_note_seen(struct store *store, bool now);
/* The same, when it ends in order: then nothing follows. */
void store_note_end(struct store *store);
/* After the rows were read. If this server, or the one that wrote the key of past_key.h, has seen a later state, etcd was
 * put back: the numbers that may have been given since are not given again. */
struct past_key;
enum status store_check_seen(struct store *store, const struct past_key *past, struct err *err);

/* etcd has no state. STATUS_NOT_FOUND: this server has seen one, or may have. */
enum status store_check_fresh(const struct store *store, struct err *err);

/* state_lost.c: there is no database. STATUS_REFUSED: DIR shows that there was one. */
enum status store_check_new(const struct store *store, const char *dir, struct err *err);

/* seen_file.c: state.db against what its directory has seen of it. */
/* Call before any file is changed. */
void store_look_at_seen(struct store *store);
/* The state is open. If it went back to an earlier one, the numbers that may have been given since are not given
 * again. */
enum status store_check_file(struct store *store, struct err *err);
/* Notes in the directory which state it has, */
void store_note_state(struct store *store);
/* and after a commit how far it has come: at once if it has news, else at most once a second. */
void store_note_commit(struct store *store);

/* mend.c: looks through state.db, and makes it anew if only rows of single jobs, events or indices are damaged. STATUS_IO: more
 * is. */
enum status store_mend(struct store *store, struct err *err);
/* store.c: opens the file that is there. */
enum status store_open_file(struct store *store, struct err *err);

/* file.c */
/* Makes a database of no rows in the empty file `path`, as `like` wants it. */
enum status store_fill_new(const char *path, const struct store *like, struct err *err);
/* Creates the tables of a new database. */
enum status store_make_tables(struct store *store, struct err *err);
/* 32 hex digits. */
enum status store_make_cluster(char cluster[33], struct err *err);
enum status store_make_file(struct store *store, const char *dir, struct err *err);
/* Both: call before SQLite opens the file. store_check_log: STATUS_REFUSED: the log is not that of the file. */
enum status store_check_log(const struct store *store, struct err *err);
enum status store_rewrite_log(const struct store *store, struct err *err);
enum status store_check_schema(struct store *store, struct err *err);
enum status store_execute(struct store *store, const char *sql, struct err *err);
/* Runs a query for one number: the first column of the first row. */
enum status store_number(struct store *store, const char *sql, int64_t *number, struct err *err);
/* Adds rows for the ranks of the record's generation, unless they exist. */
void store_place_ranks(struct store *store, const struct rdzv_record *record);

#endif
