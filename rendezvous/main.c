/* rendezvous: options, loop, wiring. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/default_server.h"
#include "common/io/disk_child.h"
#include "common/io/loop_open.h"
#include "common/io/service.h"
#include "common/io/standard_open.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/msg.h"
#include "rendezvous/core/leader.h"
#include "rendezvous/server/again.h"
#include "rendezvous/server/member.h"
#include "rendezvous/server/transfer.h"

#define DESCRIPTORS_RESERVED 64u /* for everything but connections */
#define DAY_US (24 * 3600 * 1000000ull)

struct settings {
    const char *state_dir, *socket, *listen, *advertise, *preempt, *backup, *restore;
    struct etcd_settings etcd;
    uint64_t etcd_quota_bytes, leader_lease_us, lease_us, suspect_us, lost_us, grow_us,
        keep_jobs_us, client_idle_us;
    uint64_t hang_us, hang_first_us;
    uint32_t max_slots_per_user, max_queued_per_user;
    uint64_t max_stored_per_user;
    bool all_users, no_fence, no_fsync, one_machine, require_key, move, new_cluster;
    struct service_settings service;
};

static const struct option_row rows[] = {
    {.name = "state-dir",
     .kind = OPTION_TEXT,
     .value = "DIR",
     OPTION_INTO(struct settings, state_dir),
     .help = "jobs and events are kept here (default: /var/lib/ddp for root, else "
             "~/.local/state/ddp)"},
    {.name = "store",
     .kind = OPTION_TEXT,
     .value = "URL",
     .once = ETCD_URL_ONCE,
     OPTION_INTO(struct settings, etcd.url),
     .help =
         "etcd://HOST,HOST,HOST[/PREFIX] or etcds://... (TLS): jobs and events are kept there, and "
         "one of several servers leads, the others stand by (default: in the state directory)"},
    {.name = "etcd-quota",
     .kind = OPTION_SIZE,
     .value = "SIZE",
     .min = 16 << 20,
     .max = 1ull << 40,
     OPTION_INTO(struct settings, etcd_quota_bytes),
     .help = "etcd's --quota-backend-bytes: near it no jobs are taken (default: 2G, as etcd's)"},
    ETCD_OPTION_ROWS(struct settings, etcd),
    {.name = "leader-lease",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = LEADER_LEASE_MIN_US,
     .max = 3600000000,
     OPTION_INTO(struct settings, leader_lease_us),
     .help =
         "with --store: another server leads so long after the end of one without a word; whole "
         "seconds (default: 3s)"},
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
     .help =
         "how other machines reach this server, for its keys (default: the address of "
         "--listen; for 0.0.0.0 and [::] this machine's name with its domain, if that has an "
         "address for others, else the address on which the admin has come, or one of its own)"},
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
    {.name = "grow-after",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 0,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, grow_us),
     .help = "a job with --nodes MIN:MAX has run for this long on its nodes before it ends at a "
             "checkpoint to go on with more (default: 60s)"},
    {.name = "preempt",
     .kind = OPTION_TEXT,
     .value = "off|priority",
     OPTION_INTO(struct settings, preempt),
     .help =
         "priority: the first job that waits may stop running ones of a lower --priority, which "
         "write a checkpoint and are queued again (default: off)"},
    {.name = "hang-after",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000000,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, hang_us),
     .help =
         "a job whose ranks tell steps hangs when none comes for this long, or for five times its "
         "slow steps if that is longer (default: 30s; submit --hang-timeout for one job)"},
    {.name = "hang-first",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000000,
     .max = DURATION_US_MAX,
     OPTION_INTO(struct settings, hang_first_us),
     .help = "the same before its first step, and while it validates or saves (default: 10m)"},
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
    {.name = "max-stored-per-user",
     .kind = OPTION_SIZE,
     .value = "SIZE",
     .max = 1ull << 40,
     OPTION_INTO(struct settings, max_stored_per_user),
     .help = "what the jobs of one user may take in the store, ended ones too; more are refused "
             "(default: 256M; with --no-fsync, or 0: no limit)"},
    {.name = "backup",
     .kind = OPTION_TEXT,
     .value = "FILE",
     OPTION_INTO(struct settings, backup),
     .help = "write the state of --state-dir or --store to FILE, which must not be there yet, and "
             "end; a server may be running. FILE has keys in it: only you may read it"},
    {.name = "move",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, move),
     .help = "with --backup, and no server running: from then on only a restored one is used, and "
             "jobs go on under it; this one is kept and refused"},
    {.name = "restore",
     .kind = OPTION_TEXT,
     .value = "FILE",
     OPTION_INTO(struct settings, restore),
     .help = "read the state of FILE into --state-dir or --store, which must have none, and end. "
             "Without --move the backup is of the past: jobs that ran then start again from their "
             "checkpoints, and numbers that were given since are left out"},
    {.name = "new-cluster",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, new_cluster),
     .help = "make an empty state in --state-dir or --store, and end: after a loss of the state "
             "that was there, when no backup is to be restored"},
    {.name = "no-fsync",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, no_fsync),
     .help = "the state need not survive a crash of the machine, only of the server"},
    {.name = "one-machine",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, one_machine),
     .help = "all nodes are on this machine, and no other ones come: a job that they cannot start "
             "has failed after a few tries, instead of waiting for another node"},
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

