/* What one worker prints: from its pipe into its log file, to the byte, with the last of it kept
 * for reports. An edge of the shim. */
#ifndef LAUNCHERD_OUTPUT_H
#define LAUNCHERD_OUTPUT_H

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
    bool is_open;     /* the pipe is; the poll handle lives until its close callback */
    bool disk_failed; /* a write failed; told once, the worker goes on */
    size_t last_bytes;
    char last[2 * TAIL_BYTES_MAX];
};

/* Makes the pipe and the file. `*write_fd`, close-on-exec, is for the worker; the caller closes its
 * copy. Reading begins at once. */
enum status output_open(struct output *output, uv_loop_t *loop, const char *path, int *write_fd,
                        struct err *err);
/* Takes all that is in the pipe now. */
void output_drain(struct output *output);
/* Drains, then closes. Again is nothing. */
void output_close(struct output *output);
/* The last lines, at most OUTPUT_LINES_KEPT, as UTF-8 text without NUL (what is not becomes '?').
 */
void output_tail(const struct output *output, char out[TAIL_BYTES_MAX]);

#endif
