/* A file that pieces are appended to: a piece is there whole or not at all, unless the process is
 * killed inside the write. Others may append to the same file. */
#ifndef WORKER_METRICS_APPEND_H
#define WORKER_METRICS_APPEND_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

struct append_file {
    int fd;       /* -1: closed */
    bool is_torn; /* a part of a piece is in the file and could not be taken back */
};

enum append_how {
    APPEND_NEW,     /* the file must not be there yet: STATUS_CONFLICT */
    APPEND_REPLACE, /* what is there goes */
    APPEND_KEEP     /* go on behind what is there */
};

/* Errors: STATUS_CONFLICT, STATUS_IO; err says why, without the path. */
enum status append_open(struct append_file *file, const char *path, enum append_how how,
                        struct err *err);
/* After a failure (STATUS_IO) the next call may succeed: a disk may have room again. */
enum status append_write(struct append_file *file, const void *bytes, size_t byte_count,
                         struct err *err);
/* A file that was never opened has fd -1. */
void append_close(struct append_file *file);

#endif
