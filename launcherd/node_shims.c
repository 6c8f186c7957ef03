/* The shims of a node as processes: started or adopted, connected, watched, and, when one is
 * killed, swept up after. A shim that ended in order has left nothing; behind any other the whole
 * of /proc is searched for what carries its token, and for orphans that came to us as the
 * subreaper, until nothing is found. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "launcherd/node_state.h"
#include "launcherd/proc.h"
#include "launcherd/shim_io.h"
#include "launcherd/spawn.h"

#define SWEEP_MAX_MS 50u

extern char **environ;

static struct log_about about(const struct node_shim *shim)
{
    return (struct log_about){.node = shim->node->options.core.name,
                              .job_id = shim->job_id,
                              .generation = shim->generation,
                              .rank = -1};
}

struct node_shim *node_shim_find(const struct node *node, uint64_t job_id, uint32_t generation)
{
    for (struct node_shim *shim = node->shims; shim != NULL; shim = shim->next)
        if (shim->job_id == job_id && shim->generation == generation && !shim->removed)
            return shim;
    return NULL;
}

static struct launcher_event event_of(const struct node_shim *shim, enum launcher_event_type type)
{
    return (struct launcher_event){
        .type = type, .job_id = shim->job_id, .generation = shim->generation};
}

/* Frees what was removed and has no handle open. Never from a callback of a shim, which may still
 * look at it. */
static void collect(struct node *node)
{
    for (struct node_shim **at = &node->shims; *at != NULL;) {
        struct node_shim *shim = *at;
        if (!shim->removed || shim->conn_open || shim->poll_open) {
            at = &shim->next;
            continue;
        }
        *at = shim->next;
        free(shim);
    }
}

static struct node_shim *shim_new(struct node *node, const struct msg_start *start)
{
    collect(node);
    struct node_shim *shim = calloc(1, sizeof *shim);
    if (shim == NULL)
        return NULL;
    shim->node = node;
    shim->job_id = start->job_id;
    shim->generation = start->generation;
    (void)snprintf(shim->cluster, sizeof shim->cluster, "%s", start->cluster);
    rundir_path(shim->dir, node->options.state_dir, start->cluster, start->job_id,
                start->generation);
    shim->pidfd = -1;
    shim->next = node->shims;
    node->shims = shim;
    return shim;
}

/* -- connections
 * ----------------------------------------------------------------------------------------- */

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct node_shim *shim = conn->owner;
    if (shim->removed || shim->node->closed)
        return;
    if (!shim->said_hello &&
        (msg->type != MSG_TYPE_SHIM_HELLO || msg->shim_hello.job_id != shim->job_id ||
         msg->shim_hello.generation != shim->generation)) {
        conn_close(conn, STATUS_BAD_INPUT, "another shim answers");
        return;
    }
    struct launcher_event event =
        event_of(shim, shim->said_hello ? LAUNCHER_EVENT_SHIM_MSG : LAUNCHER_EVENT_SHIM_OPEN);
    shim->said_hello = true;
    event.msg = msg;
    node_step(shim->node, event);
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct node_shim *shim = conn->owner;
    struct node *node = shim->node;
    shim->conn_open = false;
    if (!shim->removed && !shim->exited && !node->closed) {
        if (why != STATUS_CLOSED)
            log_line(LOG_WARNING, about(shim), "the connection to its shim ended: %s", text);
        node_step(node, event_of(shim, LAUNCHER_EVENT_SHIM_CLOSED));
    }
}

static const struct conn_handlers shim_handlers = {on_message, on_closed};

void node_shim_connect(struct node *node, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(node, job_id, generation);
    char address[PATH_MAX + 16];
    struct err err;

    if (shim == NULL || shim->exited || shim->conn_open)
        return;
    (void)snprintf(address, sizeof address, "unix:%s/shim.sock", shim->dir);
    shim->said_hello = false;
    shim->conn.owner = shim;
    if (conn_open_to(&shim->conn, node->loop, address, FRAME_BYTES_MAX, &shim_handlers, &err) ==
        STATUS_OK)
        shim->conn_open = true;
    else
        node_post(node, event_of(shim, LAUNCHER_EVENT_SHIM_CLOSED));
}

