#include "launcherd/shim_workers.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "launcherd/rundir.h"
#include "launcherd/spawn.h"
#include "launcherd/worker_env.h"

#define SWEEP_FIRST_MS 5u
#define SWEEP_MAX_MS 1000u

static struct log_about about(const struct shim_worker *worker)
{
    const struct msg_start *start = worker->workers->options.start;
    return (struct log_about){.job_id = start->job_id,
                              .generation = start->generation,
                              .rank = (int32_t)(start->rank_base + worker->local)};
}

static void post(struct shim_workers *workers, struct shim_event event)
{
    workers->options.post(workers->options.owner, event);
}

void shim_workers_init(struct shim_workers *workers, const struct shim_workers_options *options)
{
    workers->options = *options;
    workers->port_fd = -1;
    uv_timer_init(options->loop, &workers->sweep_timer);
    workers->sweep_timer.data = workers;
    for (uint32_t i = 0; i < options->start->local_count; i++) {
        workers->items[i].workers = workers;
        workers->items[i].local = i;
    }
}

void shim_workers_close(struct shim_workers *workers)
{
    if (workers->closed)
        return;
    workers->closed = true;
    uv_close((uv_handle_t *)&workers->sweep_timer, NULL);
    if (workers->port_fd >= 0)
        close(workers->port_fd);
    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        struct shim_worker *worker = &workers->items[i];
        output_close(&worker->output);
        if (worker->conn_open)
            conn_close(&worker->conn, STATUS_OK, "the shim has ended");
    }
}

/* -- the master port
 * ----------------------------------------------------------------------------------------- */

static socklen_t make_address(const char *text, struct sockaddr_storage *storage)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    memset(storage, 0, sizeof *storage);
    if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
        memcpy(storage, &in6, sizeof in6);
        return sizeof in6;
    }
    if (inet_pton(AF_INET, text, &in.sin_addr) != 1)
        in.sin_addr.s_addr = htonl(INADDR_ANY); /* a name: any address of ours */
    memcpy(storage, &in, sizeof in);
    return sizeof in;
}

