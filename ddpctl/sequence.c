#include "ddpctl/sequence.h"

#include <stdio.h>
#include <string.h>

#include "ddpctl/escape.h"

#define ESCAPE '\x1b'
#define PARAMETERS_MAX 16u

/* -- where a sequence ends ---------------------------------------------------------------------- */

static bool is_between(char byte, unsigned char first, unsigned char last)
{
    return (unsigned char)byte >= first && (unsigned char)byte <= last;
}

/* The kind of "ESC [ parameters intermediates final" (5.4). */
static enum sequence control_kind(const char *text, size_t length)
{
    const bool is_standard = strspn(text + 2, "0123456789;:") == length - 3;

    if (!is_standard)
        return SEQUENCE_OTHER; /* private ones, as ESC [ ? 25 l */
    switch (text[length - 1]) {
    case 'm':
        return SEQUENCE_STYLE;
    case 'C':
    case 'D':
    case 'G':
    case 'K':
        return SEQUENCE_LINE;
    case 'A':
    case 'F':
        return SEQUENCE_UP;
    case 'B':
    case 'E':
        return SEQUENCE_DOWN;
    default:
        return SEQUENCE_OTHER;
    }
}

static enum sequence control_next(const char *text, size_t byte_count, size_t *length)
{
    size_t at = 2;

    while (at < byte_count && is_between(text[at], 0x30, 0x3f))
        at++;
    while (at < byte_count && is_between(text[at], 0x20, 0x2f))
        at++;
    if (at == byte_count)
        return SEQUENCE_PART;
    if (!is_between(text[at], 0x40, 0x7e))
        return SEQUENCE_NONE;
    *length = at + 1;
    return control_kind(text, *length);
}

/* "ESC ] text BEL" and other strings (5.6), which end with BEL or ESC \. */
static enum sequence string_next(const char *text, size_t byte_count, size_t *length)
{
    for (size_t at = 2; at < byte_count; at++) {
        if (text[at] == '\n' || text[at] == '\r')
            return SEQUENCE_NONE;
        if (text[at] == '\a' || (text[at] == '\\' && text[at - 1] == ESCAPE)) {
            *length = at + 1;
            return SEQUENCE_OTHER;
        }
    }
    return SEQUENCE_PART;
}

static enum sequence kind_next(const char *text, size_t byte_count, size_t *length)
{
    size_t at = 1;

    if (byte_count == 0 || text[0] != ESCAPE)
        return SEQUENCE_NONE;
    if (byte_count > 1 && text[1] == '[')
        return control_next(text, byte_count, length);
    if (byte_count > 1 && text[1] != '\0' && strchr("]PX^_", text[1]) != NULL)
        return string_next(text, byte_count, length);
    while (at < byte_count && is_between(text[at], 0x20, 0x2f)) /* as ESC ( B */
        at++;
    if (at == byte_count)
        return SEQUENCE_PART;
    *length = at + 1;
    return is_between(text[at], 0x30, 0x7e) ? SEQUENCE_OTHER : SEQUENCE_NONE;
}

enum sequence sequence_next(const char *text, size_t byte_count, size_t *length)
{
    const bool is_cut = byte_count > SEQUENCE_BYTES_MAX;
    enum sequence kind = kind_next(text, is_cut ? SEQUENCE_BYTES_MAX : byte_count, length);

    return is_cut && kind == SEQUENCE_PART ? SEQUENCE_NONE : kind;
}

uint32_t sequence_lines(const char *text, size_t length)
{
    uint32_t lines = 0;

    for (size_t i = 2; i < length && is_between(text[i], '0', '9') && lines < 1000; i++)
        lines = lines * 10 + (uint32_t)(text[i] - '0');
    return lines > 0 ? lines : 1;
}

/* -- styles ------------------------------------------------------------------------------------- */

bool style_is_usual(const struct style *style)
{
    return style->marks == 0 && style->fore[0] == '\0' && style->back[0] == '\0';
}

static void set_color(char color[24], const uint32_t *numbers, uint32_t count)
{
    int at = 0;

    color[0] = '\0';
    for (uint32_t i = 0; i < count && at < 20; i++)
        at += snprintf(color + at, 24 - (size_t)at, "%s%u", i > 0 ? ";" : "", numbers[i] & 255);
}

