/* Opening, statements, transactions. The file is made in file.c; rows are in jobs.c, ranks.c,
 * drains.c, holds.c and principals.c; expire.c removes old ones. */
#include "rendezvous/store/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/witness.h"

#define BUSY_TIMEOUT_MS 5000 /* waits this long while another program reads the file */
#define FREE_BYTES_MIN (1u << 20)

#define COLUMN_NAME(kind, field, column, audience, bytes) #column ","
#define COLUMN_VALUE(kind, field, column, audience, bytes) "?,"
#define JOB_NAMES RDZV_RECORD_TABLE(COLUMN_NAME) "parts"

#define RANK_NAMES                                                                                 \
    "job_id, generation, rank, local_rank, node, slot, pid, state, exit_code, signal, failed_ms"
/* After job_id, the columns of `failures` are the fields of PART_FAILURE. */
#define FAILURE_NAME(kind, name, min, max) "," #name
#define FAILURE_CLASS_NAME(name, tag, TABLE) "," #name
#define FAILURE_VALUE(kind, name, min, max) ",?"
#define FAILURE_CLASS_VALUE(name, tag, TABLE) ",?"

static const char *const statement_sql[STORE_STATEMENT_COUNT] = {
    [STORE_BEGIN] = "BEGIN IMMEDIATE",
    [STORE_COMMIT] = "COMMIT",
    [STORE_JOB_WRITE] =
        "INSERT OR REPLACE INTO jobs (" JOB_NAMES ") VALUES (" RDZV_RECORD_TABLE(COLUMN_VALUE) "?)",
    [STORE_JOB_GET] = "SELECT " JOB_NAMES " FROM jobs WHERE id = ?",
    [STORE_JOB_ACTIVE] = "SELECT id FROM jobs WHERE state IN"
                         " ('queued','starting','running','restarting') AND id > ?"
                         " ORDER BY id LIMIT ?",
    [STORE_JOB_LIST] = "SELECT " JOB_NAMES " FROM jobs WHERE id > ?1 AND (?2 OR user = ?3)"
                       " ORDER BY id LIMIT ?4",
    [STORE_JOB_LAST] = "SELECT id FROM jobs WHERE (?1 OR user = ?2) ORDER BY id DESC LIMIT 1",
    [STORE_JOB_NAMED] = "SELECT id FROM jobs WHERE name = ?3 AND (?1 OR user = ?2)"
                        " ORDER BY id DESC LIMIT 1",
    [STORE_JOB_NUMBER] = "SELECT id FROM jobs WHERE id = ?3 AND (?1 OR user = ?2)",
    [STORE_JOB_ELEMENT] = "SELECT id FROM jobs WHERE array_job <> 0 AND array_job = ?3 AND"
                          " array_index = ?4 AND (?1 OR user = ?2)",
    [STORE_JOB_FAILED] = "SELECT id, state FROM jobs WHERE id BETWEEN ? AND ? AND state IN"
                         " ('failed','cancelled') ORDER BY id LIMIT 1",
    [STORE_JOB_COUNT] = "SELECT count(*) FROM jobs WHERE id BETWEEN ? AND ?",
    [STORE_JOB_NEXT] = "SELECT " STORE_NEWEST_JOB_SQL " + 1",
    [STORE_JOB_SUBMITTED] = "SELECT submitted_ms FROM jobs WHERE id = ?",
    [STORE_JOB_FLOOR] = "INSERT OR REPLACE INTO main.meta SELECT 'job_id_floor',"
                        " max(?, " STORE_NEWEST_JOB_SQL ")",
    [STORE_LEASE_GET] = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'lease_us'",
    [STORE_LEASE_WRITE] = "INSERT OR REPLACE INTO main.meta VALUES ('lease_us', ?)",
    [STORE_COMMITS_WRITE] = "INSERT OR REPLACE INTO main.meta VALUES ('commits', ?)",
    [STORE_COPY_GET] = "SELECT 1 FROM meta WHERE name = 'copy_ms'",
    [STORE_ALIVE_WRITE] = "INSERT OR REPLACE INTO main.meta VALUES ('alive_ms', ?)",
    [STORE_COPY_WRITE] = "INSERT OR REPLACE INTO main.meta VALUES ('copy_ms', ?)",
    [STORE_COPY_DROP] = "DELETE FROM main.meta WHERE name = 'copy_ms'",
    [STORE_KEYS_GET] = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'keys_lost_ms'",
    [STORE_KEYS_WRITE] = "INSERT OR REPLACE INTO main.meta VALUES ('keys_lost_ms', ?)",
    /* The job and the event with the highest ids are kept: the next ids are counted from them, and
     * no id is ever given twice. */
    [STORE_JOB_ENDED] = "SELECT id, CASE WHEN state IN ('succeeded','failed','cancelled') AND"
                        " id < (SELECT max(id) FROM jobs) THEN ended_ms ELSE 0 END,"
                        " array_job, array_count FROM jobs WHERE id > ? ORDER BY id LIMIT ?",
    [STORE_ARRAY_KEPT] =
        "SELECT 1 FROM jobs WHERE array_job <> 0 AND array_job = ? AND"
        " (ended_ms = 0 OR ended_ms >= ? OR id = (SELECT max(id) FROM jobs)) LIMIT 1",
    [STORE_JOB_DROP] = "DELETE FROM jobs WHERE id = ?",
    [STORE_REQUEST_DROP] = "DELETE FROM request_ids WHERE request_id ="
                           " (SELECT request_id FROM jobs WHERE id = ?1) AND user ="
                           " (SELECT user FROM jobs WHERE id = ?1)",
    /* All jobs of an array share the spec of its first job. It is removed with the last of them. */
    [STORE_SPEC_DROP] =
        "DELETE FROM specs WHERE job_id = (SELECT coalesce(nullif(array_job, 0), id)"
        " FROM jobs WHERE id = ?1) AND NOT EXISTS (SELECT 1 FROM jobs WHERE"
        " array_job <> 0 AND array_job = specs.job_id AND id <> ?1)",
    [STORE_RANK_DROP] = "DELETE FROM ranks WHERE job_id = ?",
    [STORE_EVENT_DROP_JOB] = "DELETE FROM events WHERE job_id = ? AND"
                             " id < (SELECT max(id) FROM events)",
    [STORE_ID_STRAY] = "SELECT id FROM jobs WHERE id < 1 UNION ALL"
                       " SELECT id FROM jobs WHERE id >= ?1 UNION ALL"
                       " SELECT id FROM events WHERE id < 1 UNION ALL"
                       " SELECT id FROM events WHERE id >= ?1 LIMIT 1",
    [STORE_REQUEST_WRITE] = "INSERT OR IGNORE INTO request_ids (request_id, user, job_id)"
                            " VALUES (?, ?, ?)",
    [STORE_REQUEST_FIND] = "SELECT job_id FROM request_ids WHERE request_id = ? AND user = ?",
    [STORE_SPEC_WRITE] =
        "INSERT OR IGNORE INTO specs (job_id, cwd, argv, env, launch) VALUES (?, ?, ?, ?, ?)",
    [STORE_SPEC_GET] = "SELECT cwd, argv, env, launch FROM specs WHERE job_id ="
                       " (SELECT coalesce(nullif(array_job, 0), id) FROM jobs WHERE id = ?)",
    [STORE_SPEC_STAGED] =
        "SELECT specs.cwd, max(jobs.user = ?) FROM jobs JOIN specs ON specs.job_id ="
        " coalesce(nullif(jobs.array_job, 0), jobs.id) WHERE jobs.state IN"
        " ('queued','starting','running','restarting') AND specs.cwd LIKE 'stage:%'"
        " GROUP BY specs.cwd ORDER BY specs.cwd",
    [STORE_SPEC_STAGE_JOBS] =
        "SELECT jobs.id FROM jobs JOIN specs ON specs.job_id = coalesce(nullif(jobs.array_job, 0),"
        " jobs.id) WHERE jobs.state IN ('queued','starting','running','restarting')"
        " AND jobs.id > ? AND specs.cwd = ? ORDER BY jobs.id LIMIT ?",
    [STORE_SPEC_ENDED] =
        "SELECT argv, env FROM specs WHERE job_id = ?1 AND"
        " (?3 OR length(argv) > ?4 OR length(env) > ?4) AND NOT EXISTS (SELECT 1 FROM jobs WHERE"
        " id BETWEEN ?1 AND ?2 AND state IN ('queued','starting','running','restarting'))",
    [STORE_SPEC_TRIM] = "UPDATE specs SET argv = ?2, env = ?3, launch = '{}' WHERE job_id = ?1",
    [STORE_RANK_WRITE] = "INSERT OR REPLACE INTO ranks (" RANK_NAMES ")"
                         " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [STORE_RANK_LIST] = "SELECT rank, local_rank, node, slot, pid, state, exit_code, signal"
                        " FROM ranks WHERE job_id = ? AND generation = ? AND rank >= ?"
                        " ORDER BY rank LIMIT ?",
    [STORE_RANK_NODE] = "SELECT node FROM ranks WHERE job_id = ? AND generation = ? AND rank = ?",
    [STORE_RANK_FAILED] = "SELECT rank, node, exit_code, signal, failed_ms FROM ranks WHERE"
                          " job_id = ? AND generation = ? AND state = 'exited' AND"
                          " (exit_code <> 0 OR signal <> 0)"
                          " ORDER BY failed_ms = 0, failed_ms, rank LIMIT ?",
    [STORE_FAILURE_WRITE] = "INSERT OR REPLACE INTO failures (job_id" PART_FAILURE(
        FAILURE_NAME, FAILURE_CLASS_NAME, ) ") VALUES (?" PART_FAILURE(FAILURE_VALUE,
                                                                       FAILURE_CLASS_VALUE, ) ")",
    [STORE_FAILURE_LIST] = "SELECT generation" PART_FAILURE(
        FAILURE_NAME, FAILURE_CLASS_NAME, ) " FROM failures WHERE job_id = ? AND generation "
                                            "BETWEEN ? AND ? ORDER BY generation",
    [STORE_FAILURE_TRIM] =
        "DELETE FROM failures WHERE job_id = ?1 AND generation NOT IN (SELECT generation FROM"
        " failures WHERE job_id = ?1 ORDER BY generation DESC LIMIT ?2) AND generation NOT IN"
        " (SELECT generation FROM failures WHERE job_id = ?1 ORDER BY generation LIMIT ?3)",
    [STORE_FAILURE_DROP] = "DELETE FROM failures WHERE job_id = ?",
    [STORE_DRAIN_WRITE] = "INSERT INTO drains (node, slot, user, reason, at_ms)"
                          " VALUES (?, ?, ?, ?, ?)",
    [STORE_DRAIN_DROP] = "DELETE FROM drains",
    [STORE_DRAIN_LIST] = "SELECT node, slot, user, reason, at_ms FROM drains"
                         " ORDER BY node, slot LIMIT ?",
    [STORE_HOLD_WRITE] = "INSERT OR REPLACE INTO holds (node, machine, boot, state, slot_mask)"
                         " VALUES (?, ?, ?, ?, ?)",
    [STORE_HOLD_DROP] = "DELETE FROM holds WHERE node = ?",
    [STORE_HOLD_AFTER] = "SELECT node, machine, boot, state, slot_mask FROM holds WHERE node > ?"
                         " ORDER BY node LIMIT 1",
    [STORE_PRINCIPAL_WRITE] = "INSERT OR REPLACE INTO principals (name, role, created_ms,"
                              " rotated_ms, seen_ms) VALUES (?, ?, ?, ?, ?)",
    [STORE_PRINCIPAL_SEEN] = "UPDATE principals SET seen_ms = ?2 WHERE name = ?1",
    [STORE_PRINCIPAL_DROP] = "DELETE FROM principals WHERE name = ?",
    [STORE_PRINCIPAL_LIST] = "SELECT p.name, p.role, p.created_ms, p.rotated_ms, p.seen_ms,"
                             " s.secret, s.until_ms FROM principals p LEFT JOIN secrets s"
                             " ON s.principal = p.name ORDER BY p.name, s.place",
    [STORE_SECRET_WRITE] = "INSERT INTO secrets (principal, place, secret, until_ms)"
                           " VALUES (?, ?, ?, ?)",
    [STORE_SECRET_DROP] = "DELETE FROM secrets WHERE principal = ?",
    [STORE_EVENT_WRITE] = "INSERT INTO events (id, at_ms, job_id, generation, text)"
                          " VALUES (?, ?, ?, ?, ?)",
    [STORE_EVENT_DROP] = "DELETE FROM events WHERE id <= ?",
    [STORE_EVENT_LIST] = "SELECT id, at_ms, job_id, generation, text FROM events WHERE id > ?1 AND"
                         " (?2 OR job_id = 0 OR job_id IN (SELECT id FROM jobs WHERE user = ?3))"
                         " ORDER BY id LIMIT ?4",
    [STORE_EVENT_LIST_JOB] = "SELECT id, at_ms, job_id, generation, text FROM events WHERE id > ?1"
                             " AND job_id = ?5 AND (?2 OR job_id IN (SELECT id FROM jobs WHERE"
                             " user = ?3)) ORDER BY id LIMIT ?4",
    [STORE_EVENT_NEXT] = "SELECT coalesce(max(id), 0) + 1 FROM events",
    [STORE_CLUSTER_GET] = "SELECT value FROM meta WHERE name = 'cluster'",
    [STORE_MARK_GET] = "SELECT name FROM meta WHERE name IN ('moved', 'restoring')",
};

