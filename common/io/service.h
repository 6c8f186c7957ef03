/* What both daemons share: options, the ready line, and the signals that end them. Only for main,
 * as these functions print. */
#ifndef COMMON_IO_SERVICE_H
#define COMMON_IO_SERVICE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/options.h"

#define SERVICE_EXIT_USAGE 2
/* By which whoever starts a daemon with --exit-with-parent says its pid; not needed, but without it an
 * end before main is not seen. */
#define SERVICE_STARTER_VARIABLE "DDP_STARTER_PID"

/* By which whoever starts a server hands it a descriptor (from 3 on) that listens on the server's unix socket
 * already: so nodes and clients can connect while the server still starts. */
#define SERVICE_SOCKET_VARIABLE "DDP_SOCKET_FD"

struct service_settings {
    uint32_t log_format; /* index in "text|json" */
    bool exit_with_parent;
};

/* The rows for these options. `member` of `type` is a struct service_settings; `stop` says what
 * --exit-with-parent does. */
/* clang-format off */
#define SERVICE_OPTION_ROWS(type, member, stop)                                                    \
    {.name = "log-format",                                                                         \
     .env = "DDP_LOG_FORMAT",                                                                      \
     .kind = OPTION_WORD,                                                                          \
     .words = "text|json",                                                                         \
     .value = "FORM",                                                                              \
     OPTION_INTO(type, member.log_format),                                                         \
     .help = "of the log lines on stderr: text or json"},                                          \
    {.name = "exit-with-parent",                                                                   \
     .kind = OPTION_FLAG,                                                                          \
     OPTION_INTO(type, member.exit_with_parent),                                                   \
     .help = stop " when the process that started this one ends"}
/* clang-format on */

/* Parses a command line that has only options into `settings`. Returns -1, or the exit code: help
 * or the version was printed, or an error. */
int service_parse(const struct option_table *table, int argc, char *const *argv, void *settings);
/* Prints "PROGRAM: ...; see PROGRAM --help" on stderr and returns SERVICE_EXIT_USAGE. */
int service_complain(const struct option_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The default state directory: under /var/lib/ddp for root, else under ~/.local/state/ddp or
 * $XDG_STATE_HOME. `name`: "" or "/launcherd", appended to it. */
void service_state_dir(const char *name, char dir[PATH_MAX]);

/* Sets malloc up for a process that lives long and uses little; service_begin does it. Before there are threads. */
void service_memory(void);
/* Sets up the process: log lines carry `program`, and SIGPIPE is ignored. With exit_with_parent,
 * SIGHUP is ignored, and the process gets stop_signal() when `parent` ends; `parent` is getppid()
 * at the start of main. False: the parent has ended already. */
bool service_begin(const char *program, const struct service_settings *settings, pid_t parent);
/* The descriptor of SERVICE_SOCKET_VARIABLE; 0: none. Once: the variable is of nobody whom we start. */
int service_socket(void);
/* Keeps the memory of this process, which has keys, out of core files and of programs that collect
 * them (core(5)). */
void service_no_core(void);
/* Prints one line on stdout, "PROGRAM: ready ...", and notifies systemd. */
void service_ready(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Watches SIGTERM (except in a step of Slurm, see stop_signal.h) and SIGINT without keeping the
 * loop running. Zero it first. */
struct service_signals {
    uv_signal_t handles[2];
};

/* `on_signal` gets handles whose `data` is `owner`. Returns 0 or a negative libuv code; then there
 * is nothing to close. */
int service_signals_open(struct service_signals *signals, uv_loop_t *loop, uv_signal_cb on_signal,
                         void *owner);
/* Restores the default action of the signals. The handles are free after the next turn of the loop.
 * A second call does nothing. */
void service_signals_close(struct service_signals *signals);

#endif
