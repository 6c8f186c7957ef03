/* launcherd: the daemon of a node. Options, loop, wiring; also the entry of its shims (--shim). */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

#include "common/log.h"
#include "launcherd/gpu.h"
#include "launcherd/node_io.h"
#include "launcherd/notify.h"
#include "launcherd/proc.h"
#include "launcherd/shim_io.h"

#define GPU_TIMEOUT_US 5000000u

static const char usage[] =
    "usage: launcherd --server unix:PATH|HOST:PORT [options]\n"
    "The daemon of a node: starts and watches the workers that rendezvous orders.\n"
    "\n"
    "  --server ADDRESS    where rendezvous listens (default: $DDP_SERVER)\n"
    "  --name NAME         this node's name, unique in the cluster (default: the host name)\n"
    "  --slots N           workers at a time, 1 to 64 (default: one for each GPU, or for each "
    "core\n"
    "                      where there is no GPU)\n"
    "  --state-dir DIR     run directories of jobs, and their logs (default: "
    "/var/lib/ddp/launcherd\n"
    "                      for root, else $XDG_STATE_HOME/ddp/launcherd or ~/.local/state/...)\n"
    "  --address ADDRESS   where this node's workers can be reached (default: 127.0.0.1)\n"
    "  --exit-with-parent  end, with all jobs here, when the process that started this one ends\n"
    "  --version, --help\n";

struct settings {
    const char *server, *name, *address, *state_dir;
    uint32_t slots; /* 0: find out */
    bool exit_with_parent;
};

struct launcherd {
    uv_loop_t loop;
    uv_signal_t terminate, interrupt;
    struct node *node;
    const struct node_options *options;
};

__attribute__((format(printf, 1, 2))) static int complain(const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "launcherd: %s\nTry 'launcherd --help'.\n", text);
    return 2;
}

static bool parse_slots(const char *text, uint32_t *slots)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < 1 ||
        value > SLOTS_PER_NODE_MAX)
        return false;
    *slots = (uint32_t)value;
    return true;
}