static bool prepare(struct store *store, enum store_statement which)
{
    return sqlite3_prepare_v3(store->db, statement_sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                              &store->statements[which], NULL) == SQLITE_OK;
}

sqlite3_stmt *store_use(struct store *store, enum store_statement which)
{
    sqlite3_stmt *stmt;

    if (store->statements[which] == NULL && !prepare(store, which))
        store_fail(store, "prepare a statement of");
    stmt = store->statements[which];
    (void)sqlite3_reset(stmt); /* returns the last step's error once more; it was handled then */
    (void)sqlite3_clear_bindings(stmt);
    return stmt;
}

const char *store_text(sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);

    return text != NULL ? text : "";
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
    store_room_used(store);
    store_run(store, store_use(store, STORE_BEGIN), "begin a transaction in");
    store->in_transaction = true;
}

/* The first read after a commit writes a mark into the index of the log, which is mapped from a file: on a disk that
 * hangs it would not return. So this one is done at once, and what only reads goes on when the disk hangs later. */
static void mark_read(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_COPY_GET);

    (void)store_row(store, stmt, "read");
    (void)sqlite3_reset(stmt);
}

static void count_commit(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_COMMITS_WRITE);

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)++store->commits);
    store_run(store, stmt, "count a commit of");
}

void store_commit(struct store *store)
{
    if (!store->in_transaction)
        return;
    if (store->remote != NULL)
        store_commit_remote(store);
    else if (store->survives_power)
        count_commit(store);
    store_run(store, store_use(store, STORE_COMMIT), "commit to");
    store->in_transaction = false;
    store->writes++;
    store_note_commit(store);
    if (store->checkpoint_code != SQLITE_OK)
        store_fail(store, "copy the log into");
    if (store->remote == NULL && store->survives_power)
        mark_read(store);
}

