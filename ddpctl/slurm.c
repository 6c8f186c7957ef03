#include "ddpctl/slurm.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/io/key_file.h"
#include "ddpctl/nproc.h"
#include "ddpctl/private_daemons.h"
#include "ddpctl/slurm_env.h"
#include "ddpctl/slurm_node.h"
#include "ddpctl/slurm_reach.h"
#include "ddpctl/slurm_srun.h"
#include "ddpctl/slurm_talk.h"

extern char **environ;

#define TICK_MS 1000u
#define WAITING_TICKS 10u /* so often a message says what is missing */
#define STOP_TIMEOUT_MS 30000u
#define UNHEARD_TIMEOUT_MS 3000u /* the same if no task has sent a line: srun waits for nodes */
#define SIGNALS 6u

static const int signal_numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

struct slurm {
    struct ctl *ctl;
    struct attach_options options;
    struct slurm_env env;
    uv_loop_t loop;
    uv_process_t srun;
    uv_pipe_t in, out; /* of srun */
    uv_timer_t tick, stop_timer;
    uv_signal_t signals[SIGNALS];
    bool srun_running, srun_termed, is_stopping, attach_started, attach_done, use_said, is_reached;
    char (*names)[NODE_NAME_BYTES_MAX]; /* [nodes]; empty: not here yet */
    uint32_t nodes, here_count, ticks;  /* nodes: with spares */
    struct slurm_lines lines;
    struct slurm_reach reach;
    struct attach attach;
    struct key key;
    bool has_key, has_server;
    char server[KEY_HOST_BYTES_MAX + 8], state_dir[PATH_MAX - 64], log_dir[PATH_MAX - 64];
    char **environ; /* of srun */
    int exit_code;
};

/* -- the job's size ---------------------------------------------------------------------------- */

/* Removes the variables for which is_bad is true; returns `variables`, which may be NULL. */
static char **without(char **variables, bool (*is_bad)(const char *variable))
{
    char **kept = variables;

    for (char **at = variables; at != NULL && *at != NULL; at++)
        if (!is_bad(*at))
            *kept++ = *at;
    if (kept != NULL)
        *kept = NULL;
    return variables;
}

enum status slurm_take(struct spec *spec, const struct options *options, struct err *err)
{
    const char *nproc = options->nproc_per_node;
    struct slurm_env env;
    enum status status = slurm_env_read(environ, &env, err);

    if (status == STATUS_OK && options->nodes == NULL)
        spec->nodes = spec->nodes_min = 0;
    if (status == STATUS_OK)
        status = slurm_env_nodes(&env, spec->nodes_min, spec->spares, &spec->nodes, err);
    if (status == STATUS_OK && (nproc == NULL || nproc_is_word(nproc)))
        status = slurm_env_nproc(&env, nproc, &spec->nproc_per_node, err);
    return status;
}

