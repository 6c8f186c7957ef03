#include "ddpctl/output_table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

#define CELL_BYTES 320

/* The width of `text` in columns: the number of UTF-8 characters. Wide and combining ones count as
 * one. */
static size_t text_width(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += utf8_is_start(*text);
    return width;
}

void output_cell(struct output_table *table, const char *format, ...)
{
    char text[CELL_BYTES];
    uint32_t column = table->count++ % table->columns;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (text[0] == '\0')
        (void)snprintf(text, sizeof text, "-");
    if (text_width(text) > table->widths[column])
        table->widths[column] = text_width(text);
    buf_add(&table->cells, text, strlen(text) + 1);
}

void output_table_write(struct output_table *table, const char *const *colors,
                        uint32_t color_column, struct buf *out)
{
    const char *at = table->cells.bytes;

    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t row = i / table->columns, column = i % table->columns;
        size_t pad = table->widths[column] - text_width(at);
        bool is_last = column == table->columns - 1, is_right = table->right[column] == 'r';
        bool is_colored = colors && row > 0 && column == color_column;

        if (is_right)
            buf_printf(out, "%*s", (int)pad, "");
        if (is_colored)
            buf_add_text(out, colors[row - 1]);
        buf_add_text(out, at);
        if (is_colored)
            buf_add_text(out, "\x1b[0m");
        if (!is_right && !is_last)
            buf_printf(out, "%*s", (int)pad, "");
        buf_add_text(out, is_last ? "\n" : "  ");
        at += strlen(at) + 1;
    }
    buf_free(&table->cells);
}
