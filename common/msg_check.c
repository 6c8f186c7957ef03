#include "common/msg_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

enum status msg_refuse(const struct msg_where *where, struct err *err, enum status status,
                       const char *format, ...)
{
    char what[160], in_list[64] = "";
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (where->list != NULL)
        (void)snprintf(in_list, sizeof in_list, ".%s[%" PRIu32 "]", where->list, where->index);
    return err_set(err, status, 0, "%s%s%s%s: %s", where->message, in_list,
                   where->field != NULL ? "." : "", where->field != NULL ? where->field : "", what);
}

bool msg_in_range_signed(const struct msg_field *field, int64_t value)
{
    return value < 0 ? value >= field->min : msg_in_range_unsigned(field, (uint64_t)value);
}

bool msg_in_range_unsigned(const struct msg_field *field, uint64_t value)
{
    return value <= field->max && (field->min <= 0 || value >= (uint64_t)field->min);
}

enum status msg_refuse_integer(const struct msg_where *where, const struct msg_field *field,
                               const char *value, struct err *err)
{
    return msg_refuse(where, err, STATUS_BAD_INPUT, "%s is not in %" PRId64 "..%" PRIu64, value,
                      field->min, field->max);
}

enum status msg_check_real(const struct msg_where *where, const struct msg_field *field,
                           double value, struct err *err)
{
    if (value >= field->real_min && value <= field->real_max) /* a NaN is not */
        return STATUS_OK;
    return msg_refuse(where, err, STATUS_BAD_INPUT, "%g is not in %g..%g", value, field->real_min,
                      field->real_max);
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static enum status check_line(const struct msg_where *where, const char *text, size_t byte_count,
                              struct err *err)
{
    for (size_t i = 0; i < byte_count; i++)
        if (utf8_is_control(text + i, byte_count - i))
            return msg_refuse(where, err, STATUS_BAD_INPUT,
                              "a control character at byte %zu of a line", i);
    return STATUS_OK;
}

static enum status check_name(const struct msg_where *where, const char *text, size_t byte_count,
                              struct err *err)
{
    char shown[48];

    for (size_t i = 0; i < byte_count; i++)
        if (!is_name_char(text[i])) {
            utf8_printable(text, byte_count, shown, sizeof shown);
            return msg_refuse(where, err, STATUS_BAD_INPUT,
                              "\"%s\" is not a name of A-Z a-z 0-9 . _ -", shown);
        }
    return STATUS_OK;
}

enum status msg_check_text(const struct msg_where *where, const struct msg_field *field,
                           const char *text, size_t byte_count, struct err *err)
{
    if (byte_count < (uint64_t)field->min)
        return msg_refuse(where, err, STATUS_BAD_INPUT, "%zu bytes, at least %" PRId64 " expected",
                          byte_count, field->min);
    if (byte_count > field->max)
        return msg_refuse(where, err, STATUS_TOO_BIG, "%zu bytes, at most %" PRIu64 " allowed",
                          byte_count, field->max);
    if (!utf8_is_valid(text, byte_count))
        return msg_refuse(where, err, STATUS_BAD_INPUT, "not UTF-8");
    if (field->kind == MSG_KIND_LINE)
        return check_line(where, text, byte_count, err);
    if (field->kind == MSG_KIND_NAME)
        return check_name(where, text, byte_count, err);
    return STATUS_OK;
}

enum status msg_check_count(const struct msg_where *where, const struct msg_field *field,
                            uint64_t count, const char *what, struct err *err)
{
    if (count < (uint64_t)field->min)
        return msg_refuse(where, err, STATUS_BAD_INPUT,
                          "%" PRIu64 " %s, at least %" PRId64 " expected", count, what, field->min);
    if (count > field->max)
        return msg_refuse(where, err, STATUS_TOO_BIG, "%" PRIu64 " %s, at most %" PRIu64 " allowed",
                          count, what, field->max);
    return STATUS_OK;
}