char **slurm_rank_environ(void)
{
    size_t count = 0;
    char **ours;

    while (environ[count] != NULL)
        count++;
    ours = calloc(count + 1, sizeof *ours);
    if (ours != NULL)
        memcpy(ours, environ, count * sizeof *ours);
    return without(ours, slurm_env_is_of_task);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void close_if_over(struct slurm *slurm)
{
    if (!slurm->is_stopping || slurm->srun_running ||
        uv_is_closing((uv_handle_t *)&slurm->stop_timer))
        return;
    uv_close((uv_handle_t *)&slurm->stop_timer, NULL);
    for (uint32_t i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&slurm->signals[i], NULL);
}

static void on_written(uv_write_t *write, int status)
{
    (void)status;
    explicit_bzero(write->data, strlen(write->data)); /* it may have been a key */
    free(write->data);
    free(write);
}

static void say(struct slurm *slurm, enum slurm_word word, uint32_t node, const char *text)
{
    struct buf out = {0};
    uv_write_t *write = calloc(1, sizeof *write);
    uv_buf_t bytes;

    slurm_line_add(&out, word, node, text);
    buf_add(&out, "", 1);
    if (write == NULL || out.failed || !slurm->srun_running ||
        uv_is_closing((uv_handle_t *)&slurm->in)) {
        free(write);
        buf_free(&out);
        return;
    }
    bytes = uv_buf_init(out.bytes, (unsigned)(out.byte_count - 1));
    write->data = out.bytes;
    if (uv_write(write, (uv_stream_t *)&slurm->in, &bytes, 1, on_written) != 0) {
        free(write);
        buf_free(&out);
    }
}

static void on_stop_timeout(uv_timer_t *timer)
{
    struct slurm *slurm = timer->data;

    if (slurm->here_count == 0 && !slurm->srun_termed) {
        slurm->srun_termed = true;
        if (slurm->srun_running)
            (void)uv_process_kill(&slurm->srun, SIGTERM);
        (void)uv_timer_start(timer, on_stop_timeout, STOP_TIMEOUT_MS, 0);
        return;
    }
    screen_message(&slurm->ctl->screen, "-- srun does not end; it is killed --");
    if (slurm->srun_running)
        (void)uv_process_kill(&slurm->srun, SIGKILL);
}

/* The pipe is closed once all lines have been written to the tasks. */
static void on_in_shut(uv_shutdown_t *shutdown, int status)
{
    struct slurm *slurm = shutdown->data;

    (void)status;
    free(shutdown);
    if (!uv_is_closing((uv_handle_t *)&slurm->in))
        uv_close((uv_handle_t *)&slurm->in, NULL);
}

static void say_goodbye(struct slurm *slurm)
{
    uv_shutdown_t *shutdown = calloc(1, sizeof *shutdown);

    say(slurm, SLURM_STOP, 0, "");
    if (shutdown != NULL)
        shutdown->data = slurm;
    if (shutdown != NULL && uv_shutdown(shutdown, (uv_stream_t *)&slurm->in, on_in_shut) == 0)
        return;
    free(shutdown);
    if (!uv_is_closing((uv_handle_t *)&slurm->in))
        uv_close((uv_handle_t *)&slurm->in, NULL);
}

static void stop(struct slurm *slurm, int exit_code)
{
    if (slurm->is_stopping)
        return;
    slurm->is_stopping = true;
    slurm->exit_code = exit_code;
    if (slurm->attach_started && !slurm->attach_done)
        attach_stop(&slurm->attach, exit_code);
    slurm_reach_close(&slurm->reach);
    uv_close((uv_handle_t *)&slurm->tick, NULL);
    (void)uv_timer_start(&slurm->stop_timer, on_stop_timeout,
                         slurm->here_count > 0 ? STOP_TIMEOUT_MS : UNHEARD_TIMEOUT_MS, 0);
    if (slurm->srun_running)
        say_goodbye(slurm);
    close_if_over(slurm);
}

static void fail(struct slurm *slurm, const char *message, const char *hint)
{
    if (!slurm->is_stopping)
        stop(slurm, ctl_fail(slurm->ctl, CTL_FAILED, message, hint));
}

static void on_attach_done(struct attach *attach)
{
    struct slurm *slurm = attach->options.owner;

    slurm->attach_done = true;
    attach_show_end(attach);
    stop(slurm, attach->exit_code);
}

/* -- what the tasks say ------------------------------------------------------------------------ */

static void start_attach(struct slurm *slurm)
{
    struct err err = {0};

    if (slurm->attach_started || !slurm->has_key || !slurm->is_reached)
        return;
    (void)snprintf(slurm->key.server, sizeof slurm->key.server, "%s", slurm->reach.address);
    (void)snprintf(slurm->server, sizeof slurm->server, "%s", slurm->reach.address);
    if (server_with_key(&slurm->ctl->server, &slurm->key, &err) != STATUS_OK) {
        fail(slurm, err.text, "");
        return;
    }
    slurm->ctl->options.server = slurm->server;
    slurm->attach_started = true;
    attach_start(&slurm->attach, slurm->ctl, &slurm->loop, &slurm->options);
}

static void on_reached(struct slurm_reach *reach, enum status status, const char *text)
{
    struct slurm *slurm = reach->owner;
    char message[400];

    if (status != STATUS_OK) {
        (void)snprintf(message, sizeof message,
                       "the server on node %s cannot be reached from here, not by any of %.160s: "
                       "%.100s",
                       slurm->names[0], reach->list, text);
        fail(slurm, message, "does a firewall close ports between this machine and the nodes?");
        return;
    }
    slurm->is_reached = true;
    if (slurm->nodes == 1)
        say(slurm, SLURM_USE, 0, reach->address);
    start_attach(slurm);
}

/* Sends the names of all nodes to node 0, which makes a key for each, once its server runs. */
static void say_names(struct slurm *slurm)
{
    if (slurm->here_count < slurm->nodes || !slurm->has_server)
        return;
    for (uint32_t i = 0; i < slurm->nodes; i++)
        say(slurm, SLURM_HERE, i, slurm->names[i]);
}

static void take_here(struct slurm *slurm, const struct slurm_line *line)
{
    if (slurm->names[line->node][0] != '\0') {
        char message[NODE_NAME_BYTES_MAX + 80];

        (void)snprintf(message, sizeof message, "srun has started two tasks as number %u, on %s",
                       line->node, slurm->names[line->node]);
        fail(slurm, message,
             "it should start one on each node: does a wrapper of srun, or a hostfile, change "
             "that?");
        return;
    }
    (void)snprintf(slurm->names[line->node], NODE_NAME_BYTES_MAX, "%s", line->text);
    slurm->here_count++;
    say_names(slurm);
}

static void take_key(struct slurm *slurm, const struct slurm_line *line)
{
    struct err err = {0};

    if (line->node < slurm->nodes) {
        say(slurm, SLURM_KEY, line->node, line->text);
    } else if (key_parse(line->text, &slurm->key, &err) != STATUS_OK) {
        fail(slurm, err.text, "");
    } else {
        slurm->has_key = true;
        start_attach(slurm);
    }
}

/* Slurm is ending the allocation: time limit, scancel or requeue. */
static void take_term(struct slurm *slurm)
{
    if (slurm->attach_started)
        attach_term(&slurm->attach);
    else
        stop(slurm, 128 + SIGTERM);
}

static void take_failed(struct slurm *slurm, const struct slurm_line *line)
{
    char message[SLURM_LINE_BYTES_MAX];

    (void)snprintf(message, sizeof message, "node %.60s: %.3000s", slurm->names[line->node],
                   line->text);
    fail(slurm, message, "");
}

static void take_line(void *owner, const char *bytes)
{
    struct slurm *slurm = owner;
    const char *ours = slurm_line_find(bytes);
    const size_t others = ours != NULL ? (size_t)(ours - bytes) : strlen(bytes);
    struct slurm_line line;

    if (ours == NULL || others > 0) /* text from a prolog, or from Slurm */
        screen_message(&slurm->ctl->screen, "%.*s", (int)others, bytes);
    if (ours == NULL)
        return;
    if (!slurm_line_parse(ours, &line)) {
        screen_message(&slurm->ctl->screen, "-- a line from the nodes is damaged: what else writes "
                                            "into the output of srun? --");
        return;
    }
    if (slurm->is_stopping || line.node > slurm->nodes ||
        (line.node == slurm->nodes && line.word != SLURM_KEY))
        return;
    if (line.word == SLURM_HERE) {
        take_here(slurm, &line);
    } else if (line.word == SLURM_SERVER && !slurm->has_server) {
        slurm->has_server = true;
        say_names(slurm);
        say(slurm, SLURM_SERVER, 0, line.text);
        slurm_reach_start(&slurm->reach, &slurm->loop, line.text);
    } else if (line.word == SLURM_KEY) {
        take_key(slurm, &line);
    } else if (line.word == SLURM_REACHED && line.node != 0 && !slurm->use_said) {
        slurm->use_said = true;
        say(slurm, SLURM_USE, 0, line.text);
    } else if (line.word == SLURM_TERM) {
        take_term(slurm);
    } else if (line.word == SLURM_NOTE) {
        screen_message(&slurm->ctl->screen, "-- %s: %s --", slurm->names[line.node], line.text);
    } else if (line.word == SLURM_FAILED) {
        take_failed(slurm, &line);
    }
}

/* -- srun -------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[16384]; /* used only within on_output */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_output(uv_stream_t *stream, ssize_t byte_count, const uv_buf_t *buf)
{
    struct slurm *slurm = stream->data;

    if (byte_count > 0)
        slurm_lines_add(&slurm->lines, buf->base, (size_t)byte_count, take_line, slurm);
    if (byte_count < 0)
        (void)uv_read_stop(stream);
    explicit_bzero(buf->base, buf->len);
}

static void on_srun_exit(uv_process_t *process, int64_t code, int signal)
{
    struct slurm *slurm = process->data;
    char message[160];

    slurm->srun_running = false;
    uv_close((uv_handle_t *)process, NULL);
    uv_close((uv_handle_t *)&slurm->out, NULL);
    if (!uv_is_closing((uv_handle_t *)&slurm->in))
        uv_close((uv_handle_t *)&slurm->in, NULL);
    if (signal != 0)
        (void)snprintf(message, sizeof message,
                       "srun was killed by signal %d before the job was over", signal);
    else
        (void)snprintf(message, sizeof message,
                       "srun ended with exit code %lld before the job was over", (long long)code);
    fail(slurm, message, "what srun and the nodes say about it stands above");
    close_if_over(slurm);
}

static enum status start_srun(struct slurm *slurm, struct err *err)
{
    const struct msg_submit *submit = slurm->options.submit;
    const char *nproc = slurm->ctl->options.nproc_per_node, *bindir = slurm->ctl->options.bindir;
    const struct slurm_node_options node = {
        .slots = submit->nproc_per_node,
        .hides_gpus = nproc != NULL && strcmp(nproc, "cpu") == 0,
        .state_dir = slurm->state_dir,
        .log_dir = slurm->log_dir,
        .bindir = bindir != NULL ? bindir : "",
    };
    const char *args[SLURM_SRUN_ARGS + SLURM_NODE_ARGS + 2];
    char own[PATH_MAX], nodes[2][32], slots[16];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    uint32_t count;
    int code;

    own[length > 0 ? length : 0] = '\0';
    count = slurm_srun_args(slurm->nodes, nodes, args);
    args[count++] = own;
    slurm_node_args(&node, slots, args + count);
    args[count + SLURM_NODE_ARGS] = NULL;
    (void)uv_pipe_init(&slurm->loop, &slurm->in, 0);
    (void)uv_pipe_init(&slurm->loop, &slurm->out, 0);
    slurm->in.data = slurm->out.data = slurm->srun.data = slurm;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&slurm->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&slurm->out},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}};
    const uv_process_options_t options = {
        .exit_cb = on_srun_exit,
        .file = "srun",
        .args = (char **)(uintptr_t)args,
        .env = slurm->environ,
        .flags = UV_PROCESS_DETACHED, /* so that Ctrl-C at the terminal signals only us */
        .stdio_count = 3,
        .stdio = stdio,
    };

    code = uv_spawn(&slurm->loop, &slurm->srun, &options);
    slurm->srun_running = code == 0;
    if (code == 0) {
        (void)uv_read_start((uv_stream_t *)&slurm->out, on_alloc, on_output);
        return STATUS_OK;
    }
    uv_close((uv_handle_t *)&slurm->srun, NULL);
    uv_close((uv_handle_t *)&slurm->in, NULL);
    uv_close((uv_handle_t *)&slurm->out, NULL);
    return err_set(err, STATUS_NOT_FOUND, code,
                   code == UV_ENOENT ? "srun is not on PATH: --slurm needs Slurm's client programs"
                                     : "start srun: %s",
                   uv_strerror(code));
}

