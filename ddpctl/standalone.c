#include "ddpctl/standalone.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/conn.h"
#include "common/io/service.h"
#include "ddpctl/daemon.h"
#include "ddpctl/keep_fresh.h"
#include "ddpctl/leftover.h"
#include "ddpctl/private_daemons.h"
#include "ddpctl/request.h"
#include "ddpctl/scratch.h"
#include "ddpctl/standalone_gpus.h"

#define STANDALONE_NODES_MAX 64u
/* Open files of this process and of the server: what they need for the shortest job, measured with 1 to 8 nodes. */
#define FILES_NEEDED 28u
#define FILES_OF_A_NODE 2u
#define READY_TIMEOUT_MS 20000u
#define STOP_TIMEOUT_MS 5000u
#define LEFT_PATIENCE_US 5000000u
#define LEFT_MAX 64u

struct standalone {
    struct ctl *ctl;
    struct attach_options options;
    uv_loop_t loop;
    struct leftover leftover;
    uv_timer_t timer; /* the time limit for the daemons to get ready, then for their end */
    struct attach attach;
    bool nodes_started, attach_started, attach_done, stopping;
    struct daemon *daemons; /* [daemon_count]: rendezvous first */
    uint32_t daemon_count, daemons_running;
    char **environ, **server_environ; /* the environment of the nodes, and of the server */
    int socket_fd;                    /* listens for the server; 0: that does it itself */
    struct scratch scratch;
    char dir[PATH_MAX - 64];
    char server[PATH_MAX];
    char log_dir[PATH_MAX - 64]; /* --log-dir; empty: with the state */
    struct standalone_gpus gpus;
    bool keep_dir, told_folders;
    sigset_t signals_before;
    int exit_code;
};

enum status standalone_machine(const struct ctl *ctl, uint32_t *cores, uint32_t *gpus,
                               struct err *err)
{
    struct standalone_gpus found;
    char launcherd[PATH_MAX];
    cpu_set_t set;
    enum status status = private_program(ctl->options.bindir, "launcherd", launcherd, err);

    CPU_ZERO(&set);
    *cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    *gpus = 0;
    if (status == STATUS_OK)
        status = standalone_gpus_find(&found, launcherd, getenv("CUDA_VISIBLE_DEVICES"), err);
    if (status == STATUS_OK)
        *gpus = found.count;
    return status;
}

static enum status make_dir(struct standalone *standalone, struct err *err)
{
    const char *wanted = standalone->ctl->options.state_dir;

    if (!wanted) {
        struct screen *screen = &standalone->ctl->screen;
        struct scratch_swept swept;
        enum status status;

        scratch_sweep(&swept);
        status = scratch_make(&standalone->scratch, err);
        if (swept.removed_count > 0)
            screen_message(screen,
                           "-- removed %u temporary folder%s of earlier runs that were killed --",
                           swept.removed_count, swept.removed_count == 1 ? "" : "s");
        if (swept.kept_count > 0)
            screen_message(screen, "-- %s --", swept.kept);
        (void)snprintf(standalone->dir, sizeof standalone->dir, "%s", standalone->scratch.dir);
        return status;
    }
    standalone->keep_dir = true;
    return private_folder(wanted, "--state-dir", standalone->dir, sizeof standalone->dir, err);
}

static void on_stop_timeout(uv_timer_t *timer)
{
    struct standalone *standalone = timer->data;

    for (uint32_t i = 0; i < standalone->daemon_count; i++)
        daemon_kill(&standalone->daemons[i]);
}

static void stop_if_over(struct standalone *standalone)
{
    if (standalone->daemons_running > 0 || uv_is_closing((uv_handle_t *)&standalone->timer))
        return;
    uv_close((uv_handle_t *)&standalone->timer, NULL);
    leftover_stop(&standalone->leftover);
}

static void stop(struct standalone *standalone, int exit_code)
{
    if (standalone->stopping)
        return;
    standalone->stopping = true;
    standalone->exit_code = exit_code;
    if (standalone->attach_started && !standalone->attach_done)
        attach_stop(&standalone->attach, exit_code);
    (void)uv_timer_start(&standalone->timer, on_stop_timeout, STOP_TIMEOUT_MS, 0);
    for (uint32_t i = standalone->daemon_count; i-- > 0;)
        daemon_stop(&standalone->daemons[i]);
    stop_if_over(standalone);
}

