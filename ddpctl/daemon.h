/* One of our daemons as a child process. Its log goes to a file. It is ready when it has printed a
 * line. If it ends by itself it is started again; if it does not stop in time it is killed. An edge
 * on the caller's loop. */
#ifndef DDPCTL_DAEMON_H
#define DDPCTL_DAEMON_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"

#define DAEMON_ARGS_MAX 24
#define DAEMON_SOCKET_FD 3

struct daemon;

struct daemon_handlers {
    void (*on_ready)(struct daemon *daemon); /* after each start */
    void (*on_restart)(struct daemon *daemon, const char *how_it_ended);
    void (*on_failed)(struct daemon *daemon,
                      const char *text); /* it ends again and again; on_stopped does not follow */
    void (*on_stopped)(struct daemon *daemon); /* after daemon_stop */
};

struct daemon {
    char name[32]; /* "rendezvous", "node0" */
    char program[PATH_MAX], log_path[PATH_MAX];
    char arg_texts[DAEMON_ARGS_MAX][PATH_MAX];
    char *args[DAEMON_ARGS_MAX + 1];
    uint32_t arg_count;
    char *const *environ; /* borrowed */
    int socket_fd;        /* becomes its descriptor DAEMON_SOCKET_FD; 0: none; borrowed */
    const struct daemon_handlers *handlers;
    void *owner;
    uv_loop_t *loop;
    uv_process_t process;
    uv_pipe_t out;
    uint32_t handles_open;
    uint64_t started_us;
    uint32_t quick_ends; /* how many times in a row it ended soon after its start */
    bool running, is_ready, stopping, finished;
    char ended[64];
    char ready_line[512]; /* the line that it printed, without its end, possibly cut */
    size_t ready_bytes;
};

/* Adds one argument, printf-like. The first one is the path of the program. */
void daemon_arg(struct daemon *daemon, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Starts it. Set name, program, log_path, arguments, environ, handlers and owner first. */
enum status daemon_start(struct daemon *daemon, uv_loop_t *loop, struct err *err);
/* Sends stop_signal(); on_stopped follows, at once if it is not running. A second call does
 * nothing. */
void daemon_stop(struct daemon *daemon);
/* Sends SIGKILL. */
void daemon_kill(struct daemon *daemon);

#endif
