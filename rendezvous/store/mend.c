/* A damaged state.db. SQLite notices that a page is no page of its tree only when it reads it, so the whole file is looked
 * through before it is used (PRAGMA quick_check). The tables in `lossy` have rows of single jobs, and events; all others are
 * needed as a whole. If these can be read, the state is written anew from all that can be read, with indices of its own, and the
 * damaged file stays beside it. Refused: to go on with the damaged file, since the next row may be written into a page of
 * another tree. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/io/conn.h"
#include "common/log.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/rows.h"

#define FAILED_MAX 50000u /* numbers that are looked for one by one in what cannot be read */
#define WHAT_BYTES 120
#define LOOKS 5u /* that find damage */
#define PATH_BYTES 4200
#define MENDED_END ".mended"
#define DAMAGED_END ".damaged"
#define HEAD "*** in database main ***\n" /* of what quick_check says */

/* `key`: the rows of a job or of an event are found by it. */
static const struct {
    const char *name, *key;
} lossy[] = {{"specs", "job_id"}, {"ranks", "job_id"}, {"failures", "job_id"}, {"events", "id"}};

struct range {
    int64_t first, last;
};

static void file_path(const struct store *store, const char *end, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%s%s", store->path, end);
}

/* The number of SQLite's error in a line of quick_check, such as "Page 7: btreeInitPage() returns error code 11"; 0: none. */
static int code_in(const char *line)
{
    const char *at = strstr(line, "error code");

    return at == NULL ? 0 : (int)strtol(at + strlen("error code") + 1, NULL, 10) & 0xff;
}

/* `what`: the first thing that is wrong; empty: nothing is. STATUS_IO: it could not be read, which is no damage. */
static enum status look_through(struct store *store, char what[WHAT_BYTES], struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db, "PRAGMA quick_check(1)", -1, &stmt, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    what[0] = '\0';
    if (rc == SQLITE_ROW && strcmp(store_text(stmt, 0), "ok") != 0) {
        const char *text = store_text(stmt, 0);

        if (strncmp(text, HEAD, strlen(HEAD)) == 0)
            text += strlen(HEAD);
        (void)snprintf(what, WHAT_BYTES, "%.*s", (int)strcspn(text, "\n"), text);
        rc = code_in(what);
    } else if (store_is_damage(rc)) {
        (void)snprintf(what, WHAT_BYTES, "%s", sqlite3_errmsg(store->db));
    }
    (void)sqlite3_finalize(stmt);
    if (what[0] == '\0' && rc == SQLITE_ROW)
        return STATUS_OK;
    if (what[0] != '\0' && (rc == 0 || store_is_damage(rc)))
        return STATUS_OK;
    return err_set(err, STATUS_IO, rc, "cannot read %.120s: %.60s", store->path,
                   what[0] != '\0' ? what : sqlite3_errstr(rc));
}

/* SQLite does not say of each page why it could not get it, so a read that fails a few times only is not taken for damage. */
static enum status look_again(struct store *store, char what[WHAT_BYTES], struct err *err)
{
    enum status status = STATUS_OK;

    what[0] = '?';
    for (uint32_t i = 0; status == STATUS_OK && what[0] != '\0' && i < LOOKS; i++)
        status = look_through(store, what, err);
    return status;
}

/* -- copying ------------------------------------------------------------------------------------- */

static const char *lossy_key(const char *table)
{
    for (size_t i = 0; i < sizeof lossy / sizeof lossy[0]; i++)
        if (strcmp(lossy[i].name, table) == 0)
            return lossy[i].key;
    return NULL;
}

/* What is read, and where it goes. */
struct copy {
    struct store *from, to;
    sqlite3_stmt *select, *insert;
    int column_count;
};

static enum status sql_error(const struct store *store, struct err *err)
{
    return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db), "%.120s: %s", store->path,
                   sqlite3_errmsg(store->db));
}

/* Writes what `select` gives. Its error is left to the caller. STATUS_IO: the new file cannot be written. */
static enum status copy_rows(struct copy *copy, int *rc, struct err *err)
{
    enum status status = STATUS_OK;

    while (status == STATUS_OK && (*rc = sqlite3_step(copy->select)) == SQLITE_ROW) {
        for (int i = 0; i < copy->column_count; i++)
            (void)sqlite3_bind_value(copy->insert, i + 1, sqlite3_column_value(copy->select, i));
        if (sqlite3_step(copy->insert) != SQLITE_DONE)
            status = sql_error(&copy->to, err);
        (void)sqlite3_reset(copy->insert);
    }
    (void)sqlite3_reset(copy->select);
    return status;
}

/* Halves what cannot be read as a whole, and goes on with one half first: the lower, or the upper one. `*failed`: how many
 * could not be read; there is no end of them where the last page is damaged. */
