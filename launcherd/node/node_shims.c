#include "launcherd/node/node_shims.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/msg_schema.h"
#include "common/msg_version.h"
#include "launcherd/node/node_expire.h"
#include "launcherd/node/node_warm.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/shim_io.h"

extern char **environ;

void node_shims_init(struct node_shims *shims, const struct node_host *host)
{
    *shims = (struct node_shims){.host = host};
    uv_timer_init(host->loop, &shims->sweep_timer);
    shims->sweep_timer.data = shims;
}

struct log_about node_shim_about(const struct node_shim *shim)
{
    struct log_about about = node_about(shim->shims->host);
    about.job_id = shim->job_id;
    about.generation = shim->generation;
    return about;
}

struct launcher_event node_shim_event(const struct node_shim *shim, enum launcher_event_type type)
{
    return (struct launcher_event){
        .type = type, .job_id = shim->job_id, .generation = shim->generation};
}

static void step(const struct node_shim *shim, struct launcher_event event)
{
    const struct node_host *host = shim->shims->host;
    host->step(host->owner, event);
}

static void post(const struct node_shims *shims, struct launcher_event event)
{
    shims->host->post(shims->host->owner, event);
}

struct node_shim *node_shim_find(const struct node_shims *shims, uint64_t job_id,
                                 uint32_t generation)
{
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->job_id == job_id && shim->generation == generation && !shim->removed)
            return shim;
    return NULL;
}

/* Frees removed shims without open handles. Must not be called from a callback of a shim, which may
 * still use it. */
static void collect(struct node_shims *shims)
{
    for (struct node_shim **at = &shims->first; *at != NULL;) {
        struct node_shim *shim = *at;
        if (!shim->removed || shim->conn_open || shim->poll_open) {
            at = &shim->next;
            continue;
        }
        *at = shim->next;
        free(shim);
    }
}

static struct node_shim *make_shim(struct node_shims *shims, const struct msg_start *start)
{
    struct node_shim *shim = calloc(1, sizeof *shim);

    if (shim == NULL)
        return NULL;
    shim->shims = shims;
    shim->job_id = start->job_id;
    shim->generation = start->generation;
    (void)snprintf(shim->cluster, sizeof shim->cluster, "%s", start->cluster);
    rundir_path(shim->dir, shims->host->state_dir, start->cluster, start->job_id,
                start->generation);
    shim->pidfd = -1;
    shim->next = shims->first;
    shims->first = shim;
    return shim;
}

struct node_shim *node_shim_new(struct node_shims *shims, const struct msg_start *start)
{
    collect(shims);
    return make_shim(shims, start);
}

static void note_ranks(struct node_shim *shim, const struct msg_shim_report *report)
{
    shim->rank_base = report->ranks.count > 0 ? report->ranks.items[0].rank : 0;
    shim->rank_count = report->ranks.count;
    for (uint32_t i = 0; i < report->ranks.count; i++)
        shim->pids[i] =
            report->ranks.items[i].state == RANK_RUNNING ? (pid_t)report->ranks.items[i].pid : 0;
}

pid_t node_shim_rank_pid(const struct node_shim *shim, uint32_t rank)
{
    return rank >= shim->rank_base && rank - shim->rank_base < shim->rank_count
               ? shim->pids[rank - shim->rank_base]
               : 0;
}

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct node_shim *shim = conn->owner;
    if (shim->removed || shim->shims->host->closed)
        return;
    if (!shim->hello_received &&
        (msg->type != MSG_TYPE_SHIM_HELLO || msg->shim_hello.job_id != shim->job_id ||
         msg->shim_hello.generation != shim->generation)) {
        conn_close(conn, STATUS_BAD_INPUT, "another shim answers");
        return;
    }
    if (msg->type == MSG_TYPE_SHIM_HELLO &&
        msg_schema_differs(msg_protocol(), msg->shim_hello.protocol, msg->shim_hello.schema)) {
        shim->is_other_build = true;
        conn_close(
            conn, STATUS_UNSUPPORTED,
            "it is of another build with the same protocol: start the launcherd that started "
            "it, or cancel the job; without either it ends with its lease");
        return;
    }
    if (shim->hello_received && msg->type == MSG_TYPE_INPUT_STATE) {
        shim->shims->host->send_server(shim->shims->host->owner, msg);
        return;
    }
    struct launcher_event event = node_shim_event(
        shim, shim->hello_received ? LAUNCHER_EVENT_SHIM_MSG : LAUNCHER_EVENT_SHIM_OPEN);
    shim->hello_received = true;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        note_ranks(shim, &msg->shim_report);
    event.msg = msg;
    step(shim, event);
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct node_shim *shim = conn->owner;
    shim->conn_open = false;
    if (!shim->removed && !shim->exited && !shim->shims->host->closed) {
        if (why != STATUS_CLOSED && !shim->is_told_build)
            log_line(LOG_WARNING, node_shim_about(shim), "the connection to its shim ended: %s",
                     text);
        shim->is_told_build = shim->is_other_build;
        step(shim, node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED));
    }
}

