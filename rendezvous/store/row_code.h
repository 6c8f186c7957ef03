/* Encodes the values of a row as bytes: numbers with 7 bits a byte, lowest first; texts and blobs
 * with their length. Pure. */
#ifndef RENDEZVOUS_STORE_ROW_CODE_H
#define RENDEZVOUS_STORE_ROW_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

enum row_kind { ROW_NULL, ROW_INTEGER, ROW_REAL, ROW_TEXT, ROW_BLOB };

struct row_value {
    enum row_kind kind;
    int64_t integer;
    double real;
    const char *bytes; /* TEXT (no NUL after it), BLOB; borrowed */
    size_t byte_count;
};

void row_put_number(struct buf *out, uint64_t number);
void row_put(struct buf *out, const struct row_value *value);

struct row_reader {
    const char *bytes;
    size_t byte_count, at;
};

/* False: there is no number, or it is malformed. */
bool row_take_number(struct row_reader *reader, uint64_t *number);
bool row_take(struct row_reader *reader, struct row_value *value);

#endif
