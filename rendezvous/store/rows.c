#include "rendezvous/store/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/row_code.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_"
#define SQL_BYTES_MAX (2 * ROWS_LAYOUT_BYTES_MAX)

/* Tables with many small rows that are written together. */
static const struct {
    const char *name;
    uint32_t shift;
} shared[] = {{"ranks", 6}, {"events", 4}};

static enum status fail(const struct rows *rows, struct err *err)
{
    return err_set(err, STATUS_IO, sqlite3_extended_errcode(rows->db),
                   "the tables of the state: %s", sqlite3_errmsg(rows->db));
}

/* -- which tables there are -- */

static bool is_name(const char *name)
{
    size_t length = name != NULL ? strlen(name) : 0;

    return length > 0 && length < ROWS_NAME_BYTES_MAX && strspn(name, NAME_CHARS) == length;
}

/* Takes one column, in order of number. `pk` is its position in the primary key, from 1. */
static bool take_column(struct rows_table *table, const char *name, const char *type, int pk)
{
    size_t at = strlen(table->columns);

    if (!is_name(name) || table->column_count == ROWS_COLUMNS_MAX || pk > (int)ROWS_KEYS_MAX)
        return false;
    (void)snprintf(table->columns + at, sizeof table->columns - at, "%s%s", at > 0 ? "," : "",
                   name);
    table->column_count++;
    if (pk == 0)
        return true;
    (void)snprintf(table->keys[pk - 1], ROWS_NAME_BYTES_MAX, "%s", name);
    table->is_text[pk - 1] = strcmp(type, "TEXT") == 0;
    if ((uint32_t)pk > table->key_count)
        table->key_count = (uint32_t)pk;
    return true;
}

static enum status read_table(struct rows *rows, const char *name, struct err *err)
{
    struct rows_table *table = &rows->tables[rows->table_count];
    sqlite3_stmt *stmt = NULL;
    bool is_good = is_name(name) && rows->table_count < ROWS_TABLES_MAX;
    int rc = SQLITE_DONE;