static int exit_code_of(enum status status)
{
    if (status == STATUS_OK)
        return EXIT_SUCCESS;
    return status == STATUS_BAD_INPUT || status == STATUS_REFUSED ? SERVICE_EXIT_USAGE
                                                                  : EXIT_FAILURE;
}

static void on_signal(uv_signal_t *signal, int number)
{
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: stopping; jobs go on on their nodes",
             number == SIGTERM ? "SIGTERM" : "SIGINT");
    member_stop(signal->data);
}

static int serve(const struct member_options *options)
{
    struct service_signals signals = {0};
    struct member member = {0};
    enum status status;
    bool has_begun;
    uv_loop_t loop;
    struct err err;

    if (loop_open(&loop, options->server.conns_max + DESCRIPTORS_RESERVED, &err) != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return EXIT_FAILURE;
    }
    status = member_open(&member, &loop, options, &err);
    if (status == STATUS_OK && service_signals_open(&signals, &loop, on_signal, &member) < 0)
        status = err_set(&err, STATUS_IO, 0, "SIGTERM and SIGINT cannot be watched");
    if (status == STATUS_OK && !again_is_set())
        service_ready("rendezvous: ready %s\n", server_addresses(member.server));
    has_begun = status == STATUS_OK;
    if (status == STATUS_OK)
        status = member_run(&member, &err);
    if (status != STATUS_OK)
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
    member_close(&member);
    service_signals_close(&signals);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0)
        abort(); /* a handle was forgotten */
    /* What worked before may work again, such as the password for etcd. */
    return has_begun && status != STATUS_OK ? EXIT_FAILURE : exit_code_of(status);
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
        options->socket_is_default = true;
        if (status == STATUS_OK)
            default_server_unlink(path);
    }
    options->is_for_all = options->is_for_all || settings->all_users;
    options->socket_path = path;
    options->socket_fd = service_socket();
    return status;
}

#define BACKUP_STILL_MS 60000u /* a backup that does nothing for so long is given up */

static enum status run_transfer(void *context, struct err *err)
{
    return transfer_run(context, err);
}

/* Also ends when a disk does not answer. */
static enum status back_up(struct transfer_options *options, struct err *err)
{
    struct err why = {0};
    const enum status status = disk_child_run(run_transfer, options, BACKUP_STILL_MS, &why);

    if (status == STATUS_TIMEOUT)
        return err_set(err, status, 0,
                       "the backup is given up: %s. Does the disk of %.80s answer, or that of the "
                       "state? Remove the file, if it is there, before the next try",
                       why.text, options->path);
    if (status != STATUS_OK)
        *err = why;
    return status;
}

static int transfer(const struct settings *settings)
{
    bool is_restore = settings->restore != NULL || settings->new_cluster;
    struct transfer_options options = {.path = is_restore ? settings->restore : settings->backup,
                                       .is_restore = is_restore,
                                       .is_move = settings->move,
                                       .state_dir = settings->state_dir,
                                       .etcd = settings->etcd};
    char dir[PATH_MAX];
    enum status status;
    struct err err;

    service_state_dir("", dir);
    if (options.state_dir == NULL)
        options.state_dir = dir;
    status = is_restore ? transfer_run(&options, &err) : back_up(&options, &err);
    if (status != STATUS_OK)
        (void)fprintf(stderr, "rendezvous: %s\n", err.text);
    return exit_code_of(status);
}

