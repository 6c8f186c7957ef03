/* Shared between the files of the store; nobody else includes it. */
#ifndef RENDEZVOUS_STORE_INTERNAL_H
#define RENDEZVOUS_STORE_INTERNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/store.h"

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
    STORE_JOB_NEXT,
    STORE_REQUEST_WRITE,
    STORE_REQUEST_FIND,
    STORE_SPEC_WRITE,
    STORE_SPEC_GET,
    STORE_RANK_WRITE,
    STORE_RANK_LIST,
    STORE_RANK_NODE,
    STORE_DRAIN_WRITE,
    STORE_DRAIN_DROP,
    STORE_DRAIN_LIST,
    STORE_EVENT_WRITE,
    STORE_EVENT_DROP,
    STORE_EVENT_LIST,
    STORE_EVENT_LIST_JOB,
    STORE_EVENT_NEXT,
    STORE_CLUSTER_GET,
    STORE_STATEMENT_COUNT
};

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STORE_STATEMENT_COUNT];
    char path[4096]; /* of state.db, for messages */
    char cluster[33];
    int lock_fd;
    bool survives_power, in_transaction;
    uint64_t next_event_id;
};

/* One row of `jobs` is declared once. X(kind, column, field of struct store_job); kinds: INT, REAL,
 * TEXT, STATE (a word). */
#define STORE_JOB_COLUMNS(X)                                                                       \
    X(INT, id, record.job_id)                                                                      \
    X(TEXT, request_id, record.request_id)                                                         \
    X(TEXT, name, record.name)                                                                     \
    X(TEXT, user, record.user)                                                                     \
    X(INT, uid, record.uid)                                                                        \
    X(INT, nodes, record.nodes)                                                                    \
    X(INT, nproc_per_node, record.nproc_per_node)                                                  \
    X(INT, max_restarts, record.max_restarts)                                                      \
    X(INT, grace_us, record.grace_us)                                                              \
    X(INT, time_limit_us, record.time_limit_us)                                                    \
    X(STATE, state, record.state)                                                                  \
    X(INT, generation, record.generation)                                                          \
    X(INT, restarts, record.restarts)                                                              \
    X(INT, restarts_without_progress, record.restarts_without_progress)                            \
    X(INT, checkpoint_step, record.checkpoint_step)                                                \
    X(INT, cancel_wanted, record.cancel_wanted)                                                    \
    X(TEXT, reason, record.reason)                                                                 \
    X(INT, exit_code, record.exit_code)                                                            \
    X(INT, signal, record.signal)                                                                  \
    X(INT, exit_is_ours, record.exit_is_ours)                                                      \
    X(INT, submitted_ms, record.submitted_ms)                                                      \
    X(INT, started_ms, record.started_ms)                                                          \
    X(INT, ended_ms, record.ended_ms)                                                              \
    X(INT, failed_rank, record.failed_rank)                                                        \
    X(TEXT, failed_node, record.failed_node)                                                       \
    X(TEXT, tail, record.tail)                                                                     \
    X(TEXT, place, where)                                                                          \
    X(INT, epoch, epoch)                                                                           \
    X(INT, epochs, epochs)                                                                         \
    X(INT, step, step)                                                                             \
    X(INT, steps, steps)                                                                           \
    X(REAL, loss, loss)                                                                            \
    X(REAL, samples_per_s, samples_per_s)

/* Ends the process: see store.h. `doing` completes "cannot ...". */
__attribute__((noreturn)) void store_fail(struct store *store, const char *doing);
/* A kept statement, reset and with no values bound. */
sqlite3_stmt *store_use(struct store *store, enum store_statement which);
/* Step a statement that gives no rows. */
void store_run(struct store *store, sqlite3_stmt *stmt, const char *doing);
/* Step a query: true, there is a row. */
bool store_row(struct store *store, sqlite3_stmt *stmt, const char *doing);

/* store_file.c */
enum status store_make_dir(const char *dir, struct err *err);
enum status store_take_lock(struct store *store, const char *dir, struct err *err);
enum status store_make_file(const struct store *store, const char *dir, struct err *err);
enum status store_check_schema(struct store *store, struct err *err);
enum status store_execute(struct store *store, const char *sql, struct err *err);
/* Rows for the ranks of the record's generation, unless they are there. */
void store_place_ranks(struct store *store, const struct rdzv_record *record);

#endif
