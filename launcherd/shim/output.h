/* The output of one worker: copies its pipe into its log file, byte for byte, and keeps the last
 * bytes for reports. An edge of the shim.
 *
 * A log has a largest size. Beyond it the middle is cut: a hole is punched into the file, which
 * takes no space on the disk, and the bytes before it become a line with the number of bytes that
 * are gone. Every other byte keeps its offset, so a reader's position stays valid. */
#ifndef LAUNCHERD_SHIM_OUTPUT_H
#define LAUNCHERD_SHIM_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/limits.h"
#include "common/status.h"

#define OUTPUT_LINES_KEPT 5u

struct output {
    uv_poll_t poll;
    int pipe_fd, file_fd;
    bool is_open;            /* the pipe is open; the poll handle lives until its close callback */
    bool disk_failed;        /* a write failed: logged once, and the worker goes on */
    bool is_full;            /* the file system cannot cut, so nothing more is kept */
    uint64_t size, size_max; /* of the file; most bytes that it may hold, 0: no limit */
    uint64_t cut_end;        /* the offset after the hole; 0: nothing is cut yet */
    size_t last_bytes;
    char last[2 * TAIL_BYTES_MAX];
};

#define OUTPUT_SIZE_MIN (1024u * 1024u)

/* Makes the pipe and the log file, and begins to read. `*write_fd`, close-on-exec, is for the
 * worker; the caller closes its copy. `size_max`: at least OUTPUT_SIZE_MIN, or 0 for no limit. */
enum status output_open(struct output *output, uv_loop_t *loop, const char *path, uint64_t size_max,
                        int *write_fd, struct err *err);
/* Reads all that is in the pipe now: at most its capacity, since a writer that is left may go on. */
void output_drain(struct output *output);
/* Drains, then closes. A second call does nothing. */
void output_close(struct output *output);
/* The last lines, at most OUTPUT_LINES_KEPT, as UTF-8 text without NUL; invalid bytes become
 * '?'. */
void output_tail(const struct output *output, char out[TAIL_BYTES_MAX]);

#endif
