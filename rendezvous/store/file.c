/* The state's file, its log and its schema. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

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
/* The default of a new column in old rows. */
#define COLUMN_EMPTY_U32 "0"
#define COLUMN_EMPTY_I32 "0"
#define COLUMN_EMPTY_U64 "0"
#define COLUMN_EMPTY_I64 "0"
#define COLUMN_EMPTY_BOOL "0"
#define COLUMN_EMPTY_F64 "0"
#define COLUMN_EMPTY_STATE "'failed'"
#define COLUMN_EMPTY_TEXT "''"
#define COLUMN_EMPTY_LINE "''"
/* clang-format off */
#define COLUMN_DECLARE(kind, field, column, audience, bytes)                                       \
    #column " " COLUMN_TYPE_##kind " NOT NULL DEFAULT " COLUMN_EMPTY_##kind ","
/* clang-format on */
#define DRAINS_SQL                                                                                 \
    "CREATE TABLE drains (node TEXT NOT NULL, slot INTEGER NOT NULL, user TEXT NOT NULL,"          \
    " reason TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (node, slot)) WITHOUT ROWID;"
#define HOLDS_SQL                                                                                  \
    "CREATE TABLE IF NOT EXISTS holds (node TEXT NOT NULL, machine INTEGER NOT NULL, boot "        \
    "INTEGER NOT NULL,"                                                                            \
    " state INTEGER NOT NULL, slot_mask INTEGER NOT NULL, PRIMARY KEY (node)) WITHOUT ROWID;"
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
#define COLUMN_TYPE_LINE "TEXT"
#define FAILURE_COLUMN(kind, name, min, max)                                                       \
    " " #name " " COLUMN_TYPE_##kind " NOT NULL DEFAULT " COLUMN_EMPTY_##kind ","
#define FAILURE_CLASS_COLUMN(name, tag, TABLE) " " #name " TEXT NOT NULL DEFAULT '',"
#define FAILURES_SQL                                                                               \
    "CREATE TABLE failures (job_id INTEGER NOT NULL," PART_FAILURE(                                \
        FAILURE_COLUMN, FAILURE_CLASS_COLUMN, ) " PRIMARY KEY (job_id, generation));"
#define RESERVE_SQL "CREATE TABLE reserve (bytes BLOB);" /* see room.c */
/* Indices on columns that the oldest versions do not have. */
#define LATER_SQL                                                                                  \
    "CREATE INDEX IF NOT EXISTS jobs_array ON jobs (array_job, array_index) WHERE array_job <> 0;"
/* The schema of STORE_SCHEMA_VERSION. A change needs a step in `upgrades`. In pieces, because C
 * limits the length of a string literal. */