/* -- the loop ---------------------------------------------------------------------------------- */

/* Says what we wait for: nodes that have not started their part, or the server. */
static void tell_waiting(struct slurm *slurm)
{
    const uint32_t nodes = slurm->nodes;

    if (slurm->here_count < nodes)
        screen_message(&slurm->ctl->screen,
                       "-- %u of %u nodes have started their part; waiting for srun --",
                       slurm->here_count, nodes);
    else
        screen_message(&slurm->ctl->screen, "-- waiting for the server on node %s --",
                       slurm->names[0]);
}

static void on_tick(uv_timer_t *timer)
{
    struct slurm *slurm = timer->data;

    say(slurm, SLURM_ALIVE, 0, "");
    slurm->ticks++;
    if (!slurm->attach_started && slurm->ticks % WAITING_TICKS == 0)
        tell_waiting(slurm);
}

/* Once a job is attached, interrupt.h handles all but SIGUSR1 and SIGUSR2. srun passes these two on
 * to every process of the step, and so to the ranks. Signals are watched until srun has
 * ended: one that killed us before would leave an srun that waits for nodes. */
static void on_signal(uv_signal_t *signal, int number)
{
    struct slurm *slurm = signal->data;

    const bool is_for_ranks = number == SIGUSR1 || number == SIGUSR2;

    if (!slurm->attach_started && !is_for_ranks)
        stop(slurm, 128 + number);
    else if (is_for_ranks && slurm->srun_running)
        (void)uv_process_kill(&slurm->srun, number);
}

