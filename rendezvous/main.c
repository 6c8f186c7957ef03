/* rendezvous: options, loop, wiring. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/default_server.h"
#include "common/io/service.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/msg.h"
#include "rendezvous/server/server.h"

#define DESCRIPTORS_RESERVED 64u /* for what is no connection */
#define DAY_US (24 * 3600 * 1000000ull)

struct settings {
    const char *state_dir, *socket, *listen, *advertise;
    uint64_t lease_us, suspect_us, lost_us, keep_jobs_us, client_idle_us;
    uint32_t max_slots_per_user, max_queued_per_user;
    bool all_users, no_fence, no_fsync, require_key;
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
     .help = "unix socket for clients and nodes (default: DIR/rendezvous.sock of --state-dir; "
             "without that, /run/ddp/rendezvous.sock for root, else ddp/rendezvous.sock in "
             "$XDG_RUNTIME_DIR or ~/.local/state)"},
    {.name = "all-users",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, all_users),
     .help = "every user of this machine may connect to the socket (default for root's default "
             "socket), else only root and the server's user"},
    {.name = "listen",
     .kind = OPTION_TEXT,
     .value = "HOST:PORT",
     OPTION_INTO(struct settings, listen),
     .help =
         "TCP too. A network address (0.0.0.0:7400) takes only nodes and users with a key; on a "
         "loopback address every local user counts as the server's. Port 0: one that is free"},
    {.name = "advertise",
     .kind = OPTION_TEXT,
     .value = "HOST:PORT",
     OPTION_INTO(struct settings, advertise),
     .help = "how other machines reach this server, for its keys (default: the address of "
             "--listen; for 0.0.0.0 this machine's name with its domain, else its address)"},
    {.name = "require-key",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, require_key),
     .help = "a loopback address of --listen takes only nodes and users with a key too"},
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
    {.name = "no-fence",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, no_fence),
     .help =
         "after a lost node start every job elsewhere at once; without it, one whose workers do "
         "not speak the worker protocol waits for the node's lease to end, as they may still run"},
    {.name = "keep-jobs",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000000,
     .max = 3660 * DAY_US,
     OPTION_INTO(struct settings, keep_jobs_us),
     .help = "how long ended jobs, their events and their ranks are remembered (default: 90d)"},
    {.name = "client-idle",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 100000,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, client_idle_us),
     .help = "a client that asks for nothing and waits for nothing for this long is disconnected "
             "(default: 60s)"},
    {.name = "max-slots-per-user",
     .kind = OPTION_U32,
     .value = "N",
     OPTION_INTO(struct settings, max_slots_per_user),
     .help =
         "slots that the jobs of one user may have at a time; others of theirs wait (default: 0, "
         "no limit)"},
    {.name = "max-queued-per-user",
     .kind = OPTION_U32,
     .value = "N",
     OPTION_INTO(struct settings, max_queued_per_user),
     .help = "jobs of one user that may wait in the queue; more are refused (default: 1000; 0: no "
             "limit)"},
    {.name = "no-fsync",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, no_fsync),
     .help = "the state need not survive a crash of the machine, only of the server"},
    SERVICE_OPTION_ROWS(struct settings, service, "stop"),
};
static const char *const examples[] = {
    "rendezvous", "rendezvous --listen 0.0.0.0:7400 --advertise head.example.org:7400",
    "rendezvous --state-dir /srv/ddp --listen 127.0.0.1:0", NULL};
static const struct option_table table = {
    .program = "rendezvous",
    .usage = "[options]",
    .summary = "The server: keeps the queue of jobs, starts and restarts them on its nodes.",
    .examples = examples,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

/* Each connection is a descriptor; the usual soft limit of 1024 is for programs that use select.
 * Returns how many connections there may be, so that descriptors are left for everything else. */
static uint32_t raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return CONNS_MAX;
    if (limit.rlim_cur < 4 * (rlim_t)CONNS_MAX) {
        limit.rlim_cur = limit.rlim_max < 4 * (rlim_t)CONNS_MAX ? limit.rlim_max : 4 * CONNS_MAX;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= CONNS_MAX + 2 * (rlim_t)DESCRIPTORS_RESERVED)
        return CONNS_MAX;
    if (limit.rlim_cur >= 4 * DESCRIPTORS_RESERVED)
        return (uint32_t)limit.rlim_cur / 2;
    return limit.rlim_cur > 8 ? (uint32_t)limit.rlim_cur / 4 : 2;
}

