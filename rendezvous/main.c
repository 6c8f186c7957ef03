/* rendezvous: options, loop, wiring. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/service.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/msg.h"
#include "rendezvous/rdzv_io.h"

struct settings {
    const char *state_dir, *socket, *listen;
    uint64_t lease_us, suspect_us, lost_us;
    bool no_fsync;
    struct service_settings service;
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
     .help =
         "TCP too, on a loopback address, where every local user counts as the server's; port 0: "
         "one that is free"},
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
    SERVICE_OPTION_ROWS(struct settings, service, "stop"),
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

/* Each connection is a descriptor; the usual soft limit of 1024 is for programs that use select. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= 4 * (rlim_t)CONNS_MAX)
        return;
    limit.rlim_cur = limit.rlim_max < 4 * (rlim_t)CONNS_MAX ? limit.rlim_max : 4 * CONNS_MAX;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void on_signal(uv_signal_t *signal, int number)
{
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: stopping; jobs go on on their nodes",
             number == SIGTERM ? "SIGTERM" : "SIGINT");
    rdzv_io_stop(signal->data);
}

static int serve(const struct rdzv_io_options *options)
{
    struct service_signals signals = {0};
    struct rdzv_io *io = NULL;
    enum status status;
    uv_loop_t loop;
    struct err err;

    if (uv_loop_init(&loop) < 0)
        return EXIT_FAILURE;
    status = rdzv_io_open(&io, &loop, options, &err);
    if (status == STATUS_OK && service_signals_open(&signals, &loop, on_signal, io) < 0)
        status = err_set(&err, STATUS_IO, 0, "SIGTERM and SIGINT cannot be watched");
    if (status == STATUS_OK) {
        service_ready("rendezvous: ready %s\n", rdzv_io_addresses(io));
    } else {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        if (io != NULL)
            rdzv_io_stop(io);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    service_signals_close(&signals);
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
    pid_t parent = getppid();
    int code;

    service_state_dir("", dir);
    settings.state_dir = dir;
    code = service_parse(&table, argc, argv, &settings);
    if (code < 0 && settings.suspect_us > settings.lost_us)
        code = service_complain(&table, "--suspect must not be longer than --lost");
    if (code >= 0)
        return code;
    if (!service_begin("rendezvous", &settings.service, parent))
        return EXIT_FAILURE;
    raise_descriptor_limit();
    (void)snprintf(path, sizeof path, "%s/rendezvous.sock", settings.state_dir);
    options.state_dir = settings.state_dir;
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