static int bind_port(const char *address, uint32_t *port)
{
    struct sockaddr_storage storage;
    socklen_t bytes = make_address(address, &storage);
    int yes = 1;
    int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (struct sockaddr *)&storage, bytes) == 0 &&
        getsockname(fd, (struct sockaddr *)&storage, &bytes) == 0) {
        /* sin_port and sin6_port lie at the same place, RFC 3493 section 3.3 */
        *port = ntohs(((const struct sockaddr_in *)(const void *)&storage)->sin_port);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Bound and held, but not listening: the kernel gives the port to nobody who asks for any, while
 * rank 0, who asks for this one with SO_REUSEADDR as every server does, gets it. */
void shim_workers_reserve_port(struct shim_workers *workers)
{
    struct shim_event event = {.type = SHIM_EVENT_PORT};
    static char text[160];
    workers->port_fd = bind_port(workers->options.node_address, &event.port);
    if (workers->port_fd < 0) {
        (void)snprintf(text, sizeof text,
                       "no port could be reserved on %s, the address of node %s: %s",
                       workers->options.node_address, workers->options.node_name, strerror(errno));
        event.text = text;
    }
    post(workers, event);
}

/* -- starting
 * ----------------------------------------------------------------------------------------- */

static void on_worker_message(struct conn *conn, const struct msg *msg)
{
    struct shim_worker *worker = conn->owner;
    struct shim_workers *workers = worker->workers;
    const struct msg_start *start = workers->options.start;

    if (workers->closed)
        return;
    if (msg->type == MSG_TYPE_WORKER_ERROR)
        (void)snprintf(worker->error_text, sizeof worker->error_text, "%s", msg->worker_error.text);
    else if (msg->type == MSG_TYPE_WORKER_JOIN &&
             (msg->worker_join.generation != start->generation ||
              msg->worker_join.rank != start->rank_base + worker->local))
        log_line(LOG_WARNING, about(worker), "a join as rank %u of generation %u was not counted",
                 msg->worker_join.rank, msg->worker_join.generation);
    workers->options.step(
        workers->options.owner,
        (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = worker->local, .msg = msg});
}

static void on_worker_closed(struct conn *conn, enum status why, const char *text)
{
    struct shim_worker *worker = conn->owner;
    worker->conn_open = false;
    if (why != STATUS_OK && why != STATUS_CLOSED)
        log_line(LOG_WARNING, about(worker), "its connection was closed: %s", text);
}

static const struct conn_handlers worker_handlers = {on_worker_message, on_worker_closed};

/* What all workers of this start share. */
struct start_facts {
    struct worker_env_facts env;
    struct spawn_user user;
    bool as_user;
    char **argv;
    char error_dir[PATH_MAX];
    struct arena arena;
};

static enum status prepare_user(struct start_facts *facts, const struct msg_start *start,
                                struct err *err)
{
    facts->env.home = "/";
    enum status status = spawn_user_find(&facts->user, start->uid, err);
    if (status == STATUS_OK && facts->user.home[0] != '\0')
        facts->env.home = facts->user.home;
    facts->as_user = start->uid != geteuid();
    if (!facts->as_user)
        return STATUS_OK; /* then it is us, with or without a line in the user database */
    if (geteuid() != 0)
        return err_set(err, STATUS_REFUSED, 0,
                       "this shim runs as uid %u and cannot start a job of uid %u",
                       (unsigned)geteuid(), start->uid);
    return status;
}

static enum status prepare(struct start_facts *facts, const struct shim_workers *workers,
                           const char *master_addr, uint32_t master_port, struct err *err)
{
    const struct shim_workers_options *options = &workers->options;
    const struct msg_start *start = options->start;

    facts->argv = arena_alloc(&facts->arena, (start->argv.count + 1) * sizeof *facts->argv);
    for (uint32_t i = 0; facts->argv != NULL && i < start->argv.count; i++)
        facts->argv[i] =
            arena_text(&facts->arena, start->argv.items[i], strlen(start->argv.items[i]));
    if (facts->argv == NULL || facts->argv[start->argv.count - 1] == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory for the command line");
    enum status status = prepare_user(facts, start, err);
    if (status != STATUS_OK)
        return status;
    char name[64];
    (void)snprintf(name, sizeof name, "g%u-errors", start->generation);
    rundir_join(facts->error_dir, options->log_dir, name);
    status = rundir_make(facts->error_dir, 0700, err);
    if (status == STATUS_OK && facts->as_user &&
        chown(facts->error_dir, facts->user.uid, facts->user.gid) != 0)
        status = err_set(err, STATUS_IO, errno, "cannot give %.150s to its user: %s",
                         facts->error_dir, strerror(errno));
    facts->env.start = start;
    facts->env.master_addr = master_addr;
    facts->env.master_port = master_port;
    facts->env.node_name = options->node_name;
    facts->env.node_address = options->node_address;
    facts->env.gpus = options->gpus;
    facts->env.token = options->token;
    facts->env.error_dir = facts->error_dir;
    facts->env.shim_fd = SPAWN_EXTRA_FD;
    return status;
}

static enum status open_ends(struct shim_worker *worker, int *output_fd, int *conn_fd,
                             struct err *err)
{
    const struct shim_workers_options *options = &worker->workers->options;
    char path[PATH_MAX];
    int pair[2];

    *output_fd = *conn_fd = -1;
    rundir_rank_log(path, options->log_dir, options->start->generation,
                    options->start->rank_base + worker->local);
    enum status status = output_open(&worker->output, options->loop, path, output_fd, err);
    if (status != STATUS_OK)
        return status;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    *conn_fd = pair[1];
    status =
        conn_open_fd(&worker->conn, options->loop, pair[0], FRAME_BYTES_MAX, &worker_handlers, err);
    if (status != STATUS_OK) {
        close(pair[0]);
        return status;
    }
    worker->conn.owner = worker;
    worker->conn_open = true;
    return STATUS_OK;
}

static enum status spawn_one(struct shim_worker *worker, struct start_facts *facts, int null_fd,
                             int *exit_code, struct err *err)
{
    int output_fd, conn_fd;
    struct arena arena = {0};
    enum status status = open_ends(worker, &output_fd, &conn_fd, err);

    *exit_code = 125;
    if (status == STATUS_OK) {
        char **envp = worker_env_build(&facts->env, worker->local, &arena);
        struct spawn_order order = {
            .argv = facts->argv,
            .envp = envp,
            .search = envp == NULL ? "" : worker_env_path(envp),
            .cwd = facts->env.start->cwd,
            .user = facts->as_user ? &facts->user : NULL,
            .stdin_fd = null_fd,
            .stdout_fd = output_fd,
            .stderr_fd = output_fd,
            .extra_fd = conn_fd,
            .dies_with_parent = true,
        };
        status = envp == NULL ? err_set(err, STATUS_MEMORY, ENOMEM, "no memory for an environment")
                              : spawn_process(&order, &worker->pid, exit_code, err);
    }
    arena_reset(&arena);
    if (output_fd >= 0)
        close(output_fd);
    if (conn_fd >= 0)
        close(conn_fd);
    return status;
}

static void fail_spawn(struct shim_worker *worker, int exit_code, const struct err *err)
{
    worker->pid = 0;
    (void)snprintf(worker->spawn_text, sizeof worker->spawn_text, "%s", err->text);
    log_line(LOG_ERROR, about(worker), "%s", err->text);
    post(worker->workers, (struct shim_event){.type = SHIM_EVENT_SPAWN_FAILED,
                                              .local = worker->local,
                                              .code = exit_code,
                                              .text = worker->spawn_text});
}

void shim_workers_spawn(struct shim_workers *workers, const char *master_addr, uint32_t master_port)
{
    struct start_facts facts = {0};
    struct err err = {0};
    int exit_code = 125;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    enum status ready = prepare(&facts, workers, master_addr, master_port, &err);

    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        struct shim_worker *worker = &workers->items[i];
        enum status status =
            ready != STATUS_OK ? ready : spawn_one(worker, &facts, null_fd, &exit_code, &err);
        if (status == STATUS_OK)
            post(workers, (struct shim_event){.type = SHIM_EVENT_SPAWNED,
                                              .local = i,
                                              .pid = (uint32_t)worker->pid});
        else
            fail_spawn(worker, exit_code, &err);
    }
    if (null_fd >= 0)
        close(null_fd);
    spawn_user_free(&facts.user);
    arena_reset(&facts.arena);
}

void shim_workers_send_world(struct shim_workers *workers, uint32_t local, const uint8_t *bytes,
                             uint32_t byte_count)
{
    struct shim_worker *worker = &workers->items[local];
    struct msg msg = {.type = MSG_TYPE_WORLD};
    struct err err;
    msg.world.job_id = workers->options.start->job_id;
    msg.world.generation = workers->options.start->generation;
    msg.world.blob = (struct msg_bytes){.items = bytes, .count = byte_count};
    if (worker->conn_open && conn_send(&worker->conn, &msg, &err) != STATUS_OK)
        log_line(LOG_WARNING, about(worker), "it was not told the world: %s", err.text);
}

/* -- ending
 * ----------------------------------------------------------------------------------------- */

/* Each worker leads its group. While it is not reaped its number cannot name another. */
void shim_workers_signal(const struct shim_workers *workers, int signal)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].pid > 0)
            kill(-workers->items[i].pid, signal);
}

