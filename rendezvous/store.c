/* The file, its lock, its schema, transactions. Rows are in store_job.c, store_rank.c and
 * store_event.c. */
#include "rendezvous/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/store_internal.h"

#define APPLICATION_ID 0x64647031 /* "ddp1": PRAGMA application_id */
#define BUSY_TIMEOUT_MS 5000      /* somebody looks into the file with another program */

#define COLUMN_TYPE_INT "INTEGER NOT NULL"
#define COLUMN_TYPE_REAL "REAL NOT NULL"
#define COLUMN_TYPE_TEXT "TEXT NOT NULL"
#define COLUMN_TYPE_STATE "TEXT NOT NULL"
#define COLUMN_DECLARE(kind, column, field) #column " " COLUMN_TYPE_##kind ","
#define COLUMN_NAME(kind, column, field) #column ","
#define COLUMN_VALUE(kind, column, field) "?,"
#define JOB_NAMES STORE_JOB_COLUMNS(COLUMN_NAME) "parts"

/* Version STORE_SCHEMA_VERSION. A change of it needs a step from the version before. */
static const char schema_sql[] =
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE jobs (" STORE_JOB_COLUMNS(
        COLUMN_DECLARE) "parts TEXT NOT NULL, PRIMARY KEY (id));"
                        "CREATE INDEX jobs_name ON jobs (name, id);"
                        "CREATE INDEX jobs_active ON jobs (id) WHERE state IN"
                        " ('queued','starting','running','restarting');"
                        "CREATE TABLE specs (job_id INTEGER PRIMARY KEY, cwd TEXT NOT NULL, argv "
                        "TEXT NOT NULL,"
                        " env TEXT NOT NULL);"
                        "CREATE TABLE ranks (job_id INTEGER NOT NULL, generation INTEGER NOT NULL, "
                        "rank INTEGER NOT NULL,"
                        " local_rank INTEGER NOT NULL, node TEXT NOT NULL, slot INTEGER NOT NULL, "
                        "pid INTEGER NOT NULL,"
                        " state TEXT NOT NULL, exit_code INTEGER NOT NULL, signal INTEGER NOT NULL,"
                        " PRIMARY KEY (job_id, generation, rank)) WITHOUT ROWID;"
                        "CREATE TABLE events (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, "
                        "job_id INTEGER NOT NULL,"
                        " generation INTEGER NOT NULL, text TEXT NOT NULL);"
                        "CREATE INDEX events_job ON events (job_id, id);"
                        "CREATE TABLE request_ids (request_id TEXT NOT NULL, uid INTEGER NOT NULL, "
                        "job_id INTEGER NOT"
                        " NULL, PRIMARY KEY (request_id, uid)) WITHOUT ROWID;";

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

/* mkdir -p, where what is made is for us alone. */
static enum status make_dir(const char *dir, struct err *err)
{
    char path[4096];
    size_t length = strlen(dir), i;

    if (length == 0 || length >= sizeof path - 32)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "state directory: a path of %zu bytes, 1 to %zu wanted", length,
                       sizeof path - 33);
    memcpy(path, dir, length + 1);
    for (i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        path[i] = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return err_set(err, STATUS_IO, errno, "state directory %s: cannot make %s: %s", dir,
                           path, strerror(errno));
        if (i < length)
            path[i] = '/';
    }
    return STATUS_OK;
}

/* flock on DIR/lock, which holds our pid for whoever comes second. The kernel drops it with the
 * process, so there is no stale lock. */
static enum status take_lock(struct store *store, const char *dir, struct err *err)
{
    char path[4096 + 8], text[32] = "";
    int length;

    (void)snprintf(path, sizeof path, "%s/lock", dir);
    store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store->lock_fd < 0)
        return err_set(err, STATUS_IO, errno, "state directory %s: cannot open %s: %s", dir, path,
                       strerror(errno));
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return err_set(err, STATUS_IO, errno, "cannot lock %s: %s", path, strerror(errno));
        if (pread(store->lock_fd, text, sizeof text - 1, 0) < 0)
            text[0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        return err_set(
            err, STATUS_BUSY, 0,
            "state directory %s is in use by another rendezvous, pid %s: stop it, or give "
            "another --state-dir",
            dir, text[0] != '\0' ? text : "unknown");
    }
    length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(store->lock_fd, 0) < 0 ||
        pwrite(store->lock_fd, text, (size_t)length, 0) != (ssize_t)length)
        return err_set(err, STATUS_IO, errno, "cannot write %s: %s", path, strerror(errno));
    return STATUS_OK;
}

