#include "ddpctl/slurm_node.h"

#include <assert.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/key_file.h"
#include "common/io/stop_signal.h"
#include "common/io/write_all.h"
#include "ddpctl/keep_fresh.h"
#include "ddpctl/leftover.h"
#include "ddpctl/private_daemons.h"
#include "ddpctl/scratch.h"
#include "ddpctl/slurm_reach.h"
#include "ddpctl/slurm_server.h"
#include "ddpctl/slurm_talk.h"
#include "ddpctl/standalone_gpus.h"

#define TICK_MS 1000u
#define SILENT_TICKS 60u     /* ddpctl is gone if so many ticks pass without a line from it */
#define SILENT_TERM_TICKS 3u /* the same when Slurm is ending the allocation */
#define STOP_TIMEOUT_MS 5000u
#define SIGNALS 5u

static const int signal_numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

struct node {
    const struct slurm_node_options *options;
    uint32_t id, nodes;
    char name[NODE_NAME_BYTES_MAX];
    uv_loop_t loop;
    uv_pipe_t in;
    uv_timer_t tick, stop_timer;
    uv_signal_t signals[SIGNALS];
    struct leftover leftover;
    struct daemon server, launcher; /* server: only on node 0 */
    char *listen;                   /* the server's --listen argument */
    uint32_t daemons_running;
    struct slurm_lines lines;
    struct slurm_reach reach;
    struct key key;
    bool has_key, is_reached, launcher_started, server_is_ready;
    bool term_seen, is_ending, is_stopping;
    uint32_t silent_ticks;
    char **environ;
    struct scratch scratch;
    char dir[SCRATCH_PATH_BYTES]; /* state and logs of the daemons */
};

static void say(enum slurm_word word, uint32_t about, const char *text)
{
    struct buf out = {0};

    slurm_line_add(&out, word, about, text);
    if (!out.failed)
        (void)write_all(STDOUT_FILENO, out.bytes, out.byte_count);
    buf_free(&out);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void close_if_over(struct node *node)
{
    if (!node->is_stopping || node->daemons_running > 0 ||
        uv_is_closing((uv_handle_t *)&node->stop_timer))
        return;
    uv_close((uv_handle_t *)&node->stop_timer, NULL);
    leftover_stop(&node->leftover);
}

static void on_stop_timeout(uv_timer_t *timer)
{
    struct node *node = timer->data;

    daemon_kill(&node->launcher);
    daemon_kill(&node->server);
}

static void stop(struct node *node)
{
    if (node->is_stopping)
        return;
    node->is_stopping = true;
    uv_close((uv_handle_t *)&node->in, NULL);
    uv_close((uv_handle_t *)&node->tick, NULL);
    for (uint32_t i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&node->signals[i], NULL);
    slurm_reach_close(&node->reach);
    (void)uv_timer_start(&node->stop_timer, on_stop_timeout, STOP_TIMEOUT_MS, 0);
    daemon_stop(&node->launcher);
    daemon_stop(&node->server);
    close_if_over(node);
}

static void fail(struct node *node, const char *text)
{
    say(SLURM_FAILED, node->id, text);
    stop(node);
}

/* Called when ddpctl is gone: the ranks get SIGTERM and their grace, then everything ends. */
static void end(struct node *node)
{
    if (node->is_ending || node->is_stopping)
        return;
    node->is_ending = true;
    if (node->server_is_ready)
        slurm_server_cancel(node->scratch.dir);
}

/* Whether nothing of the job runs any more on this node and, on node 0, the server is idle. */
static bool is_over(const struct node *node)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    bool is_empty;

    (void)snprintf(pattern, sizeof pattern, "%s/node/run/*", node->dir);
    is_empty = glob(pattern, GLOB_NOSORT, NULL, &found) != 0;
    globfree(&found);
    return is_empty && (!node->server_is_ready || slurm_server_is_idle(node->scratch.dir));
}

static void on_tick(uv_timer_t *timer)
{
    struct node *node = timer->data;

    node->silent_ticks++;
    if (node->is_ending && is_over(node))
        stop(node);
    else if (node->silent_ticks > (node->term_seen ? SILENT_TERM_TICKS : SILENT_TICKS))
        end(node);
}

