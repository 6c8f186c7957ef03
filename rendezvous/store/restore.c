/* Restoring a backup. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/backup.h"
#include "rendezvous/store/backup_file.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/rows.h"
#include "rendezvous/store/seen.h"

#define LAYOUT 1
#define COMMIT_BYTES (2u << 20) /* of rows in one transaction */

struct restoring {
    struct store *store;
    struct backup_file file;
    struct backup_facts *facts;
    struct rows rows;
    struct rows_table *table;
    size_t uncommitted_bytes;
    struct err *err;
};

/* -- what the file says about itself -- */

static const char *find_fact(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at != NULL && (at == text || at[-1] == ' ') ? at + strlen(name) : "";
}

static enum status take_head(struct restoring *restoring)
{
    const char *text = restoring->file.part.bytes;
    struct backup_facts *facts = restoring->facts;
    const long schema = strtol(find_fact(text, "schema="), NULL, 10);

    if (restoring->file.tag != 'H' || schema < 1)
        return err_set(restoring->err, STATUS_BAD_INPUT, 0, "%s does not say what it is",
                       restoring->file.path);
    if (schema > STORE_SCHEMA_VERSION)
        return err_set(restoring->err, STATUS_UNSUPPORTED, 0,
                       "%s has schema %ld, written by a newer rendezvous (%.20s); this one "
                       "(" DDP_VERSION ") knows schema %d",
                       restoring->file.path, schema, find_fact(text, "version="),
                       STORE_SCHEMA_VERSION);
    facts->was_moved = strtol(find_fact(text, "moved="), NULL, 10) != 0;
    facts->is_moved = facts->was_moved;
    facts->made_ms = strtoll(find_fact(text, "made_ms="), NULL, 10);
    (void)snprintf(facts->cluster, sizeof facts->cluster, "%.32s", find_fact(text, "cluster="));
    if (strlen(facts->cluster) != 32 || strspn(facts->cluster, "0123456789abcdef") != 32)
        return err_set(restoring->err, STATUS_BAD_INPUT, 0, "%s has no good cluster id",
                       restoring->file.path);
    return STATUS_OK;
}

/* -- the target store -- */

enum status backup_check_new(struct store *store, struct err *err)
{
    int64_t count = 0;
    enum status status = store_number(
        store,
        "SELECT (SELECT count(*) FROM main.jobs) + (SELECT count(*) FROM main.events) +"
        " (SELECT count(*) FROM main.principals) + (SELECT count(*) FROM main.drains) +"
        " (SELECT count(*) FROM main.request_ids)",
        &count, err);

    if (status == STATUS_OK && count > 0)
        status = err_set(err, STATUS_CONFLICT, 0,
                         "%s has jobs, events or keys already, and nothing of it is overwritten: "
                         "restore into a new one",
                         store->path);
    return status;
}