    if (!is_good)
        return err_set(err, STATUS_UNSUPPORTED, 0, "the state has a table that is not ours");
    (void)snprintf(table->name, sizeof table->name, "%s", name);
    if (sqlite3_prepare_v2(rows->db, "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid",
                           -1, &stmt, NULL) != SQLITE_OK)
        return fail(rows, err);
    (void)sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    while (is_good && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
        is_good =
            take_column(table, (const char *)sqlite3_column_text(stmt, 0),
                        (const char *)sqlite3_column_text(stmt, 1), sqlite3_column_int(stmt, 2));
    (void)sqlite3_finalize(stmt);
    if (!is_good)
        return err_set(err, STATUS_UNSUPPORTED, 0, "table %s of the state is not ours", name);
    if (rc != SQLITE_DONE)
        return fail(rows, err);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        if (strcmp(shared[i].name, name) == 0)
            table->shift = shared[i].shift;
    if (table->key_count > 0)
        rows->table_count++;
    else
        memset(table, 0, sizeof *table);
    return STATUS_OK;
}

enum status rows_open(struct rows *rows, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    enum status status = STATUS_OK;
    int rc = SQLITE_DONE;

    *rows = (struct rows){.db = db, .tables = calloc(ROWS_TABLES_MAX, sizeof *rows->tables)};
    if (rows->tables == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the tables of the state");
    if (sqlite3_prepare_v2(db,
                           "SELECT name FROM main.sqlite_schema WHERE type = 'table'"
                           " AND name NOT LIKE 'sqlite%' ORDER BY name",
                           -1, &stmt, NULL) != SQLITE_OK)
        return fail(rows, err);
    while (status == STATUS_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
        status = read_table(rows, (const char *)sqlite3_column_text(stmt, 0), err);
    if (status == STATUS_OK && rc != SQLITE_DONE)
        status = fail(rows, err); /* else the tables that are left out would look like none */
    (void)sqlite3_finalize(stmt);
    return status;
}

void rows_drop_layouts(struct rows *rows)
{
    for (uint32_t i = 0; i < rows->table_count; i++) {
        struct rows_table *table = &rows->tables[i];

        while (table->layout_count > 0)
            (void)sqlite3_finalize(table->layouts[--table->layout_count].insert);
    }
}

void rows_close(struct rows *rows)
{
    rows_drop_layouts(rows);
    for (uint32_t i = 0; i < rows->table_count; i++) {
        struct rows_table *table = &rows->tables[i];

        (void)sqlite3_finalize(table->changed);
        (void)sqlite3_finalize(table->forget);
        (void)sqlite3_finalize(table->group);
        (void)sqlite3_finalize(table->all);
        (void)sqlite3_finalize(table->remove);
    }
    free(rows->tables);
    *rows = (struct rows){0};
}

struct rows_table *rows_find(struct rows *rows, const char *name, size_t byte_count)
{
    for (uint32_t i = 0; i < rows->table_count; i++)
        if (strlen(rows->tables[i].name) == byte_count &&
            memcmp(rows->tables[i].name, name, byte_count) == 0)
            return &rows->tables[i];
    return NULL;
}

/* -- what was written -- */

/* Adds the SQL of a value's key, such as "NEW.job_id,NEW.rank>>6". */
static void add_key(struct buf *sql, const struct rows_table *table, const char *row)
{
    for (uint32_t i = 0; i < table->key_count; i++) {
        buf_printf(sql, "%s%s%s", i > 0 ? "," : "", row, table->keys[i]);
        if (i + 1 == table->key_count && !table->is_text[i])
            buf_printf(sql, ">>%u", table->shift);
    }
}

static void add_names(struct buf *sql, const struct rows_table *table)
{
    for (uint32_t i = 0; i < table->key_count; i++)
        buf_printf(sql, "%s%s", i > 0 ? "," : "", table->keys[i]);
}

static void add_trigger(struct buf *sql, const struct rows_table *table, const char *event,
                        const char *row)
{
    buf_printf(sql,
               "CREATE TEMP TRIGGER %s_%s_%.3s AFTER %s ON main.%s BEGIN"
               " INSERT OR IGNORE INTO changed_%s VALUES (",
               table->name, event, row, event, table->name, table->name);
    add_key(sql, table, row);
    buf_add_text(sql, "); END;");
}

/* Runs what is in `sql`, or prepares it, and frees it. */
static enum status finish(struct rows *rows, struct buf *sql, sqlite3_stmt **stmt, struct err *err)
{
    enum status status = STATUS_OK;

    buf_add(sql, "", 1);
    if (sql->failed)
        status = err_set(err, STATUS_MEMORY, 0, "no memory for the tables of the state");
    else if ((stmt == NULL ? sqlite3_exec(rows->db, sql->bytes, NULL, NULL, NULL)
                           : sqlite3_prepare_v3(rows->db, sql->bytes, -1, SQLITE_PREPARE_PERSISTENT,
                                                stmt, NULL)) != SQLITE_OK)
        status = fail(rows, err);
    buf_free(sql);
    return status;
}

/* Uses triggers, since sqlite3_update_hook reports nothing for tables without rowid. */
static enum status watch_table(struct rows *rows, struct rows_table *table, struct err *err)
{
    const char *last = table->keys[table->key_count - 1];
    struct buf sql = {0};
    enum status status;

    buf_printf(&sql, "CREATE TEMP TABLE changed_%s (", table->name);
    add_names(&sql, table);
    buf_add_text(&sql, ", PRIMARY KEY (");
    add_names(&sql, table);
    buf_add_text(&sql, ")) WITHOUT ROWID;");
    add_trigger(&sql, table, "INSERT", "NEW.");
    add_trigger(&sql, table, "UPDATE", "NEW.");
    add_trigger(&sql, table, "UPDATE", "OLD.");
    add_trigger(&sql, table, "DELETE", "OLD.");
    status = finish(rows, &sql, NULL, err);
    if (status == STATUS_OK) {
        buf_add_text(&sql, "SELECT ");
        add_names(&sql, table);
        buf_printf(&sql, " FROM temp.changed_%s", table->name);
        status = finish(rows, &sql, &table->changed, err);
    }
    if (status == STATUS_OK) {
        buf_printf(&sql, "DELETE FROM temp.changed_%s", table->name);
        status = finish(rows, &sql, &table->forget, err);
    }
    if (status != STATUS_OK)
        return status;
    buf_printf(&sql, "SELECT %s FROM main.%s WHERE ", table->columns, table->name);
    for (uint32_t i = 0; i + 1 < table->key_count; i++)
        buf_printf(&sql, "%s = ?%u AND ", table->keys[i], i + 1);
    if (table->is_text[table->key_count - 1])
        buf_printf(&sql, "%s = ?%u", last, table->key_count);
    else
        buf_printf(&sql, "%s >= ?%u << %u AND %s < (?%u + 1) << %u ORDER BY %s", last,
                   table->key_count, table->shift, last, table->key_count, table->shift, last);
    return finish(rows, &sql, &table->group, err);
}

enum status rows_watch(struct rows *rows, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < rows->table_count; i++)
        status = watch_table(rows, &rows->tables[i], err);
    return status;
}

enum status rows_mark_all(struct rows *rows, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < rows->table_count; i++) {
        const struct rows_table *table = &rows->tables[i];
        struct buf sql = {0};

        buf_printf(&sql, "INSERT OR IGNORE INTO temp.changed_%s SELECT DISTINCT ", table->name);
        add_key(&sql, table, "");
        buf_printf(&sql, " FROM main.%s", table->name);
        status = finish(rows, &sql, NULL, err);
    }
    return status;
}

/* -- keys and values -- */

static void put_column(struct buf *out, sqlite3_stmt *stmt, int column)
{
    struct row_value value = {.kind = ROW_NULL};

    switch (sqlite3_column_type(stmt, column)) {
    case SQLITE_INTEGER:
        value.kind = ROW_INTEGER;
        value.integer = sqlite3_column_int64(stmt, column);
        break;
    case SQLITE_FLOAT:
        value.kind = ROW_REAL;
        value.real = sqlite3_column_double(stmt, column);
        break;
    case SQLITE_TEXT:
        value.kind = ROW_TEXT;
        value.bytes = (const char *)sqlite3_column_text(stmt, column);
        break;
    case SQLITE_BLOB:
        value.kind = ROW_BLOB;
        value.bytes = sqlite3_column_blob(stmt, column);
        break;
    }
    value.byte_count = value.kind == ROW_TEXT || value.kind == ROW_BLOB
                           ? (size_t)sqlite3_column_bytes(stmt, column)
                           : 0;
    row_put(out, &value);
}

/* Makes keys such as "jobs/0000000000000001" and "request_ids/1f3a/alice". Numbers have a fixed
 * width, so that keys sort like numbers. In texts everything but letters, digits and . - _ is
 * escaped. */
static void make_key(const struct rows_table *table, sqlite3_stmt *stmt, struct buf *out)
{
    buf_add_text(out, table->name);
    for (uint32_t i = 0; i < table->key_count; i++) {
        const char *text;

        if (sqlite3_column_type(stmt, (int)i) == SQLITE_INTEGER) {
            buf_printf(out, "/%016" PRIx64, (uint64_t)sqlite3_column_int64(stmt, (int)i));
            continue;
        }
        text = (const char *)sqlite3_column_text(stmt, (int)i);
        buf_add_text(out, "/");
        for (; text != NULL && *text != '\0'; text++) {
            unsigned char c = (unsigned char)*text;

            if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ" NAME_CHARS ".-", c) != NULL)
                buf_add(out, text, 1);
            else
                buf_printf(out, "%%%02x", c);
        }
    }
    buf_add(out, "", 1);
}

static void put_row(struct buf *out, const struct rows_table *table, sqlite3_stmt *stmt)
{
    for (uint32_t i = 0; i < table->column_count; i++)
        put_column(out, stmt, (int)i);
}

/* Encodes the rows of the key at which `changed` stands. False: SQLite's error, or no memory. */
static bool read_group(struct rows_table *table, struct buf *value, uint32_t *row_count)
{
    sqlite3_stmt *stmt = table->group;
    int rc;

    value->byte_count = 0;
    *row_count = 0;
    for (uint32_t i = 0; i < table->key_count; i++)
        (void)sqlite3_bind_value(stmt, (int)i + 1, sqlite3_column_value(table->changed, (int)i));
    row_put_number(value, table->layout);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        put_row(value, table, stmt);
        (*row_count)++;
    }
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return rc == SQLITE_DONE && !value->failed;
}