/* Slurm sends its signals to every process of the step, so also to the ranks. We act on SIGTERM. */
static void on_signal(uv_signal_t *signal, int number)
{
    struct node *node = signal->data;

    if (number != SIGTERM)
        return;
    if (!node->term_seen)
        node->silent_ticks = 0;
    node->term_seen = true;
    say(SLURM_TERM, node->id, "");
}

/* -- daemons ----------------------------------------------------------------------------------- */

static void on_daemon_stopped(struct daemon *daemon)
{
    struct node *node = daemon->owner;

    leftover_reap(&node->leftover);
    node->daemons_running--;
    close_if_over(node);
}

static void on_daemon_failed(struct daemon *daemon, const char *how)
{
    struct node *node = daemon->owner;
    char text[900], words[512];

    node->daemons_running--;
    private_last_line(daemon->log_path, words, sizeof words);
    if (words[0] == '\0') /* with a full disk it cannot log that either */
        (void)snprintf(words, sizeof words, "its log %.300s is empty; is that disk full?",
                       daemon->log_path);
    (void)snprintf(text, sizeof text, "%s could not be kept running: %.180s: %s", daemon->name, how,
                   words);
    if (!node->is_stopping)
        fail(node, text);
    close_if_over(node);
}

static void on_daemon_restart(struct daemon *daemon, const char *how)
{
    struct node *node = daemon->owner;
    char text[256];

    leftover_reap(&node->leftover);
    (void)snprintf(text, sizeof text,
                   "%s ended unexpectedly (%.60s); it is started again, the job goes on",
                   daemon->name, how);
    say(SLURM_NOTE, node->id, text);
}

static void start(struct node *node, struct daemon *daemon)
{
    struct err err = {0};

    if (daemon_start(daemon, &node->loop, &err) == STATUS_OK) {
        node->daemons_running++;
        return;
    }
    daemon->finished = true;
    fail(node, err.text);
}

/* The port in the line "rendezvous: ready unix:PATH HOST:PORT"; 0: there is none. */
static uint16_t port_of(const char *ready)
{
    const char *colon = strrchr(ready, ':');
    unsigned long port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;

    return port < 65536 ? (uint16_t)port : 0;
}

static void add_key(struct node *node, uint32_t of_node, const char *name, enum role role)
{
    char url[KEY_URL_BYTES_MAX];
    struct err err = {0};

    if (slurm_server_add_key(node->scratch.dir, name, role, url, &err) == STATUS_OK)
        say(SLURM_KEY, of_node, url);
    else
        fail(node, err.text);
    explicit_bzero(url, sizeof url);
}

/* The name of the principal that owns the job: our account's name. If a key cannot have that name
 * ("first@corp.example"), or there is none: "uidN", as in account_choose of launcherd. */
static void user_name(char name[NODE_NAME_BYTES_MAX])
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const struct passwd *user = getpwuid(geteuid());
    const size_t bytes = user != NULL ? strlen(user->pw_name) : 0;

    if (bytes > 0 && bytes < NODE_NAME_BYTES_MAX && strspn(user->pw_name, allowed) == bytes)
        memcpy(name, user->pw_name, bytes + 1);
    else
        (void)snprintf(name, NODE_NAME_BYTES_MAX, "uid%u", (unsigned)geteuid());
}

static void on_server_ready(struct node *node)
{
    char list[SLURM_LINE_BYTES_MAX], user[NODE_NAME_BYTES_MAX], listen[SLURM_LISTEN_BYTES];
    const uint16_t port = port_of(node->server.ready_line);

    if (node->server_is_ready)
        return; /* it was started again, on the same port */
    node->server_is_ready = true;
    slurm_reach_own(getenv("SLURM_LAUNCH_NODE_IPADDR"), port, list, listen);
    (void)snprintf(node->listen, PATH_MAX, "%s", listen); /* also after a restart */
    say(SLURM_SERVER, node->id, list);
    user_name(user);
    add_key(node, node->nodes, user, ROLE_USER);
}

