/* launcherd: the daemon of a node. With --shim, --warm, --store, --doctor or --inspect it is one of
 * the other processes of launcherd. This file: options, loop, wiring.
 *
 *   core/     the decisions of the daemon and of the shim, pure    launcher.h, shim.h
 *   node/     the edge of the daemon                               node.h
 *   shim/     the edge of the shim                                 shim_io.h
 *   c10d/     the c10d store                                       c10d.h, store_main.h
 *   gpu/      NVML, in threads of its own                          gpu_watch.h
 *   doctor/   checks of this machine, in a process of its own      doctor.h
 *   inspect/  what a live rank does, in a process of its own       inspect.h
 *   process/  processes, and the folders that all of these use     proc.h, spawn.h, rundir.h
 *
 * Includes go one way: main to all; node to shim, doctor, inspect and gpu; doctor to shim and gpu;
 * shim to c10d; most of these to process and core. */
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/address.h"
#include "common/io/default_server.h"
#include "common/io/key_file.h"
#include "common/io/loop_open.h"
#include "common/io/notify.h"
#include "common/io/server_list.h"
#include "common/io/service.h"
#include "common/io/standard_open.h"
#include "common/log.h"
#include "common/msg_schema.h"
#include "common/msg_version.h"
#include "launcherd/c10d/store_main.h"
#include "launcherd/doctor/doctor.h"
#include "launcherd/gpu/gpu_watch.h"
#include "launcherd/inspect/inspect.h"
#include "launcherd/node/node.h"
#include "launcherd/node/node_gpus.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/interface.h"
#include "launcherd/process/machine_id.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/state_place.h"
#include "launcherd/shim/guard.h"
#include "launcherd/shim/log_file.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_main.h"

#define GPU_END_US 1000000u
#define LATE_END_MS 3000u
#define PATIENCE_MS 5000u
#define JOIN_ONLY_MS 30000u
#define DESCRIPTORS 1024u /* as many may be open before the loop needs memory for its table */
#define LOG_MAX_DEFAULT (1ull << 30)
#define DAY_US (24 * 3600 * 1000000ull)
#define KEEP_LOGS_DEFAULT_US (14 * DAY_US)
#define KEEP_US_MAX (3660 * DAY_US)

struct settings {
    const char *server, *join, *name, *address, *interface, *state_dir, *log_dir, *gpus;
    bool list_gpus;
    uint32_t slots; /* 0: one for each GPU, or for each core */
    uint64_t gpu_timeout_us, log_max, keep_logs_us;
    bool join_only, keep_trying, allow_root, drain_on_term;
    const char *job_memory; /* NULL: no limit */
    struct service_settings service;
};

struct launcherd {
    uv_loop_t loop;
    bool join_only, drain_on_term, is_leaving;
    int exit_code;
    struct service_signals signals;
    uv_timer_t late_end; /* does not keep the loop running */
    struct node *node;
    const struct node_options *options;
    uv_timer_t patience;
};

