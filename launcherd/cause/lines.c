#include "launcherd/cause/lines.h"

#include <string.h>

/* Takes one byte of an escape sequence (ECMA-48, and the OSC of xterm). */
static void take_escape(struct cause_lines *lines, char byte)
{
    switch (lines->escape) {
    case ESCAPE_BEGUN:
        lines->escape = byte == '[' ? ESCAPE_CSI : byte == ']' ? ESCAPE_OSC : ESCAPE_NONE;
        break;
    case ESCAPE_CSI:
        if (byte >= 0x40 && byte <= 0x7e)
            lines->escape = ESCAPE_NONE;
        break;
    case ESCAPE_OSC:
        if (byte == '\a')
            lines->escape = ESCAPE_NONE;
        else if (byte == '\x1b')
            lines->escape = ESCAPE_OSC_END;
        break;
    case ESCAPE_OSC_END:
    case ESCAPE_NONE:
        lines->escape = ESCAPE_NONE;
        break;
    }
}

struct text cause_lines_rest(const struct cause_lines *lines)
{
    return (struct text){lines->bytes, lines->count};
}

static void end_line(struct cause_lines *lines, bool is_overwritten, cause_on_line *on_line,
                     void *context)
{
    on_line(context, cause_lines_rest(lines), is_overwritten);
    lines->count = 0;
    lines->is_returned = false;
}

static size_t until(struct text bytes, char byte)
{
    const char *found = memchr(bytes.bytes, byte, bytes.count);

    return found != NULL ? (size_t)(found - bytes.bytes) : bytes.count;
}

/* Takes the bytes up to the next one that is not text, and returns their number. */
static size_t take_run(struct cause_lines *lines, struct text bytes)
{
    const size_t room = sizeof lines->bytes - lines->count;

    bytes.count = until(bytes, '\n');
    bytes.count = until(bytes, '\r');
    bytes.count = until(bytes, '\x1b');
    memcpy(lines->bytes + lines->count, bytes.bytes, bytes.count < room ? bytes.count : room);
    lines->count += (uint32_t)(bytes.count < room ? bytes.count : room);
    return bytes.count;
}

void cause_lines_add(struct cause_lines *lines, struct text bytes, cause_on_line *on_line,
                     void *context)
{
    while (bytes.count > 0) {
        const char byte = bytes.bytes[0];
        size_t taken = 1;

        if (byte == '\n') { /* it ends an escape sequence, too: none has one */
            lines->escape = ESCAPE_NONE;
            end_line(lines, false, on_line, context);
        } else if (lines->escape != ESCAPE_NONE) {
            take_escape(lines, byte);
        } else if (byte == '\x1b') {
            lines->escape = ESCAPE_BEGUN;
        } else if (byte == '\r') {
            lines->is_returned = true;
        } else {
            if (lines->is_returned && lines->count > 0)
                end_line(lines, true, on_line, context);
            lines->is_returned = false;
            taken = take_run(lines, bytes);
        }
        bytes = text_from(bytes, taken);
    }
}