static enum status execute(struct restoring *restoring, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum status execute(struct restoring *restoring, const char *format, ...)
{
    char sql[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    store_begin(restoring->store);
    return store_execute(restoring->store, sql, restoring->err);
}

/* -- rows -- */

static enum status take_table(struct restoring *restoring)
{
    const char *text = restoring->file.part.bytes;
    size_t name_bytes = strcspn(text, " ");

    restoring->table = rows_find(&restoring->rows, text, name_bytes);
    if (restoring->table == NULL)
        return err_set(restoring->err, STATUS_UNSUPPORTED, 0,
                       "%s has a table, %.40s, which this rendezvous (" DDP_VERSION
                       ") does not know",
                       restoring->file.path, text);
    if (restoring->table->layout_count > 0 || text[name_bytes] == '\0')
        return err_set(restoring->err, STATUS_BAD_INPUT, 0, "%s has table %.40s twice",
                       restoring->file.path, text);
    return rows_add_layout(restoring->table, &restoring->rows, LAYOUT, text + name_bytes + 1,
                           restoring->err);
}

static enum status take_row(struct restoring *restoring)
{
    const struct buf *part = &restoring->file.part;
    enum status status;

    if (restoring->table == NULL)
        return err_set(restoring->err, STATUS_BAD_INPUT, 0, "%s has a row without a table",
                       restoring->file.path);
    restoring->facts->row_count++;
    restoring->facts->job_count += strcmp(restoring->table->name, "jobs") == 0;
    store_begin(restoring->store);
    status = rows_load(&restoring->rows, restoring->table, part->bytes, part->byte_count,
                       restoring->err);
    restoring->uncommitted_bytes += part->byte_count;
    if (status == STATUS_OK && restoring->uncommitted_bytes > COMMIT_BYTES) {
        store_commit(restoring->store);
        restoring->uncommitted_bytes = 0;
    }
    return status;
}

static enum status take_parts(struct restoring *restoring)
{
    enum status status = STATUS_OK;

    while (status == STATUS_OK) {
        status = backup_file_next(&restoring->file, restoring->err);
        if (status != STATUS_OK || restoring->file.tag == '\0')
            return status;
        if (restoring->file.tag == 'T')
            status = take_table(restoring);
        else if (restoring->file.tag == 'R')
            status = take_row(restoring);
        else if (restoring->file.tag != 'E' ||
                 strtoull(restoring->file.part.bytes, NULL, 10) != restoring->facts->row_count)
            status = err_set(restoring->err, STATUS_BAD_INPUT, 0,
                             "%s does not have the rows that it counts", restoring->file.path);
    }
    return status;
}

/* -- adapting the state to this store -- */

/* For a copy: keeps the new store's own cluster id. */
static enum status leave_gap(struct restoring *restoring, int64_t now_ms)
{
    const struct backup_facts *facts = restoring->facts;
    char event[160];
    const struct store_gap gap = {.cluster = store_cluster(restoring->store),
                                  .now_ms = now_ms,
                                  .job_id = restoring->store->known.job_id,
                                  .event_id = restoring->store->known.event_id,
                                  .event_sql = event};

    (void)snprintf(event, sizeof event,
                   "'restored from a backup of ' || datetime(%" PRId64
                   " / 1000, 'unixepoch') || ' UTC, of cluster %s'",
                   facts->made_ms, facts->cluster);
    store_begin(restoring->store);
    return store_leave_gap(restoring->store, &gap, restoring->err);
}

/* A state that was moved keeps its cluster id, but begins its commits anew (seen.h). */
static enum status begin_history(struct restoring *restoring)
{
    const struct seen *known = &restoring->store->known;

    store_begin(restoring->store);
    return store_begin_history(restoring->store, known->cluster[0] != '\0' ? known : NULL,
                               restoring->err);
}

/* All rows are there. If this is interrupted now, the file is used, and the next restore of it is one of a copy. */
static bool is_moved_here(struct restoring *restoring)
{
    struct backup_facts *facts = restoring->facts;

    if (facts->was_moved)
        facts->is_moved =
            backup_file_use(&restoring->file, facts->why_copy, sizeof facts->why_copy);
    return facts->is_moved;
}

/* The mark is there before anything else, and is removed by a commit of its own, when all is durable. */
static enum status load(struct restoring *restoring, int64_t now_ms)
{
    enum status status = rows_open(&restoring->rows, restoring->store->db, restoring->err);

    if (status == STATUS_OK)
        status = execute(restoring, STORE_RESTORING_SQL);
    store_commit(restoring->store);
    if (status == STATUS_OK)
        status = take_parts(restoring);
    if (status == STATUS_OK)
        status = begin_history(restoring);
    if (status == STATUS_OK && !is_moved_here(restoring))
        status = leave_gap(restoring, now_ms);
    store_commit(restoring->store);
    if (status == STATUS_OK)
        status = execute(restoring, "DELETE FROM main.meta WHERE name = 'restoring'");
    store_commit(restoring->store);
    rows_close(&restoring->rows);
    return status;
}

enum status backup_check(const char *path, struct backup_facts *facts, struct err *err)
{
    struct restoring restoring = {.facts = facts, .err = err};
    enum status status;

    *facts = (struct backup_facts){0};
    status = backup_file_open(&restoring.file, path, false, err);
    if (status == STATUS_OK)
        status = backup_file_next(&restoring.file, err);
    if (status == STATUS_OK)
        status = take_head(&restoring);
    backup_file_close(&restoring.file);
    return status;
}

enum status backup_restore(struct store *store, const char *path, int64_t now_ms,
                           struct backup_facts *facts, struct err *err)
{
    struct restoring restoring = {.store = store, .facts = facts, .err = err};
    enum status status;

    *facts = (struct backup_facts){0};
    status = backup_check_new(store, err);
    if (status == STATUS_OK)
        status = backup_file_open(&restoring.file, path, true, err);
    if (status == STATUS_OK)
        status = backup_file_next(&restoring.file, err);
    if (status == STATUS_OK)
        status = take_head(&restoring);
    if (status == STATUS_OK)
        status = load(&restoring, now_ms);
    backup_file_close(&restoring.file);
    return status;
}