/* Once, and before the end of the job, whose reason is the last to be read. */
static void tell_folders(struct standalone *standalone)
{
    struct screen *screen = &standalone->ctl->screen;

    if (standalone->told_folders)
        return;
    standalone->told_folders = true;
    if (standalone->keep_dir)
        screen_message(screen, "-- state and logs are in %s --", standalone->dir);
    if (standalone->options.log_folder != NULL)
        log_folder_tell(standalone->options.log_folder, screen);
}

static void on_attach_done(struct attach *attach)
{
    struct standalone *standalone = attach->options.owner;

    standalone->attach_done = true;
    tell_folders(standalone);
    attach_show_end(attach);
    stop(standalone, attach->exit_code);
}

static void on_daemon_stopped(struct daemon *daemon)
{
    struct standalone *standalone = daemon->owner;

    leftover_reap(&standalone->leftover);
    standalone->daemons_running--;
    stop_if_over(standalone);
}

static void on_daemon_failed(struct daemon *daemon, const char *text)
{
    struct standalone *standalone = daemon->owner;
    char message[256], hint[512];

    standalone->daemons_running--;
    if (!standalone->stopping) {
        private_last_line(daemon->log_path, hint, sizeof hint);
        (void)snprintf(message, sizeof message, "%s could not be kept running: %.180s",
                       daemon->name, text);
        stop(standalone, ctl_fail(standalone->ctl, CTL_FAILED, message, hint));
    }
    stop_if_over(standalone);
}

static void on_daemon_restart(struct daemon *daemon, const char *how_it_ended)
{
    struct standalone *standalone = daemon->owner;

    leftover_reap(&standalone->leftover);
    screen_message(&standalone->ctl->screen,
                   "-- %s ended unexpectedly (%s); it is started again, the job goes on --",
                   daemon->name, how_it_ended);
}

static enum status start_daemon(struct standalone *standalone, struct daemon *daemon,
                                struct err *err)
{
    enum status status = daemon_start(daemon, &standalone->loop, err);

    if (status == STATUS_OK)
        standalone->daemons_running++;
    else
        daemon->finished = true;
    return status;
}

/* The number of nodes that the job may use, and of its spares. */
static uint32_t count_nodes(const struct standalone *standalone)
{
    const struct msg_submit *submit = standalone->options.submit;

    return submit->nodes + submit->spares;
}

static bool all_are_ready(const struct standalone *standalone)
{
    for (uint32_t i = 0; i < standalone->daemon_count; i++)
        if (!standalone->daemons[i].is_ready)
            return false;
    return true;
}

/* Whether to submit later, when all nodes are ready. A job that can run on fewer nodes, or has
 * spares, takes the nodes that are ready when it starts. */
static bool waits_for_nodes(const struct standalone *standalone)
{
    const struct msg_submit *submit = standalone->options.submit;
    const bool is_elastic = submit->nodes_min > 0 && submit->nodes_min < submit->nodes;

    return (is_elastic || submit->spares > 0) && !all_are_ready(standalone);
}

static void attach_job(struct standalone *standalone)
{
    if (standalone->attach_started || standalone->stopping || !standalone->daemons[0].is_ready ||
        waits_for_nodes(standalone))
        return;
    standalone->attach_started = true;
    attach_start(&standalone->attach, standalone->ctl, &standalone->loop, &standalone->options);
    (void)sigprocmask(SIG_SETMASK, &standalone->signals_before, NULL);
}

static void start_nodes(struct standalone *standalone)
{
    struct err err = {0};

    standalone->nodes_started = true;
    for (uint32_t i = 1; i < standalone->daemon_count; i++) {
        if (start_daemon(standalone, &standalone->daemons[i], &err) != STATUS_OK) {
            stop(standalone, ctl_fail_err(standalone->ctl, CTL_FAILED, &err, ""));
            return;
        }
    }
}

struct left {
    uint64_t ids[LEFT_MAX];
    uint32_t count;
};