/* clang-format off */
static const char *const schema_sql[] = {
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE jobs (" RDZV_RECORD_TABLE(COLUMN_DECLARE)
    " parts TEXT NOT NULL DEFAULT '[]', PRIMARY KEY (id));",
    "CREATE INDEX jobs_name ON jobs (name, id);"
    "CREATE INDEX jobs_active ON jobs (id) WHERE state IN"
    " ('queued','starting','running','restarting');"
    "CREATE TABLE specs (job_id INTEGER PRIMARY KEY, cwd TEXT NOT NULL, argv TEXT NOT NULL,"
    " env TEXT NOT NULL, launch TEXT NOT NULL DEFAULT '{}');"
    "CREATE TABLE ranks (job_id INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " rank INTEGER NOT NULL, local_rank INTEGER NOT NULL, node TEXT NOT NULL,"
    " slot INTEGER NOT NULL, pid INTEGER NOT NULL, state TEXT NOT NULL,"
    " exit_code INTEGER NOT NULL, signal INTEGER NOT NULL,"
    " failed_ms INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (job_id, generation, rank)) WITHOUT ROWID;"
    "CREATE TABLE events (id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"
    " job_id INTEGER NOT NULL, generation INTEGER NOT NULL, text TEXT NOT NULL);"
    "CREATE INDEX events_job ON events (job_id, id);"
    REQUESTS_SQL PRINCIPALS_SQL DRAINS_SQL RESERVE_SQL FAILURES_SQL HOLDS_SQL LATER_SQL};
/* clang-format on */
/* upgrades[i] turns version i + 1 into version i + 2, in one transaction. */
static const char *const upgrades[STORE_SCHEMA_VERSION - 1] = {
    DRAINS_SQL,
    /* users got names and keys: a request id belongs to the user of its job */
    "ALTER TABLE request_ids RENAME TO old_request_ids;" REQUESTS_SQL
    "INSERT OR IGNORE INTO request_ids SELECT r.request_id, j.user, r.job_id"
    " FROM old_request_ids r JOIN jobs j ON j.id = r.job_id;"
    "DROP TABLE old_request_ids;" PRINCIPALS_SQL,
    RESERVE_SQL, "ALTER TABLE ranks ADD COLUMN failed_ms INTEGER NOT NULL DEFAULT 0;" FAILURES_SQL,
    "ALTER TABLE specs ADD COLUMN launch TEXT NOT NULL DEFAULT '{}'", "",
    "",            /* only new columns of jobs, see add_columns */
    HOLDS_SQL, "", /* again only a new column of jobs */
};

/* The columns of `jobs` and `failures`, with the default for old rows. */
struct column {
    const char *table, *name, *declaration;
};
#define COLUMN_ADD(kind, field, column, audience, bytes)                                           \
    {"jobs", #column, #column " " COLUMN_TYPE_##kind " NOT NULL DEFAULT " COLUMN_EMPTY_##kind},
static const struct column columns[] = {
    RDZV_RECORD_TABLE(COLUMN_ADD){"failures", "stacks", "stacks TEXT NOT NULL DEFAULT ''"}};

enum status store_execute(struct store *store, const char *sql, struct err *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    const int code = sqlite3_extended_errcode(store->db);

    return err_set(err, STATUS_IO, code, "%.120s: %.80s%s", store->path, sqlite3_errmsg(store->db),
                   store_is_damage(code) ? "; move it away and restore a backup" : "");
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
                         "cannot read %.120s: %s; move it away and restore a backup", store->path,
                         sqlite3_errmsg(store->db));
    (void)sqlite3_finalize(stmt);
    return status;
}

enum status store_make_tables(struct store *store, struct err *err)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < sizeof schema_sql / sizeof schema_sql[0]; i++)
        status = store_execute(store, schema_sql[i], err);
    return status;
}

enum status store_make_cluster(char cluster[33], struct err *err)
{
    uint8_t random[16];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(err, STATUS_SYSTEM, errno, "no random bytes: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(cluster + 2 * i, 3, "%02x", random[i]);
    return STATUS_OK;
}

/* Fills a new database without journal and syncs. It still has its temporary name, and if a crash
 * interrupts this, it is made again. Free pages are neither zeroed nor written. Its mode is 0600 before SQLite opens it, because SQLite gives
 * its -wal and -shm files the same mode. */
enum status store_fill_new(const char *path, const struct store *like, struct err *err)
{
    struct store store = {.survives_power = like->survives_power};
    char text[256], cluster[33];
    enum status status = store_make_cluster(cluster, err);

    if (status != STATUS_OK)
        return status;
    (void)snprintf(text, sizeof text,
                   "INSERT INTO meta VALUES ('cluster', '%s'); PRAGMA application_id = %d; "
                   "PRAGMA user_version = %d; COMMIT; PRAGMA journal_mode = WAL",
                   cluster, APPLICATION_ID, STORE_SCHEMA_VERSION);
    (void)snprintf(store.path, sizeof store.path, "%.4000s", path); /* for messages */
    if (sqlite3_open_v2(path, &store.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                        like->disk->vfs) != SQLITE_OK)
        status = err_set(err, STATUS_IO, sqlite3_extended_errcode(store.db), "cannot open %s: %s",
                         path, sqlite3_errmsg(store.db));
    else
        status = store_execute(&store,
                               "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;"
                               " PRAGMA secure_delete = OFF; PRAGMA cache_spill = OFF; BEGIN",
                               err);
    if (status == STATUS_OK)
        status = store_make_tables(&store, err);
    if (status == STATUS_OK)
        status = store_room_fill(&store, err);
    if (status == STATUS_OK && like->is_restore)
        status = store_execute(&store, STORE_RESTORING_SQL, err);
    if (status == STATUS_OK)
        status = store_execute(&store, text, err);
    (void)sqlite3_close(store.db);
    return status;
}

static enum status sync_path(const struct store *store, const char *path, struct err *err)
{
    if (store->disk->sync(path) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_IO, errno, "fsync of %s: %s", path, strerror(errno));
}

static const char *const file_ends[] = {"", "-wal", "-shm", "-journal"};

/* What SQLite would write to must be ours. A database that is there, but cannot be opened, is not
 * replaced by a new one. */
static enum status look_at_files(const struct store *store, struct err *err)
{
    char path[sizeof store->path + 16];
    struct err why;
    enum status status;

