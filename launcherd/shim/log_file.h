/* The log file of one worker. The functions block as long as the disk does, so only the thread of
 * log_writer calls them, except while the log is opened.
 *
 * A log has a maximum size. If it grows larger, its middle is cut: a hole is punched into the file,
 * which takes no space on the disk, and the bytes before the hole are replaced by a line with the
 * number of bytes that are gone. Every other byte keeps its offset, so positions of readers stay
 * valid. A log that somebody deletes is created again at the next output, with a hole in place of
 * the old bytes. If the disk is full, output is lost, and a line in its place says how much. If the
 * disk is still full when the log is closed, that line overwrites the last bytes of the log, which
 * needs no space; a log that has nothing becomes a hole (LOG_LOST_BYTES). */
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
    bool is_gone;            /* the file was deleted and could not be created again: logged once */
    bool is_full;            /* the file system cannot punch holes, so no more output is kept */
    uint64_t size, size_max; /* of the file with its hole; most bytes to keep, 0: no limit */
    uint64_t lost_bytes;     /* refused by the disk, and not yet told in the log */
    int lost_code;           /* the errno of that */
    uint64_t dropped_bytes;  /* not kept, because is_full */
    int64_t last_ms;         /* wall clock time of the last output */
    uint64_t cut_end;        /* the offset after the hole; 0: nothing is cut yet */
    struct log_index index;  /* which bytes are stderr, and when they came */
    char path[PATH_MAX];
};

/* Bytes that a worker has written to one of its streams. */
struct log_piece {
    bool is_error; /* stderr */
    int64_t at_ms; /* wall clock time at which they came */
    const char *bytes;
    size_t byte_count;
};

/* `size_max`: at least LOG_FILE_SIZE_MIN, or 0 for no limit. STATUS_IO. */
enum status log_file_open(struct log_file *file, const char *path, uint64_t size_max,
                          struct err *err);
void log_file_write(struct log_file *file, const struct log_piece *piece);
void log_file_close(struct log_file *file);

#endif