static int on_left(struct ctl *ctl, const struct msg *msg, void *context)
{
    struct left *left = context;

    (void)ctl;
    for (uint32_t i = 0; i < msg->jobs.jobs.count && left->count < LEFT_MAX; i++)
        if (!msg->jobs.jobs.items[i].ended)
            left->ids[left->count++] = msg->jobs.jobs.items[i].job_id;
    return CTL_OK;
}

static int on_left_cancelled(struct ctl *ctl, const struct msg *msg, void *context)
{
    (void)context;
    if (msg->job_info.jobs.count == 1)
        screen_message(&ctl->screen,
                       "-- job %llu (%s) is cancelled: an earlier run with this --state-dir was "
                       "killed and left it --",
                       (unsigned long long)msg->job_info.jobs.items[0].job_id,
                       msg->job_info.jobs.items[0].name);
    return CTL_OK;
}

/* A run that was killed leaves its job in a --state-dir that is kept. It would start again, unseen,
 * and take the slots of the new job. */
static int cancel_left(struct standalone *standalone)
{
    struct left left = {.count = 0};
    struct msg list = {.type = MSG_TYPE_JOB_LIST, .job_list = {.limit = LEFT_MAX}};
    struct request request = {.msg = &list,
                              .patience_us = LEFT_PATIENCE_US,
                              .answer = MSG_TYPE_JOBS,
                              .on_answer = on_left,
                              .context = &left};
    int rc = request_run(standalone->ctl, &request);

    for (uint32_t i = 0; rc == CTL_OK && i < left.count; i++) {
        char number[24];
        struct msg cancel = {.type = MSG_TYPE_CANCEL, .cancel = {.job = number, .signal = SIGKILL}};

        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)left.ids[i]);
        request.msg = &cancel;
        request.answer = MSG_TYPE_JOB_INFO;
        request.on_answer = on_left_cancelled;
        rc = request_run(standalone->ctl, &request);
    }
    return rc;
}

static void on_daemon_ready(struct daemon *daemon)
{
    struct standalone *standalone = daemon->owner;
    int rc = CTL_OK;

    if (daemon == &standalone->daemons[0] && !standalone->nodes_started) {
        rc = cancel_left(standalone);
        if (rc != CTL_OK) {
            stop(standalone, rc);
            return;
        }
        start_nodes(standalone);
    }
    if (all_are_ready(standalone) && !standalone->stopping)
        (void)uv_timer_stop(&standalone->timer);
    attach_job(standalone);
}

static void on_ready_timeout(uv_timer_t *timer)
{
    struct standalone *standalone = timer->data;
    char message[128], words[512];
    uint32_t late = 0;

    while (late + 1 < standalone->daemon_count && standalone->daemons[late].is_ready)
        late++;
    private_last_line(standalone->daemons[late].log_path, words, sizeof words);
    (void)snprintf(message, sizeof message, "%s did not get ready within 20 s",
                   standalone->daemons[late].name);
    stop(standalone, ctl_fail(standalone->ctl, CTL_FAILED, message, words));
}

static const struct daemon_handlers daemon_handlers = {
    .on_ready = on_daemon_ready,
    .on_restart = on_daemon_restart,
    .on_failed = on_daemon_failed,
    .on_stopped = on_daemon_stopped,
};

/* Adds the arguments for the slots of a node, its GPUs, and where its logs are kept. */
static void describe_node(const struct standalone *standalone, uint32_t node, struct daemon *daemon)
{
    const struct msg_submit *submit = standalone->options.submit;
    const char *nproc = standalone->ctl->options.nproc_per_node;
    char gpus[PATH_MAX];

    standalone_gpus_share(&standalone->gpus, count_nodes(standalone), submit->nproc_per_node, node,
                          gpus, sizeof gpus);
    if (gpus[0] && nproc && strcmp(nproc, "cpu") == 0)
        (void)snprintf(gpus, sizeof gpus, "none");
    private_node_args(daemon, submit->nproc_per_node, gpus, standalone->log_dir);
}

static enum status describe_daemon(struct standalone *standalone, uint32_t index, struct err *err)
{
    struct daemon *daemon = &standalone->daemons[index];
    const char *dir = standalone->dir;
    enum status status;

