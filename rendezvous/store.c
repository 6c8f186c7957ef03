/* Opening, statements, transactions. The file is made in store_file.c; rows are in store_job.c and
 * store_rank.c. */
#include "rendezvous/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/store_internal.h"

#define BUSY_TIMEOUT_MS 5000 /* somebody looks into the file with another program */

#define COLUMN_NAME(kind, column, field) #column ","
#define COLUMN_VALUE(kind, column, field) "?,"
#define JOB_NAMES STORE_JOB_COLUMNS(COLUMN_NAME) "parts"

#define RANK_NAMES "job_id, generation, rank, local_rank, node, slot, pid, state, exit_code, signal"

static const char *const statement_sql[STORE_STATEMENT_COUNT] = {
    [STORE_BEGIN] = "BEGIN IMMEDIATE",
    [STORE_COMMIT] = "COMMIT",
    [STORE_JOB_WRITE] =
        "INSERT OR REPLACE INTO jobs (" JOB_NAMES ") VALUES (" STORE_JOB_COLUMNS(COLUMN_VALUE) "?)",
    [STORE_JOB_GET] = "SELECT " JOB_NAMES " FROM jobs WHERE id = ?",
    [STORE_JOB_ACTIVE] = "SELECT id FROM jobs WHERE state IN"
                         " ('queued','starting','running','restarting') ORDER BY id",
    [STORE_JOB_LIST] = "SELECT " JOB_NAMES " FROM jobs WHERE id > ?1 AND (?2 OR uid = ?3)"
                       " ORDER BY id LIMIT ?4",
    [STORE_JOB_LAST] = "SELECT id FROM jobs WHERE (?1 OR uid = ?2) ORDER BY id DESC LIMIT 1",
    [STORE_JOB_NAMED] = "SELECT id FROM jobs WHERE name = ?3 AND (?1 OR uid = ?2)"
                        " ORDER BY id DESC LIMIT 1",
    [STORE_JOB_NUMBER] = "SELECT id FROM jobs WHERE id = ?3 AND (?1 OR uid = ?2)",
    [STORE_JOB_NEXT] = "SELECT coalesce(max(id), 0) + 1 FROM jobs",
    [STORE_REQUEST_WRITE] = "INSERT OR IGNORE INTO request_ids (request_id, uid, job_id)"
                            " VALUES (?, ?, ?)",
    [STORE_REQUEST_FIND] = "SELECT job_id FROM request_ids WHERE request_id = ? AND uid = ?",
    [STORE_SPEC_WRITE] = "INSERT OR IGNORE INTO specs (job_id, cwd, argv, env) VALUES (?, ?, ?, ?)",
    [STORE_SPEC_GET] = "SELECT cwd, argv, env FROM specs WHERE job_id = ?",
    [STORE_RANK_WRITE] = "INSERT OR REPLACE INTO ranks (" RANK_NAMES ")"
                         " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STORE_RANK_LIST] = "SELECT rank, local_rank, node, slot, pid, state, exit_code, signal"
                        " FROM ranks WHERE job_id = ? AND generation = ? ORDER BY rank LIMIT ?",
    [STORE_RANK_NODE] = "SELECT node FROM ranks WHERE job_id = ? AND generation = ? AND rank = ?",
    [STORE_DRAIN_WRITE] = "INSERT INTO drains (node, slot, user, reason, at_ms)"
                          " VALUES (?, ?, ?, ?, ?)",
    [STORE_DRAIN_DROP] = "DELETE FROM drains",
    [STORE_DRAIN_LIST] = "SELECT node, slot, user, reason, at_ms FROM drains"
                         " ORDER BY node, slot LIMIT ?",
    [STORE_EVENT_WRITE] = "INSERT INTO events (id, at_ms, job_id, generation, text)"
                          " VALUES (?, ?, ?, ?, ?)",
    [STORE_EVENT_DROP] = "DELETE FROM events WHERE id <= ?",
    [STORE_EVENT_LIST] = "SELECT id, at_ms, job_id, generation, text FROM events WHERE id > ?1 AND"
                         " (?2 OR job_id = 0 OR job_id IN (SELECT id FROM jobs WHERE uid = ?3))"
                         " ORDER BY id LIMIT ?4",
    [STORE_EVENT_LIST_JOB] = "SELECT id, at_ms, job_id, generation, text FROM events WHERE id > ?1"
                             " AND job_id = ?5 AND (?2 OR job_id IN (SELECT id FROM jobs WHERE"
                             " uid = ?3)) ORDER BY id LIMIT ?4",
    [STORE_EVENT_NEXT] = "SELECT coalesce(max(id), 0) + 1 FROM events",
    [STORE_CLUSTER_GET] = "SELECT value FROM meta WHERE name = 'cluster'",
};

