/* launcherd: the daemon of a node. Options, loop, wiring; also the entry of its shims (--shim). */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/service.h"
#include "common/log.h"
#include "launcherd/gpu_watch.h"
#include "launcherd/node_io.h"
#include "launcherd/proc.h"
#include "launcherd/shim_io.h"

#define GPU_END_US 1000000u

struct settings {
    const char *server, *name, *address, *state_dir;
    uint32_t slots; /* 0: find out */
    struct service_settings service;
};

struct launcherd {
    uv_loop_t loop;
    struct service_signals signals;
    struct node *node;
    const struct node_options *options;
};

static const struct option_row rows[] = {
    {.name = "server",
     .env = "DDP_SERVER",
     .kind = OPTION_TEXT,
     .value = "ADDRESS",
     OPTION_INTO(struct settings, server),
     .help = "where rendezvous listens: unix:PATH or HOST:PORT"},
    {.name = "name",
     .kind = OPTION_TEXT,
     .value = "NODE",
     OPTION_INTO(struct settings, name),
     .help = "this node's name, the only one of that name (default: the host name)"},
    {.name = "slots",
     .kind = OPTION_U32,
     .value = "N",
     .min = 1,
     .max = SLOTS_PER_NODE_MAX,
     OPTION_INTO(struct settings, slots),
     .help = "workers at a time (default: one for each GPU, without GPUs one for each core)"},
    {.name = "state-dir",
     .kind = OPTION_TEXT,
     .value = "DIR",
     OPTION_INTO(struct settings, state_dir),
     .help = "run directories and logs of jobs (default: /var/lib/ddp/launcherd for root, else "
             "~/.local/state/ddp/launcherd)"},
    {.name = "address",
     .kind = OPTION_TEXT,
     .value = "ADDRESS",
     OPTION_INTO(struct settings, address),
     .help = "where this node's workers can be reached (default: 127.0.0.1)"},
    SERVICE_OPTION_ROWS(struct settings, service, "stop, with all jobs here,"),
};
static const char *const examples[] = {"launcherd --server unix:/run/ddp/rendezvous.sock",
                                       "launcherd --server 127.0.0.1:7400 --name node1 --slots 2",
                                       NULL};
static const struct option_table table = {
    .program = "launcherd",
    .usage = "--server ADDRESS [options]",
    .summary = "The daemon of a node: starts and watches the workers that rendezvous orders.",
    .examples = examples,
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

static bool make_absolute(const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX];
    if (path[0] == '/')
        return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX - 300;
    if (getcwd(here, sizeof here) == NULL)
        return false;
    return snprintf(out, PATH_MAX, "%s/%s", here, path) < PATH_MAX - 300;
}

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

static int check(const struct settings *settings)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (settings->server == NULL || settings->server[0] == '\0')
        return service_complain(&table, "where is the server? Give --server, or set DDP_SERVER");
    if (settings->name[0] == '\0' || strlen(settings->name) >= NODE_NAME_BYTES_MAX ||
        strspn(settings->name, allowed) != strlen(settings->name))
        return service_complain(
            &table, "--name '%.80s': 1 to %u of letters, digits, '.', '_' and '-' are wanted",
            settings->name, NODE_NAME_BYTES_MAX - 1);
    if (settings->address[0] == '\0' || strlen(settings->address) >= ADDRESS_BYTES_MAX)
        return service_complain(&table, "--address '%.80s': an address of this node is wanted",
                                settings->address);
    return -1;
}

static void fill_options(struct node_options *options, const struct settings *settings)
{
    struct launcher_options *core = &options->core;
    uint32_t gpus;
    options->server = settings->server;
    options->state_dir = settings->state_dir;
    options->exit_with_parent = settings->service.exit_with_parent;
    (void)snprintf(core->name, sizeof core->name, "%s", settings->name);
    (void)snprintf(core->address, sizeof core->address, "%s", settings->address);
    (void)snprintf(core->version, sizeof core->version, "%s", DDP_VERSION);
    proc_boot_id(core->boot_id, sizeof core->boot_id);
    options->gpus = node_gpus_find(settings->state_dir, core->boot_id, &gpus);
    core->pid = (uint32_t)getpid();
    core->gpus = gpus;
    core->slots = count_slots(settings, gpus);
    ssize_t got = getrandom(&core->instance, sizeof core->instance, 0);
    if (got != (ssize_t)sizeof core->instance)
        core->instance = uv_hrtime();
    core->seed = core->instance ^ uv_hrtime();
}

static void on_ready(void *owner)
{
    const struct launcherd *launcherd = owner;
    const struct launcher_options *core = &launcherd->options->core;

    service_ready("launcherd: ready %s, %u slot%s, server %s\n", core->name, core->slots,
                  core->slots == 1 ? "" : "s", launcherd->options->server);
}

static void on_end_signal(uv_signal_t *handle, int number)
{
    struct launcherd *launcherd = handle->data;
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: ending", number == SIGINT ? "SIGINT" : "SIGTERM");
    service_signals_close(&launcherd->signals);
    node_end(launcherd->node);
}

static int run(struct launcherd *launcherd, struct node_options *options)
{
    struct err err;
    launcherd->options = options;
    options->owner = launcherd;
    options->on_ready = on_ready;
    int rc = uv_loop_init(&launcherd->loop);
    if (rc == 0)
        rc = service_signals_open(&launcherd->signals, &launcherd->loop, on_end_signal, launcherd);
    if (rc != 0) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "no event loop: %s", uv_strerror(rc));
        return 1;
    }
    if (node_open(&launcherd->node, &launcherd->loop, options, &err) != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return 1;
    }
    uv_run(&launcherd->loop, UV_RUN_DEFAULT);
    service_signals_close(&launcherd->signals);
    uv_run(&launcherd->loop, UV_RUN_DEFAULT);
    node_free(launcherd->node);
    rc = uv_loop_close(&launcherd->loop);
    if (rc != 0)
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "the event loop still holds handles");
    return rc == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct launcherd launcherd;
    static struct node_options options;
    char host[256] = "node", state_dir[PATH_MAX], absolute[PATH_MAX];
    struct settings settings = {.server = getenv("DDP_SERVER"), .address = "127.0.0.1"};

    if (argc == 2 + SHIM_ARG_COUNT && strcmp(argv[1], SHIM_ARGUMENT) == 0)
        return shim_main(argv + 2);
    pid_t parent = getppid();
    gethostname(host, sizeof host - 1);
    settings.name = host;
    service_state_dir("/launcherd", state_dir);
    settings.state_dir = state_dir;
    int code = service_parse(&table, argc, argv, &settings);
    if (code < 0)
        code = check(&settings);
    if (code >= 0)
        return code;
    if (!make_absolute(settings.state_dir, absolute))
        return service_complain(&table,
                                "--state-dir %s: too long, or the current directory is gone",
                                settings.state_dir);
    settings.state_dir = absolute;
    if (!service_begin("launcherd", &settings.service, parent))
        return EXIT_SUCCESS;
    fill_options(&options, &settings);
    code = run(&launcherd, &options);
    if (!gpu_watch_close(&options.gpus, GPU_END_US))
        _exit(code);
    return code;
}