static void open_handles(struct slurm *slurm)
{
    (void)uv_timer_init(&slurm->loop, &slurm->tick);
    (void)uv_timer_init(&slurm->loop, &slurm->stop_timer);
    slurm->tick.data = slurm->stop_timer.data = slurm;
    (void)uv_timer_start(&slurm->tick, on_tick, TICK_MS, TICK_MS);
    for (uint32_t i = 0; i < SIGNALS; i++) {
        (void)uv_signal_init(&slurm->loop, &slurm->signals[i]);
        slurm->signals[i].data = slurm;
        (void)uv_signal_start(&slurm->signals[i], on_signal, signal_numbers[i]);
    }
}

static void run_loop(struct slurm *slurm)
{
    struct err err = {0};
    int rc = uv_loop_init(&slurm->loop);

    if (rc != 0) {
        (void)err_set(&err, STATUS_SYSTEM, -rc, "no event loop: %s", uv_strerror(rc));
        slurm->exit_code = ctl_fail_err(slurm->ctl, CTL_FAILED, &err, "");
        return;
    }
    open_handles(slurm);
    if (start_srun(slurm, &err) != STATUS_OK)
        fail(slurm, err.text, "");
    (void)uv_run(&slurm->loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&slurm->loop);
    assert(rc == 0);
}

