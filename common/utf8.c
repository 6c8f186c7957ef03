#include "common/utf8.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/limits.h"

static bool in_range(unsigned char byte, unsigned char first, unsigned char last)
{
    return byte >= first && byte <= last;
}

/* RFC 3629, section 4: the range of the second byte depends on the first; the others are 80..BF. */
static bool second_is_valid(unsigned char lead, unsigned char second)
{
    switch (lead) {
    case 0xe0:
        return in_range(second, 0xa0, 0xbf);
    case 0xed:
        return in_range(second, 0x80, 0x9f);
    case 0xf0:
        return in_range(second, 0x90, 0xbf);
    case 0xf4:
        return in_range(second, 0x80, 0x8f);
    default:
        return in_range(second, 0x80, 0xbf);
    }
}

size_t utf8_next(const char *text, size_t byte_count)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t count;

    assert(byte_count == 0 || text != NULL);
    if (byte_count == 0)
        return 0;
    if (bytes[0] < 0x80)
        return 1;
    if (in_range(bytes[0], 0xc2, 0xdf))
        count = 2;
    else if (in_range(bytes[0], 0xe0, 0xef))
        count = 3;
    else if (in_range(bytes[0], 0xf0, 0xf4))
        count = 4;
    else
        return 0;
    if (byte_count < count || !second_is_valid(bytes[0], bytes[1]))
        return 0;
    for (size_t i = 2; i < count; i++)
        if (!in_range(bytes[i], 0x80, 0xbf))
            return 0;
    return count;
}

bool utf8_is_valid(const char *text, size_t byte_count)
{
    for (size_t i = 0; i < byte_count;) {
        size_t count = utf8_next(text + i, byte_count - i);

        if (count == 0)
            return false;
        i += count;
    }
    return true;
}

bool utf8_is_control(const char *text, size_t byte_count)
{
    const unsigned char *bytes = (const unsigned char *)text;

    if (byte_count == 0)
        return false;
    if (bytes[0] < 0x20 || bytes[0] == 0x7f)
        return true;
    return byte_count >= 2 && bytes[0] == 0xc2 && in_range(bytes[1], 0x80, 0x9f);
}

void utf8_printable(const char *text, size_t byte_count, char *out, size_t out_bytes)
{
    size_t used = 0, safe = 0; /* safe: the last length at which "..." still fits */

    assert(out_bytes >= 8);
    for (size_t i = 0; i < byte_count;) {
        size_t count = utf8_next(text + i, byte_count - i);
        bool is_bad = count == 0 || utf8_is_control(text + i, byte_count - i);
        size_t shown = is_bad ? 1 : count;

        if (used + shown >= out_bytes) {
            memcpy(out + safe, "...", 4);
            return;
        }
        memcpy(out + used, is_bad ? "?" : text + i, shown);
        used += shown;
        if (used + 4 <= out_bytes)
            safe = used;
        i += count > 0 ? count : 1;
    }
    out[used] = '\0';
}

size_t utf8_printable_lines(const char *text, size_t byte_count, char *out, size_t out_bytes)
{
    size_t used = 0;

    assert(out_bytes >= 1);
    for (size_t i = 0; i < byte_count;) {
        const size_t count = utf8_next(text + i, byte_count - i);
        const bool is_kept = text[i] == '\n' || text[i] == '\t' ||
                             (count > 0 && !utf8_is_control(text + i, byte_count - i));
        const size_t shown = is_kept ? count : 1;

        if (used + shown >= out_bytes)
            break;
        memcpy(out + used, is_kept ? text + i : "?", shown);
        used += shown;
        i += count > 0 ? count : 1;
    }
    out[used] = '\0';
    return used;
}

void utf8_printable_format(char *out, size_t out_bytes, const char *format, va_list args)
{
    char text[2 * REASON_BYTES_MAX];

    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    utf8_printable(text, strlen(text), out, out_bytes);
}
