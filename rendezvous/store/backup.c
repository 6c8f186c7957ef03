/* Writing a backup. */
#include "rendezvous/store/backup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/store/backup_file.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"

struct writing {
    struct backup_file *file;
    struct backup_facts *facts;
    struct err *err;
    enum status status;
};

static bool put_row(const struct buf *value, void *context)
{
    struct writing *writing = context;

    writing->facts->row_count++;
    writing->status =
        backup_file_put(writing->file, 'R', value->bytes, value->byte_count, writing->err);
    return writing->status == STATUS_OK;
}

static enum status put_table(struct writing *writing, struct rows *rows, struct rows_table *table)
{
    char text[ROWS_NAME_BYTES_MAX + ROWS_LAYOUT_BYTES_MAX];
    uint64_t before = writing->facts->row_count;
    uint32_t layout = table->layout;

    (void)snprintf(text, sizeof text, "%s %s", table->name, table->columns);
    writing->status = backup_file_put(writing->file, 'T', text, strlen(text), writing->err);
    table->layout = 1;
    if (writing->status == STATUS_OK && !rows_each(rows, table, put_row, writing) &&
        writing->status == STATUS_OK)
        writing->status =
            err_set(writing->err, STATUS_IO, 0, "cannot read table %s: %s%s", table->name,
                    sqlite3_errmsg(rows->db),
                    store_is_damage(sqlite3_errcode(rows->db))
                        ? "; a start of rendezvous mends the state, if it can: restart it first"
                        : "");
    table->layout = layout;
    if (strcmp(table->name, "jobs") == 0)
        writing->facts->job_count = writing->facts->row_count - before;
    return writing->status;
}

static enum status put_all(struct writing *writing, struct rows *rows)
{
    const struct backup_facts *facts = writing->facts;
    char text[200];

    (void)snprintf(
        text, sizeof text, "schema=%d moved=%d made_ms=%" PRId64 " cluster=%s version=%s",
        STORE_SCHEMA_VERSION, facts->is_moved, facts->made_ms, facts->cluster, DDP_VERSION);
    writing->status = backup_file_put(writing->file, 'H', text, strlen(text), writing->err);
    for (uint32_t i = 0; writing->status == STATUS_OK && i < rows->table_count; i++)
        (void)put_table(writing, rows, &rows->tables[i]);
    if (writing->status != STATUS_OK)
        return writing->status;
    (void)snprintf(text, sizeof text, "%" PRIu64, facts->row_count);
    return backup_file_put(writing->file, 'E', text, strlen(text), writing->err);
}

/* Writes all tables as of one moment. */
static enum status write_file(struct rows *rows, const char *path, struct backup_facts *facts,
                              struct err *err)
{
    struct backup_file file;
    struct writing writing = {.file = &file, .facts = facts, .err = err};
    enum status status = backup_file_make(&file, path, err);

    if (status == STATUS_OK)
        status = put_all(&writing, rows);
    if (status == STATUS_OK)
        status = backup_file_finish(&file, err);
    backup_file_close(&file);
    return status;
}