bool store_was_made(const struct store *store)
{
    return store->is_new;
}

uint64_t store_writes(const struct store *store)
{
    return store->writes;
}

bool store_is_newest(const struct store *store)
{
    return store->is_newest;
}

bool store_is_of_past(const struct store *store)
{
    return store->is_of_past;
}

const char *store_past_why(const struct store *store)
{
    return store->past_why;
}

bool store_is_dirty(const struct store *store)
{
    return store->in_transaction;
}

const char *store_path(const struct store *store)
{
    return store->path;
}

const char *store_cluster(const struct store *store)
{
    return store->cluster;
}

/* Runs after each commit, in place of SQLite's own hook. That one ignores all errors, but a failed
 * fsync must be seen. The error is kept for store_commit, because the process must not end inside
 * SQLite. */
static int on_log(void *context, sqlite3 *db, const char *name, int page_count)
{
    struct store *store = context;
    int code;

    if (page_count < (store->survives_power ? STORE_LOG_PAGES : STORE_LOG_PAGES_PRIVATE))
        return SQLITE_OK;
    code = sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (code != SQLITE_OK && !store_is_passing(store, sqlite3_extended_errcode(db)))
        store->checkpoint_code = code;
    return SQLITE_OK;
}

/* Small caches: the state is small, and rows are found by key. WAL with synchronous=FULL: a commit
 * is one fdatasync of the log (sqlite.org/pragma.html#pragma_synchronous). With OFF it is a write
 * to the kernel, which survives a kill of this process. */