static enum status copy_halves(struct copy *copy, struct range all, bool is_upper_first,
                               uint32_t *failed, struct err *err)
{
    struct range todo[66] = {all}, range;
    enum status status = STATUS_OK;
    uint32_t count = 1;
    int rc = SQLITE_DONE;

    for (*failed = 0; status == STATUS_OK && count > 0 && *failed < FAILED_MAX;) {
        range = todo[--count];
        (void)sqlite3_bind_int64(copy->select, 1, range.first);
        (void)sqlite3_bind_int64(copy->select, 2, range.last);
        status = copy_rows(copy, &rc, err);
        if (status != STATUS_OK || rc == SQLITE_DONE)
            continue;
        if (!store_is_damage(rc))
            return sql_error(copy->from, err);
        ++*failed;
        if (range.first == range.last)
            continue;
        const int64_t middle = range.first + (range.last - range.first) / 2;
        const struct range lower = {range.first, middle}, upper = {middle + 1, range.last};

        todo[count++] = is_upper_first ? lower : upper;
        todo[count++] = is_upper_first ? upper : lower;
    }
    return status;
}

static enum status copy_readable(struct copy *copy, const char *key, struct err *err)
{
    struct range all = {.first = 0, .last = INT64_MAX / 2};
    enum status status = STATUS_OK;
    uint32_t failed = 0;

    if (strcmp(key, "job_id") == 0)
        status =
            store_number(copy->from, "SELECT coalesce(max(id), 0) FROM main.jobs", &all.last, err);
    if (status == STATUS_OK)
        status = copy_halves(copy, all, false, &failed, err);
    if (status == STATUS_OK && failed == FAILED_MAX)
        status = copy_halves(copy, all, true, &failed, err);
    return status;
}

static enum status copy_whole(struct copy *copy, struct err *err)
{
    int rc = SQLITE_DONE;
    const enum status status = copy_rows(copy, &rc, err);

    return status == STATUS_OK && rc != SQLITE_DONE ? sql_error(copy->from, err) : status;
}

/* A whole table is read without an index: that may be what is damaged. */
static enum status prepare(struct copy *copy, const struct rows_table *table, const char *key,
                           struct err *err)
{
    struct buf select = {0}, insert = {0};
    enum status status = STATUS_OK;

    buf_printf(&select, "SELECT %s FROM main.%s", table->columns, table->name);
    if (key == NULL)
        buf_add_text(&select, " NOT INDEXED");
    else
        buf_printf(&select, " WHERE %s BETWEEN ? AND ?", key);
    buf_printf(&insert, "INSERT OR REPLACE INTO %s (%s) VALUES (?", table->name, table->columns);
    for (uint32_t i = 1; i < table->column_count; i++)
        buf_add_text(&insert, ",?");
    buf_add_text(&insert, ")");
    buf_add(&select, "", 1);
    buf_add(&insert, "", 1);
    copy->column_count = (int)table->column_count;
    if (select.failed || insert.failed)
        status = err_set(err, STATUS_MEMORY, 0, "no memory to mend the state");
    else if (sqlite3_prepare_v2(copy->from->db, select.bytes, -1, &copy->select, NULL) != SQLITE_OK)
        status = sql_error(copy->from, err);
    else if (sqlite3_prepare_v2(copy->to.db, insert.bytes, -1, &copy->insert, NULL) != SQLITE_OK)
        status = sql_error(&copy->to, err);
    buf_free(&select);
    buf_free(&insert);
    return status;
}

static enum status copy_tables(struct copy *copy, struct err *err)
{
    struct rows rows = {0};
    enum status status = rows_open(&rows, copy->from->db, err);

    for (uint32_t i = 0; status == STATUS_OK && i < rows.table_count; i++) {
        const char *key = lossy_key(rows.tables[i].name);

        status = prepare(copy, &rows.tables[i], key, err);
        if (status == STATUS_OK)
            status = key == NULL ? copy_whole(copy, err) : copy_readable(copy, key, err);
        (void)sqlite3_finalize(copy->select);
        (void)sqlite3_finalize(copy->insert);
        copy->select = copy->insert = NULL;
    }
    rows_close(&rows);
    return status;
}

/* Numbers of events that may have been given are not given again. */
static enum status add_event(struct copy *copy, struct err *err)
{
    char sql[400];

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO events (id, at_ms, job_id, generation, text) SELECT"
                   " max(coalesce(max(id), 0), %" PRIu64 ") + 1, %" PRId64 ", 0, 0,"
                   " 'state.db was damaged: it was made anew from what can be read (%s" DAMAGED_END
                   " is the old one); jobs whose command is lost fail' FROM events",
                   copy->from->seen.event_id, clock_wall_ms(), "state.db");
    return store_execute(&copy->to, sql, err);
}

/* -- files --------------------------------------------------------------------------------------- */

static enum status make_mended(struct copy *copy, struct err *err)
{
    const struct store_disk *disk = copy->from->disk;
    const char *path = copy->to.path;
    enum status status;

    (void)disk->remove(path); /* left by a process that was killed here */
    if (disk->make(path) < 0)
        return err_set(err, STATUS_IO, errno, "cannot make %.120s: %s", path, strerror(errno));
    status = store_fill_new(path, copy->from, err);
    if (status != STATUS_OK)
        return status;
    if (sqlite3_open_v2(path, &copy->to.db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                        disk->vfs) != SQLITE_OK)
        return sql_error(&copy->to, err);
    return store_execute(&copy->to, "PRAGMA synchronous = OFF; BEGIN", err);
}

