/* The tables of a store as keys and values, whatever columns they have: for etcd and for backups. A
 * key is made from a row's primary key. Rows that are written together, such as the ranks of a
 * generation, share one value. */
#ifndef RENDEZVOUS_STORE_ROWS_H
#define RENDEZVOUS_STORE_ROWS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

#define ROWS_TABLES_MAX 24u
#define ROWS_COLUMNS_MAX 128u
#define ROWS_KEYS_MAX 4u
#define ROWS_LAYOUTS_MAX 16u /* of one table, including those of earlier versions */
#define ROWS_NAME_BYTES_MAX 48u
#define ROWS_LAYOUT_BYTES_MAX (ROWS_COLUMNS_MAX * ROWS_NAME_BYTES_MAX)
#define ROWS_KEY_BYTES_MAX 1024u

/* The columns of stored values. */
struct rows_layout {
    uint32_t id, column_count;
    bool is_whole; /* it has all columns of the table, in their order */
    sqlite3_stmt *insert;
};

struct rows_table {
    char name[ROWS_NAME_BYTES_MAX];
    char columns[ROWS_LAYOUT_BYTES_MAX]; /* "id,name,..." */
    char keys[ROWS_KEYS_MAX][ROWS_NAME_BYTES_MAX];
    uint32_t column_count, key_count;
    bool is_text[ROWS_KEYS_MAX];
    uint32_t shift;  /* rows whose last key differs only in these low bits share a value */
    uint32_t layout; /* the layout for writing */
    struct rows_layout layouts[ROWS_LAYOUTS_MAX];
    uint32_t layout_count;
    sqlite3_stmt *changed, *forget, *group, *all, *remove;
};

struct rows {
    sqlite3 *db;
    struct rows_table *tables; /* [table_count] */
    uint32_t table_count;
};

/* Reads which tables the database has. Tables without a primary key are left out. */
enum status rows_open(struct rows *rows, sqlite3 *db, struct err *err);
void rows_close(struct rows *rows);
/* NULL: none */
struct rows_table *rows_find(struct rows *rows, const char *name, size_t byte_count);

/* From now on, notes every write. */
enum status rows_watch(struct rows *rows, struct err *err);
/* Marks every row as written. */
enum status rows_mark_all(struct rows *rows, struct err *err);
/* Reports what was written since rows_forget: each key ("jobs/0000000000000001") with its present
 * value; NULL: it was removed. If `on_key` returns false, stops and returns false. */
typedef bool rows_on_key(const char *key, const struct buf *value, void *context);
bool rows_changed(struct rows *rows, rows_on_key *on_key, void *context);
bool rows_forget(struct rows *rows);

/* Declares the columns of values that were written under layout `id`. Columns of the table that are
 * not in the list get what an old row has there. Errors: STATUS_UNSUPPORTED: the table does not
 * have a listed column. */
enum status rows_add_layout(struct rows_table *table, struct rows *rows, uint32_t id,
                            const char *columns, struct err *err);
void rows_drop_layouts(struct rows *rows);
/* Writes the rows of a value into its table. Errors: STATUS_BAD_INPUT: malformed. */
enum status rows_load(struct rows *rows, struct rows_table *table, const char *value,
                      size_t byte_count, struct err *err);
/* Applies a change that rows_changed reported in another server: the rows of that key are now those
 * of `value`; NULL: none. Errors: as rows_load. */
enum status rows_apply(struct rows *rows, const char *key, size_t key_bytes, const char *value,
                       size_t value_bytes, struct err *err);
/* Passes every row of the table to `on_row`, each as a value of its own. False: the callback
 * returned false, or an error of SQLite. */
bool rows_each(struct rows *rows, struct rows_table *table,
               bool (*on_row)(const struct buf *value, void *context), void *context);

#endif