enum status store_open_file(struct store *store, struct err *err)
{
    enum status status;

    if (sqlite3_open_v2(store->path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                        store->disk->vfs) != SQLITE_OK)
        return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db), "cannot open %s: %s",
                       store->path, sqlite3_errmsg(store->db));
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    (void)sqlite3_wal_hook(store->db, on_log, store);
    status = store_execute(store,
                           "PRAGMA temp_store = MEMORY;" /* of triggers; see usage.c */
                           "PRAGMA cache_size = -512; PRAGMA trusted_schema = OFF;"
                           " PRAGMA secure_delete = FAST" /* a removed secret is overwritten */,
                           err);
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

/* Ids of jobs and events count up from 1 and travel in messages. If one were larger than a message
 * can carry, all later ids would be as well. */
static enum status check_ids(struct store *store, struct err *err)
{
    sqlite3_stmt *stmt = store_use(store, STORE_ID_STRAY);
    enum status status = STATUS_OK;

    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)JOB_ID_MAX);
    if (store_row(store, stmt, "read"))
        status = err_set(err, STATUS_IO, 0,
                         "%s is damaged: a job or an event has the number %lld; move it away and "
                         "restore a backup",
                         store->path, (long long)sqlite3_column_int64(stmt, 0));
    (void)sqlite3_reset(stmt);
    return status;
}

