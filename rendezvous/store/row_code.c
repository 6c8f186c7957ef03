#include "rendezvous/store/row_code.h"

#include <string.h>

void row_put_number(struct buf *out, uint64_t number)
{
    char bytes[10];
    size_t count = 0;

    do {
        bytes[count++] = (char)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        number >>= 7;
    } while (number > 0);
    buf_add(out, bytes, count);
}

bool row_take_number(struct row_reader *reader, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 64 && reader->at < reader->byte_count; shift += 7) {
        uint8_t byte = (uint8_t)reader->bytes[reader->at++];

        if (shift == 63 && byte > 1)
            return false;
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return true;
    }
    return false;
}

/* The sign goes to the lowest bit, so that small negative numbers are short too. */
static uint64_t fold(int64_t value)
{
    return value >= 0 ? (uint64_t)value << 1 : ~((uint64_t)value << 1);
}

static int64_t unfold(uint64_t number)
{
    return (number & 1) == 0 ? (int64_t)(number >> 1) : (int64_t) ~(number >> 1);
}

void row_put(struct buf *out, const struct row_value *value)
{
    row_put_number(out, (uint64_t)value->kind);
    switch (value->kind) {
    case ROW_NULL:
        break;
    case ROW_INTEGER:
        row_put_number(out, fold(value->integer));
        break;
    case ROW_REAL:
        buf_add(out, &value->real, sizeof value->real);
        break;
    case ROW_TEXT:
    case ROW_BLOB:
        row_put_number(out, value->byte_count);
        buf_add(out, value->bytes, value->byte_count);
        break;
    }
}

static bool take_bytes(struct row_reader *reader, uint64_t byte_count, const char **bytes)
{
    if (byte_count > reader->byte_count - reader->at)
        return false;
    *bytes = reader->bytes + reader->at;
    reader->at += (size_t)byte_count;
    return true;
}

bool row_take(struct row_reader *reader, struct row_value *value)
{
    uint64_t kind, number = 0;
    const char *bytes = NULL;

    memset(value, 0, sizeof *value);
    if (!row_take_number(reader, &kind) || kind > ROW_BLOB)
        return false;
    value->kind = (enum row_kind)kind;
    switch (value->kind) {
    case ROW_NULL:
        return true;
    case ROW_INTEGER:
        if (!row_take_number(reader, &number))
            return false;
        value->integer = unfold(number);
        return true;
    case ROW_REAL:
        if (!take_bytes(reader, sizeof value->real, &bytes))
            return false;
        memcpy(&value->real, bytes, sizeof value->real);
        return true;
    case ROW_TEXT:
    case ROW_BLOB:
        if (!row_take_number(reader, &number) || !take_bytes(reader, number, &value->bytes))
            return false;
        value->byte_count = (size_t)number;
        return true;
    }
    return false;
}