static bool tree_is_empty(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

static void close_outputs(struct shim_workers *workers)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        output_close(&workers->items[i].output);
}

static void on_sweep(uv_timer_t *timer)
{
    struct shim_workers *workers = timer->data;
    uint32_t again_ms = SWEEP_FIRST_MS << (workers->sweeps < 8 ? workers->sweeps : 8);
    if (!workers->killing)
        return;
    uint32_t count = proc_kill_descendants(getpid(), NULL, NULL);
    if (++workers->sweeps == 12)
        log_line(LOG_WARNING, about(&workers->items[0]),
                 "%u processes do not end although they were killed", count);
    uv_timer_start(timer, on_sweep, again_ms < SWEEP_MAX_MS ? again_ms : SWEEP_MAX_MS, 0);
}

/* The groups first, which is most or all of it; what is elsewhere is looked for a little later, and
 * at each death. */
void shim_workers_kill(struct shim_workers *workers)
{
    workers->killing = true;
    workers->sweeps = 0;
    shim_workers_signal(workers, SIGKILL);
    shim_workers_check(workers);
    if (workers->killing)
        uv_timer_start(&workers->sweep_timer, on_sweep, SWEEP_FIRST_MS, 0);
}

void shim_workers_check(struct shim_workers *workers)
{
    if (!tree_is_empty())
        return;
    workers->killing = false;
    uv_timer_stop(&workers->sweep_timer);
    close_outputs(workers);
    post(workers, (struct shim_event){.type = SHIM_EVENT_TREE_EMPTY});
}

static void step_exited(struct shim_worker *worker, const siginfo_t *info)
{
    struct shim_workers *workers = worker->workers;
    struct shim_event event = {.type = SHIM_EVENT_EXITED, .local = worker->local, .text = ""};

    worker->pid = 0;
    output_drain(&worker->output); /* so that its last lines are in the report */
    if (info->si_code == CLD_EXITED)
        event.code = info->si_status;
    else
        event.signal = (uint32_t)info->si_status;
    if (info->si_code == CLD_DUMPED)
        event.text = "core dumped";
    workers->options.step(workers->options.owner, event);
}

static struct shim_worker *find(struct shim_workers *workers, pid_t pid)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].pid == pid)
            return &workers->items[i];
    return NULL;
}

static bool workers_are_reaped(const struct shim_workers *workers)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].pid > 0)
            return false;
    return true;
}

void shim_workers_reap(struct shim_workers *workers)
{
    siginfo_t info;
    while (proc_reap(&info)) {
        struct shim_worker *worker = find(workers, info.si_pid);
        if (worker != NULL)
            step_exited(worker, &info);
    }
    if (!workers->killing)
        return;
    if (tree_is_empty()) {
        workers->killing = false;
        uv_timer_stop(&workers->sweep_timer);
        close_outputs(workers);
        workers->options.step(workers->options.owner,
                              (struct shim_event){.type = SHIM_EVENT_TREE_EMPTY});
    } else if (workers_are_reaped(workers)) {
        proc_kill_descendants(getpid(), NULL, NULL);
    }
}

void shim_workers_tail(const struct shim_workers *workers, uint32_t local, char out[TAIL_BYTES_MAX])
{
    assert(local < workers->options.start->local_count);
    const struct shim_worker *worker = &workers->items[local];
    output_tail(&worker->output, out);
    if (worker->error_text[0] == '\0' || strstr(out, worker->error_text) != NULL)
        return;
    size_t used = strlen(out);
    if (used + strlen(worker->error_text) + 2 > TAIL_BYTES_MAX)
        used = 0; /* its own words count more */
    (void)snprintf(out + used, TAIL_BYTES_MAX - used, "%s%s",
                   used > 0 && out[used - 1] != '\n' ? "\n" : "", worker->error_text);
}
