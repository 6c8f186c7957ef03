/* The output of one worker: copies its pipe into its log file, byte for byte, by the thread of
 * log_writer.h, and keeps the last bytes for reports. An edge of the shim. */
#ifndef LAUNCHERD_SHIM_OUTPUT_H
#define LAUNCHERD_SHIM_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/limits.h"
#include "common/status.h"
#include "launcherd/shim/log_file.h"
#include "launcherd/shim/log_writer.h"

#define OUTPUT_LINES_KEPT 5u

struct output {
    uv_poll_t poll;
    int pipe_fd;
    bool is_open;        /* the pipe is open; the poll handle lives until its close callback */
    bool is_paused;      /* the writer has no room */
    uint64_t lost_bytes; /* dropped since the last that were not */
    struct log_writer *writer;
    struct log_file file; /* the thread's */
    size_t last_bytes;
    char last[2 * TAIL_BYTES_MAX];
};

/* Makes the pipe and the log file, and begins to read. `*write_fd`, close-on-exec, is for the
 * worker; the caller closes its copy. `size_max`: see log_file.h. */
enum status output_open(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                        const char *path, uint64_t size_max, int *write_fd, struct err *err);
/* The writer has room, or is stuck: reads on if it has paused. */
void output_resume(struct output *output);
/* Reads all that is in the pipe now: at most its capacity, since a writer that is left may go on. */
void output_drain(struct output *output);
/* Drains, then closes. A second call does nothing. */
void output_close(struct output *output);
/* The last lines, at most OUTPUT_LINES_KEPT, as UTF-8 text without NUL; invalid bytes become
 * '?'. */
void output_tail(const struct output *output, char out[TAIL_BYTES_MAX]);

#endif