static const struct option_row rows[] = {
    {.name = "server",
     .env = "DDP_SERVER",
     .kind = OPTION_TEXT,
     .value = "ADDRESS",
     OPTION_INTO(struct settings, server),
     .help = "where rendezvous listens: unix:PATH or HOST:PORT, several with commas between them "
             "(default: the servers of the key, else where a rendezvous of this user listens by "
             "default)"},
    {.name = "join",
     .kind = OPTION_TEXT,
     .value = "KEY",
     OPTION_INTO(struct settings, join),
     .help = "the key of this node, ddp://... as `ddpctl node add` prints it; - reads it from "
             "stdin, @FILE from a file. Kept in the state directory: later starts need none"},
    {.name = "join-only",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, join_only),
     .help = "end once the server has taken the key of --join, and it is kept; then start the "
             "service. Without an answer of the server it fails after 30 s"},
    {.name = "keep-trying",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, keep_trying),
     .help = "when the server does not accept this node (its key was removed, another version), go "
             "on trying every 30 s; for a service (default: without jobs here, end with code 2)"},
    {.name = "name",
     .kind = OPTION_TEXT,
     .value = "NODE",
     OPTION_INTO(struct settings, name),
     .help = "this node's name, the only one of that name (default: that of the key, else the host "
             "name)"},
    {.name = "slots",
     .kind = OPTION_U32,
     .value = "N",
     .min = 1,
     .max = SLOTS_PER_NODE_MAX,
     OPTION_INTO(struct settings, slots),
     .help = "workers at a time (default: one for each GPU, without GPUs one for each core)"},
    {.name = "gpus",
     .kind = OPTION_TEXT,
     .value = "LIST",
     .min = 1,
     OPTION_INTO(struct settings, gpus),
     .help = "the GPUs of this node, as nvidia-smi counts them: 0,2-3, all or none (default: all)"},
    {.name = "list-gpus",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, list_gpus),
     .help = "print the numbers of this machine's GPUs, and end"},
    {.name = "state-dir",
     .kind = OPTION_TEXT,
     .value = "DIR",
     OPTION_INTO(struct settings, state_dir),
     .help = "the key, run directories and logs of jobs (default: /var/lib/ddp/launcherd for root, "
             "else a folder of this host's name in ~/.local/state/ddp/launcherd)"},
    {.name = "log-dir",
     .kind = OPTION_TEXT,
     .value = "DIR",
     .min = 1,
     OPTION_INTO(struct settings, log_dir),
     .help = "the output of jobs (default: logs in the state directory)"},
    {.name = "log-max",
     .kind = OPTION_SIZE,
     .value = "SIZE",
     .min = LOG_FILE_SIZE_MIN,
     .max = 1ull << 50,
     OPTION_INTO(struct settings, log_max),
     .help = "of a longer output of a rank the beginning and the end are kept, the middle is cut "
             "(default: 1G)"},
    {.name = "keep-logs",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 1000000,
     .max = KEEP_US_MAX,
     OPTION_INTO(struct settings, keep_logs_us),
     .help = "how long logs stay after the end of their job (default: 14d)"},
    {.name = "address",
     .kind = OPTION_TEXT,
     .value = "ADDRESS",
     OPTION_INTO(struct settings, address),
     .help = "where other nodes reach this one's workers: a numeric address of this machine "
             "(default: the one from which it reaches the server)"},
    {.name = "interface",
     .kind = OPTION_TEXT,
     .value = "NAME",
     OPTION_INTO(struct settings, interface),
     .help = "or the network interface that has this address"},
    {.name = "gpu-timeout",
     .kind = OPTION_DURATION,
     .value = "TIME",
     .min = 100000,
     .max = 3600000000,
     OPTION_INTO(struct settings, gpu_timeout_us),
     .help =
         "a GPU that does not answer, or is not released after a job, is closed after this; idle "
         "ones are looked at as often (default: 5s)"},
    {.name = "allow-root",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, allow_root),
     .help = "run jobs of root and of system accounts (uid below 1000) too; refused otherwise"},
    {.name = "job-memory",
     .kind = OPTION_TEXT,
     .value = "SIZE",
     OPTION_INTO(struct settings, job_memory),
     .help = "memory of one job on this node, such as 8G; needs cgroup v2 (default: no limit)"},
    {.name = "drain-on-term",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, drain_on_term),
     .help = "on SIGTERM stop the jobs here with their grace, so that they go on elsewhere, then "
             "end; for a container, whose processes end with launcherd. A second SIGTERM ends it "
             "at once (default: jobs outlive launcherd)"},
    SERVICE_OPTION_ROWS(struct settings, service, "stop, with all jobs here,"),
};
static const char *const examples[] = {"launcherd", "launcherd --join - < key",
                                       "launcherd --server 127.0.0.1:7400 --name node1 --slots 2",
                                       NULL};
