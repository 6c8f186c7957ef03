/* What the two daemons begin and end with: options that they share, the line that says that they
 * are ready, the signals that end them. Called by main and below it by nobody: these print. */
#ifndef COMMON_IO_SERVICE_H
#define COMMON_IO_SERVICE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/options.h"

#define SERVICE_EXIT_USAGE 2

struct service_settings {
    uint32_t log_format; /* index in "text|json" */
    bool exit_with_parent;
};

/* Their rows; `member` of `type` is a struct service_settings, `stop` says what stopping means. */
#define SERVICE_OPTION_ROWS(type, member, stop)                                                    \
    {.name = "log-format",                                                                         \
     .env = "DDP_LOG_FORMAT",                                                                      \
     .kind = OPTION_WORD,                                                                          \
     .words = "text|json",                                                                         \
     .value = "FORM",                                                                              \
     OPTION_INTO(type, member.log_format),                                                         \
     .help = "of the log lines on stderr: text or json"},                                          \
    {                                                                                              \
        .name = "exit-with-parent", .kind = OPTION_FLAG,                                           \
        OPTION_INTO(type, member.exit_with_parent),                                                \
        .help = stop " when the process that started this one ends"                                \
    }

/* A command line of options alone into `settings`. -1: go on; else what to exit with: help or the
 * version was printed, or what is wrong. */
int service_parse(const struct option_table *table, int argc, char *const *argv, void *settings);
/* "PROGRAM: ...; see PROGRAM --help" on stderr; SERVICE_EXIT_USAGE. */
int service_complain(const struct option_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Where state goes by default: for root under /var/lib/ddp, else under ~/.local/state/ddp, or where
 * $XDG_STATE_HOME says. `name`: "" or "/launcherd", added to it. */
void service_state_dir(const char *name, char dir[PATH_MAX]);

/* Log lines under `program` from here on; SIGPIPE is an error of the write alone. With
 * exit_with_parent, SIGTERM comes when `parent` ends, which was getppid() when main began; false:
 * it has already. */
bool service_begin(const char *program, const struct service_settings *settings, pid_t parent);
/* One line on stdout, "PROGRAM: ready ...", and systemd is told. */
void service_ready(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* SIGTERM and SIGINT. They do not keep the loop running. Zeroed before. */
struct service_signals {
    uv_signal_t handles[2];
};

/* `on_signal` gets handles whose `data` is `owner`. A code of libuv; when below 0 there is nothing
 * to close. */
int service_signals_open(struct service_signals *signals, uv_loop_t *loop, uv_signal_cb on_signal,
                         void *owner);
/* Signals end the process again as they do by default. The handles are free after the loop's next
 * turn. Nothing where it was closed before. */
void service_signals_close(struct service_signals *signals);

#endif
