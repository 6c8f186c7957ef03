#include "ddpctl/escape.h"

#include <string.h>

#include "common/utf8.h"

/* U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069: separators, and marks that change the
 * direction of writing. In UTF-8: e2 80 8e, 8f, a8 to ae; e2 81 a6 to a9. */
static bool is_direction_mark(const unsigned char *bytes, size_t length)
{
    if (length != 3 || bytes[0] != 0xe2)
        return false;
    if (bytes[1] == 0x80)
        return bytes[2] == 0x8e || bytes[2] == 0x8f || (bytes[2] >= 0xa8 && bytes[2] <= 0xae);
    return bytes[1] == 0x81 && bytes[2] >= 0xa6 && bytes[2] <= 0xa9;
}

/* Bytes of the character at the start of `text`; 0: none that may be shown. */
static size_t shown_character(const char *text, size_t byte_count)
{
    size_t length = utf8_next(text, byte_count);

    if (text[0] == '\t')
        return 1;
    if (utf8_is_control(text, byte_count) || is_direction_mark((const unsigned char *)text, length))
        return 0;
    return length;
}

void escape_text(const char *text, size_t byte_count, struct buf *out)
{
    size_t at = 0;

    while (at < byte_count) {
        size_t begin = at, length;

        while (at < byte_count && (length = shown_character(text + at, byte_count - at)) > 0)
            at += length;
        buf_add(out, text + begin, at - begin);
        if (at < byte_count)
            buf_printf(out, "\\x%02x", (unsigned char)text[at++]);
    }
}

void escape_last_lines(const char *text, size_t length, int lines_max, struct buf *out)
{
    size_t from;
    int lines = 0;

    while (length > 0 && text[length - 1] == '\n')
        length--;
    for (from = length; from > 0; from--)
        if (text[from - 1] == '\n' && ++lines == lines_max)
            break;
    while (from < length) {
        size_t line = strcspn(text + from, "\n");

        if (from + line > length)
            line = length - from;
        buf_add_text(out, "    ");
        escape_text(text + from, line, out);
        buf_add_text(out, "\n");
        from += line + 1;
    }
}