static const struct option_table table = {
    .program = "launcherd",
    .usage = "[--join KEY | --server ADDRESS] [options]",
    .summary = "The daemon of a node: starts and watches the workers that rendezvous orders.",
    .examples = examples,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

static uint32_t count_slots(const struct settings *settings, uint32_t gpus)
{
    if (settings->slots > 0)
        return settings->slots;
    if (gpus > 0)
        return gpus;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores < (long)SLOTS_PER_NODE_MAX ? (uint32_t)cores : SLOTS_PER_NODE_MAX;
}

/* Prints the error. Returns the exit code: 2 says that starting it again does not help. What a disk or the kernel refuses
 * now may work later, and what is not there may come: a device, its address, a GPU, a mounted file. */
static int complain(const struct err *err)
{
    (void)fprintf(stderr, "launcherd: %s\n", err->text);
    return err->status == STATUS_IO || err->status == STATUS_SYSTEM ||
                   err->status == STATUS_NOT_FOUND
               ? EXIT_FAILURE
               : SERVICE_EXIT_USAGE;
}

/* Uses the key of --join, else the saved one. Takes server and name from it. Returns -1, or the exit code. */
static int find_key(struct settings *settings, struct node_options *options, struct key *key)
{
    char path[PATH_MAX + sizeof "/" NODE_KEY_FILE];
    enum status status;
    struct err err;

    options->key_is_new = settings->join != NULL;
    (void)snprintf(path, sizeof path, "%s/" NODE_KEY_FILE, settings->state_dir);
    if (options->key_is_new)
        status = key_argument((char *)(uintptr_t)settings->join, key, &err);
    else
        status = key_file_read(path, key, &err);
    if (status == STATUS_NOT_FOUND && !options->key_is_new)
        return -1;
    if (status != STATUS_OK)
        return complain(&err);
    options->key = key;
    if (settings->name != NULL && strcmp(settings->name, key->name) != 0)
        return service_complain(&table,
                                "--name %.80s: the key is of %s, and a node has the name of its "
                                "key; leave --name out, or make a key: ddpctl node add %.80s",
                                settings->name, key->name, settings->name);
    settings->name = key->name;
    if (settings->server == NULL || settings->server[0] == '\0')
        settings->server = key->server;
    else if (options->key_is_new && strstr(settings->server, ADDRESS_UNIX_PREFIX) == NULL &&
             strlen(settings->server) < sizeof key->server)
        memmove(key->server, settings->server, strlen(settings->server) + 1); /* to be saved */
    return -1;
}

static int check(const struct settings *settings, const struct node_options *options)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *server = settings->server;
    struct server_list list;
    struct err err;
    if (server[0] == '\0')
        return service_complain(&table, "--server is empty: where does rendezvous listen?");
    if (server_list_parse(&list, server, &err) != STATUS_OK)
        return service_complain(&table, "--server %s", err.text);
    for (uint32_t i = 0; options->key == NULL && i < list.count; i++) {
        const char *address = server_list_at(&list, i);
        if (!address_is_unix(address) && !address_is_loopback(address))
            return service_complain(
                &table,
                "--server %.80s: over a network only nodes with a key are taken; have one made "
                "there, `ddpctl node add %.63s`, and give it with --join",
                address, settings->name);
    }
    if (settings->name[0] == '\0' || strlen(settings->name) >= NODE_NAME_BYTES_MAX ||
        strspn(settings->name, allowed) != strlen(settings->name))
        return service_complain(
            &table, "--name '%.80s' should be 1 to %u letters, digits, '.', '_' and '-'",
            settings->name, NODE_NAME_BYTES_MAX - 1);
    if (settings->job_memory != NULL && !cgroup_parse_size(settings->job_memory, &(uint64_t){0}))
        return service_complain(&table, "--job-memory '%.40s' should be a size, such as 8G or 512M",
                                settings->job_memory);
    return -1;
}

/* In the state directory, unless --log-dir names another. Returns -1, or the exit code. */
static int make_log_dir(struct settings *settings, char log_dir[PATH_MAX])
{
    if (settings->log_dir == NULL)
        (void)snprintf(log_dir, PATH_MAX, "%.*s/logs", PATH_MAX - 300, settings->state_dir);
    else if (!state_place_absolute(settings->log_dir, log_dir))
        return service_complain(&table, "--log-dir %s: too long", settings->log_dir);
    settings->log_dir = log_dir;
    return -1;
}