static void on_signal(uv_signal_t *signal, int number)
{
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: stopping; jobs go on on their nodes",
             number == SIGTERM ? "SIGTERM" : "SIGINT");
    server_stop(signal->data);
}

static int serve(const struct server_options *options)
{
    struct service_signals signals = {0};
    struct server *server = NULL;
    enum status status;
    uv_loop_t loop;
    struct err err;

    if (uv_loop_init(&loop) < 0)
        return EXIT_FAILURE;
    status = server_open(&server, &loop, options, &err);
    if (status == STATUS_OK && service_signals_open(&signals, &loop, on_signal, server) < 0)
        status = err_set(&err, STATUS_IO, 0, "SIGTERM and SIGINT cannot be watched");
    if (status == STATUS_OK) {
        service_ready("rendezvous: ready %s\n", server_addresses(server));
    } else {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        if (server != NULL)
            server_stop(server);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    service_signals_close(&signals);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    server_free(&server);
    if (uv_loop_close(&loop) != 0)
        abort(); /* a handle was forgotten */
    if (status == STATUS_OK)
        return EXIT_SUCCESS;
    return status == STATUS_BAD_INPUT || status == STATUS_REFUSED ? SERVICE_EXIT_USAGE
                                                                  : EXIT_FAILURE;
}

/* --socket, else in --state-dir, else where clients and nodes look by default. The kernel names
 * who connects there, so root's default socket is open to all users. */
static enum status choose_socket(const struct settings *settings, char path[PATH_MAX + 32],
                                 struct server_options *options, struct err *err)
{
    enum status status = STATUS_OK;

    if (settings->socket != NULL) {
        (void)snprintf(path, PATH_MAX, "%s", settings->socket);
    } else if (settings->state_dir != NULL) {
        (void)snprintf(path, PATH_MAX + 32, "%s/rendezvous.sock", settings->state_dir);
    } else {
        status = default_server_make(path, err);
        options->is_for_all = geteuid() == 0;
    }
    options->is_for_all = options->is_for_all || settings->all_users;
    options->socket_path = path;
    return status;
}

int main(int argc, char **argv)
{
    struct settings settings = {.lease_us = LEASE_DEFAULT_US,
                                .suspect_us = NODE_SUSPECT_US,
                                .lost_us = NODE_LOST_US,
                                .keep_jobs_us = 90 * DAY_US,
                                .client_idle_us = 60 * 1000000ull,
                                .max_queued_per_user = QUEUED_PER_USER_DEFAULT};
    struct server_options options = {0};
    char dir[PATH_MAX], path[PATH_MAX + 32];
    pid_t parent = getppid();
    struct err err;
    int code;

    code = service_parse(&table, argc, argv, &settings);
    if (code < 0 && settings.listen == NULL && (settings.advertise != NULL || settings.require_key))
        code = service_complain(&table, "--advertise and --require-key need --listen");
    if (code < 0 && settings.suspect_us > settings.lost_us)
        code = service_complain(&table, "--suspect must not be longer than --lost");
    if (code >= 0)
        return code;
    if (!service_begin("rendezvous", &settings.service, parent))
        return EXIT_FAILURE;
    service_no_core();
    options.conns_max = raise_descriptor_limit();
    if (choose_socket(&settings, path, &options, &err) != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return EXIT_FAILURE;
    }
    service_state_dir("", dir);
    options.state_dir = settings.state_dir != NULL ? settings.state_dir : dir;
    options.survives_power = !settings.no_fsync;
    options.listen = settings.listen;
    options.advertise = settings.advertise;
    options.requires_key = settings.require_key;
    options.lease_us = settings.lease_us;
    options.suspect_us = settings.suspect_us;
    options.lost_us = settings.lost_us;
    options.waits_for_lease = !settings.no_fence;
    options.keep_jobs_us = settings.keep_jobs_us;
    options.client_idle_us = settings.client_idle_us;
    options.max_slots_per_user = settings.max_slots_per_user;
    options.max_queued_per_user = settings.max_queued_per_user;
    /* several beats fit before silence means something */
    options.beat_interval_us =
        settings.suspect_us / 5 < BEAT_INTERVAL_US ? settings.suspect_us / 5 : BEAT_INTERVAL_US;
    if (options.beat_interval_us < 1000)
        options.beat_interval_us = 1000;
    return serve(&options);
}
