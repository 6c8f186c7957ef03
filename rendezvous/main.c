/* rendezvous: options, loop, wiring. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/notify.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/msg.h"
#include "common/options.h"
#include "rendezvous/rdzv_io.h"

#define EXIT_USAGE 2

struct settings {
    const char *state_dir, *socket, *listen;
    uint64_t lease_us, suspect_us, lost_us;
    bool no_fsync, exit_with_parent;
    uint32_t log_format; /* index in "text|json" */
};

static const struct option_row rows[] = {
    {.name = "state-dir",
     .kind = OPTION_TEXT,
     .value = "DIR",
     OPTION_INTO(struct settings, state_dir),
     .help = "jobs and events are kept here (default: /var/lib/ddp for root, else "
             "~/.local/state/ddp)"},
    {.name = "socket",
     .kind = OPTION_TEXT,
     .value = "PATH",
     OPTION_INTO(struct settings, socket),
     .help = "unix socket for clients and nodes (default: DIR/rendezvous.sock)"},
    {.name = "listen",
     .kind = OPTION_TEXT,
     .value = "HOST:PORT",
     OPTION_INTO(struct settings, listen),
     .help = "TCP too, on a loopback address; port 0: one that is free"},
    {.name = "lease",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, lease_us),
     .help = "a node that cannot reach the server kills its workers after this (default: 60s)"},
    {.name = "suspect",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, suspect_us),
     .help = "a node silent for this long gets no new jobs (default: 5s)"},
    {.name = "lost",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, lost_us),
     .help = "a node silent for this long is given up, its jobs restart (default: 15s)"},
    {.name = "no-fsync",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, no_fsync),
     .help = "the state need not survive a crash of the machine, only of the server"},
    {.name = "log-format",
     .env = "DDP_LOG_FORMAT",
     .kind = OPTION_WORD,
     .words = "text|json",
     .value = "FORM",
     OPTION_INTO(struct settings, log_format),
     .help = "of the log lines on stderr: text or json"},
    {.name = "exit-with-parent",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, exit_with_parent),
     .help = "stop when the process that started this one ends"},
};
static const char *const examples[] = {
    "rendezvous", "rendezvous --state-dir /srv/ddp --listen 127.0.0.1:0", NULL};
static const struct option_table table = {
    .program = "rendezvous",
    .usage = "[options]",
    .summary = "The server: keeps the queue of jobs, starts and restarts them on its nodes.",
    .examples = examples,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

/* -1: go on. Else the exit code. */
static int parse(int argc, char **argv, struct settings *settings)
{
    struct option_result result = {0};
    struct buf help = {0};
    struct err err;

    if (options_parse(&table, argc, argv, options_getenv, settings, &result, &err) != STATUS_OK) {
        (void)fprintf(stderr, "rendezvous: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (result.wants_version) {
        (void)puts("rendezvous " DDP_VERSION);
        return EXIT_SUCCESS;
    }
    if (result.wants_help) {
        options_help(&table, &help);
        (void)fwrite(help.bytes, 1, help.byte_count, stdout);
        buf_free(&help);
        return EXIT_SUCCESS;
    }
    if (result.positional_count + result.rest_count > 0) {
        (void)fprintf(stderr, "rendezvous: takes options only; see rendezvous --help\n");
        return EXIT_USAGE;
    }
    if (settings->suspect_us <= settings->lost_us)
        return -1;
    (void)fprintf(stderr, "rendezvous: --suspect must not be longer than --lost\n");
    return EXIT_USAGE;
}

/* The default state directory: what belongs to the system is under /var/lib, what belongs to a
 * user where the XDG base directory specification says. */
static void choose_dir(const char *wanted, char dir[PATH_MAX])
{
    const char *state_home = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (wanted != NULL)
        (void)snprintf(dir, PATH_MAX, "%s", wanted);
    else if (geteuid() == 0)
        (void)snprintf(dir, PATH_MAX, "/var/lib/ddp");
    else if (state_home != NULL && state_home[0] == '/')
        (void)snprintf(dir, PATH_MAX, "%s/ddp", state_home);
    else
        (void)snprintf(dir, PATH_MAX, "%s/.local/state/ddp", home != NULL ? home : "");
}

/* Each connection is a descriptor; the usual soft limit of 1024 is for programs that use select. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= 4 * (rlim_t)CONNS_MAX)
        return;
    limit.rlim_cur = limit.rlim_max < 4 * (rlim_t)CONNS_MAX ? limit.rlim_max : 4 * CONNS_MAX;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static bool follow_parent(void)
{
    pid_t parent = getppid();

    return prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent;
}

static void on_signal(uv_signal_t *signal, int number)
{
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: stopping; jobs go on on their nodes",
             number == SIGTERM ? "SIGTERM" : "SIGINT");
    rdzv_io_stop(signal->data);
}

static int serve(const struct rdzv_io_options *options)
{
    uv_signal_t signals[2];
    struct rdzv_io *io = NULL;
    enum status status;
    uv_loop_t loop;
    struct err err;

    if (uv_loop_init(&loop) < 0)
        return EXIT_FAILURE;
    status = rdzv_io_open(&io, &loop, options, &err);
    for (int i = 0; i < 2 && status == STATUS_OK; i++) {
        (void)uv_signal_init(&loop, &signals[i]);
        signals[i].data = io;
        (void)uv_signal_start(&signals[i], on_signal, i == 0 ? SIGTERM : SIGINT);
        uv_unref((uv_handle_t *)&signals[i]); /* the loop ends when all else is closed */
    }
    if (status == STATUS_OK) {
        (void)printf("rendezvous: ready %s\n", rdzv_io_addresses(io));
        (void)fflush(stdout);
        notify_ready();
    } else {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        if (io != NULL)
            rdzv_io_stop(io);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        uv_close((uv_handle_t *)&signals[i], NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    rdzv_io_free(&io);
    if (uv_loop_close(&loop) != 0)
        abort(); /* a handle was forgotten */
    return status == STATUS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct settings settings = {
        .lease_us = LEASE_DEFAULT_US, .suspect_us = NODE_SUSPECT_US, .lost_us = NODE_LOST_US};
    struct rdzv_io_options options = {0};
    char dir[PATH_MAX], path[PATH_MAX + 32];
    int code = parse(argc, argv, &settings);

    if (code >= 0)
        return code;
    log_open("rendezvous", LOG_INFO, settings.log_format == 1);
    if (settings.exit_with_parent && !follow_parent())
        return EXIT_FAILURE;
    raise_descriptor_limit();
    choose_dir(settings.state_dir, dir);
    (void)snprintf(path, sizeof path, "%s/rendezvous.sock", dir);
    options.state_dir = dir;
    options.survives_power = !settings.no_fsync;
    options.socket_path = settings.socket != NULL ? settings.socket : path;
    options.listen = settings.listen;
    options.lease_us = settings.lease_us;
    options.suspect_us = settings.suspect_us;
    options.lost_us = settings.lost_us;
    /* several beats fit before silence means something */
    options.beat_interval_us =
        settings.suspect_us / 5 < BEAT_INTERVAL_US ? settings.suspect_us / 5 : BEAT_INTERVAL_US;
    if (options.beat_interval_us < 1000)
        options.beat_interval_us = 1000;
    return serve(&options);
}