static void on_daemon_ready(struct daemon *daemon)
{
    struct node *node = daemon->owner;

    char text[64];

    if (daemon == &node->server)
        on_server_ready(node);
    if (daemon->ended[0] != '\0') {
        (void)snprintf(text, sizeof text, "%s runs again", daemon->name);
        say(SLURM_NOTE, node->id, text);
    }
}

static const struct daemon_handlers daemon_handlers = {
    .on_ready = on_daemon_ready,
    .on_restart = on_daemon_restart,
    .on_failed = on_daemon_failed,
    .on_stopped = on_daemon_stopped,
};

static enum status describe(struct node *node, struct daemon *daemon, const char *name,
                            struct err *err)
{
    const char *bindir = node->options->bindir;

    (void)snprintf(daemon->name, sizeof daemon->name, "%s", name);
    daemon->owner = node;
    daemon->handlers = &daemon_handlers;
    daemon->environ = node->environ;
    (void)snprintf(daemon->log_path, sizeof daemon->log_path, "%s/%s.log", node->dir, name);
    if (private_program(bindir[0] ? bindir : NULL, name, daemon->program, err) != STATUS_OK)
        return err->status;
    daemon_arg(daemon, "%s", daemon->program);
    return STATUS_OK;
}

static void start_server(struct node *node)
{
    char list[SLURM_LINE_BYTES_MAX], listen[SLURM_LISTEN_BYTES];
    struct daemon *daemon = &node->server;
    struct err err = {0};

    if (describe(node, daemon, "rendezvous", &err) != STATUS_OK) {
        fail(node, err.text);
        return;
    }
    daemon_arg(daemon, "--socket");
    daemon_arg(daemon, "%s/rendezvous.sock", node->scratch.dir);
    daemon_arg(daemon, "--listen");
    node->listen = daemon->arg_texts[daemon->arg_count];
    slurm_reach_own(NULL, 0, list, listen);
    daemon_arg(daemon, "%s", listen);
    daemon_arg(daemon, "--state-dir");
    daemon_arg(daemon, "%s/rendezvous", node->dir);
    daemon_arg(daemon,
               "--no-fsync"); /* if this node is lost, the run ends, and its state is not needed */
    daemon_arg(daemon, "--exit-with-parent");
    start(node, daemon);
}

/* The GPUs that Slurm gave to this task, as a value of launcherd --gpus; "": all GPUs. */
static enum status find_gpus(const struct node *node, const char *launcherd, char *text,
                             size_t text_bytes, struct err *err)
{
    struct standalone_gpus gpus;
    enum status status;

    text[0] = '\0';
    if (node->options->hides_gpus) {
        (void)snprintf(text, text_bytes, "none");
        return STATUS_OK;
    }
    status = standalone_gpus_find(&gpus, launcherd, getenv("CUDA_VISIBLE_DEVICES"), err);
    if (status == STATUS_OK)
        standalone_gpus_share(&gpus, 1, node->options->slots, 0, text, text_bytes);
    return status;
}

static void start_launcher(struct node *node)
{
    struct daemon *daemon = &node->launcher;
    char gpus[PATH_MAX], path[PATH_MAX];
    struct err err = {0};
    enum status status;

    if (!node->has_key || !node->is_reached || node->launcher_started)
        return;
    node->launcher_started = true;
    (void)snprintf(node->key.server, sizeof node->key.server, "%s", node->reach.address);
    (void)snprintf(path, sizeof path, "%s/node.key", node->scratch.dir);
    status = key_file_write(path, &node->key, &err);
    key_forget(&node->key);
    if (status == STATUS_OK)
        status = describe(node, daemon, "launcherd", &err);
    if (status == STATUS_OK)
        status = find_gpus(node, daemon->program, gpus, sizeof gpus, &err);
    if (status != STATUS_OK) {
        fail(node, err.text);
        return;
    }
    daemon_arg(daemon, "--join");
    daemon_arg(daemon, "@%s", path);
    daemon_arg(daemon, "--state-dir");
    daemon_arg(daemon, "%s/node", node->dir);
    daemon_arg(daemon, "--exit-with-parent");
    private_node_args(daemon, node->options->slots, gpus, node->options->log_dir);
    start(node, daemon);
}

/* -- what ddpctl says -------------------------------------------------------------------------- */