/* The log has to be in the file before that gets another name. */
static enum status empty_log(struct store *store, struct err *err)
{
    int left = -1, done = -1;

    if (sqlite3_wal_checkpoint_v2(store->db, "main", SQLITE_CHECKPOINT_TRUNCATE, &left, &done) ==
            SQLITE_OK &&
        left == 0)
        return STATUS_OK;
    return err_set(err, STATUS_IO, sqlite3_extended_errcode(store->db),
                   "cannot copy the log into %.120s: %s", store->path, sqlite3_errmsg(store->db));
}

static enum status sync_path(const struct store *store, const char *path, struct err *err)
{
    if (!store->survives_power || store->disk->sync(path) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_IO, errno, "fsync of %.120s: %s", path, strerror(errno));
}

/* A name for the damaged file that no earlier one has. */
static void free_name(const struct store *store, char path[PATH_BYTES])
{
    char end[32] = DAMAGED_END;

    file_path(store, end, path);
    for (int i = 2; store->disk->byte_count(path) >= 0 && i < 1000; i++) {
        (void)snprintf(end, sizeof end, DAMAGED_END "-%d", i);
        file_path(store, end, path);
    }
}

static enum status take_place(const struct store *store, const char *mended,
                              char damaged[PATH_BYTES], struct err *err)
{
    char dir[PATH_BYTES];
    enum status status = sync_path(store, mended, err);

    free_name(store, damaged);
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(store->path, '/') - store->path),
                   store->path);
    if (status == STATUS_OK && store->disk->rename(store->path, damaged) < 0)
        status = err_set(err, STATUS_IO, errno, "rename to %.120s: %s", damaged, strerror(errno));
    if (status == STATUS_OK && store->disk->rename(mended, store->path) < 0) {
        status =
            err_set(err, STATUS_IO, errno, "rename to %.120s: %s", store->path, strerror(errno));
        (void)store->disk->rename(damaged, store->path);
    }
    return status == STATUS_OK ? sync_path(store, dir, err) : status;
}

/* `*lost`: jobs that have not ended and have no command. */
static enum status fill_mended(struct copy *copy, int64_t *lost, struct err *err)
{
    enum status status = make_mended(copy, err);

    if (status == STATUS_OK)
        status = copy_tables(copy, err);
    if (status == STATUS_OK)
        status = add_event(copy, err);
    if (status == STATUS_OK)
        status = store_number(
            &copy->to,
            "SELECT count(*) FROM jobs WHERE state IN"
            " ('queued','starting','running','restarting') AND coalesce(nullif(array_job, 0), id)"
            " NOT IN (SELECT job_id FROM specs)",
            lost, err);
    if (status == STATUS_OK)
        status = store_execute(&copy->to, "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)", err);
    (void)sqlite3_close(copy->to.db);
    return status;
}

static enum status mend(struct store *store, const char *what, struct err *err)
{
    struct copy copy = {.from = store};
    char damaged[PATH_BYTES];
    int64_t lost = 0;
    enum status status;

    (void)snprintf(copy.to.path, sizeof copy.to.path, "%.4000s" MENDED_END, store->path);
    status = fill_mended(&copy, &lost, err);
    if (status == STATUS_OK)
        status = empty_log(store, err);
    if (status == STATUS_OK) {
        (void)sqlite3_close(store->db);
        store->db = NULL;
        status = take_place(store, copy.to.path, damaged, err);
    }
    if (status != STATUS_OK)
        (void)store->disk->remove(copy.to.path);
    else
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s was damaged (%s): it was made anew from what can be read, and the damaged one "
                 "is %s. The commands of %" PRId64
                 " jobs that wait or run are lost: these fail when they are to start. Events and "
                 "what is shown of ended jobs may be lost, too. Look after its disk",
                 store->path, what, damaged, lost);
    return status;
}

/* If this is not mended, nothing is changed. */
static void keep_log(struct store *store)
{
    char path[PATH_BYTES];

    file_path(store, "-wal", path);
    if (store->disk->byte_count(path) > 0)
        (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

enum status store_mend(struct store *store, struct err *err)
{
    char what[WHAT_BYTES];
    struct err why = {0};
    enum status status;

    if (store->is_new || store->is_wanted_new)
        return STATUS_OK;
    status = look_again(store, what, err);
    if (status != STATUS_OK || what[0] == '\0')
        return status;
    keep_log(store);
    status = mend(store, what, &why);
    if (status != STATUS_OK && store_is_damage(why.code))
        return err_set(
            err, STATUS_IO, why.code,
            "%.90s is damaged, and not only in rows of single jobs: %.50s; move it and its "
            "-wal away, and restore a backup (ddpctl restore)",
            store->path, what);
    if (status != STATUS_OK)
        return err_set(err, STATUS_IO, why.code,
                       "%.90s is damaged (%.40s), and cannot be mended: %.90s", store->path, what,
                       why.text);
    return store_open_file(store, err);
}