/* Checks for the marks that backup_move and an interrupted restore leave. This process has made the mark of a new state
 * that it restores into. */
static enum status check_marks(struct store *store, struct err *err)
{
    sqlite3_stmt *stmt = store_use(store, STORE_MARK_GET);
    enum status status = STATUS_OK;

    if ((store->is_restore && store->is_new) ||
        (store->remote != NULL && store->remote->is_made_to_restore))
        return STATUS_OK;
    if (store_row(store, stmt, "read"))
        status = strcmp(store_text(stmt, 0), "moved") == 0
                     ? err_set(err, STATUS_UNSUPPORTED, 0,
                               "%s was moved away by ddpctl backup --move: another server may use "
                               "it now. To use it here, restore that backup into a new store",
                               store->path)
                     : err_set(err, STATUS_UNSUPPORTED, 0,
                               "%s is half of a restored backup: a restore was interrupted, or "
                               "has not ended. %s, and restore again",
                               store->path,
                               store->remote != NULL ? "Remove it (etcdctl del --prefix)"
                                                     : "Remove it with its -wal and -shm");
    (void)sqlite3_reset(stmt);
    return status;
}

void store_read_values(struct store *store)
{
    sqlite3_stmt *stmt = store_use(store, STORE_CLUSTER_GET);

    if (store_row(store, stmt, "read"))
        (void)snprintf(store->cluster, sizeof store->cluster, "%s", store_text(stmt, 0));
    (void)sqlite3_reset(stmt);
    stmt = store_use(store, STORE_EVENT_NEXT);
    if (store_row(store, stmt, "read"))
        store->next_event_id = (uint64_t)sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
}

enum status store_prepare(struct store *store, struct err *err)
{
    enum status status;
    size_t i;

    /* All statements together use every table and column of the schema. A new file has them, and most
     * servers of private runs use few statements. */
    for (i = 0; i < STORE_STATEMENT_COUNT && !store->is_new; i++)
        if (!prepare(store, i))
            return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db),
                           "%s does not have the tables of its schema: %s", store->path,
                           sqlite3_errmsg(store->db));
    store_read_values(store);
    if (strlen(store->cluster) != sizeof store->cluster - 1)
        return err_set(err, STATUS_IO, 0, "%s has lost its cluster id", store->path);
    status = check_marks(store, err);
    if (status == STATUS_OK)
        status = check_ids(store, err);
    if (status == STATUS_OK && !store->is_new) /* then it is quick, and done when it is needed */
        store_usage_open(store);
    return status;
}

