/* A daemon of ours as a child: started with its messages in a file, ready when it has printed its
 * line, started again when it dies unasked, stopped within a bound. An edge on the caller's loop.
 */
#ifndef DDPCTL_DAEMON_H
#define DDPCTL_DAEMON_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

#define DAEMON_ARGS_MAX 16

struct daemon;

struct daemon_handlers {
    void (*on_ready)(struct daemon *daemon); /* at each start */
    void (*on_restart)(struct daemon *daemon, const char *how_it_ended);
    void (*on_failed)(struct daemon *daemon,
                      const char *text); /* it cannot be kept running; on_stopped does not follow */
    void (*on_stopped)(struct daemon *daemon); /* after daemon_stop */
};

struct daemon {
    char name[32]; /* "rendezvous", "node0" */
    char program[PATH_MAX], log_path[PATH_MAX];
    char arg_texts[DAEMON_ARGS_MAX][PATH_MAX];
    char *args[DAEMON_ARGS_MAX + 1];
    uint32_t arg_count;
    char *const *environ; /* borrowed */
    const struct daemon_handlers *handlers;
    void *owner;
    uv_loop_t *loop;
    uv_process_t process;
    uv_pipe_t out;
    uint32_t handles_open;
    uint64_t started_us;
    uint32_t quick_ends; /* in a row, soon after the start */
    bool running, is_ready, stopping, finished;
    char ended[64];
};

/* One word of the command line, printf-like. The program's path is the first. */
void daemon_arg(struct daemon *daemon, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* name, program, log_path, arguments, environ, handlers, owner are set. */
enum status daemon_start(struct daemon *daemon, uv_loop_t *loop, struct err *err);
/* SIGTERM; on_stopped follows, at once where it does not run. Again is nothing. */
void daemon_stop(struct daemon *daemon);
/* It had its time: SIGKILL. */
void daemon_kill(struct daemon *daemon);

#endif