static void on_reached(struct slurm_reach *reach, enum status status, const char *text)
{
    struct node *node = reach->owner;
    char words[400];

    if (status != STATUS_OK) {
        (void)snprintf(words, sizeof words,
                       "the server on the first node cannot be reached, not by any of %.160s: "
                       "%.120s; does a firewall close ports between the nodes?",
                       reach->list, text);
        fail(node, words);
        return;
    }
    node->is_reached = true;
    say(SLURM_REACHED, node->id, reach->address);
    start_launcher(node);
}

static void take_key(struct node *node, const struct slurm_line *line)
{
    struct err err = {0};

    if (line->node != node->id)
        return;
    if (key_parse(line->text, &node->key, &err) != STATUS_OK) {
        fail(node, err.text);
        return;
    }
    node->has_key = true;
    start_launcher(node);
}

static void take_line(void *owner, const char *bytes)
{
    struct node *node = owner;
    struct slurm_line line;

    if (node->is_stopping || !slurm_line_parse(bytes, &line))
        return;
    node->silent_ticks = 0;
    /* The first node joins by the address that others have reached, so that they find its ranks. */
    if ((line.word == SLURM_SERVER && node->id != 0) || (line.word == SLURM_USE && node->id == 0))
        slurm_reach_start(&node->reach, &node->loop, line.text);
    else if (line.word == SLURM_HERE && node->id == 0)
        add_key(node, line.node, line.text, ROLE_NODE);
    else if (line.word == SLURM_KEY)
        take_key(node, &line);
    else if (line.word == SLURM_STOP)
        stop(node);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[4096]; /* used only within on_input */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_input(uv_stream_t *stream, ssize_t byte_count, const uv_buf_t *buf)
{
    struct node *node = stream->data;

    if (byte_count > 0)
        slurm_lines_add(&node->lines, buf->base, (size_t)byte_count, take_line, node);
    if (byte_count < 0 && !node->is_stopping) {
        (void)uv_read_stop(stream);
        end(node);
    }
    explicit_bzero(buf->base, buf->len);
}

/* -- the beginning ----------------------------------------------------------------------------- */

static bool is_daemon(void *owner, pid_t pid)
{
    const struct node *node = owner;

    return (node->server.running && node->server.process.pid == pid) ||
           (node->launcher.running && node->launcher.process.pid == pid);
}

static enum status prepare(struct node *node, struct err *err)
{
    const char *id = getenv("SLURM_NODEID"), *nodes = getenv("SLURM_STEP_NUM_NODES");
    static char in_step[] = STOP_SIGNAL_VARIABLE "=1";
    const char *name = getenv("SLURMD_NODENAME");
    struct scratch_swept swept;
    char wanted[PATH_MAX];
    enum status status;

    if (id == NULL || nodes == NULL || name == NULL || name[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--slurm-node is for srun alone: ddpctl run --slurm starts it");
    node->id = (uint32_t)strtoul(id, NULL, 10);
    node->nodes = (uint32_t)strtoul(nodes, NULL, 10);
    if (strlen(name) >= sizeof node->name)
        return err_set(err, STATUS_TOO_BIG, 0, "the node name %.100s is longer than %u characters",
                       name, NODE_NAME_BYTES_MAX - 1);
    (void)snprintf(node->name, sizeof node->name, "%s", name);
    (void)setenv(STOP_SIGNAL_VARIABLE, "1", 1); /* daemon_stop reads it too */
    node->environ = private_environ(in_step);
    if (node->environ == NULL)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    scratch_sweep(&swept); /* nobody reads what a node's own ddpctl says about it */
    status = scratch_make(&node->scratch, err);
    (void)snprintf(node->dir, sizeof node->dir, "%s", node->scratch.dir);
    if (status == STATUS_OK)
        keep_fresh_begin(node->scratch.dir, false);
    if (status != STATUS_OK || node->options->state_dir[0] == '\0')
        return status;
    if (snprintf(wanted, sizeof wanted, "%s/%s", node->options->state_dir, name) >=
        (int)sizeof wanted)
        return err_set(err, STATUS_TOO_BIG, 0, "--state-dir: the path is too long");
    return private_folder(wanted, "--state-dir", node->dir, sizeof node->dir, err);
}

static void open_handles(struct node *node)
{
    leftover_open(&node->leftover, &node->loop, is_daemon, node);
    (void)uv_timer_init(&node->loop, &node->stop_timer);
    (void)uv_timer_init(&node->loop, &node->tick);
    node->stop_timer.data = node->tick.data = node->in.data = node;
    (void)uv_timer_start(&node->tick, on_tick, TICK_MS, TICK_MS);
    for (uint32_t i = 0; i < SIGNALS; i++) {
        (void)uv_signal_init(&node->loop, &node->signals[i]);
        node->signals[i].data = node;
        (void)uv_signal_start(&node->signals[i], on_signal, signal_numbers[i]);
    }
    (void)uv_pipe_init(&node->loop, &node->in, 0);
    node->in.data = node;
    if (uv_pipe_open(&node->in, STDIN_FILENO) != 0 ||
        uv_read_start((uv_stream_t *)&node->in, on_alloc, on_input) != 0)
        fail(node, "its stdin is no pipe: ddpctl run --slurm starts this by srun");
}

/* Blocks Slurm's signals until they have handlers, or unblocks them: a task that a signal kills
 * before that would leave its folder. */
static void hold_signals(int how)
{
    sigset_t set;

    (void)sigemptyset(&set);
    for (uint32_t i = 0; i < SIGNALS; i++)
        (void)sigaddset(&set, signal_numbers[i]);
    (void)sigprocmask(how, &set, NULL);
}

static int run(struct node *node)
{
    char text[128];
    int rc = uv_loop_init(&node->loop);

    if (rc != 0) {
        (void)snprintf(text, sizeof text, "no event loop: %s", uv_strerror(rc));
        say(SLURM_FAILED, node->id, text);
        return EXIT_FAILURE;
    }
    node->reach.owner = node;
    node->reach.done = on_reached;
    open_handles(node);
    hold_signals(SIG_UNBLOCK);
    if (!node->is_stopping)
        say(SLURM_HERE, node->id, node->name);
    if (!node->is_stopping && node->id == 0)
        start_server(node);
    (void)uv_run(&node->loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&node->loop);
    assert(rc == 0);
    (void)leftover_close(&node->leftover);
    return EXIT_SUCCESS;
}

int slurm_node_main(const struct slurm_node_options *options)
{
    struct node *node = calloc(1, sizeof *node);
    struct err err = {0};
    int code = EXIT_FAILURE;

    if (node == NULL)
        return EXIT_FAILURE;
    node->options = options;
    hold_signals(SIG_BLOCK);
    if (prepare(node, &err) == STATUS_OK) {
        code = run(node);
    } else {
        if (node->name[0] != '\0')
            say(SLURM_HERE, node->id, node->name); /* so that ddpctl's message can name the node */
        say(SLURM_FAILED, node->id, err.text);
    }
    scratch_remove(&node->scratch);
    key_forget(&node->key);
    free(node->environ);
    free(node);
    return code;
}

/* -- the command line -------------------------------------------------------------------------- */

#define OPTION "--slurm-node"

void slurm_node_args(const struct slurm_node_options *options, char text[16],
                     const char *args[SLURM_NODE_ARGS])
{
    (void)snprintf(text, 16, "%u", options->slots);
    args[0] = OPTION;
    args[1] = text;
    args[2] = options->hides_gpus ? "none" : "auto";
    args[3] = options->state_dir;
    args[4] = options->log_dir;
    args[5] = options->bindir;
}

bool slurm_node_asked(int argc, char *const *argv, struct slurm_node_options *options)
{
    char *end;
    unsigned long slots;

    if (argc != 1 + (int)SLURM_NODE_ARGS || strcmp(argv[1], OPTION) != 0)
        return false;
    slots = strtoul(argv[2], &end, 10);
    *options = (struct slurm_node_options){.slots = (uint32_t)slots,
                                           .hides_gpus = strcmp(argv[3], "none") == 0,
                                           .state_dir = argv[4],
                                           .log_dir = argv[5],
                                           .bindir = argv[6]};
    return *end == '\0' && slots >= 1 && slots <= SLOTS_PER_NODE_MAX;
}
