/* Shared between the files of this folder. */
#ifndef RENDEZVOUS_STORE_INTERNAL_H
#define RENDEZVOUS_STORE_INTERNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store/disk.h"
#include "rendezvous/store/store.h"

/* Statements that are prepared once; their SQL is in store.c. */
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
    STORE_JOB_ENDED,
    STORE_JOB_DROP,
    STORE_ID_STRAY,
    STORE_REQUEST_WRITE,
    STORE_REQUEST_FIND,
    STORE_REQUEST_DROP,
    STORE_SPEC_WRITE,
    STORE_SPEC_GET,
    STORE_SPEC_USED,
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
    int room_fd;                               /* of state.db; -1: none */
    uint64_t transactions, writes;
    char cluster[33];
    int lock_fd;
    bool survives_power, in_transaction;
    int checkpoint_code; /* SQLite's, of the newest copy of the log into the file */
    uint64_t next_event_id;
    struct remote *remote; /* on etcd; NULL: the file is what must survive */
};

/* At the end of store_open. */
void store_room_open(struct store *store);
/* At the end: the log stays where the disk is nearly full. */
void store_room_close(struct store *store);
/* A transaction begins. */
void store_room_used(struct store *store);
/* Ends the process: see store.h. `doing` completes "cannot ...". */
__attribute__((noreturn)) void store_fail(struct store *store, const char *doing);
/* An error of SQLite that ends nothing: no room, or another program has the file locked. */
bool store_is_passing(const struct store *store, int code);
/* A kept statement, reset and with no values bound. */
sqlite3_stmt *store_use(struct store *store, enum store_statement which);
/* Step a statement that gives no rows. */
void store_run(struct store *store, sqlite3_stmt *stmt, const char *doing);
/* Step a query: true, there is a row. */
bool store_row(struct store *store, sqlite3_stmt *stmt, const char *doing);

/* Never NULL: a damaged file may have a NULL, or an empty blob, in any column. */
const char *store_text(sqlite3_stmt *stmt, int column);

/* store.c: prepares the statements of a database that has its tables, and reads what is kept of it. */
enum status store_prepare(struct store *store, struct err *err);
/* After a failed store_open. */
void store_release(struct store *store);

/* open_etcd.c: in memory, without rows, with room for its part on etcd; to be released whatever is returned, unless it is NULL. */
enum status store_make_empty(struct store **store, const struct store_lead *lead, struct err *err);
/* open_etcd.c: an empty database in memory, with its tables. */
enum status store_open_memory(struct store *store, struct err *err);

/* commit_etcd.c: what was written goes to etcd; ends the process where it cannot. */
void store_commit_remote(struct store *store);
void store_close_remote(struct store *store);

/* file.c */
/* The tables of a new database. */
enum status store_make_tables(struct store *store, struct err *err);
/* 32 hex digits. */
enum status store_make_cluster(char cluster[33], struct err *err);
enum status store_make_file(const struct store *store, const char *dir, struct err *err);
/* Before SQLite opens it. */
enum status store_rewrite_log(const struct store *store, struct err *err);
enum status store_check_schema(struct store *store, struct err *err);
enum status store_execute(struct store *store, const char *sql, struct err *err);
/* The first column of the first row. */
enum status store_number(struct store *store, const char *sql, int64_t *number, struct err *err);
/* Rows for the ranks of the record's generation, unless they are there. */
void store_place_ranks(struct store *store, const struct rdzv_record *record);

#endif