    daemon->owner = standalone;
    daemon->handlers = &daemon_handlers;
    daemon->environ = index == 0 ? standalone->server_environ : standalone->environ;
    daemon->socket_fd = index == 0 ? standalone->socket_fd : 0;
    status = private_program(standalone->ctl->options.bindir,
                             index == 0 ? "rendezvous" : "launcherd", daemon->program, err);
    if (status != STATUS_OK)
        return status;
    daemon_arg(daemon, "%s", daemon->program);
    if (index == 0) {
        (void)snprintf(daemon->name, sizeof daemon->name, "rendezvous");
        daemon_arg(daemon, "--socket");
        daemon_arg(daemon, "%s/rendezvous.sock", dir);
        daemon_arg(daemon, "--one-machine");
        if (!standalone->keep_dir)
            daemon_arg(daemon, "--no-fsync"); /* the state is removed after the run, so it need not
                                               * survive a crash */
    } else {
        (void)snprintf(daemon->name, sizeof daemon->name, "node%u", index - 1);
        daemon_arg(daemon, "--server");
        daemon_arg(daemon, "%s", standalone->server);
        daemon_arg(daemon, "--name");
        daemon_arg(daemon, "%s", daemon->name);
        describe_node(standalone, index - 1, daemon);
    }
    daemon_arg(daemon, "--state-dir");
    daemon_arg(daemon, "%s/%s", dir, daemon->name);
    daemon_arg(daemon, "--exit-with-parent");
    (void)snprintf(daemon->log_path, sizeof daemon->log_path, "%s/%s.log", dir, daemon->name);
    return STATUS_OK;
}

static enum status find_gpus(struct standalone *standalone, struct err *err)
{
    const struct msg_submit *submit = standalone->options.submit;
    const char *nproc = standalone->ctl->options.nproc_per_node;
    char launcherd[PATH_MAX], words[256];
    enum status status =
        private_program(standalone->ctl->options.bindir, "launcherd", launcherd, err);

    if (status == STATUS_OK)
        status =
            standalone_gpus_find(&standalone->gpus, launcherd, getenv("CUDA_VISIBLE_DEVICES"), err);
    if (status != STATUS_OK || (nproc && strcmp(nproc, "cpu") == 0))
        return status;
    standalone_gpus_explain(&standalone->gpus, count_nodes(standalone), submit->nproc_per_node,
                            words, sizeof words);
    if (words[0])
        screen_message(&standalone->ctl->screen, "-- %s --", words);
    return STATUS_OK;
}

/* Nodes then need not wait until the server has started. Its file goes with the folder. */
static enum status open_socket(struct standalone *standalone, struct err *err)
{
    struct stat made;

    return address_listen(standalone->server, 0600, &standalone->socket_fd, &made, err);
}

/* Said before anything is made: with too few, each daemon would fail at another place. */
static enum status check_files(uint32_t nodes, struct err *err)
{
    const uint32_t needed = FILES_NEEDED + FILES_OF_A_NODE * nodes;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, 0,
                   "a process may open %llu files here (ulimit -n), and --standalone with %u %s "
                   "needs %u: raise the limit (ulimit -n 1024)",
                   (unsigned long long)limit.rlim_cur, nodes, nodes == 1 ? "node" : "nodes",
                   needed);
}

static enum status prepare(struct standalone *standalone, struct err *err)
{
    static char socket[] = SERVICE_SOCKET_VARIABLE "=3";
    const struct log_folder *log_folder = standalone->options.log_folder;
    uint32_t nodes = count_nodes(standalone);
    enum status status;

