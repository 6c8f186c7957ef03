/* The state directory: who holds it, the file of the state, its schema. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/store/internal.h"

#define APPLICATION_ID 0x64647031 /* "ddp1": PRAGMA application_id */

#define COLUMN_TYPE_U32 "INTEGER"
#define COLUMN_TYPE_I32 "INTEGER"
#define COLUMN_TYPE_U64 "INTEGER"
#define COLUMN_TYPE_I64 "INTEGER"
#define COLUMN_TYPE_BOOL "INTEGER"
#define COLUMN_TYPE_F64 "REAL"
#define COLUMN_TYPE_STATE "TEXT"
#define COLUMN_TYPE_TEXT "TEXT"
/* clang-format off */
#define COLUMN_DECLARE(kind, field, column, audience, bytes)                                       \
    #column " " COLUMN_TYPE_##kind " NOT NULL,"
/* clang-format on */
#define DRAINS_SQL                                                                                 \
    "CREATE TABLE drains (node TEXT NOT NULL, slot INTEGER NOT NULL, user TEXT NOT NULL,"          \
    " reason TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (node, slot)) WITHOUT ROWID;"
#define PRINCIPALS_SQL                                                                             \
    "CREATE TABLE IF NOT EXISTS principals (name TEXT PRIMARY KEY, role TEXT NOT NULL,"            \
    " created_ms INTEGER NOT NULL, rotated_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL)"         \
    " WITHOUT ROWID;"                                                                              \
    "CREATE TABLE IF NOT EXISTS secrets (principal TEXT NOT NULL, place INTEGER NOT NULL, secret " \
    "BLOB NOT NULL,"                                                                               \
    " until_ms INTEGER NOT NULL, PRIMARY KEY (principal, place)) WITHOUT ROWID;"
#define REQUESTS_SQL                                                                               \
    "CREATE TABLE request_ids (request_id TEXT NOT NULL, user TEXT NOT NULL,"                      \
    " job_id INTEGER NOT NULL, PRIMARY KEY (request_id, user)) WITHOUT ROWID;"
#define RESERVE_SQL "CREATE TABLE reserve (bytes BLOB);" /* see room.c */
/* Version STORE_SCHEMA_VERSION. A change of it needs a step from the version before. */
/* clang-format off */
static const char schema_sql[] =
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE jobs (" RDZV_RECORD_TABLE(COLUMN_DECLARE)
    " parts TEXT NOT NULL, PRIMARY KEY (id));"
    "CREATE INDEX jobs_name ON jobs (name, id);"
    "CREATE INDEX jobs_active ON jobs (id) WHERE state IN"
    " ('queued','starting','running','restarting');"
    "CREATE TABLE specs (job_id INTEGER PRIMARY KEY, cwd TEXT NOT NULL, argv TEXT NOT NULL,"
    " env TEXT NOT NULL);"
    "CREATE TABLE ranks (job_id INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " rank INTEGER NOT NULL, local_rank INTEGER NOT NULL, node TEXT NOT NULL,"
    " slot INTEGER NOT NULL, pid INTEGER NOT NULL, state TEXT NOT NULL,"
    " exit_code INTEGER NOT NULL, signal INTEGER NOT NULL,"
    " PRIMARY KEY (job_id, generation, rank)) WITHOUT ROWID;"
    "CREATE TABLE events (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"
    " job_id INTEGER NOT NULL, generation INTEGER NOT NULL, text TEXT NOT NULL);"
    "CREATE INDEX events_job ON events (job_id, id);"
    REQUESTS_SQL PRINCIPALS_SQL DRAINS_SQL RESERVE_SQL;
/* clang-format on */
/* What makes version i + 2 from version i + 1, in one transaction. */
static const char *const upgrades[STORE_SCHEMA_VERSION - 1] = {
    DRAINS_SQL,
    /* users have names, and keys: a request id belongs to the user of its job */
    "ALTER TABLE request_ids RENAME TO old_request_ids;" REQUESTS_SQL
    "INSERT OR IGNORE INTO request_ids SELECT r.request_id, j.user, r.job_id"
    " FROM old_request_ids r JOIN jobs j ON j.id = r.job_id;"
    "DROP TABLE old_request_ids;" PRINCIPALS_SQL,
    RESERVE_SQL,
};

/* Columns of `jobs`, with what an old row has in a new one. */
struct column {
    const char *name, *declaration;
};
#define COLUMN_ADD(kind, field, column, audience, bytes)                                           \
    {#column, #column " " COLUMN_TYPE_##kind " NOT NULL DEFAULT " COLUMN_EMPTY_##kind},
#define COLUMN_EMPTY_U32 "0"
#define COLUMN_EMPTY_I32 "0"
#define COLUMN_EMPTY_U64 "0"
#define COLUMN_EMPTY_I64 "0"
#define COLUMN_EMPTY_BOOL "0"
#define COLUMN_EMPTY_F64 "0"
#define COLUMN_EMPTY_STATE "'failed'"
#define COLUMN_EMPTY_TEXT "''"
static const struct column columns[] = {RDZV_RECORD_TABLE(COLUMN_ADD)};

/* mkdir -p, where what is made is for us alone. */
enum status store_make_dir(const char *dir, struct err *err)
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

/* Takes flock on DIR/lock. The file contains our pid, which a second process shows in its error. The
 * kernel releases the lock when the process ends, so there is no stale lock. */
enum status store_take_lock(struct store *store, const char *dir, struct err *err)
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

enum status store_execute(struct store *store, const char *sql, struct err *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db), "%s: %s", store->path,
                   sqlite3_errmsg(store->db));
}

enum status store_number(struct store *store, const char *sql, int64_t *number, struct err *err)
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

