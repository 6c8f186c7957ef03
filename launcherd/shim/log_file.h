/* The log file of one worker. Blocks as long as its disk does: for the thread of log_writer alone, but for
 * log_file_open.
 *
 * A log has a largest size. Beyond it the middle is cut: a hole is punched into the file, which
 * takes no space on the disk, and the bytes before it become a line with the number of bytes that
 * are gone. Every other byte keeps its offset, so a reader's position stays valid. A log that somebody
 * deletes is made again at the next output, with a hole for what it had. What a full disk refuses is told in
 * its place; when the disk is still full at the end, over the last bytes of the log, which need no room. */
#ifndef LAUNCHERD_SHIM_LOG_FILE_H
#define LAUNCHERD_SHIM_LOG_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "launcherd/process/log_index.h"

#define LOG_FILE_SIZE_MIN (1024u * 1024u)

struct log_file {
    int fd;
    bool disk_failed;        /* a write failed: logged once, and the worker goes on */
    bool is_gone;            /* it was deleted, and could not be made again: said once */
    bool is_full;            /* the file system cannot cut, so nothing more is kept */
    uint64_t size, size_max; /* of the file; most bytes that it may hold, 0: no limit */
    uint64_t lost_bytes;     /* that the disk has refused since the last that it took */
    int64_t last_ms;         /* when the last of the output came, wall clock */
    uint64_t cut_end;        /* the offset after the hole; 0: nothing is cut yet */
    struct log_index index;  /* which of it is stderr, and when it came */
    char path[PATH_MAX];
};

/* Bytes that a worker has written to one of its streams. */
struct log_piece {
    bool is_error; /* stderr */
    int64_t at_ms; /* wall clock, when they came */
    const char *bytes;
    size_t byte_count;
};

/* `size_max`: at least LOG_FILE_SIZE_MIN, or 0 for no limit. */
enum status log_file_open(struct log_file *file, const char *path, uint64_t size_max,
                          struct err *err);
void log_file_write(struct log_file *file, const struct log_piece *piece);
void log_file_close(struct log_file *file);

#endif