bool rows_changed(struct rows *rows, rows_on_key *on_key, void *context)
{
    struct buf key = {0}, value = {0};
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < rows->table_count; i++) {
        struct rows_table *table = &rows->tables[i];
        int rc = SQLITE_DONE;

        while (is_good && (rc = sqlite3_step(table->changed)) == SQLITE_ROW) {
            uint32_t row_count;

            key.byte_count = 0;
            make_key(table, table->changed, &key);
            is_good = !key.failed && read_group(table, &value, &row_count) &&
                      on_key(key.bytes, row_count > 0 ? &value : NULL, context);
        }
        (void)sqlite3_reset(table->changed);
        is_good = is_good && rc == SQLITE_DONE;
    }
    buf_free(&key);
    buf_free(&value);
    return is_good;
}

bool rows_forget(struct rows *rows)
{
    bool is_good = true;

    for (uint32_t i = 0; i < rows->table_count; i++) {
        is_good = sqlite3_step(rows->tables[i].forget) == SQLITE_DONE && is_good;
        (void)sqlite3_reset(rows->tables[i].forget);
    }
    return is_good;
}

/* -- reading values -- */

static bool has_column(const struct rows_table *table, const char *name, size_t byte_count)
{
    const char *at = table->columns;

    for (;;) {
        size_t length = strcspn(at, ",");

        if (length == byte_count && memcmp(at, name, length) == 0)
            return true;
        if (at[length] == '\0')
            return false;
        at += length + 1;
    }
}