static void close_database(struct store *store)
{
    for (size_t i = 0; i < STORE_STATEMENT_COUNT; i++)
        (void)sqlite3_finalize(store->statements[i]);
    (void)sqlite3_finalize(store->usage);
    store_close_remote(store);
    (void)sqlite3_close(store->db);
    memset(store->statements, 0, sizeof store->statements);
    store->usage = NULL;
    store->db = NULL;
}

void store_release(struct store *store)
{
    close_database(store);
    if (store->room_fd >= 0)
        (void)close(store->room_fd);
    folder_lock_release(&store->lock);
    witness_close(&store->witness);
    free(store);
}

enum open_for { OPEN_TO_SERVE, OPEN_NEW, OPEN_TO_RESTORE };

/* Before the log of an earlier process is trusted, it is written again. If that process ended
 * because an fsync failed, the kernel may still show us pages that it takes for clean and that are
 * not on the disk. No later fsync would write them, so commits in them could be lost in a power
 * failure. Writing in place needs no free space. */
static enum status open_on(struct store **out, const struct store_disk *disk, const char *dir,
                           bool survives_power, enum open_for purpose, struct err *err)
{
    struct store *store = calloc(1, sizeof *store);
    enum status status;

    if (store == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state store");
    store->disk = disk;
    store->lock = FOLDER_LOCK_NONE;
    store->room_fd = -1;
    store->survives_power = survives_power;
    store->is_wanted_new = purpose != OPEN_TO_SERVE;
    store->is_restore = purpose == OPEN_TO_RESTORE;
    (void)snprintf(store->path, sizeof store->path, "%s/state.db", dir);
    status = disk->hold(dir, &store->lock, err);
    if (status == STATUS_OK)
        store_look_at_seen(store);
    if (status == STATUS_OK)
        status = store_make_file(store, dir, err);
    if (status == STATUS_OK)
        status = store_check_log(store, err);
    if (status == STATUS_OK)
        status = store_rewrite_log(store, err);
    if (status == STATUS_OK)
        status = store_open_file(store, err);
    if (status == STATUS_OK)
        status = store_mend(store, err);
    if (status == STATUS_OK)
        status = store_prepare(store, err);
    if (status == STATUS_OK)
        status = store_check_file(store, err);
    if (status == STATUS_IO && disk->free_bytes(dir) < FREE_BYTES_MIN)
        (void)snprintf(err->text + strlen(err->text), sizeof err->text - strlen(err->text),
                       "; its disk is full: free some of it");
    if (status != STATUS_OK) {
        store_release(store);
        return status;
    }
    store_note_state(store);
    store_room_open(store);
    *out = store;
    return STATUS_OK;
}

enum status store_open_on(struct store **store, const struct store_disk *disk, const char *dir,
                          bool survives_power, struct err *err)
{
    return open_on(store, disk, dir, survives_power, OPEN_TO_SERVE, err);
}

enum status store_open_new(struct store **store, const char *dir, struct err *err)
{
    return open_on(store, &store_disk_usual, dir, true, OPEN_NEW, err);
}

enum status store_open_restore_on(struct store **store, const struct store_disk *disk,
                                  const char *dir, struct err *err)
{
    return open_on(store, disk, dir, true, OPEN_TO_RESTORE, err);
}

enum status store_open_restore(struct store **store, const char *dir, struct err *err)
{
    return store_open_restore_on(store, &store_disk_usual, dir, err);
}

enum status store_open(struct store **store, const char *dir, bool survives_power, struct err *err)
{
    return store_open_on(store, &store_disk_usual, dir, survives_power, err);
}

void store_close(struct store **store)
{
    if (*store == NULL)
        return;
    store_commit(*store);
    if ((*store)->remote != NULL)
        store_note_end(*store);
    store_note_state(*store);
    store_room_close(*store);
    close_database(*store);
    store_release(*store);
    *store = NULL;
}
