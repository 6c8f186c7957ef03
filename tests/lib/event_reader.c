#include "tests/lib/event_reader.h"

#include <string.h>

#include "worker/metrics/crc32c.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

/* The rest of a message that is being parsed. */
struct span {
    const uint8_t *at;
    size_t byte_count;
};

struct field {
    uint64_t number;
    uint32_t wire;
    uint64_t whole;    /* wire 0, 1, 5 */
    struct span bytes; /* wire 2 */
};

static uint64_t little(const uint8_t *at, size_t byte_count)
{
    uint64_t value = 0;

    for (size_t i = byte_count; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static double as_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool take_varint(struct span *from, uint64_t *value)
{
    *value = 0;
    for (uint32_t shift = 0; shift < 64 && from->byte_count > 0; shift += 7) {
        const uint8_t byte = *from->at;

        from->at++;
        from->byte_count--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return true;
    }
    return false;
}

static bool take_bytes(struct span *from, uint64_t byte_count, struct span *taken)
{
    if (byte_count > from->byte_count)
        return false;
    *taken = (struct span){from->at, (size_t)byte_count};
    from->at += byte_count;
    from->byte_count -= (size_t)byte_count;
    return true;
}

/* Takes the next field; false: the bytes are not a valid field. */
static bool take_field(struct span *from, struct field *field)
{
    uint64_t key, byte_count = 0;

    *field = (struct field){0};
    if (!take_varint(from, &key))
        return false;
    field->number = key >> 3;
    field->wire = (uint32_t)(key & 7);
    switch (field->wire) {
    case 0:
        return take_varint(from, &field->whole);
    case 1:
    case 5:
        byte_count = field->wire == 1 ? 8 : 4;
        if (!take_bytes(from, byte_count, &field->bytes))
            return false;
        field->whole = little(field->bytes.at, (size_t)byte_count);
        return true;
    case 2:
        return take_varint(from, &byte_count) && take_bytes(from, byte_count, &field->bytes);
    default:
        return false;
    }
}

static bool is_field(const struct field *field, uint64_t number, uint32_t wire)
{
    return field->number == number && field->wire == wire;
}

static bool take_text(const struct field *field, char text[EVENT_TEXT_BYTES])
{
    if (field->bytes.byte_count >= EVENT_TEXT_BYTES)
        return false;
    memcpy(text, field->bytes.at, field->bytes.byte_count);
    text[field->bytes.byte_count] = '\0';
    return true;
}

static bool read_doubles(const struct field *field, struct event_seen_value *value)
{
    const size_t count = field->bytes.byte_count / 8;
    double last = 0.0;

    if (field->bytes.byte_count % 8 != 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        const double number = as_double(little(field->bytes.at + 8 * i, 8));

        if (field->number == 7)
            value->bucket_sum += number;
        else if (i > 0 && !(last < number))
            value->limits_ascend = false;
        last = number;
    }
    if (field->number == 6)
        value->limit_count += count;
    else
        value->bucket_count += count;
    return true;
}

static bool read_histogram(struct span from, struct event_seen_value *value)
{
    double *const sums[] = {&value->min, &value->max, &value->count, &value->sum,
                            &value->sum_squares};
    struct field field;

    value->is_histogram = true;
    value->limits_ascend = true;
    while (from.byte_count > 0) {
        if (!take_field(&from, &field))
            return false;
        if (field.wire == 1 && field.number >= 1 && field.number <= 5)
            *sums[field.number - 1] = as_double(field.whole);
        if ((is_field(&field, 6, 2) || is_field(&field, 7, 2)) && !read_doubles(&field, value))
            return false;
    }
    return true;
}

static bool read_image(struct span from, struct event_seen_value *value)
{
    uint64_t *const sizes[] = {&value->height, &value->width, &value->channels};
    struct field field;

    value->is_image = true;
    while (from.byte_count > 0) {
        if (!take_field(&from, &field))
            return false;
        if (field.wire == 0 && field.number >= 1 && field.number <= 3)
            *sizes[field.number - 1] = field.whole;
        if (is_field(&field, 4, 2)) {
            value->png = field.bytes.at;
            value->png_bytes = field.bytes.byte_count;
        }
    }
    return true;
}

static bool read_value(struct span from, struct event_seen_value *value)
{
    struct field field;
    bool is_good = true;

    *value = (struct event_seen_value){.scalar = 0.0F};
    while (is_good && from.byte_count > 0) {
        const uint32_t bits = (is_good = take_field(&from, &field)) ? (uint32_t)field.whole : 0;

        if (is_good && is_field(&field, 1, 2))
            is_good = take_text(&field, value->tag);
        else if (is_good && is_field(&field, 2, 5))
            memcpy(&value->scalar, &bits, sizeof bits);
        else if (is_good && is_field(&field, 4, 2))
            is_good = read_image(field.bytes, value);
        else if (is_good && is_field(&field, 5, 2))
            is_good = read_histogram(field.bytes, value);
    }
    return is_good;
}

static bool read_summary(struct span from, struct event_seen *seen)
{
    struct field field;

    while (from.byte_count > 0) {
        if (!take_field(&from, &field))
            return false;
        if (!is_field(&field, 1, 2))
            continue;
        if (seen->value_count == EVENT_VALUES_MAX ||
            !read_value(field.bytes, &seen->values[seen->value_count]))
            return false;
        seen->value_count++;
    }
    return true;
}

static bool read_session(struct span from, struct event_seen *seen)
{
    struct field field;

    while (from.byte_count > 0) {
        if (!take_field(&from, &field))
            return false;
        if (is_field(&field, 1, 0))
            seen->session = field.whole;
    }
    return true;
}

static bool read_event(struct span from, struct event_seen *seen)
{
    struct field field;
    bool is_good = true;

    *seen = (struct event_seen){.step = 0};
    while (is_good && from.byte_count > 0) {
        is_good = take_field(&from, &field);
        if (is_good && is_field(&field, 1, 1))
            seen->time_s = as_double(field.whole);
        else if (is_good && is_field(&field, 2, 0))
            seen->step = field.whole;
        else if (is_good && is_field(&field, 3, 2))
            is_good = take_text(&field, seen->version);
        else if (is_good && is_field(&field, 5, 2))
            is_good = read_summary(field.bytes, seen);
        else if (is_good && is_field(&field, 7, 2))
            is_good = read_session(field.bytes, seen);
    }
    return is_good;
}

static bool has_crc(const uint8_t *bytes, size_t byte_count, const uint8_t *there)
{
    const uint32_t crc = crc32c_table(bytes, byte_count);

    return little(there, 4) == (uint32_t)(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

enum status event_read(const uint8_t *bytes, size_t byte_count, size_t *at, struct event_seen *seen,
                       bool *found, struct err *err)
{
    const uint8_t *const head = bytes + *at;
    const size_t left = byte_count - *at;
    uint64_t length;

    *found = false;
    if (left < HEAD_BYTES)
        return STATUS_OK;
    length = little(head, 8);
    if (!has_crc(head, 8, head + 8))
        return err_set(err, STATUS_BAD_INPUT, 0, "at byte %zu: the CRC of a length is wrong", *at);
    if (length > left - HEAD_BYTES || left - HEAD_BYTES - (size_t)length < TAIL_BYTES)
        return STATUS_OK;
    if (!has_crc(head + HEAD_BYTES, (size_t)length, head + HEAD_BYTES + length))
        return err_set(err, STATUS_BAD_INPUT, 0, "at byte %zu: the CRC of a record is wrong", *at);
    if (!read_event((struct span){head + HEAD_BYTES, (size_t)length}, seen))
        return err_set(err, STATUS_BAD_INPUT, 0, "at byte %zu: a record that is no event", *at);
    *found = true;
    *at += HEAD_BYTES + (size_t)length + TAIL_BYTES;
    return STATUS_OK;
}
