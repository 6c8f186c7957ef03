#include "ddpctl/top_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "ddpctl/escape.h"

#define TOP_PLAIN "\x1b[0m"

bool top_line_begin(struct top_lines *lines, const char *style)
{
    if (lines->row == lines->rows)
        return false;
    lines->column = 0;
    lines->style = lines->is_plain ? "" : style;
    buf_add_text(lines->out, lines->style);
    return true;
}

void top_line_end(struct top_lines *lines)
{
    if (lines->style[0] != '\0') { /* the style fills the whole row */
        if (lines->column < lines->columns)
            buf_printf(lines->out, "%*s", (int)(lines->columns - lines->column), "");
        buf_add_text(lines->out, TOP_PLAIN);
    }
    while (lines->style[0] == '\0' && lines->out->byte_count > 0 &&
           lines->out->bytes[lines->out->byte_count - 1] == ' ')
        lines->out->byte_count--; /* drops spaces at the end */
    buf_add_text(lines->out, "\n");
    lines->row++;
}

static uint32_t width_of(const struct buf *text)
{
    uint32_t width = 0;

    for (size_t i = 0; i < text->byte_count; i++)
        width += utf8_is_start(text->bytes[i]);
    return width;
}

/* The number of bytes of the first `count` characters. */
static size_t bytes_of(const struct buf *text, uint32_t count)
{
    size_t at = 0;

    while (at < text->byte_count && (count > 0 || !utf8_is_start(text->bytes[at])))
        count -= utf8_is_start(text->bytes[at++]);
    return at;
}

static void pad(struct top_lines *lines, uint32_t count)
{
    if (count > 0)
        buf_printf(lines->out, "%*s", (int)count, "");
}

void top_cell_in(struct top_lines *lines, int width, const char *color, const char *text)
{
    uint32_t room = lines->columns - lines->column, wanted, shown;
    bool is_colored = lines->has_color && color[0] != '\0' && text[0] != '\0';
    struct buf escaped = {0};

    if (room == 0)
        return;
    escape_text(text, strlen(text), &escaped);
    for (size_t i = 0; i < escaped.byte_count; i++) /* a tab is wider than one column */
        escaped.bytes[i] = escaped.bytes[i] == '\t' ? ' ' : escaped.bytes[i];
    lines->out->failed = lines->out->failed || escaped.failed;
    shown = width_of(&escaped);
    wanted = width == 0 ? shown : (uint32_t)(width < 0 ? -width : width);
    wanted = wanted < room ? wanted : room;
    if (width < 0 && shown < wanted)
        pad(lines, wanted - shown);
    if (is_colored)
        buf_add_text(lines->out, color);
    if (shown <= wanted) {
        buf_add(lines->out, escaped.bytes, escaped.byte_count);
    } else {
        buf_add(lines->out, escaped.bytes, bytes_of(&escaped, wanted - 1));
        buf_add_text(lines->out, "~");
    }
    if (is_colored)
        buf_printf(lines->out, "%s%s", TOP_PLAIN, lines->style);
    if (width > 0 && shown < wanted)
        pad(lines, wanted - shown);
    lines->column += wanted;
    if (lines->column < lines->columns) {
        buf_add_text(lines->out, " ");
        lines->column++;
    }
    buf_free(&escaped);
}

void top_cell(struct top_lines *lines, int width, const char *text)
{
    top_cell_in(lines, width, "", text);
}

void top_cellf(struct top_lines *lines, int width, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    top_cell(lines, width, text);
}