/* Each run has a folder of its own below --state-dir: DIR/JOB.N, N counted from 0. */
static enum status choose_folders(struct slurm *slurm, struct err *err)
{
    const struct options *options = &slurm->ctl->options;
    char wanted[PATH_MAX - 64];
    enum status status = STATUS_OK;

    if (slurm->options.log_folder != NULL)
        (void)snprintf(slurm->log_dir, sizeof slurm->log_dir, "%.4000s",
                       slurm->options.log_folder->dir);
    for (uint32_t i = 0; options->state_dir && status == STATUS_OK; i++) {
        if (snprintf(wanted, sizeof wanted, "%s/%s.%u", options->state_dir, slurm->env.job_id, i) >=
            (int)sizeof wanted)
            return err_set(err, STATUS_TOO_BIG, 0, "--state-dir: the path is too long");
        if (i == 0)
            status = private_folder(options->state_dir, "--state-dir", slurm->state_dir,
                                    sizeof slurm->state_dir, err);
        /* If several runs begin at the same time, mkdir succeeds for only one of them. */
        if (status == STATUS_OK && mkdir(wanted, 0700) != 0 && errno == EEXIST)
            continue;
        return status != STATUS_OK ? status
                                   : private_folder(wanted, "--state-dir", slurm->state_dir,
                                                    sizeof slurm->state_dir, err);
    }
    return status;
}

static enum status prepare(struct slurm *slurm, struct err *err)
{
    enum status status = slurm_env_read(environ, &slurm->env, err);

    if (status == STATUS_OK)
        status = choose_folders(slurm, err);
    if (status != STATUS_OK)
        return status;
    slurm->environ = private_environ(NULL);
    slurm->names = calloc(slurm->nodes, sizeof *slurm->names);
    if (slurm->environ == NULL || slurm->names == NULL)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    (void)without(slurm->environ, slurm_env_is_of_srun);
    return STATUS_OK;
}

int slurm_run(struct ctl *ctl, const struct attach_options *options)
{
    struct slurm *slurm = calloc(1, sizeof *slurm);
    struct err err = {0};
    int code;

    if (slurm == NULL)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    slurm->ctl = ctl;
    slurm->options = *options;
    slurm->nodes = options->submit->nodes + options->submit->spares;
    slurm->options.can_detach = false;
    slurm->options.first_is_patient = true;
    slurm->options.term_is_final = true;
    slurm->options.on_done = on_attach_done;
    slurm->options.on_submitted = NULL;
    slurm->options.owner = slurm->reach.owner = slurm;
    slurm->reach.done = on_reached;
    if (prepare(slurm, &err) == STATUS_OK)
        run_loop(slurm);
    else
        slurm->exit_code = ctl_fail_err(ctl, CTL_FAILED, &err, "");
    if (slurm->state_dir[0] != '\0')
        screen_message(&ctl->screen, "-- state and logs are in %s --", slurm->state_dir);
    if (options->log_folder != NULL)
        log_folder_tell(options->log_folder, &ctl->screen);
    code = slurm->exit_code;
    if (slurm->attach_started)
        attach_free(&slurm->attach);
    key_forget(&slurm->key);
    free(slurm->environ);
    free(slurm->names);
    free(slurm);
    return code;
}
