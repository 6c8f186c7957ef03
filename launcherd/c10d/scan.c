#include "launcherd/c10d/scan.h"

#include <assert.h>
#include <string.h>

#define COMMAND_COUNT (sizeof formats / sizeof formats[0])

static const char *const formats[] = {
#define COMMAND_FORMAT(name, number, fields) [number] = (fields),
    COMMAND_TABLE(COMMAND_FORMAT)
#undef COMMAND_FORMAT
};

static const char *const names[] = {
#define COMMAND_NAME(name, number, fields) [number] = #name,
    COMMAND_TABLE(COMMAND_NAME)
#undef COMMAND_NAME
};

const char *scan_command_name(unsigned command)
{
    return command < COMMAND_COUNT ? names[command] : "";
}

static uint64_t number_at(const char *bytes, size_t byte_count)
{
    uint64_t value = 0;

    for (size_t i = byte_count; i > 0; i--)
        value = value << 8 | (unsigned char)bytes[i - 1];
    return value;
}

uint64_t fields_number(struct fields *fields, size_t byte_count)
{
    uint64_t value = number_at(fields->bytes + fields->at, byte_count);

    fields->at += byte_count;
    return value;
}

struct text fields_text(struct fields *fields)
{
    struct text text = {.byte_count = (size_t)fields_number(fields, 8)};

    text.bytes = fields->bytes + fields->at;
    fields->at += text.byte_count;
    return text;
}

/* The length of the field at scan->at. A length or count over its limit is refused as soon as it
 * has been read. */
static enum scan_result field_bytes(struct scan *scan, struct text text, uint64_t *byte_count,
                                    enum c10d_reason *reason)
{
    const char kind = formats[scan->command][scan->field];
    uint64_t value;

    *byte_count = kind == '4' ? 4 : 8;
    if (kind == '4' || kind == '8')
        return SCAN_WHOLE;
    if (text.byte_count - scan->at < 8)
        return SCAN_MORE;
    value = number_at(text.bytes + scan->at, 8);
    *reason = kind == 'k'   ? C10D_REASON_KEY_TOO_LONG
              : kind == 'b' ? C10D_REASON_VALUE_TOO_LONG
                            : C10D_REASON_TOO_MANY_KEYS;
    if (value > (kind == 'k'   ? C10D_KEY_BYTES_MAX
                 : kind == 'b' ? C10D_VALUE_BYTES_MAX
                               : C10D_KEYS_A_MESSAGE_MAX))
        return SCAN_BAD;
    if (kind == 'n')
        scan->items_left = value;
    else
        *byte_count += value;
    return SCAN_WHOLE;
}

/* Moves on to the next field; in a list, to the first field of the next item. */
static void next_field(struct scan *scan)
{
    const char *format = formats[scan->command];

    if (format[scan->field] == 'n' && scan->items_left == 0) {
        scan->field = (unsigned)strlen(format);
        return;
    }
    scan->field++;
    if (format[0] == 'n' && format[scan->field] == '\0' && --scan->items_left > 0)
        scan->field = 1;
}

enum scan_result scan_request(struct scan *scan, struct text text, uint64_t message_bytes_max,
                              enum c10d_reason *reason)
{
    assert(text.byte_count >= scan->at);
    if (scan->at == 0) {
        if (text.byte_count == 0)
            return SCAN_MORE;
        scan->command = (uint8_t)text.bytes[0];
        scan->at = 1;
        *reason = C10D_REASON_UNKNOWN_COMMAND;
        if (scan->command >= COMMAND_COUNT)
            return SCAN_BAD;
    }
    while (formats[scan->command][scan->field] != '\0') {
        uint64_t byte_count;
        enum scan_result result = field_bytes(scan, text, &byte_count, reason);

        if (result != SCAN_WHOLE)
            return result;
        *reason = C10D_REASON_MESSAGE_TOO_LONG;
        if (byte_count > message_bytes_max || scan->at > message_bytes_max - byte_count)
            return SCAN_BAD;
        if (text.byte_count - scan->at < byte_count)
            return SCAN_MORE;
        scan->at += byte_count;
        next_field(scan);
    }
    return SCAN_WHOLE;
}
