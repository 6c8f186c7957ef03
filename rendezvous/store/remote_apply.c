/* Applies changes in etcd to the copy of the rows: changes of other servers, or those that this
 * server made for a leader that is gone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/remote_internal.h"

/* What follows `name` in the key; NULL: the key does not begin with it. */
static const char *behind(const struct remote *remote, struct etcd_bytes key, const char *name,
                          size_t *byte_count)
{
    size_t prefix_bytes = strlen(remote->lead.prefix), name_bytes = strlen(name);

    if (key.byte_count < prefix_bytes + name_bytes ||
        memcmp(key.bytes, remote->lead.prefix, prefix_bytes) != 0 ||
        memcmp(key.bytes + prefix_bytes, name, name_bytes) != 0)
        return NULL;
    *byte_count = key.byte_count - prefix_bytes - name_bytes;
    return key.bytes + prefix_bytes + name_bytes;
}

/* Key "TABLE/N": a layout that is not known yet. */
static enum status apply_layout(struct remote *remote, const char *name, size_t byte_count,
                                struct etcd_bytes value, struct err *err)
{
    char text[ROWS_NAME_BYTES_MAX + 16], columns[ROWS_LAYOUT_BYTES_MAX];
    size_t table_bytes;
    struct rows_table *table;
    uint32_t id;

    (void)snprintf(text, sizeof text, "%.*s", (int)byte_count, name);
    (void)snprintf(columns, sizeof columns, "%.*s", (int)value.byte_count, value.bytes);
    table_bytes = strcspn(text, "/");
    table = rows_find(&remote->rows, text, table_bytes);
    id = text[table_bytes] == '/' ? (uint32_t)strtoul(text + table_bytes + 1, NULL, 10) : 0;
    if (table == NULL || id == 0 || value.byte_count >= sizeof columns)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "the state in etcd has columns, %.60s, which this rendezvous (" DDP_VERSION
                       ") does not know: use the version that wrote it",
                       text);
    for (uint32_t i = 0; i < table->layout_count; i++)
        if (table->layouts[i].id == id)
            return STATUS_OK;
    return rows_add_layout(table, &remote->rows, id, columns, err);
}

static enum status apply_format(struct etcd_bytes value, struct err *err)
{
    char text[32], *end, *last;
    long format, schema;

    (void)snprintf(text, sizeof text, "%.*s", (int)value.byte_count, value.bytes);
    format = strtol(text, &end, 10); /* "FORMAT SCHEMA"; a number that is too large is LONG_MAX */
    schema = strtol(end, &last, 10);
    if (end != text && last != end && format <= REMOTE_FORMAT && schema <= STORE_SCHEMA_VERSION)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "the state in etcd has the format %.20s, which this rendezvous (" DDP_VERSION
                   ") does not know: use the version that wrote it",
                   text);
}

/* Applies one change in one of two rounds. `is_rows` false: layouts, which say how to read rows;
 * true: rows. */
static enum status apply_one(struct remote *remote, bool is_rows, struct etcd_bytes key,
                             struct etcd_bytes value, bool is_removed, struct err *err)
{
    size_t byte_count;
    const char *name;

    if (is_rows) {
        name = behind(remote, key, "rows/", &byte_count);
        return name == NULL ? STATUS_OK
                            : rows_apply(&remote->rows, name, byte_count,
                                         is_removed ? NULL : value.bytes, value.byte_count, err);
    }
    name = is_removed ? NULL : behind(remote, key, "layout/", &byte_count);
    if (name != NULL)
        return apply_layout(remote, name, byte_count, value, err);
    name = is_removed ? NULL : behind(remote, key, "format", &byte_count);
    return name != NULL && byte_count == 0 ? apply_format(value, err) : STATUS_OK;
}

static enum status begin_or_end(struct remote *remote, const char *sql, struct err *err)
{
    if (sqlite3_exec(remote->rows.db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    return err_set(err, STATUS_IO, 0, "SQLite: %s", sqlite3_errmsg(remote->rows.db));
}

static enum status apply(struct remote *remote, const struct etcd_answer *changes, bool is_rows,
                         struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < changes->row_count; i++) {
        const struct etcd_row *row = &changes->rows[i];
        size_t more = 1;

        if (!is_rows && !row->is_removed && behind(remote, row->key, "seq", &more) != NULL &&
            more == 0 && !remote_take_point(&remote->point, row))
            status = err_set(err, STATUS_UNSUPPORTED, 0, "a commit in etcd has no number");
        if (status != STATUS_OK)
            break;
        status = apply_one(remote, is_rows, row->key, row->value, row->is_removed, err);
        if (row->modified > remote->revision)
            remote->revision = row->modified;
    }
    return status;
}

enum status remote_apply(struct remote *remote, const struct etcd_answer *changes, struct err *err)
{
    enum status status = begin_or_end(remote, "BEGIN", err);

    if (status == STATUS_OK)
        status = apply(remote, changes, false, err);
    if (status == STATUS_OK)
        status = apply(remote, changes, true, err);
    return status == STATUS_OK ? begin_or_end(remote, "COMMIT", err) : status;
}

enum status remote_apply_ops(struct remote *remote, struct err *err)
{
    enum status status = begin_or_end(remote, "BEGIN", err);

    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; status == STATUS_OK && i < remote->op_count; i++) {
            struct etcd_op op = remote_etcd_op(remote, &remote->ops[i]);

            status = apply_one(remote, pass == 1, op.key, op.value, op.kind == ETCD_DELETE, err);
        }
    return status == STATUS_OK ? begin_or_end(remote, "COMMIT", err) : status;
}
