/* The output of one worker. The thread of log_writer.h copies its stdout and stderr byte for byte
 * into its log file; what reports need is kept (cause/causes.h). Part of the edge of the shim.
 *
 * Each stream is a pipe. The log has the bytes in the order in which the pipes became readable,
 * which is all that the kernel tells: if a worker writes to both pipes before the shim wakes up,
 * whole pieces may change places; on a busy machine that takes milliseconds. A common pipe for both
 * streams (output_open_one) has the exact order, but nobody knows then which bytes are stderr. One
 * socket for both would tell, but a program that opens /dev/stderr, as scripts do, cannot open a
 * socket. */
#ifndef LAUNCHERD_SHIM_OUTPUT_H
#define LAUNCHERD_SHIM_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/limits.h"
#include "common/status.h"
#include "launcherd/cause/causes.h"
#include "launcherd/shim/log_file.h"
#include "launcherd/shim/log_writer.h"

#define OUTPUT_LINES_KEPT 5u

struct output_stream {
    uv_poll_t poll;
    int fd;
    bool is_error;
    bool is_open;   /* the pipe is open; the poll handle lives until its close callback */
    bool is_paused; /* not read now, because the writer has no room */
};

struct output {
    struct output_stream streams[2]; /* stdout, stderr */
    uint64_t lost_bytes;             /* dropped, and not yet told in the log */
    struct log_writer *writer;
    struct log_file file; /* only the writer's thread uses it */
    struct causes causes; /* what it says about why the worker failed, and its last lines */
};

/* Makes the pipes, and begins to read. `output` is zeroed except for `file`, which is open; the writer closes it, after a
 * failure too. `write_fds`: stdout and stderr for the worker, close-on-exec, which the caller closes; both are -1 on
 * failure. STATUS_SYSTEM. */
enum status output_open(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                        int write_fds[2], struct err *err);
/* The same with one pipe for both, whose bytes are all stdout. */
enum status output_open_one(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                            int write_fds[2], struct err *err);
/* The same for a worker with a terminal: both its streams come from `master_fd`, as stdout. Takes
 * `master_fd`, and closes it on failure too. */
enum status output_open_terminal(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                                 int master_fd, struct err *err);
/* Call when the writer has room or is stuck: reads the paused pipes again. */
void output_resume(struct output *output);
/* Reads what is in the pipes now, but at most their capacity, because a process that is left may go
 * on writing. */
void output_drain(struct output *output);
/* Puts "[... text ...]" as a line into the log. False: the log is closed, or the writer takes no
 * more. */
bool output_note(struct output *output, const char *text);
/* Drains, then closes. A second call does nothing. */
void output_close(struct output *output);
/* The last lines, at most OUTPUT_LINES_KEPT, as UTF-8 text without NUL; '?' replaces invalid
 * bytes. */
void output_tail(const struct output *output, char out[TAIL_BYTES_MAX]);

#endif