static int find_state_dir(struct settings *settings, const char *host)
{
    static struct state_place place;
    struct err err;

    if (state_place_choose(settings->state_dir, host, settings->join != NULL, &place, &err) !=
        STATUS_OK)
        return service_complain(&table, "--state-dir %s", err.text);
    if (place.word[0] != '\0' && !settings->list_gpus)
        (void)fprintf(stderr, "launcherd: %s\n", place.word);
    settings->state_dir = place.dir;
    return -1;
}

/* Checks everything that a command line can be wrong about, except --gpus. Returns -1, or the exit code. */
static int prepare(struct settings *settings, struct node_options *options, struct key *key)
{
    static char host[256] = "node", log_dir[PATH_MAX], server[PATH_MAX];
    struct err err;
    int code;

    (void)gethostname(host, sizeof host - 1);
    code = find_state_dir(settings, host);
    if (code >= 0)
        return code;
    if (settings->drain_on_term && settings->service.exit_with_parent)
        return service_complain(&table, "give --drain-on-term or --exit-with-parent, not both");
    if (settings->join_only && settings->join == NULL)
        return service_complain(&table, "--join-only goes with --join");
    code = make_log_dir(settings, log_dir);
    if (code < 0)
        code = find_key(settings, options, key);
    if (code < 0 && settings->server == NULL) {
        default_server_list(server);
        settings->server = server;
        options->server_is_default = true;
    }
    if (settings->name == NULL)
        settings->name = host;
    if (code < 0)
        code = check(settings, options);
    options->address_is_fixed = settings->address != NULL || settings->interface != NULL;
    if (code < 0 && interface_choose(settings->address, settings->interface, options->core.address,
                                     &err) != STATUS_OK)
        return complain(&err);
    return code;
}

static void list_gpus(uint32_t gpus)
{
    for (uint32_t i = 0; i < gpus; i++)
        (void)printf("%s%u", i > 0 ? " " : "", i);
    (void)printf("\n");
}

/* Finds out which GPUs the slots are, and how many. Returns -1, or the exit code. */
static int choose_gpus(struct node_options *options, const struct settings *settings,
                       uint32_t *gpus)
{
    struct devices *devices = &options->devices;
    struct err err;
    char boot_id[sizeof options->core.boot_id];

    if (devices_parse(devices, settings->gpus != NULL ? settings->gpus : "all", &err) != STATUS_OK)
        return service_complain(&table, "--gpus %s", err.text);
    *gpus = 0;
    if (!devices->all && devices->count == 0 && !settings->list_gpus)
        return -1; /* none: NVML is not even loaded */
    proc_boot_id(boot_id, sizeof boot_id);
    options->gpus = node_gpus_find(settings->state_dir, boot_id, settings->gpu_timeout_us, gpus);
    if (settings->list_gpus) {
        list_gpus(*gpus);
        return EXIT_SUCCESS;
    }
    for (uint32_t i = 0; i < devices->count; i++)
        if (devices->items[i] >= *gpus) {
            if (*gpus == 0)
                (void)err_set(&err, STATUS_NOT_FOUND, 0,
                              "--gpus %.99s: this machine has no GPU that can be used",
                              settings->gpus);
            else
                (void)err_set(&err, STATUS_NOT_FOUND, 0,
                              "--gpus %.99s: this machine has %u, numbered from 0", settings->gpus,
                              *gpus);
            return complain(&err);
        }
    if (devices->all)
        return -1;
    *gpus = devices->count;
    if (options->gpus != NULL)
        gpu_watch_choose(options->gpus, devices);
    return -1;
}