/* Fills a new database without journal and syncs: it still has its temporary name, and one that is
 * cut short by a crash is made again. Its mode is 0600 before SQLite opens it, because SQLite gives
 * its -wal and -shm files the same mode. */
static enum status fill_new(const char *path, struct err *err)
{
    struct store store = {0};
    char text[256], cluster[33];
    uint8_t random[16];
    enum status status;
    size_t i;

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(err, STATUS_SYSTEM, errno, "no random bytes: %s", strerror(errno));
    for (i = 0; i < sizeof random; i++)
        (void)snprintf(cluster + 2 * i, 3, "%02x", random[i]);
    (void)snprintf(text, sizeof text,
                   "INSERT INTO meta VALUES ('cluster', '%s'); PRAGMA application_id = %d; "
                   "PRAGMA user_version = %d; COMMIT; PRAGMA journal_mode = WAL",
                   cluster, APPLICATION_ID, STORE_SCHEMA_VERSION);
    (void)snprintf(store.path, sizeof store.path, "%.4000s", path); /* for messages */
    if (sqlite3_open_v2(path, &store.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        status = err_set(err, STATUS_IO, sqlite3_extended_errcode(store.db), "cannot open %s: %s",
                         path, sqlite3_errmsg(store.db));
    else
        status = store_execute(
            &store, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; BEGIN", err);
    if (status == STATUS_OK)
        status = store_execute(&store, schema_sql, err);
    if (status == STATUS_OK)
        status = store_execute(&store, text, err);
    (void)sqlite3_close(store.db);
    return status;
}

static enum status sync_path(const char *path, int flags, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    int rc = fd < 0 ? -1 : fsync(fd);

    if (rc < 0)
        (void)err_set(err, STATUS_IO, errno, "fsync of %s: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return rc < 0 ? STATUS_IO : STATUS_OK;
}

/* The log of a database that was removed must not be replayed into the new one. */
static void drop_old_log(const char *path)
{
    static const char *const ends[] = {"-wal", "-shm", "-journal"};
    char old[4200];

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(old, sizeof old, "%s%s", path, ends[i]);
        (void)unlink(old);
    }
}

/* Makes the file atomically: under another name, synced, then renamed. This takes two fsyncs; SQLite
 * with its journal would take a dozen. */
enum status store_make_file(const struct store *store, const char *dir, struct err *err)
{
    char path[sizeof store->path + 8];
    struct stat info;
    enum status status;
    int fd;

    if (stat(store->path, &info) == 0 && info.st_size > 0) {
        if (chmod(store->path, 0600) == 0)
            return STATUS_OK;
        return err_set(err, STATUS_IO, errno, "cannot make %s private: %s", store->path,
                       strerror(errno));
    }
    (void)snprintf(path, sizeof path, "%s.new", store->path);
    (void)unlink(path); /* left by one that was killed here */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot make %s: %s", path, strerror(errno));
    (void)close(fd);
    status = fill_new(path, err);
    if (status == STATUS_OK && store->survives_power)
        status = sync_path(path, 0, err);
    drop_old_log(store->path);
    if (status == STATUS_OK && rename(path, store->path) < 0)
        status = err_set(err, STATUS_IO, errno, "rename to %s: %s", store->path, strerror(errno));
    if (status == STATUS_OK && store->survives_power)
        status = sync_path(dir, O_DIRECTORY, err);
    if (status != STATUS_OK)
        (void)unlink(path);
    return status;
}

/* A file of an older version lacks the columns that the record has got since. */
static enum status add_columns(struct store *store, struct err *err)
{
    enum status status = STATUS_OK;
    int64_t count = 0;
    char sql[256];

    for (size_t i = 0; status == STATUS_OK && i < sizeof columns / sizeof columns[0]; i++) {
        (void)snprintf(sql, sizeof sql,
                       "SELECT count(*) FROM pragma_table_info('jobs') WHERE name = '%s'",
                       columns[i].name);
        status = store_number(store, sql, &count, err);
        if (status != STATUS_OK || count > 0)
            continue;
        (void)snprintf(sql, sizeof sql, "ALTER TABLE jobs ADD COLUMN %s", columns[i].declaration);
        status = store_execute(store, sql, err);
    }
    return status;
}

static enum status upgrade(struct store *store, int64_t version, struct err *err)
{
    enum status status = store_execute(store, "BEGIN IMMEDIATE", err);
    char text[64];

    for (; status == STATUS_OK && version < STORE_SCHEMA_VERSION; version++)
        status = store_execute(store, upgrades[version - 1], err);
    if (status == STATUS_OK)
        status = add_columns(store, err);
    (void)snprintf(text, sizeof text, "PRAGMA user_version = %d; COMMIT", STORE_SCHEMA_VERSION);
    return status == STATUS_OK ? store_execute(store, text, err) : status;
}

/* A file of an earlier version is brought up to this one. A file of a newer version, or of another
 * program, is left as it is. */
enum status store_check_schema(struct store *store, struct err *err)
{
    int64_t version = 0, application = 0;
    enum status status;

    status = store_number(store, "PRAGMA user_version", &version, err);
    if (status == STATUS_OK)
        status = store_number(store, "PRAGMA application_id", &application, err);
    if (status != STATUS_OK)
        return status;
    if (application != APPLICATION_ID)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s is not a state of rendezvous: give another --state-dir", store->path);
    if (version >= 1 && version < STORE_SCHEMA_VERSION)
        return upgrade(store, version, err);
    if (version != STORE_SCHEMA_VERSION)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s has schema %" PRId64
                       ", written by a %s rendezvous; this one (" DDP_VERSION
                       ") knows schema %d: use the version that wrote it, or another --state-dir",
                       store->path, version, version > STORE_SCHEMA_VERSION ? "newer" : "different",
                       STORE_SCHEMA_VERSION);
    return STATUS_OK;
}
