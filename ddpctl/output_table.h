/* A table of text: its cells are collected, row after row, then written in columns as wide as their widest cell.
 * Pure. */
#ifndef DDPCTL_OUTPUT_TABLE_H
#define DDPCTL_OUTPUT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

#define OUTPUT_COLUMNS_MAX 12

/* Set `columns` and `right`, leave the rest zero. */
struct output_table {
    struct buf cells; /* each followed by a NUL */
    uint32_t columns, count;
    const char *right; /* one character for each column; 'r': right-aligned */
    size_t widths[OUTPUT_COLUMNS_MAX];
};

/* The next cell; an empty text becomes "-". */
void output_cell(struct output_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes the table and frees its cells. `colors`: escape sequences for the cells of `color_column`, one for each row
 * after the head, or NULL. */
void output_table_write(struct output_table *table, const char *const *colors,
                        uint32_t color_column, struct buf *out);

#endif