/* Takes the parameter at the start of `numbers`, and returns how many belong to it. */
static uint32_t take_number(struct style *style, const uint32_t *numbers, uint32_t count)
{
    const uint32_t number = numbers[0];
    uint32_t width = 1;

    if (number == 0)
        *style = (struct style){0};
    else if (number < 10)
        style->marks = (uint16_t)(style->marks | 1u << number);
    else if (number == 22)
        style->marks = (uint16_t)(style->marks & ~(1u << 1 | 1u << 2));
    else if (number == 25)
        style->marks = (uint16_t)(style->marks & ~(1u << 5 | 1u << 6));
    else if (number == 23 || number == 24 || (number >= 27 && number < 30))
        style->marks = (uint16_t)(style->marks & ~(1u << (number - 20)));
    else if (number == 39)
        style->fore[0] = '\0';
    else if (number == 49)
        style->back[0] = '\0';
    if (number != 38 && number != 48) {
        if ((number >= 30 && number < 38) || (number >= 90 && number < 98))
            set_color(style->fore, numbers, 1);
        if ((number >= 40 && number < 48) || (number >= 100 && number < 108))
            set_color(style->back, numbers, 1);
        return 1;
    }
    width = count > 1 && numbers[1] == 5 ? 3 : count > 1 && numbers[1] == 2 ? 5 : count;
    width = width < count ? width : count;
    set_color(number == 38 ? style->fore : style->back, numbers, width);
    return width;
}

void style_take(struct style *style, const char *text, size_t length)
{
    uint32_t numbers[PARAMETERS_MAX] = {0}, count = 1, at = 0;

    for (size_t i = 2; i + 1 < length; i++) {
        if (is_between(text[i], '0', '9'))
            numbers[count - 1] = numbers[count - 1] % 1000 * 10 + (uint32_t)(text[i] - '0');
        else if (text[i] == ':')
            return; /* 4:3, a curly underline, 38:2::1:2:3: rare, and shown for this line alone */
        else if (count == PARAMETERS_MAX)
            break;
        else
            count++;
    }
    while (at < count)
        at += take_number(style, numbers + at, count - at);
}

void style_take_all(struct style *style, const char *text, size_t byte_count)
{
    const char *end = text + byte_count, *at = text;
    size_t length;

    while ((at = memchr(at, ESCAPE, (size_t)(end - at))) != NULL) {
        length = 1;
        if (sequence_next(at, (size_t)(end - at), &length) == SEQUENCE_STYLE)
            style_take(style, at, length);
        at += length;
    }
}

void style_begin(const struct style *style, struct buf *out)
{
    if (style_is_usual(style))
        return;
    buf_add_text(out, "\x1b[0");
    for (uint32_t i = 1; i < 10; i++)
        if ((style->marks >> i & 1) != 0)
            buf_printf(out, ";%u", i);
    if (style->fore[0] != '\0')
        buf_printf(out, ";%s", style->fore);
    if (style->back[0] != '\0')
        buf_printf(out, ";%s", style->back);
    buf_add_text(out, "m");
}

void style_end(const struct style *style, struct buf *out)
{
    if (!style_is_usual(style))
        buf_add_text(out, "\x1b[0m");
}

/* -- text --------------------------------------------------------------------------------------- */

static bool may_pass(const struct sequence_rules *rules, enum sequence kind)
{
    switch (kind) {
    case SEQUENCE_STYLE:
        return rules->has_styles;
    case SEQUENCE_LINE:
        return rules->has_moves;
    case SEQUENCE_UP:
    case SEQUENCE_DOWN:
        return rules->has_climbs;
    case SEQUENCE_NONE:
    case SEQUENCE_PART:
    case SEQUENCE_OTHER:
        break;
    }
    return false;
}

/* Writes the control character at the start of `text`, or the sequence that it begins. Returns its length. */
static size_t write_control(const struct sequence_rules *rules, struct style *style,
                            const char *text, size_t byte_count, struct buf *out)
{
    size_t length = 1;
    const enum sequence kind = sequence_next(text, byte_count, &length);

    if (may_pass(rules, kind) || (text[0] == '\b' && rules->has_moves)) {
        buf_add(out, text, length);
        if (kind == SEQUENCE_STYLE)
            style_take(style, text, length);
    } else if (kind == SEQUENCE_NONE || kind == SEQUENCE_PART) {
        length = 1;
        escape_text(text, length, out);
    }
    return length;
}

void sequence_write(const struct sequence_rules *rules, struct style *style, const char *text,
                    size_t byte_count, struct buf *out)
{
    const char *end = text + byte_count, *at = text;

    style_begin(style, out);
    while (at < end) {
        const char *stop = at;

        while (stop < end && *stop != ESCAPE && *stop != '\b')
            stop++;
        escape_text(at, (size_t)(stop - at), out);
        at = stop;
        if (at < end)
            at += write_control(rules, style, at, (size_t)(end - at), out);
    }
    style_end(style, out);
}
