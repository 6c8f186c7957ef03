/* Builds lines for a terminal from cells of fixed width, clipped at the right edge. Pure. */
#ifndef DDPCTL_TOP_LINES_H
#define DDPCTL_TOP_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"

struct top_lines {
    struct buf *out;
    uint32_t rows, columns; /* of the terminal */
    uint32_t row, column;   /* where the next cell begins */
    bool has_color;
    bool is_plain;     /* no styles: the output is no terminal */
    const char *style; /* the current line's, restored after a cell with a colour; "": none */
};

#define TOP_BOLD "\x1b[1m"
#define TOP_REVERSE "\x1b[7m"
#define TOP_RED "\x1b[31m"
#define TOP_GREEN "\x1b[32m"
#define TOP_YELLOW "\x1b[33m"
#define TOP_DIM "\x1b[2m"

/* False: no row is left, and nothing of this line is drawn. `style`: TOP_... or "". */
bool top_line_begin(struct top_lines *lines, const char *style);
void top_line_end(struct top_lines *lines);
/* A cell of `width` columns: above 0 left-aligned, below 0 right-aligned, 0: as wide as the text.
 * Text is escaped. Text that does not fit is cut, with a ~ in the last column. A space follows. */
void top_cell(struct top_lines *lines, int width, const char *text);
/* Like top_cell, in a colour if colours are on. */
void top_cell_in(struct top_lines *lines, int width, const char *color, const char *text);
__attribute__((format(printf, 3, 4))) void top_cellf(struct top_lines *lines, int width,
                                                     const char *format, ...);

#endif