void store_fail(struct store *store, const char *doing)
{
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "cannot %s %s: %s (SQLite %d, errno %d: %s); stopping, for after a failed write only "
             "the disk knows what is stored. Free the disk or mend it, then start again: nothing "
             "that was acknowledged is lost",
             doing, store->path, sqlite3_errmsg(store->db), sqlite3_extended_errcode(store->db),
             sqlite3_system_errno(store->db), strerror(sqlite3_system_errno(store->db)));
    _exit(STORE_EXIT_CODE);
}

sqlite3_stmt *store_use(struct store *store, enum store_statement which)
{
    sqlite3_stmt *stmt = store->statements[which];

    assert(stmt != NULL);
    (void)sqlite3_reset(stmt); /* gives again the error of the last step, which was dealt with */
    (void)sqlite3_clear_bindings(stmt);
    return stmt;
}

bool store_row(struct store *store, sqlite3_stmt *stmt, const char *doing)
{
    int rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE)
        store_fail(store, doing);
    (void)sqlite3_reset(stmt);
    return false;
}

void store_run(struct store *store, sqlite3_stmt *stmt, const char *doing)
{
    while (store_row(store, stmt, doing))
        ;
}

void store_begin(struct store *store)
{
    if (store->in_transaction)
        return;
    store_run(store, store_use(store, STORE_BEGIN), "begin a transaction in");
    store->in_transaction = true;
}

void store_commit(struct store *store)
{
    if (!store->in_transaction)
        return;
    store_run(store, store_use(store, STORE_COMMIT), "commit to");
    store->in_transaction = false;
}

bool store_is_dirty(const struct store *store)
{
    return store->in_transaction;
}

const char *store_cluster(const struct store *store)
{
    return store->cluster;
}

/* Small caches: the state is small, and rows are found by key. WAL with FULL: a commit is one
 * fdatasync of the log (sqlite.org/pragma.html#pragma_synchronous); with OFF it is a write to the
 * kernel, which a killed process does not take back. */
static enum status open_file(struct store *store, struct err *err)
{
    enum status status;

    if (sqlite3_open_v2(store->path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                        NULL) != SQLITE_OK)
        return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db), "cannot open %s: %s",
                       store->path, sqlite3_errmsg(store->db));
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    status = store_execute(store, "PRAGMA cache_size = -512; PRAGMA trusted_schema = OFF", err);
    if (status == STATUS_OK)
        status = store_check_schema(store, err);
    if (status == STATUS_OK)
        status = store_execute(store,
                               store->survives_power
                                   ? "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"
                                   : "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF",
                               err);
    return status;
}

static enum status prepare(struct store *store, struct err *err)
{
    sqlite3_stmt *stmt;
    size_t i;

    for (i = 0; i < STORE_STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v3(store->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &store->statements[i], NULL) != SQLITE_OK)
            return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db),
                           "%s does not have the tables of its schema: %s", store->path,
                           sqlite3_errmsg(store->db));
    stmt = store_use(store, STORE_CLUSTER_GET);
    if (store_row(store, stmt, "read"))
        (void)snprintf(store->cluster, sizeof store->cluster, "%s",
                       (const char *)sqlite3_column_text(stmt, 0));
    (void)sqlite3_reset(stmt);
    stmt = store_use(store, STORE_EVENT_NEXT);
    if (store_row(store, stmt, "read"))
        store->next_event_id = (uint64_t)sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
    if (strlen(store->cluster) != sizeof store->cluster - 1)
        return err_set(err, STATUS_IO, 0, "%s has lost its cluster id", store->path);
    return STATUS_OK;
}

static void release(struct store *store)
{
    size_t i;

    for (i = 0; i < STORE_STATEMENT_COUNT; i++)
        (void)sqlite3_finalize(store->statements[i]);
    (void)sqlite3_close(store->db);
    if (store->lock_fd >= 0)
        (void)close(store->lock_fd);
    free(store);
}

enum status store_open(struct store **out, const char *dir, bool survives_power, struct err *err)
{
    struct store *store;
    enum status status;

    status = store_make_dir(dir, err);
    if (status != STATUS_OK)
        return status;
    store = calloc(1, sizeof *store);
    if (store == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state store");
    store->lock_fd = -1;
    store->survives_power = survives_power;
    (void)snprintf(store->path, sizeof store->path, "%s/state.db", dir);
    status = store_take_lock(store, dir, err);
    if (status == STATUS_OK)
        status = store_make_file(store, dir, err);
    if (status == STATUS_OK)
        status = open_file(store, err);
    if (status == STATUS_OK)
        status = prepare(store, err);
    if (status != STATUS_OK)
        release(store);
    else
        *out = store;
    return status;
}

void store_close(struct store **store)
{
    if (*store == NULL)
        return;
    store_commit(*store);
    release(*store);
    *store = NULL;
}