    for (size_t i = 0; i < sizeof file_ends / sizeof file_ends[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", store->path, file_ends[i]);
        status = store->disk->look(path, &why);
        if (status != STATUS_OK && status != STATUS_NOT_FOUND)
            return err_set(err, status, why.code, "the state is left as it is: %.200s", why.text);
    }
    return STATUS_OK;
}

/* Before a restore makes anything, an empty file says that something was to be restored here. It is removed when
 * state.db is there, which is marked itself. */
static enum status mark_restore(const struct store *store, const char *dir, struct err *err)
{
    char path[sizeof store->path + 16];

    (void)snprintf(path, sizeof path, "%s" STORE_RESTORING_END, store->path);
    if (store->disk->byte_count(path) < 0 && store->disk->make(path) < 0)
        return err_set(err, STATUS_IO, errno, "cannot make %s: %s", path, strerror(errno));
    return sync_path(store, dir, err);
}

static void clear_mark(const struct store *store)
{
    char path[sizeof store->path + 16];

    (void)snprintf(path, sizeof path, "%s" STORE_RESTORING_END, store->path);
    if (store->disk->byte_count(path) >= 0)
        (void)store->disk->remove(path);
}

/* Makes the file atomically: under another name, synced, then renamed. This takes two fsyncs; SQLite
 * with its journal would take a dozen. */
enum status store_make_file(struct store *store, const char *dir, struct err *err)
{
    const struct store_disk *disk = store->disk;
    char path[sizeof store->path + 8];
    enum status status = look_at_files(store, err);

    if (status != STATUS_OK)
        return status;
    store->may_have_holes = true;
    if (disk->byte_count(store->path) > 0) {
        if (disk->make_private(store->path) == 0)
            return STATUS_OK;
        return err_set(err, STATUS_IO, errno, "cannot make %s private: %s", store->path,
                       strerror(errno));
    }
    status = store_check_new(store, dir, err);
    if (status == STATUS_OK && store->is_restore)
        status = mark_restore(store, dir, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(path, sizeof path, "%s.new", store->path);
    (void)disk->remove(path); /* left by a process that was killed here */
    if (disk->make(path) < 0)
        return err_set(err, STATUS_IO, errno, "cannot make %s: %s", path, strerror(errno));
    store->is_new = true;
    status = store_fill_new(path, store, err);
    if (status == STATUS_OK && store->survives_power)
        status = sync_path(store, path, err);
    if (status == STATUS_OK && disk->rename(path, store->path) < 0)
        status = err_set(err, STATUS_IO, errno, "rename to %s: %s", store->path, strerror(errno));
    if (status == STATUS_OK && store->survives_power)
        status = sync_path(store, dir, err);
    if (status != STATUS_OK)
        (void)disk->remove(path);
    else if (store->is_wanted_new)
        clear_mark(store);
    return status;
}

enum status store_rewrite_log(const struct store *store, struct err *err)
{
    char path[sizeof store->path + 8];

    (void)snprintf(path, sizeof path, "%s-wal", store->path);
    if (!store->survives_power || store->disk->byte_count(path) <= 0 ||
        store->disk->rewrite(path) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_IO, errno, "cannot write %s again: %s; mend its disk", path,
                   strerror(errno));
}

/* Adds the columns that a file of an older version lacks. */
static enum status add_columns(struct store *store, struct err *err)
{
    enum status status = STATUS_OK;
    int64_t count = 0;
    char sql[256];

    for (size_t i = 0; status == STATUS_OK && i < sizeof columns / sizeof columns[0]; i++) {
        (void)snprintf(sql, sizeof sql,
                       "SELECT count(*) FROM pragma_table_info('%s') WHERE name = '%s'",
                       columns[i].table, columns[i].name);
        status = store_number(store, sql, &count, err);
        if (status != STATUS_OK || count > 0)
            continue;
        (void)snprintf(sql, sizeof sql, "ALTER TABLE %s ADD COLUMN %s", columns[i].table,
                       columns[i].declaration);
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
    if (status == STATUS_OK)
        status = store_execute(store, LATER_SQL, err);
    (void)snprintf(text, sizeof text, "PRAGMA user_version = %d; COMMIT", STORE_SCHEMA_VERSION);
    return status == STATUS_OK ? store_execute(store, text, err) : status;
}

/* Upgrades a file of an earlier version. A file of a newer version or of another program is not
 * changed. */
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