static void fill_options(struct node_options *options, const struct settings *settings,
                         uint32_t gpus)
{
    struct launcher_options *core = &options->core;
    options->server = settings->server;
    options->state_dir = settings->state_dir;
    options->allow_root = settings->allow_root;
    if (settings->job_memory != NULL)
        (void)cgroup_parse_size(settings->job_memory, &options->job_memory_bytes);
    options->logs_dir = settings->log_dir;
    options->log_max = settings->log_max;
    options->keep_logs_us = settings->keep_logs_us;
    options->exit_with_parent = settings->service.exit_with_parent;
    core->drains_on_term = settings->drain_on_term;
    core->keeps_trying = settings->keep_trying && !settings->join_only;
    (void)snprintf(core->name, sizeof core->name, "%s", settings->name);
    (void)snprintf(core->version, sizeof core->version, "%s", msg_release());
    proc_boot_id(core->boot_id, sizeof core->boot_id);
    machine_id(core->machine_id);
    core->pid = (uint32_t)getpid();
    core->protocol = msg_protocol();
    core->schema = msg_schema();
    core->gpu_timeout_us = settings->gpu_timeout_us;
    core->keep_us = settings->keep_logs_us;
    core->gpus = gpus;
    core->slots = count_slots(settings, gpus);
    ssize_t got = getrandom(&core->instance, sizeof core->instance, 0);
    if (got != (ssize_t)sizeof core->instance)
        core->instance = uv_hrtime();
    core->seed = core->instance ^ uv_hrtime();
}

/* Ends the process when only a name lookup still keeps the loop running. That can take half a
 * minute if the name servers do not answer. */
static void on_late_end(uv_timer_t *timer)
{
    const struct launcherd *launcherd = timer->data;
    if (node_has_ended(launcherd->node))
        _exit(launcherd->exit_code);
}

static void end(struct launcherd *launcherd)
{
    uv_timer_start(&launcherd->late_end, on_late_end, LATE_END_MS, LATE_END_MS);
    service_signals_close(&launcherd->signals);
    node_end(launcherd->node);
}

static void on_ready(void *owner, bool is_key_lost)
{
    struct launcherd *launcherd = owner;
    const struct launcher_options *core = &launcherd->options->core;

    if (launcherd->join_only) {
        (void)uv_timer_stop(&launcherd->patience);
        launcherd->exit_code = is_key_lost ? EXIT_FAILURE : EXIT_SUCCESS;
        if (!is_key_lost)
            (void)printf("launcherd: %s has joined %s; start launcherd without --join now\n",
                         core->name, launcherd->options->server);
        end(launcherd);
        return;
    }
    service_ready("launcherd: ready %s, %u slot%s, server %s\n", core->name, core->slots,
                  core->slots == 1 ? "" : "s", launcherd->options->server);
}

static void on_refused(void *owner, const char *why)
{
    struct launcherd *launcherd = owner;

    log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", why);
    launcherd->exit_code = SERVICE_EXIT_USAGE;
    service_signals_close(&launcherd->signals);
}

static void on_left(void *owner)
{
    struct launcherd *launcherd = owner;

    log_line(LOG_INFO, LOG_ABOUT_NONE, "no job is here any more: ending");
    service_signals_close(&launcherd->signals);
}

static void on_end_signal(uv_signal_t *handle, int number)
{
    struct launcherd *launcherd = handle->data;

    if (launcherd->drain_on_term && number == SIGTERM && !launcherd->is_leaving) {
        log_line(LOG_INFO, LOG_ABOUT_NONE, "SIGTERM: draining this node before the end");
        launcherd->is_leaving = true;
        node_leave(launcherd->node);
        return;
    }
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: ending", number == SIGINT ? "SIGINT" : "SIGTERM");
    end(launcherd);
}

/* Tells systemd that we are ready, even if the server has not answered yet: neither systemd nor an
 * upgrade that waits for it should wait longer. */
static void on_patience_over(uv_timer_t *timer)
{
    struct launcherd *launcherd = timer->data;

    if (!launcherd->join_only) {
        notify_ready();
        return;
    }
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "no server at %s has taken the key within %u s",
             launcherd->options->server, JOIN_ONLY_MS / 1000);
    launcherd->exit_code = EXIT_FAILURE;
    end(launcherd);
}