/* -1: the settings are valid; otherwise the exit code. */
static int check(const struct settings *settings)
{
    if (settings->listen == NULL && (settings->advertise != NULL || settings->require_key))
        return service_complain(&table, "--advertise and --require-key need --listen");
    if (settings->suspect_us > settings->lost_us)
        return service_complain(&table, "--suspect must not be longer than --lost");
    if (settings->preempt != NULL && strcmp(settings->preempt, "off") != 0 &&
        strcmp(settings->preempt, "priority") != 0)
        return service_complain(&table, "--preempt is off or priority");
    if ((settings->backup != NULL) + (settings->restore != NULL) + settings->new_cluster > 1)
        return service_complain(&table, "one of --backup, --restore and --new-cluster");
    if (settings->etcd.url == NULL &&
        (settings->etcd.ca_path != NULL || settings->etcd.cert_path != NULL ||
         settings->etcd.key_path != NULL || settings->etcd.user != NULL ||
         settings->etcd.password_path != NULL))
        return service_complain(&table, "--store-ca, --store-cert, --store-key, --store-user and "
                                        "--store-password-file need --store");
    if (settings->move && settings->backup == NULL)
        return service_complain(&table, "--move needs --backup");
    return -1;
}

int main(int argc, char **argv)
{
    struct settings settings = {.etcd_quota_bytes = 2ull << 30,
                                .leader_lease_us = LEADER_LEASE_DEFAULT_US,
                                .lease_us = LEASE_DEFAULT_US,
                                .suspect_us = NODE_SUSPECT_US,
                                .lost_us = NODE_LOST_US,
                                .grow_us = GROW_US,
                                .keep_jobs_us = 90 * DAY_US,
                                .client_idle_us = 60 * 1000000ull,
                                .max_queued_per_user = QUEUED_PER_USER_DEFAULT,
                                .max_stored_per_user = UINT64_MAX};
    struct member_options member = {0};
    struct server_options *options = &member.server;
    char dir[PATH_MAX], path[PATH_MAX + 32];
    pid_t parent = getppid();
    struct err err;
    int code;

    standard_open();
    again_init(argv);
    code = service_parse(&table, argc, argv, &settings);
    if (code < 0)
        code = check(&settings);
    if (code >= 0)
        return code;
    if (!service_begin("rendezvous", &settings.service, parent))
        return EXIT_FAILURE;
    service_no_core();
    if (settings.backup != NULL || settings.restore != NULL || settings.new_cluster)
        return transfer(&settings);
    options->conns_max = raise_descriptor_limit();
    if (choose_socket(&settings, path, options, &err) != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return EXIT_FAILURE;
    }
    service_state_dir("", dir);
    options->state_dir = settings.state_dir != NULL ? settings.state_dir : dir;
    options->survives_power = !settings.no_fsync;
    options->is_one_machine = settings.one_machine;
    options->listen = settings.listen;
    options->advertise = settings.advertise;
    options->requires_key = settings.require_key;
    options->lease_us = settings.lease_us;
    options->suspect_us = settings.suspect_us;
    options->lost_us = settings.lost_us;
    options->grow_us = settings.grow_us;
    options->preempts = settings.preempt != NULL && strcmp(settings.preempt, "priority") == 0;
    options->hang_us = settings.hang_us;
    options->hang_first_us = settings.hang_first_us;
    options->waits_for_lease = !settings.no_fence;
    options->keep_jobs_us = settings.keep_jobs_us;
    options->client_idle_us = settings.client_idle_us;
    options->max_slots_per_user = settings.max_slots_per_user;
    options->max_queued_per_user = settings.max_queued_per_user;
    options->max_stored_per_user = settings.max_stored_per_user;
    if (options->max_stored_per_user == UINT64_MAX)
        options->max_stored_per_user = settings.no_fsync ? 0 : STORED_PER_USER_DEFAULT;
    /* at least five beats fit into the time after which a silent node is suspect */
    options->beat_interval_us =
        settings.suspect_us / 5 < BEAT_INTERVAL_US ? settings.suspect_us / 5 : BEAT_INTERVAL_US;
    if (options->beat_interval_us < 1000)
        options->beat_interval_us = 1000;
    member.etcd_quota_bytes = settings.etcd_quota_bytes;
    member.etcd = settings.etcd;
    member.leader_lease_us = settings.leader_lease_us;
    return serve(&member);
}