void node_shim_send(struct node *node, uint64_t job_id, uint32_t generation, const struct msg *msg)
{
    struct node_shim *shim = node_shim_find(node, job_id, generation);
    struct msg copy = *msg;
    struct err err;
    if (shim == NULL || !shim->conn_open)
        return;
    if (conn_send(&shim->conn, &copy, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        log_line(LOG_WARNING, about(shim), "a %s was not sent to its shim: %s",
                 msg_type_word(msg->type), err.text);
}

/* -- starting
 * ----------------------------------------------------------------------------------------- */

static enum status make_dirs(const struct node_shim *shim, const struct msg *start,
                             char log_dir[PATH_MAX], struct err *err)
{
    struct msg copy = *start;
    rundir_log_dir(log_dir, shim->node->options.state_dir, shim->cluster, shim->job_id);
    enum status status = rundir_make(log_dir, geteuid() == 0 ? 0711 : 0700, err);
    if (status != STATUS_OK)
        return status;
    rundir_remove(shim->dir); /* of a start that was refused half-way */
    status = rundir_make(shim->dir, 0700, err);
    if (status != STATUS_OK)
        return status;
    copy.seq = 1;
    return rundir_write_msg(shim->dir, "start.msg", &copy, err);
}

static enum status spawn(struct node_shim *shim, const char *log_dir, int link_fd, struct err *err)
{
    const struct node *node = shim->node;
    char path[PATH_MAX], name[64], gpus[16], lease_until[24], lease[24], log_dir_text[PATH_MAX];
    char node_name[NODE_NAME_BYTES_MAX], address[ADDRESS_BYTES_MAX];
    static char program[] = "launcherd", mode[] = SHIM_ARGUMENT;

    (void)snprintf(name, sizeof name, "shim-g%u.log", shim->generation);
    rundir_join(path, log_dir, name);
    (void)snprintf(log_dir_text, sizeof log_dir_text, "%s", log_dir);
    (void)snprintf(node_name, sizeof node_name, "%s", node->options.core.name);
    (void)snprintf(address, sizeof address, "%s", node->options.core.address);
    (void)snprintf(gpus, sizeof gpus, "%u", node->options.core.gpus);
    (void)snprintf(lease_until, sizeof lease_until, "%llu",
                   (unsigned long long)node->core.lease_until_us);
    (void)snprintf(lease, sizeof lease, "%llu", (unsigned long long)node->core.lease_us);
    char *argv[] = {program, mode, shim->dir,   log_dir_text, node_name,
                    address, gpus, lease_until, lease,        NULL};
    int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int exit_code;
    struct spawn_order order = {.path = "/proc/self/exe",
                                .argv = argv,
                                .envp = environ,
                                .stdin_fd = null_fd,
                                .stdout_fd = log_fd,
                                .stderr_fd = log_fd,
                                .extra_fd = link_fd};
    enum status status =
        log_fd < 0 || null_fd < 0
            ? err_set(err, STATUS_IO, errno, "cannot open %.180s: %s", path, strerror(errno))
            : spawn_process(&order, &shim->pid, &exit_code, err);
    if (log_fd >= 0)
        close(log_fd);
    if (null_fd >= 0)
        close(null_fd);
    return status;
}

static enum status may_run(const struct node *node, const struct msg_start *start, struct err *err)
{
    if (geteuid() == 0 || start->uid == geteuid())
        return STATUS_OK;
    return err_set(err, STATUS_REFUSED, 0,
                   "launcherd of %s runs as uid %u and cannot run a job of uid %u (%.60s): run "
                   "launcherd as root, or submit as its user",
                   node->options.core.name, (unsigned)geteuid(), start->uid, start->user);
}

static enum status start_shim(struct node_shim *shim, const struct msg *start, struct err *err)
{
    char log_dir[PATH_MAX];
    int pair[2];
    enum status status = may_run(shim->node, &start->start, err);
    if (status == STATUS_OK)
        status = make_dirs(shim, start, log_dir, err);
    if (status != STATUS_OK)
        return status;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    status = spawn(shim, log_dir, pair[1], err);
    close(pair[1]);
    if (status != STATUS_OK) {
        close(pair[0]);
        return status;
    }
    shim->is_child = true;
    shim->conn.owner = shim;
    if (conn_open_fd(&shim->conn, shim->node->loop, pair[0], FRAME_BYTES_MAX, &shim_handlers,
                     err) != STATUS_OK) {
        close(pair[0]);
        node_post(shim->node, event_of(shim, LAUNCHER_EVENT_SHIM_CLOSED)); /* its socket remains */
    } else {
        shim->conn_open = true;
    }
    return STATUS_OK;
}

void node_shim_spawn(struct node *node, const struct msg *start)
{
    struct err err = {0};
    struct node_shim *shim = shim_new(node, &start->start);
    struct launcher_event event = {.type = LAUNCHER_EVENT_SHIM_FAILED,
                                   .job_id = start->start.job_id,
                                   .generation = start->start.generation,
                                   .text = "no memory"};
    if (shim != NULL && start_shim(shim, start, &err) == STATUS_OK)
        return;
    if (shim != NULL) {
        shim->exited = shim->gone_said = true;
        event.text = err.text;
        log_line(LOG_ERROR, about(shim), "the shim was not started: %s", err.text);
    }
    node_post(node, event);
}

/* -- ends
 * ----------------------------------------------------------------------------------------- */

static void on_sweep_timer(uv_timer_t *timer)
{
    node_shims_sweep(timer->data);
}

static void sweep_soon(struct node *node, uint32_t delay_ms)
{
    if (!node->closed)
        uv_timer_start(&node->sweep_timer, on_sweep_timer, delay_ms, 0);
}

static void set_exited(struct node_shim *shim)
{
    shim->exited = true;
    shim->node->sweeps = 0;
    sweep_soon(shim->node, 0);
}

static bool is_live_child(void *arg, pid_t pid)
{
    const struct node *node = arg;
    for (const struct node_shim *shim = node->shims; shim != NULL; shim = shim->next)
        if (shim->pid == pid && shim->is_child && !shim->exited)
            return true;
    return false;
}

/* How many processes of its job were still found. */
static uint32_t sweep_one(struct node_shim *shim)
{
    struct rundir_shim process;
    struct err err;
    uint32_t count = 0;
    if (shim->is_child)
        count += proc_kill_descendants(getpid(), is_live_child, shim->node);
    if (rundir_read_shim(shim->dir, &process, &err) == STATUS_OK)
        count += proc_kill_token(process.token);
    return count; /* without shim.json it had not started anything */
}

static void say_gone(struct node_shim *shim, const struct msg *end)
{
    struct launcher_event event = event_of(shim, LAUNCHER_EVENT_SHIM_GONE);
    shim->gone_said = true;
    event.text = shim->how;
    event.msg = end;
    node_step(shim->node, event);
}

/* False: not yet. */
static bool sweep_up(struct node_shim *shim)
{
    struct arena arena = {0};
    struct msg end;
    struct err err;
    bool has_end = rundir_read_msg(shim->dir, "end.msg", &arena, &end, &err) == STATUS_OK;
    bool is_clean = has_end || sweep_one(shim) == 0;

    if (is_clean)
        say_gone(shim, has_end ? &end : NULL);
    arena_reset(&arena);
    return is_clean;
}

void node_shims_sweep(struct node *node)
{
    bool again = false;
    for (struct node_shim *shim = node->shims; shim != NULL; shim = shim->next)
        if (shim->exited && !shim->gone_said && !sweep_up(shim))
            again = true;
    if (node->ending && node->options.exit_with_parent && node_shims_left(node) == 0) {
        node_close(node);
        return;
    }
    uint32_t delay_ms = node->sweeps < 6 ? 1u << node->sweeps : SWEEP_MAX_MS;
    node->sweeps++;
    if (again)
        sweep_soon(node, delay_ms);
}

static void describe_exit(struct node_shim *shim, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        (void)snprintf(shim->how, sizeof shim->how,
                       "ended early (exit code %d), see its shim-g%u.log", info->si_status,
                       shim->generation);
    else
        (void)snprintf(shim->how, sizeof shim->how, "was killed (signal %d)", info->si_status);
}

void node_shims_reap(struct node *node)
{
    siginfo_t info;
    while (proc_reap(&info)) {
        for (struct node_shim *shim = node->shims; shim != NULL; shim = shim->next) {
            if (shim->pid == info.si_pid && shim->is_child && !shim->exited) {
                describe_exit(shim, &info);
                set_exited(shim);
                break;
            }
        }
    }
}

uint32_t node_shims_left(const struct node *node)
{
    uint32_t count = 0;
    for (const struct node_shim *shim = node->shims; shim != NULL; shim = shim->next)
        count += !shim->gone_said;
    return count;
}

uint32_t node_shims_signal(struct node *node, int signal)
{
    for (const struct node_shim *shim = node->shims; shim != NULL; shim = shim->next) {
        if (shim->exited)
            continue;
        if (shim->pidfd >= 0)
            syscall(SYS_pidfd_send_signal, shim->pidfd, signal, NULL, 0);
        else if (shim->is_child && shim->pid > 0)
            kill(shim->pid, signal);
    }
    return node_shims_left(node);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct node_shim *shim = handle->data;
    shim->poll_open = false;
    close(shim->pidfd);
    shim->pidfd = -1;
}

static void close_poll(struct node_shim *shim)
{
    if (shim->poll_open && !uv_is_closing((uv_handle_t *)&shim->pidfd_poll))
        uv_close((uv_handle_t *)&shim->pidfd_poll, on_poll_closed);
}

void node_shim_remove(struct node *node, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(node, job_id, generation);
    if (shim == NULL)
        return; /* it was refused before it came to be */
    rundir_remove(shim->dir);
    shim->removed = true;
    if (shim->conn_open)
        conn_close(&shim->conn, STATUS_OK, "forgotten");
    close_poll(shim);
}

void node_shims_close(struct node *node)
{
    for (struct node_shim *shim = node->shims; shim != NULL; shim = shim->next) {
        if (node->options.exit_with_parent && shim->gone_said)
            rundir_remove(shim->dir);
        if (shim->conn_open)
            conn_close(&shim->conn, STATUS_OK, "launcherd ends");
        close_poll(shim);
    }
}

void node_shims_free(struct node *node)
{
    while (node->shims != NULL) {
        struct node_shim *shim = node->shims;
        node->shims = shim->next;
        free(shim);
    }
}

/* -- adoption
 * ----------------------------------------------------------------------------------------- */

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    struct node_shim *shim = poll->data;
    (void)status;
    (void)events;
    close_poll(shim);
    if (shim->exited)
        return;
    (void)snprintf(shim->how, sizeof shim->how, "has ended unexpectedly");
    set_exited(shim);
}

/* The start time is looked at again once the pidfd names the process for good. */
static bool watch(struct node_shim *shim, const struct rundir_shim *process)
{
    if (proc_start_ticks(process->pid) != process->start_ticks)
        return false;
    shim->pidfd = proc_pidfd(process->pid);
    if (shim->pidfd < 0)
        return false;
    if (proc_start_ticks(process->pid) != process->start_ticks ||
        uv_poll_init(shim->node->loop, &shim->pidfd_poll, shim->pidfd) != 0) {
        close(shim->pidfd);
        shim->pidfd = -1;
        return false;
    }
    shim->pid = process->pid;
    shim->pidfd_poll.data = shim;
    shim->poll_open = true;
    uv_poll_start(&shim->pidfd_poll, UV_READABLE, on_pidfd);
    return true;
}

static void fill_core_shim(struct launcher_shim *out, const struct msg_start *start)
{
    memset(out, 0, sizeof *out);
    out->job_id = start->job_id;
    out->generation = start->generation;
    out->slot_mask = start->slot_mask;
    out->rank_base = start->rank_base;
    out->local_count = start->local_count;
    (void)snprintf(out->cluster, sizeof out->cluster, "%s", start->cluster);
}

/* One that died in this boot is taken for alive until what it left is swept; SHIM_GONE tells then.
 */
static void adopt(struct node_shim *shim, const struct msg_start *start, struct arena *arena)
{
    static struct launcher_shim core;
    struct launcher_event event = event_of(shim, LAUNCHER_EVENT_ADOPT);
    struct rundir_shim process;
    struct msg end;
    struct err err;
    bool has_process = rundir_read_shim(shim->dir, &process, &err) == STATUS_OK;
    bool same_boot = has_process && strcmp(process.boot_id, shim->node->options.core.boot_id) == 0;
    bool has_end = rundir_read_msg(shim->dir, "end.msg", arena, &end, &err) == STATUS_OK;
    bool lives = same_boot && watch(shim, &process);

    fill_core_shim(&core, start);
    core.phase = has_end ? SHIM_ENDED : SHIM_PREPARING;
    event.shim = &core;
    event.alive = same_boot;
    (void)snprintf(shim->how, sizeof shim->how, "%s",
                   has_process && !same_boot ? "ended with a restart of the node"
                                             : "ended while launcherd was away");
    event.text = shim->how;
    event.msg = has_end ? &end : NULL;
    log_line(LOG_INFO, about(shim),
             lives ? "adopted its shim, pid %d" : "its shim is gone (pid %d)",
             has_process ? (int)process.pid : 0);
    if (!lives && same_boot)
        set_exited(shim);
    else if (!lives)
        shim->exited = shim->gone_said = true;
    node_step(shim->node, event);
}

static void adopt_dir(struct node *node, const char *dir)
{
    struct arena arena = {0};
    struct msg start;
    struct err err;
    if (rundir_read_msg(dir, "start.msg", &arena, &start, &err) != STATUS_OK ||
        start.type != MSG_TYPE_START) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "removing %s: it holds no order", dir);
        rundir_remove(dir);
    } else {
        struct node_shim *shim = shim_new(node, &start.start);
        if (shim != NULL && strcmp(shim->dir, dir) == 0) {
            adopt(shim, &start.start, &arena);
        } else if (shim != NULL) {
            log_line(LOG_WARNING, about(shim), "%s is not its run directory: left alone", dir);
            shim->removed = true;
        }
    }
    arena_reset(&arena);
}

void node_shims_adopt(struct node *node)
{
    char run[PATH_MAX], path[PATH_MAX];
    struct dirent *entry;

    rundir_join(run, node->options.state_dir, "run");
    DIR *dir = opendir(run);
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        rundir_join(path, run, entry->d_name);
        adopt_dir(node, path);
    }
    closedir(dir);
}