    static_assert(DAEMON_SOCKET_FD == 3, "as the variable says");
    if (nodes > STANDALONE_NODES_MAX)
        return err_set(
            err, STATUS_TOO_BIG, 0,
            "--standalone starts every node on this machine, spares too: %u are more than %u; for "
            "more, start a server and a launcherd on each machine",
            nodes, STANDALONE_NODES_MAX);
    status = check_files(nodes, err);
    if (status == STATUS_OK)
        status = make_dir(standalone, err);
    if (log_folder != NULL)
        (void)snprintf(standalone->log_dir, sizeof standalone->log_dir, "%.4000s", log_folder->dir);
    if (status == STATUS_OK)
        status = find_gpus(standalone, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(standalone->server, sizeof standalone->server, "unix:%s/rendezvous.sock",
                   standalone->dir);
    if (!standalone->keep_dir)
        status = open_socket(standalone, err);
    if (status != STATUS_OK)
        return status;
    keep_fresh_begin(standalone->dir, !standalone->keep_dir);
    standalone->ctl->server = (struct server){.address = standalone->server};
    standalone->ctl->options.server = standalone->server; /* for commands that are shown to be
                                                           * copied */
    standalone->daemons = calloc(1 + nodes, sizeof *standalone->daemons);
    standalone->environ = private_environ(NULL);
    standalone->server_environ = private_environ(standalone->socket_fd > 0 ? socket : NULL);
    if (!standalone->daemons || !standalone->environ || !standalone->server_environ)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    standalone->daemon_count = 1 + nodes;
    for (uint32_t i = 0; i < standalone->daemon_count && status == STATUS_OK; i++)
        status = describe_daemon(standalone, i, err);
    return status;
}

static bool is_daemon(void *owner, pid_t pid)
{
    const struct standalone *standalone = owner;

    for (uint32_t i = 0; i < standalone->daemon_count; i++)
        if (standalone->daemons[i].running && standalone->daemons[i].process.pid == pid)
            return true;
    return false;
}

static void run_loop(struct standalone *standalone)
{
    struct err err = {0};
    int rc, killed;

    rc = uv_loop_init(&standalone->loop);
    if (rc != 0) {
        (void)err_set(&err, STATUS_SYSTEM, -rc, "no event loop: %s", uv_strerror(rc));
        standalone->exit_code = ctl_fail_err(standalone->ctl, CTL_FAILED, &err, "");
        return;
    }
    leftover_open(&standalone->leftover, &standalone->loop, is_daemon, standalone);
    (void)uv_timer_init(&standalone->loop, &standalone->timer);
    standalone->timer.data = standalone;
    (void)uv_timer_start(&standalone->timer, on_ready_timeout, READY_TIMEOUT_MS, 0);
    if (start_daemon(standalone, &standalone->daemons[0], &err) != STATUS_OK)
        stop(standalone, ctl_fail_err(standalone->ctl, CTL_FAILED, &err, ""));
    else if (!standalone->keep_dir) /* else first the job is cancelled that may be left there */
        start_nodes(standalone);
    (void)uv_run(&standalone->loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&standalone->loop);
    assert(rc == 0);
    killed = leftover_close(&standalone->leftover);
    if (killed > 0)
        screen_message(&standalone->ctl->screen, "-- %d processes were left and were killed --",
                       killed);
}

int standalone_run(struct ctl *ctl, const struct attach_options *options)
{
    struct standalone *standalone = calloc(1, sizeof *standalone);
    struct err err = {0};
    sigset_t signals;
    int code;

    if (!standalone)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    standalone->ctl = ctl;
    standalone->options = *options;
    standalone->options.can_detach = false;
    standalone->options.first_is_patient = true;
    standalone->options.on_done = on_attach_done;
    standalone->options.on_submitted = NULL;
    standalone->options.owner = standalone;
    (void)sigemptyset(
        &signals); /* blocked until attach.h handles them, so that the directory is removed */
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigaddset(&signals, SIGQUIT);
    (void)sigprocmask(SIG_BLOCK, &signals, &standalone->signals_before);
    if (prepare(standalone, &err) == STATUS_OK)
        run_loop(standalone);
    else
        standalone->exit_code = ctl_fail_err(ctl, CTL_FAILED, &err, "");
    tell_folders(standalone);
    if (!standalone->keep_dir)
        scratch_remove(&standalone->scratch);
    if (standalone->socket_fd > 0)
        (void)close(standalone->socket_fd);
    (void)sigprocmask(SIG_SETMASK, &standalone->signals_before, NULL);
    code = standalone->exit_code;
    if (standalone->attach_started)
        attach_free(&standalone->attach);
    free(standalone->environ);
    free(standalone->server_environ);
    free(standalone->daemons);
    free(standalone);
    return code;
}
