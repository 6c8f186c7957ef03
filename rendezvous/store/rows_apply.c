/* Turns keys and values that another server wrote back into rows. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/store/rows.h"

static enum status bad_key(const char *key, size_t key_bytes, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%.*s is not the key of a row",
                   (int)(key_bytes < 100 ? key_bytes : 100), key);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 16 digits, as rows.c writes them. */
static bool bind_number(sqlite3_stmt *stmt, int at, const char *text, size_t byte_count)
{
    uint64_t number = 0;

    if (byte_count != 16)
        return false;
    for (size_t i = 0; i < byte_count; i++) {
        if (digit_of(text[i]) < 0)
            return false;
        number = number << 4 | (uint64_t)digit_of(text[i]);
    }
    return sqlite3_bind_int64(stmt, at, (sqlite3_int64)number) == SQLITE_OK;
}

/* Letters, digits and . - _ stand for themselves; other bytes are written as %7e. */
static bool bind_text(sqlite3_stmt *stmt, int at, const char *text, size_t byte_count)
{
    char out[ROWS_KEY_BYTES_MAX];
    size_t n = 0;

    for (size_t i = 0; i < byte_count; i++) {
        if (n == sizeof out)
            return false;
        if (text[i] != '%') {
            out[n++] = text[i];
            continue;
        }
        if (byte_count - i < 3)
            return false;
        const int high = digit_of(text[i + 1]), low = digit_of(text[i + 2]);
        if (high < 0 || low < 0)
            return false;
        out[n++] = (char)(high << 4 | low);
        i += 2;
    }
    return sqlite3_bind_text(stmt, at, out, (int)n, SQLITE_TRANSIENT) == SQLITE_OK;
}

static enum status prepare(struct rows *rows, struct rows_table *table, struct err *err)
{
    const char *last = table->keys[table->key_count - 1];
    struct buf sql = {0};
    int code = SQLITE_NOMEM;

    if (table->remove != NULL)
        return STATUS_OK;
    buf_printf(&sql, "DELETE FROM main.%s WHERE ", table->name);
    for (uint32_t i = 0; i + 1 < table->key_count; i++)
        buf_printf(&sql, "%s = ?%u AND ", table->keys[i], i + 1);
    if (table->is_text[table->key_count - 1] || table->shift == 0)
        buf_printf(&sql, "%s = ?%u", last, table->key_count);
    else
        buf_printf(&sql, "%s >= ?%u << %u AND %s < (?%u + 1) << %u", last, table->key_count,
                   table->shift, last, table->key_count, table->shift);
    buf_add(&sql, "", 1);
    if (!sql.failed)
        code = sqlite3_prepare_v3(rows->db, sql.bytes, -1, SQLITE_PREPARE_PERSISTENT,
                                  &table->remove, NULL);
    buf_free(&sql);
    return code == SQLITE_OK ? STATUS_OK
                             : err_set(err, STATUS_IO, code, "the tables of the state: %s",
                                       sqlite3_errmsg(rows->db));
}

/* Removes the rows of a key. `text`: what follows TABLE in it. */
static enum status remove_rows(struct rows *rows, struct rows_table *table, const char *text,
                               size_t byte_count, struct err *err)
{
    size_t at = 0;
    bool is_good = true;
    int code = SQLITE_DONE;
    enum status status = prepare(rows, table, err);

    for (uint32_t i = 0; status == STATUS_OK && is_good && i < table->key_count; i++) {
        const char *end;
        size_t n;

        is_good = at < byte_count && text[at] == '/';
        if (!is_good)
            break;
        at++;
        end = memchr(text + at, '/', byte_count - at);
        n = end != NULL ? (size_t)(end - text) - at : byte_count - at;
        is_good = table->is_text[i] ? bind_text(table->remove, (int)i + 1, text + at, n)
                                    : bind_number(table->remove, (int)i + 1, text + at, n);
        at += n;
    }
    if (status == STATUS_OK && (!is_good || at != byte_count))
        status = bad_key(text, byte_count, err);
    if (status == STATUS_OK)
        code = sqlite3_step(table->remove);
    (void)sqlite3_reset(table->remove);
    (void)sqlite3_clear_bindings(table->remove);
    if (code != SQLITE_DONE)
        status =
            err_set(err, STATUS_IO, code, "the tables of the state: %s", sqlite3_errmsg(rows->db));
    return status;
}

enum status rows_apply(struct rows *rows, const char *key, size_t key_bytes, const char *value,
                       size_t value_bytes, struct err *err)
{
    const char *slash = memchr(key, '/', key_bytes);
    size_t name_bytes = slash != NULL ? (size_t)(slash - key) : 0;
    struct rows_table *table = rows_find(rows, key, name_bytes);
    enum status status;

    if (table == NULL)
        return bad_key(key, key_bytes, err);
    status = remove_rows(rows, table, key + name_bytes, key_bytes - name_bytes, err);
    if (status != STATUS_OK || value == NULL)
        return status;
    return rows_load(rows, table, value, value_bytes, err);
}