/* SQLite gives its -wal and -shm files the mode of the file itself, so that one has to be ours
 * first. */
static enum status make_file(struct store *store, const char *dir, struct err *err)
{
    int fd, dir_fd, rc;

    fd = open(store->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot open %s: %s", store->path, strerror(errno));
    rc = fchmod(fd, 0600);
    (void)close(fd);
    if (rc < 0)
        return err_set(err, STATUS_IO, errno, "cannot make %s private: %s", store->path,
                       strerror(errno));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot open %s: %s", dir, strerror(errno));
    rc = fsync(dir_fd); /* the name itself must survive */
    (void)close(dir_fd);
    if (rc < 0)
        return err_set(err, STATUS_IO, errno, "fsync of %s: %s", dir, strerror(errno));
    return STATUS_OK;
}

static enum status execute(struct store *store, const char *sql, struct err *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db), "%s: %s", store->path,
                   sqlite3_errmsg(store->db));
}

static enum status read_number(struct store *store, const char *sql, int64_t *number,
                               struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status status = STATUS_OK;

    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        *number = sqlite3_column_int64(stmt, 0);
    else
        status = err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db),
                         "cannot read %s: %s; move it away to begin anew", store->path,
                         sqlite3_errmsg(store->db));
    (void)sqlite3_finalize(stmt);
    return status;
}

static enum status make_schema(struct store *store, struct err *err)
{
    char text[256], cluster[33];
    uint8_t random[16];
    enum status status;
    size_t i;

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(err, STATUS_SYSTEM, errno, "no random bytes: %s", strerror(errno));
    for (i = 0; i < sizeof random; i++)
        (void)snprintf(cluster + 2 * i, 3, "%02x", random[i]);
    status = execute(store, "BEGIN IMMEDIATE", err);
    if (status == STATUS_OK)
        status = execute(store, schema_sql, err);
    (void)snprintf(text, sizeof text,
                   "INSERT INTO meta VALUES ('cluster', '%s'); PRAGMA application_id = %d; "
                   "PRAGMA user_version = %d; COMMIT",
                   cluster, APPLICATION_ID, STORE_SCHEMA_VERSION);
    if (status == STATUS_OK)
        status = execute(store, text, err);
    return status;
}

/* A file of a newer version, or of another program, is left as it is. */
static enum status check_schema(struct store *store, struct err *err)
{
    int64_t version = 0, application = 0, tables = 0;
    enum status status;

    status = read_number(store, "PRAGMA user_version", &version, err);
    if (status == STATUS_OK)
        status = read_number(store, "PRAGMA application_id", &application, err);
    if (status == STATUS_OK)
        status = read_number(store, "SELECT count(*) FROM sqlite_master", &tables, err);
    if (status != STATUS_OK)
        return status;
    if (tables == 0 && version == 0)
        return make_schema(store, err);
    if (application != APPLICATION_ID)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s is not a state of rendezvous: give another --state-dir", store->path);
    if (version != STORE_SCHEMA_VERSION)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s has schema %" PRId64
                       ", written by a %s rendezvous; this one (" DDP_VERSION
                       ") knows schema %d: use the version that wrote it, or another --state-dir",
                       store->path, version, version > STORE_SCHEMA_VERSION ? "newer" : "different",
                       STORE_SCHEMA_VERSION);
    return STATUS_OK;
}

/* Small caches: the state is small, and rows are found by key. WAL with FULL: a commit is one
 * fdatasync of the log (sqlite.org/pragma.html#pragma_synchronous). */
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
    status = execute(store, "PRAGMA cache_size = -512; PRAGMA trusted_schema = OFF", err);
    if (status == STATUS_OK)
        status = check_schema(store, err);
    if (status == STATUS_OK)
        status = execute(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", err);
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

enum status store_open(struct store **out, const char *dir, struct err *err)
{
    struct store *store;
    enum status status;

    status = make_dir(dir, err);
    if (status != STATUS_OK)
        return status;
    store = calloc(1, sizeof *store);
    if (store == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the state store");
    store->lock_fd = -1;
    (void)snprintf(store->path, sizeof store->path, "%s/state.db", dir);
    status = take_lock(store, dir, err);
    if (status == STATUS_OK)
        status = make_file(store, dir, err);
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