static int run(struct launcherd *launcherd, struct node_options *options)
{
    struct err err;
    launcherd->options = options;
    options->owner = launcherd;
    options->on_ready = on_ready;
    options->on_refused = on_refused;
    options->on_left = on_left;
    enum status status = loop_open(&launcherd->loop, DESCRIPTORS, &err);
    int rc;
    if (status == STATUS_OK && (rc = service_signals_open(&launcherd->signals, &launcherd->loop,
                                                          on_end_signal, launcherd)) != 0)
        status = err_set(&err, STATUS_SYSTEM, rc, "signals cannot be watched: %s", uv_strerror(rc));
    if (status == STATUS_OK)
        status = node_open(&launcherd->node, &launcherd->loop, options, &err);
    if (status != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return 1;
    }
    uv_timer_init(&launcherd->loop, &launcherd->late_end);
    launcherd->late_end.data = launcherd;
    uv_unref((uv_handle_t *)&launcherd->late_end);
    uv_timer_init(&launcherd->loop, &launcherd->patience);
    launcherd->patience.data = launcherd;
    uv_timer_start(&launcherd->patience, on_patience_over,
                   launcherd->join_only ? JOIN_ONLY_MS : PATIENCE_MS, 0);
    uv_unref((uv_handle_t *)&launcherd->patience);
    uv_run(&launcherd->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&launcherd->late_end, NULL);
    uv_close((uv_handle_t *)&launcherd->patience, NULL);
    service_signals_close(&launcherd->signals);
    uv_run(&launcherd->loop, UV_RUN_DEFAULT);
    node_free(launcherd->node);
    rc = uv_loop_close(&launcherd->loop);
    if (rc != 0)
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "the event loop still holds handles");
    return rc == 0 ? launcherd->exit_code : 1;
}

int main(int argc, char **argv)
{
    static struct launcherd launcherd;
    static struct node_options options;
    static struct key key;
    struct settings settings = {.gpu_timeout_us = LAUNCHER_GPU_TIMEOUT_US,
                                .log_max = LOG_MAX_DEFAULT,
                                .keep_logs_us = KEEP_LOGS_DEFAULT_US};
    uint32_t gpus = 0;

    standard_open();
    if (argc == 2 + SHIM_ARG_COUNT && strcmp(argv[1], SHIM_ARGUMENT) == 0)
        return shim_main(argv + 2);
    if (argc == 2 + SHIM_ARG_COUNT && strcmp(argv[1], WARM_ARGUMENT) == 0)
        return warm_main(argv + 2);
    if (argc == 2 + GUARD_ARG_COUNT && strcmp(argv[1], GUARD_ARGUMENT) == 0)
        return guard_main(argv + 2);
    if (argc == 2 + DOCTOR_ARG_COUNT && strcmp(argv[1], DOCTOR_ARGUMENT) == 0)
        return doctor_main(argv + 2);
    if (argc == 2 + INSPECT_ARG_COUNT && strcmp(argv[1], INSPECT_ARGUMENT) == 0)
        return inspect_main(argv + 2);
    if (argc >= 2 && strcmp(argv[1], STORE_ARGUMENT) == 0)
        return store_main(argc - 2, argv + 2);
    pid_t parent = getppid();
    int code = service_parse(&table, argc, argv, &settings);
    if (code < 0)
        code = prepare(&settings, &options, &key);
    if (code >= 0)
        return code;
    if (!service_begin("launcherd", &settings.service, parent))
        return EXIT_SUCCESS;
    code = choose_gpus(&options, &settings, &gpus);
    if (code < 0) {
        fill_options(&options, &settings, gpus);
        launcherd.join_only = settings.join_only;
        launcherd.drain_on_term = settings.drain_on_term;
        code = run(&launcherd, &options);
    }
    key_forget(&key);
    if (!gpu_watch_close(&options.gpus, GPU_END_US))
        _exit(code);
    return code;
}