/* Answers -1 to go on, else the exit code. */
static int parse(int argc, char **argv, struct settings *settings)
{
    enum { SERVER, NAME, SLOTS, STATE_DIR, ADDRESS, WITH_PARENT, VERSION, HELP };
    static const struct option table[] = {
        {"server", required_argument, NULL, SERVER},
        {"name", required_argument, NULL, NAME},
        {"slots", required_argument, NULL, SLOTS},
        {"state-dir", required_argument, NULL, STATE_DIR},
        {"address", required_argument, NULL, ADDRESS},
        {"exit-with-parent", no_argument, NULL, WITH_PARENT},
        {"version", no_argument, NULL, VERSION},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    int found;
    opterr = 0;
    while ((found = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (found == '?')
            return complain("unknown option, or one without its value: %s", argv[optind - 1]);
        if (found == SERVER)
            settings->server = optarg;
        else if (found == NAME)
            settings->name = optarg;
        else if (found == STATE_DIR)
            settings->state_dir = optarg;
        else if (found == ADDRESS)
            settings->address = optarg;
        else if (found == WITH_PARENT)
            settings->exit_with_parent = true;
        else if (found == SLOTS && !parse_slots(optarg, &settings->slots))
            return complain("--slots %s: a number from 1 to %u is wanted", optarg,
                            SLOTS_PER_NODE_MAX);
        else if (found == VERSION)
            return puts("launcherd " DDP_VERSION) < 0;
        else if (found == HELP)
            return fputs(usage, stdout) < 0;
    }
    if (optind < argc)
        return complain("unexpected argument: %s", argv[optind]);
    return -1;
}

static void default_state_dir(char out[PATH_MAX])
{
    const char *state_home = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (geteuid() == 0)
        snprintf(out, PATH_MAX, "/var/lib/ddp/launcherd");
    else if (state_home != NULL && state_home[0] == '/')
        snprintf(out, PATH_MAX, "%s/ddp/launcherd", state_home);
    else
        snprintf(out, PATH_MAX, "%s/.local/state/ddp/launcherd", home != NULL ? home : "");
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
        return complain("where is the server? Give --server unix:PATH or HOST:PORT, or set "
                        "DDP_SERVER");
    if (settings->name[0] == '\0' || strlen(settings->name) >= NODE_NAME_BYTES_MAX ||
        strspn(settings->name, allowed) != strlen(settings->name))
        return complain("--name '%.80s': 1 to %u of letters, digits, '.', '_' and '-' are wanted",
                        settings->name, NODE_NAME_BYTES_MAX - 1);
    if (settings->address[0] == '\0' || strlen(settings->address) >= ADDRESS_BYTES_MAX)
        return complain("--address '%.80s': an address of this node is wanted", settings->address);
    return -1;
}

static void fill_options(struct node_options *options, const struct settings *settings)
{
    struct launcher_options *core = &options->core;
    struct err err;
    uint32_t gpus = 0;
    enum status status = gpu_count(&gpus, GPU_TIMEOUT_US, &err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "GPUs are not used: %s", err.text);
    if (gpus > SLOTS_PER_NODE_MAX)
        gpus = SLOTS_PER_NODE_MAX;
    options->server = settings->server;
    options->state_dir = settings->state_dir;
    options->exit_with_parent = settings->exit_with_parent;
    snprintf(core->name, sizeof core->name, "%s", settings->name);
    snprintf(core->address, sizeof core->address, "%s", settings->address);
    snprintf(core->version, sizeof core->version, "%s", DDP_VERSION);
    proc_boot_id(core->boot_id, sizeof core->boot_id);
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
    printf("launcherd: ready %s, %u slot%s, server %s\n", core->name, core->slots,
           core->slots == 1 ? "" : "s", launcherd->options->server);
    fflush(stdout);
    notify_ready();
}

static void on_end_signal(uv_signal_t *handle, int number)
{
    struct launcherd *launcherd = handle->data;
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s: ending", number == SIGINT ? "SIGINT" : "SIGTERM");
    if (!uv_is_closing((uv_handle_t *)&launcherd->terminate)) {
        uv_close((uv_handle_t *)&launcherd->terminate, NULL);
        uv_close((uv_handle_t *)&launcherd->interrupt, NULL);
    }
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
        rc = uv_signal_init(&launcherd->loop, &launcherd->terminate);
    if (rc == 0)
        rc = uv_signal_init(&launcherd->loop, &launcherd->interrupt);
    if (rc != 0) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "no event loop: %s", uv_strerror(rc));
        return 1;
    }
    launcherd->terminate.data = launcherd->interrupt.data = launcherd;
    if (node_open(&launcherd->node, &launcherd->loop, options, &err) != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return 1;
    }
    uv_signal_start(&launcherd->terminate, on_end_signal, SIGTERM);
    uv_signal_start(&launcherd->interrupt, on_end_signal, SIGINT);
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
    char host[256] = "node", state_dir[PATH_MAX];
    struct settings settings = {.server = getenv("DDP_SERVER"), .address = "127.0.0.1"};

    if (argc == 2 + SHIM_ARG_COUNT && strcmp(argv[1], SHIM_ARGUMENT) == 0)
        return shim_main(argv + 2);
    pid_t parent = getppid();
    gethostname(host, sizeof host - 1);
    settings.name = host;
    default_state_dir(state_dir);
    settings.state_dir = state_dir;
    int code = parse(argc, argv, &settings);
    if (code < 0)
        code = check(&settings);
    if (code >= 0)
        return code;
    char *absolute = settings.state_dir[0] == '/' ? strdup(settings.state_dir) : NULL;
    if (absolute == NULL && (getcwd(state_dir, sizeof state_dir) == NULL ||
                             asprintf(&absolute, "%s/%s", state_dir, settings.state_dir) < 0))
        return complain("--state-dir %s: the current directory is gone", settings.state_dir);
    settings.state_dir = absolute;
    log_open("launcherd", LOG_INFO, false);
    signal(SIGPIPE, SIG_IGN);
    if (settings.exit_with_parent) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            return 0;
    }
    fill_options(&options, &settings);
    code = run(&launcherd, &options);
    free(absolute);
    return code;
}
