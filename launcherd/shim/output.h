/* The output of one worker: copies its stdout and stderr into its log file, byte for byte, by the thread
 * of log_writer.h, and keeps the last bytes for reports. An edge of the shim.
 *
 * Each stream is a pipe, and the log gets what comes in the order in which the pipes became readable.
 * The kernel does not say more: what a worker writes to both within the time that the shim needs to
 * wake up may change places, as whole pieces. We refused one socket for both, whose order would be exact:
 * a program that opens /dev/stderr, as scripts do, cannot open a socket. */
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

struct output_stream {
    uv_poll_t poll;
    int fd;
    bool is_error;
    bool is_open;   /* the pipe is open; the poll handle lives until its close callback */
    bool is_paused; /* the writer has no room */
};

struct output {
    struct output_stream streams[2]; /* stdout, stderr */
    uint64_t lost_bytes;             /* dropped since the last that were not */
    struct log_writer *writer;
    struct log_file file; /* the thread's */
    size_t last_bytes;
    char last[8 * TAIL_BYTES_MAX]; /* a whole traceback, mostly */
};

/* Makes the pipes and the log file, and begins to read. write_fds: stdout and stderr for the worker,
 * close-on-exec; the caller closes its copies. On failure both are -1. `size_max`: see log_file.h. */
enum status output_open(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                        const char *path, uint64_t size_max, int write_fds[2], struct err *err);
/* The same of a worker at a terminal, both of whose streams come from `master_fd`, as stdout. It is taken,
 * and closed on failure too. */
enum status output_open_terminal(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                                 const char *path, uint64_t size_max, int master_fd,
                                 struct err *err);
/* The writer has room, or is stuck: reads on if it has paused. */
void output_resume(struct output *output);
/* Reads all that is in the pipes now: at most their capacity, since a writer that is left may go on. */
void output_drain(struct output *output);
/* Puts a line of ours, "[... text ...]", into the log. False: the log is closed. */
bool output_note(struct output *output, const char *text);
/* Drains, then closes. A second call does nothing. */
void output_close(struct output *output);
/* The last lines, at most OUTPUT_LINES_KEPT, as UTF-8 text without NUL; invalid bytes become
 * '?'. */
void output_tail(const struct output *output, char out[TAIL_BYTES_MAX]);

#endif