static enum status read_cluster(struct store *store, struct backup_facts *facts, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t marks = 0;
    enum status status;

    if (sqlite3_prepare_v2(store->db, "SELECT value FROM main.meta WHERE name = 'cluster'", -1,
                           &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        (void)snprintf(facts->cluster, sizeof facts->cluster, "%s", store_text(stmt, 0));
    (void)sqlite3_finalize(stmt);
    if (strlen(facts->cluster) != sizeof facts->cluster - 1)
        return err_set(err, STATUS_UNSUPPORTED, 0, "%s has no cluster id", store->path);
    status = store_number(
        store, "SELECT count(*) FROM main.meta WHERE name IN ('moved', 'restoring')", &marks, err);
    if (status == STATUS_OK && marks > 0)
        status = err_set(err, STATUS_UNSUPPORTED, 0,
                         "%s was moved away, or is half of a restored backup: it is not the newest "
                         "state",
                         store->path);
    return status;
}

/* -- from a file -- */

/* Opens the state read-only. Its server may be running: nothing is written to the file, and its log
 * stays. */
static enum status open_reader(struct store *store, struct err *err)
{
    int64_t version = 0;
    enum status status;

    if (access(store->path, R_OK) < 0)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "cannot read %s: %s", store->path, strerror(errno));
    if (sqlite3_open_v2(store->path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                        NULL) != SQLITE_OK)
        return err_set(err, STATUS_IO, 0, "cannot open %s: %s", store->path,
                       sqlite3_errmsg(store->db));
    (void)sqlite3_busy_timeout(store->db, 5000);
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    status = store_execute(store, "PRAGMA query_only = ON; BEGIN", err);
    if (status == STATUS_OK)
        status = store_number(store, "PRAGMA user_version", &version, err);
    if (status == STATUS_OK && version != STORE_SCHEMA_VERSION)
        status = err_set(err, STATUS_UNSUPPORTED, 0,
                         "%s has schema %" PRId64 ", and this rendezvous (" DDP_VERSION
                         ") writes schema %d: use the version that wrote it%s",
                         store->path, version, STORE_SCHEMA_VERSION,
                         version < STORE_SCHEMA_VERSION ? ", or start this one's server on it once"
                                                        : "");
    return status;
}

enum status backup_dir(const char *dir, const char *path, int64_t now_ms,
                       struct backup_facts *facts, struct err *err)
{
    struct store store = {0};
    struct rows rows = {0};
    enum status status;

    *facts = (struct backup_facts){.made_ms = now_ms};
    (void)snprintf(store.path, sizeof store.path, "%.4000s/state.db", dir);
    status = open_reader(&store, err);
    if (status == STATUS_OK)
        status = read_cluster(&store, facts, err);
    if (status == STATUS_OK)
        status = rows_open(&rows, store.db, err);
    if (status == STATUS_OK)
        status = write_file(&rows, path, facts, err);
    rows_close(&rows);
    (void)sqlite3_close(store.db);
    return status;
}

uint64_t backup_jobs_left(const char *dir)
{
    struct store store = {0};
    int64_t marks = 0, jobs = 0;
    struct err err;

    (void)snprintf(store.path, sizeof store.path, "%.4000s/state.db", dir);
    (void)open_reader(&store, &err); /* an earlier version may have jobs, too */
    if (store.db == NULL ||
        store_number(&store, "SELECT count(*) FROM main.meta WHERE name IN ('moved', 'restoring')",
                     &marks, &err) != STATUS_OK ||
        store_number(&store, "SELECT count(*) FROM main.jobs", &jobs, &err) != STATUS_OK)
        jobs = 0;
    (void)sqlite3_close(store.db);
    return marks > 0 || jobs < 0 ? 0 : (uint64_t)jobs;
}

/* -- from etcd -- */

enum status backup_etcd(struct etcd_client *client, const char *prefix, const char *path,
                        int64_t now_ms, struct backup_facts *facts, struct err *err)
{
    struct store_lead lead = {.client = client, .prefix = prefix}; /* revision 0: only to read */
    struct store store = {0};
    struct remote remote = {0};
    enum status status;

    *facts = (struct backup_facts){.made_ms = now_ms};
    (void)snprintf(store.path, sizeof store.path, "the state in etcd under %s", prefix);
    status = store_open_memory(&store, err);
    if (status == STATUS_OK)
        status = remote_open(&remote, store.db, &lead, err);
    if (status == STATUS_OK && remote.is_fresh)
        status = err_set(err, STATUS_NOT_FOUND, 0, "there is no state in etcd under %s", prefix);
    if (status == STATUS_OK)
        status = read_cluster(&store, facts, err);
    if (status == STATUS_OK)
        status = write_file(&remote.rows, path, facts, err);
    remote_close(&remote);
    (void)sqlite3_close(store.db);
    return status;
}

/* -- from an open store, which is unusable afterwards -- */

enum status backup_move(struct store *store, const char *path, int64_t now_ms,
                        struct backup_facts *facts, struct err *err)
{
    struct rows rows = {0};
    char text[128];
    enum status status;

    *facts = (struct backup_facts){.made_ms = now_ms, .is_moved = true};
    store_commit(store);
    status = read_cluster(store, facts, err);
    if (status == STATUS_OK)
        status = rows_open(&rows, store->db, err);
    if (status == STATUS_OK)
        status = write_file(&rows, path, facts, err);
    rows_close(&rows);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(text, sizeof text,
                   "INSERT OR REPLACE INTO main.meta VALUES ('moved', '%" PRId64 "')", now_ms);
    store_begin(store);
    status = store_execute(store, text, err);
    store_commit(store);
    return status;
}
