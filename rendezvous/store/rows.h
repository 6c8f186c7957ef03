/* The tables of a store as keys and values, whatever columns they have: for etcd, and for backups. A key
 * is made of a row's primary key. Rows that are written together, such as the ranks of a generation, share
 * one value. */
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
#define ROWS_LAYOUTS_MAX 16u /* of one table: the columns that it had in earlier versions too */
#define ROWS_NAME_BYTES_MAX 48u
#define ROWS_LAYOUT_BYTES_MAX (ROWS_COLUMNS_MAX * ROWS_NAME_BYTES_MAX)
#define ROWS_KEY_BYTES_MAX 1024u

/* The columns of values that are read. */
struct rows_layout {
    uint32_t id, column_count;
    bool is_whole; /* all columns that the table has, in their order */
    sqlite3_stmt *insert;
};

struct rows_table {
    char name[ROWS_NAME_BYTES_MAX];
    char columns[ROWS_LAYOUT_BYTES_MAX]; /* "id,name,..." */
    char keys[ROWS_KEYS_MAX][ROWS_NAME_BYTES_MAX];
    uint32_t column_count, key_count;
    bool is_text[ROWS_KEYS_MAX];
    uint32_t shift;  /* rows share a value whose last key differs in that many low bits alone */
    uint32_t layout; /* of values that are written */
    struct rows_layout layouts[ROWS_LAYOUTS_MAX];
    uint32_t layout_count;
    sqlite3_stmt *changed, *forget, *group, *all, *remove;
};

struct rows {
    sqlite3 *db;
    struct rows_table *tables; /* [table_count] */
    uint32_t table_count;
};

/* Reads which tables there are; those without a primary key are left out. */
enum status rows_open(struct rows *rows, sqlite3 *db, struct err *err);
void rows_close(struct rows *rows);
/* NULL: none */
struct rows_table *rows_find(struct rows *rows, const char *name, size_t byte_count);

/* From now on what is written is noted. */
enum status rows_watch(struct rows *rows, struct err *err);
/* As if every row had been written now. */
enum status rows_mark_all(struct rows *rows, struct err *err);
/* What was written since rows_forget: each key ("jobs/0000000000000001") with its value now; NULL: it is
 * gone. False of `on_key` ends it, with false. */
typedef bool rows_on_key(const char *key, const struct buf *value, void *context);
bool rows_changed(struct rows *rows, rows_on_key *on_key, void *context);
bool rows_forget(struct rows *rows);

/* The columns of values that were written under that number, as in `columns`. Columns that the table has
 * and this list has not get what an old row has there. Errors: STATUS_UNSUPPORTED: it names a column that
 * the table does not have. */
enum status rows_add_layout(struct rows_table *table, struct rows *rows, uint32_t id,
                            const char *columns, struct err *err);
void rows_drop_layouts(struct rows *rows);
/* Writes the rows of a value into its table. Errors: STATUS_BAD_INPUT: malformed. */
enum status rows_load(struct rows *rows, struct rows_table *table, const char *value,
                      size_t byte_count, struct err *err);
/* What rows_changed has told of a key elsewhere is done here: the rows of that key are those of `value` now, NULL: none.
 * Errors: as rows_load. */
enum status rows_apply(struct rows *rows, const char *key, size_t key_bytes, const char *value,
                       size_t value_bytes, struct err *err);
/* Every row of the table, each as a value of its own. False: as above, or SQLite's. */
bool rows_each(struct rows *rows, struct rows_table *table,
               bool (*on_row)(const struct buf *value, void *context), void *context);

#endif
