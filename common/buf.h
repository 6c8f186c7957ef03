/* A growing array of bytes with a limit. Zero it first; buf_free at the end. */
#ifndef COMMON_BUF_H
#define COMMON_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *bytes; /* owned */
    size_t byte_count, capacity;
    size_t limit; /* 0: none */
    bool failed;  /* over the limit, or no memory: the content is cut, later writes do nothing */
};

void buf_add(struct buf *buf, const void *bytes, size_t byte_count);
void buf_add_text(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the first `byte_count` bytes. */
void buf_drop(struct buf *buf, size_t byte_count);
/* Removes what follows the first `byte_count` bytes. */
void buf_cut(struct buf *buf, size_t byte_count);
void buf_free(struct buf *buf);

#endif