enum status rows_add_layout(struct rows_table *table, struct rows *rows, uint32_t id,
                            const char *columns, struct err *err)
{
    struct rows_layout *layout = &table->layouts[table->layout_count];
    struct buf sql = {0};
    const char *at = columns;

    if (table->layout_count == ROWS_LAYOUTS_MAX || strlen(columns) >= ROWS_LAYOUT_BYTES_MAX)
        return err_set(err, STATUS_UNSUPPORTED, 0, "table %s has too many kinds of rows",
                       table->name);
    *layout = (struct rows_layout){.id = id, .is_whole = strcmp(columns, table->columns) == 0};
    for (;;) {
        size_t length = strcspn(at, ",");

        if (!has_column(table, at, length))
            return err_set(err, STATUS_UNSUPPORTED, 0,
                           "table %s has the column %.*s, which this rendezvous (" DDP_VERSION
                           ") does not know: use the version that wrote it",
                           table->name, (int)(length < 48 ? length : 48), at);
        layout->column_count++;
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    buf_printf(&sql, "INSERT OR REPLACE INTO main.%s (%s) VALUES (?", table->name, columns);
    for (uint32_t i = 1; i < layout->column_count; i++)
        buf_add_text(&sql, ",?");
    buf_add_text(&sql, ")");
    table->layout_count++;
    return finish(rows, &sql, &layout->insert, err);
}

static void bind(sqlite3_stmt *stmt, int column, const struct row_value *value)
{
    switch (value->kind) {
    case ROW_NULL:
        (void)sqlite3_bind_null(stmt, column);
        break;
    case ROW_INTEGER:
        (void)sqlite3_bind_int64(stmt, column, value->integer);
        break;
    case ROW_REAL:
        (void)sqlite3_bind_double(stmt, column, value->real);
        break;
    case ROW_TEXT:
        (void)sqlite3_bind_text(stmt, column, value->bytes, (int)value->byte_count, SQLITE_STATIC);
        break;
    case ROW_BLOB:
        (void)sqlite3_bind_blob(stmt, column, value->byte_count > 0 ? value->bytes : "",
                                (int)value->byte_count, SQLITE_STATIC);
        break;
    }
}

static const struct rows_layout *find_layout(const struct rows_table *table, uint64_t id)
{
    for (uint32_t i = 0; i < table->layout_count; i++)
        if (table->layouts[i].id == id)
            return &table->layouts[i];
    return NULL;
}

enum status rows_load(struct rows *rows, struct rows_table *table, const char *bytes,
                      size_t byte_count, struct err *err)
{
    struct row_reader reader = {.bytes = bytes, .byte_count = byte_count};
    const struct rows_layout *layout;
    uint64_t id;

    layout = row_take_number(&reader, &id) ? find_layout(table, id) : NULL;
    if (layout == NULL)
        return err_set(err, STATUS_BAD_INPUT, 0, "a row of table %s has no known columns",
                       table->name);
    do {
        bool is_good = true;

        for (uint32_t i = 0; is_good && i < layout->column_count; i++) {
            struct row_value value;

            is_good = row_take(&reader, &value);
            if (is_good)
                bind(layout->insert, (int)i + 1, &value);
        }
        if (is_good && sqlite3_step(layout->insert) != SQLITE_DONE) {
            (void)sqlite3_reset(layout->insert);
            return fail(rows, err);
        }
        (void)sqlite3_reset(layout->insert);
        (void)sqlite3_clear_bindings(layout->insert);
        if (!is_good)
            return err_set(err, STATUS_BAD_INPUT, 0, "a row of table %s is malformed", table->name);
    } while (reader.at < reader.byte_count);
    return STATUS_OK;
}

bool rows_each(struct rows *rows, struct rows_table *table,
               bool (*on_row)(const struct buf *value, void *context), void *context)
{
    struct buf value = {0}, sql = {0};
    bool is_good = true;
    int rc = SQLITE_DONE;
    struct err err;

    if (table->all == NULL) {
        buf_printf(&sql, "SELECT %s FROM main.%s ORDER BY ", table->columns, table->name);
        add_names(&sql, table);
        if (finish(rows, &sql, &table->all, &err) != STATUS_OK)
            return false;
    }
    while (is_good && (rc = sqlite3_step(table->all)) == SQLITE_ROW) {
        value.byte_count = 0;
        row_put_number(&value, table->layout);
        put_row(&value, table, table->all);
        is_good = !value.failed && on_row(&value, context);
    }
    (void)sqlite3_reset(table->all);
    buf_free(&value);
    return is_good && rc == SQLITE_DONE;
}