static const struct conn_handlers shim_handlers = {on_message, on_closed};

void node_shim_connect(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    char address[PATH_MAX + 16];
    struct err err;

    if (shim == NULL || shim->exited || shim->conn_open)
        return;
    (void)snprintf(address, sizeof address, "unix:%s/shim.sock", shim->dir);
    shim->hello_received = false;
    shim->conn.owner = shim;
    if (conn_open_to(&shim->conn, shims->host->loop, address, FRAME_BYTES_MAX, &shim_handlers,
                     &err) == STATUS_OK)
        shim->conn_open = true;
    else
        post(shims, node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED));
}

void node_shim_send(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                    const struct msg *msg)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    struct msg copy = *msg;
    struct err err;
    if (shim == NULL || !shim->conn_open)
        return;
    if (conn_send(&shim->conn, &copy, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        log_line(LOG_WARNING, node_shim_about(shim), "a %s was not sent to its shim: %s",
                 msg_type_name(msg->type), err.text);
}

void node_shim_input(struct node_shims *shims, const struct msg *msg)
{
    const struct msg_input *input = &msg->input;
    struct node_shim *shim = node_shim_find(shims, input->job_id, input->generation);
    struct msg answer = {.type = MSG_TYPE_INPUT_STATE};

    if (shim != NULL && shim->conn_open && shim->hello_received &&
        shim->conn.protocols.peer >= msg_type_since(MSG_TYPE_INPUT)) {
        node_shim_send(shims, input->job_id, input->generation, msg);
        return;
    }
    answer.input_state.request_id = input->request_id;
    answer.input_state.problem = "its ranks do not run there now";
    shims->host->send_server(shims->host->owner, &answer);
}

static enum status make_dirs(const struct node_shim *shim, const struct msg *start,
                             char log_dir[PATH_MAX], struct err *err)
{
    struct msg copy = *start;
    rundir_log_dir(log_dir, shim->shims->host->logs_dir, shim->cluster, shim->job_id);
    enum status status = rundir_make(log_dir, geteuid() == 0 ? 0711 : 0700, err);
    if (status != STATUS_OK)
        return status;
    rundir_remove(shim->dir); /* left by a start that was refused half-way */
    status = rundir_make_dir(shim->dir, err);
    if (status != STATUS_OK)
        return status;
    status = rundir_link_stage(shim->dir, shim->shims->host->state_dir, start->start.cwd, err);
    if (status != STATUS_OK)
        return status;
    return rundir_write_msg(shim->dir, "start.msg", &copy, err);
}

/* The arguments of a shim, and the path of its log. */
struct shim_texts {
    char log[PATH_MAX], log_dir[PATH_MAX], gpus[DEVICES_TEXT_BYTES], lease_until[24], lease[24],
        log_max[24], cgroups[PATH_MAX], memory[24], allow_root[2], node_name[NODE_NAME_BYTES_MAX],
        address[ADDRESS_BYTES_MAX];
    char *items[SHIM_ARG_COUNT + 1]; /* the last is NULL */
};

static void fill_texts(struct node_shim *shim, const char *log_dir, struct shim_texts *texts)
{
    const struct node_host *host = shim->shims->host;
    const struct launcher *core = host->core;
    char name[64];

    (void)snprintf(name, sizeof name, "shim-g%u.log", shim->generation);
    rundir_join(texts->log, log_dir, name);
    (void)snprintf(texts->log_dir, sizeof texts->log_dir, "%s", log_dir);
    (void)snprintf(texts->node_name, sizeof texts->node_name, "%s", core->options.name);
    (void)snprintf(texts->address, sizeof texts->address, "%s", core->options.address);
    devices_format(host->devices, core->options.gpus, texts->gpus);
    (void)snprintf(texts->lease_until, sizeof texts->lease_until, "%llu",
                   (unsigned long long)core->lease_until_us);
    (void)snprintf(texts->lease, sizeof texts->lease, "%llu", (unsigned long long)core->lease_us);
    (void)snprintf(texts->log_max, sizeof texts->log_max, "%llu",
                   (unsigned long long)host->log_max);
    (void)snprintf(texts->allow_root, sizeof texts->allow_root, "%d", host->allow_root);
    (void)snprintf(texts->cgroups, sizeof texts->cgroups, "%s", host->cgroups);
    (void)snprintf(texts->memory, sizeof texts->memory, "%llu",
                   (unsigned long long)host->job_memory_bytes);
    texts->items[SHIM_ARG_RUN_DIR] = shim->dir;
    texts->items[SHIM_ARG_LOG_DIR] = texts->log_dir;
    texts->items[SHIM_ARG_NODE_NAME] = texts->node_name;
    texts->items[SHIM_ARG_NODE_ADDRESS] = texts->address;
    texts->items[SHIM_ARG_GPUS] = texts->gpus;
    texts->items[SHIM_ARG_LEASE_UNTIL_US] = texts->lease_until;
    texts->items[SHIM_ARG_LEASE_US] = texts->lease;
    texts->items[SHIM_ARG_LOG_MAX] = texts->log_max;
    texts->items[SHIM_ARG_ALLOW_ROOT] = texts->allow_root;
    texts->items[SHIM_ARG_CGROUPS] = texts->cgroups;
    texts->items[SHIM_ARG_JOB_MEMORY] = texts->memory;
    texts->items[SHIM_ARG_COUNT] = NULL;
}

static enum status spawn(struct node_shim *shim, const struct shim_texts *texts, int link_fd,
                         struct err *err)
{
    static char program[] = "launcherd", mode[] = SHIM_ARGUMENT;
    char *argv[SHIM_ARG_COUNT + 3] = {program, mode};
    int log_fd = -1;
    enum status status =
        own_file_open(texts->log, 1, O_WRONLY | O_CREAT | O_APPEND, 0600, &log_fd, err);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int exit_code;

    memcpy(argv + 2, texts->items, sizeof texts->items);
    struct spawn_order order = {.path = "/proc/self/exe",
                                .argv = argv,
                                .envp = environ,
                                .stdin_fd = null_fd,
                                .stdout_fd = log_fd,
                                .stderr_fd = log_fd,
                                .extra_fd = link_fd};
    if (status == STATUS_OK && null_fd < 0)
        status = err_set(err, STATUS_IO, errno, "cannot open /dev/null: %s", strerror(errno));
    if (status == STATUS_OK)
        status = spawn_process(&order, &shim->pid, &exit_code, err);
    if (log_fd >= 0)
        close(log_fd);
    if (null_fd >= 0)
        close(null_fd);
    return status;
}

/* Starts a process, or takes a warm one that waits for this order. `*fd`: the connection to it. */
static enum status make_process(struct node_shim *shim, const struct msg_start *start,
                                const char *log_dir, int *fd, struct err *err)
{
    struct shim_texts texts;
    int pair[2];

    fill_texts(shim, log_dir, &texts);
    if (shim->shims->warm != NULL &&
        node_warm_take(shim->shims->warm, start, (const char *const *)texts.items, texts.log,
                       &shim->pid, fd)) {
        log_line(LOG_INFO, node_shim_about(shim), "process %d, which was warm, is its shim",
                 (int)shim->pid);
        shim->was_warm = true;
        return STATUS_OK;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    enum status status = spawn(shim, &texts, pair[1], err);
    close(pair[1]);
    *fd = pair[0];
    if (status != STATUS_OK)
        close(pair[0]);
    return status;
}

static enum status start_shim(struct node_shim *shim, const struct msg *start, struct err *err)
{
    char log_dir[PATH_MAX];
    int fd;
    enum status status = make_dirs(shim, start, log_dir, err);
    if (status == STATUS_OK)
        status = make_process(shim, &start->start, log_dir, &fd, err);
    if (status != STATUS_OK)
        return status;
    shim->is_child = true;
    shim->conn.owner = shim;
    if (conn_open_fd(&shim->conn, shim->shims->host->loop, fd, FRAME_BYTES_MAX, &shim_handlers,
                     err) != STATUS_OK) {
        close(fd);
        post(shim->shims,
             node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED)); /* the core will connect */
    } else {
        shim->conn_open = true;
    }
    return STATUS_OK;
}

/* `shim`: NULL: no memory. */
static void spawn_for(struct node_shims *shims, struct node_shim *shim, const struct msg *start)
{
    struct err err = {0};
    struct launcher_event event = {.type = LAUNCHER_EVENT_SHIM_FAILED,
                                   .job_id = start->start.job_id,
                                   .generation = start->start.generation,
                                   .text = "no memory"};

    if (shim != NULL && start_shim(shim, start, &err) == STATUS_OK) {
        if (shim->was_warm)
            post(shims, node_shim_event(shim, LAUNCHER_EVENT_SHIM_WARM));
        return;
    }
    if (shim != NULL) {
        shim->exited = shim->reported = true;
        event.text = err.text;
        log_line(LOG_ERROR, node_shim_about(shim), "the shim was not started: %s", err.text);
    }
    post(shims, event);
}

void node_shim_spawn(struct node_shims *shims, const struct msg *start)
{
    spawn_for(shims, node_shim_new(shims, &start->start), start);
}

void node_shim_remove_cgroup(const char *dir)
{
    struct rundir_shim process;
    struct err err;
    if (rundir_read_shim(dir, &process, &err) == STATUS_OK && process.cgroup[0] != '\0')
        cgroup_remove(process.cgroup);
}

void node_shim_spawn_again(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *last = node_shim_find(shims, job_id, generation);
    struct launcher_event event = {
        .type = LAUNCHER_EVENT_SHIM_FAILED, .job_id = job_id, .generation = generation};
    struct arena arena = {0};
    struct msg start;
    struct err err = {.text = "its order is gone"};

    if (last != NULL &&
        rundir_read_msg(last->dir, "start.msg", &arena, &start, &err) == STATUS_OK &&
        start.type == MSG_TYPE_START) {
        last->removed = true;
        node_shim_remove_cgroup(last->dir); /* the next process writes its own shim.json */
        if (last->conn_open)
            conn_close(&last->conn, STATUS_OK, "another one is started");
        /* Not node_shim_new, which could free `last`. */
        spawn_for(shims, make_shim(shims, &start.start), &start);
    } else {
        event.text = err.text;
        post(shims, event);
    }
    arena_reset(&arena);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct node_shim *shim = handle->data;
    shim->poll_open = false;
    close(shim->pidfd);
    shim->pidfd = -1;
}

void node_shim_close_poll(struct node_shim *shim)
{
    assert(!shim->poll_open || shim->pidfd >= 0);
    if (shim->poll_open && !uv_is_closing((uv_handle_t *)&shim->pidfd_poll))
        uv_close((uv_handle_t *)&shim->pidfd_poll, on_poll_closed);
}

static void remove_dir(const struct node_shim *shim)
{
    node_shim_remove_cgroup(shim->dir);
    rundir_remove(shim->dir);
}

void node_shim_remove(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    if (shim == NULL)
        return; /* it was refused before it was created */
    remove_dir(shim);
    node_expire_touch(shims->host, shim->cluster, job_id);
    shim->removed = true;
    if (shim->conn_open)
        conn_close(&shim->conn, STATUS_OK, "forgotten");
    node_shim_close_poll(shim);
}

void node_shims_close(struct node_shims *shims)
{
    uv_close((uv_handle_t *)&shims->sweep_timer, NULL);
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next) {
        if (shims->host->ends_shims && shim->reported)
            remove_dir(shim);
        if (shim->conn_open)
            conn_close(&shim->conn, STATUS_OK, "launcherd ends");
        node_shim_close_poll(shim);
    }
}

void node_shims_free(struct node_shims *shims)
{
    while (shims->first != NULL) {
        struct node_shim *shim = shims->first;
        shims->first = shim->next;
        free(shim);
    }
}
