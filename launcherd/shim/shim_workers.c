#include "launcherd/shim/shim_workers.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "launcherd/core/shim_take.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/core_file.h"
#include "launcherd/shim/dumps.h"
#include "launcherd/shim/part_address.h"
#include "launcherd/shim/worker_ends.h"
#include "launcherd/shim/worker_spawn.h"
#include "launcherd/shim/worker_take.h"
#include "launcherd/shim/workers_store.h"

#define SWEEP_FIRST_MS 5u
#define SWEEP_MAX_MS 1000u

static void post(struct shim_workers *workers, struct shim_event event)
{
    workers->options.post(workers->options.owner, event);
}

void shim_workers_init(struct shim_workers *workers, const struct shim_workers_options *options)
{
    workers->options = *options;
    workers->port_fd = -1;
    part_address_start(options->start, options->node_name, options->node_address,
                       workers->node_address);
    rundir_rank_dir(workers->error_dir, options->log_dir, options->start->generation);
    tools_find(&workers->tools);
    if (options->warm != NULL)
        workers->warm = *options->warm;
    uv_timer_init(options->loop, &workers->sweep_timer);
    workers->sweep_timer.data = workers;
    dumps_open(workers);
    failures_open(&workers->failures, workers);
    store_child_init(&workers->store, options->loop);
    workers->has_store = options->start->node_rank == 0 && store_child_is_wanted(options->start);
    for (uint32_t i = 0; i < options->start->local_count; i++) {
        workers->items[i].workers = workers;
        workers->items[i].local = i;
        worker_ends_init(&workers->items[i]);
    }
}

bool shim_workers_are_closed(const struct shim_workers *workers)
{
    return workers->closed && !workers->disk_hangs;
}

void shim_workers_close(struct shim_workers *workers)
{
    if (workers->closed)
        return;
    workers->closed = true;
    leftovers_forget(workers);
    warm_workers_drop(&workers->warm);
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        worker_take_close(&workers->items[i]);
    uv_close((uv_handle_t *)&workers->sweep_timer, NULL);
    dumps_close(workers);
    store_child_close(&workers->store);
    store_probe_close(&workers->probe);
    if (workers->port_fd >= 0)
        close(workers->port_fd);
    if (workers->has_cgroup)
        cgroup_remove(workers->options.cgroup);
    account_free(&workers->account);
    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        struct shim_worker *worker = &workers->items[i];
        input_close(&worker->input);
        output_close(&worker->output);
        if (worker->conn_open)
            conn_close(&worker->conn, STATUS_OK, "the shim has ended");
    }
    workers->disk_hangs = !log_writer_close(&workers->writer);
    failures_close(&workers->failures);
}

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
        log_line(LOG_WARNING, worker_about(worker),
                 "a join as rank %u of generation %u was ignored", msg->worker_join.rank,
                 msg->worker_join.generation);
    workers->options.step(
        workers->options.owner,
        (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = worker->local, .msg = msg});
}

static void on_worker_closed(struct conn *conn, enum status why, const char *text)
{
    struct shim_worker *worker = conn->owner;
    worker->conn_open = false;
    if (why != STATUS_OK && why != STATUS_CLOSED)
        log_line(LOG_WARNING, worker_about(worker), "its connection was closed: %s", text);
}

static const struct conn_handlers worker_handlers = {on_worker_message, on_worker_closed};

/* Makes a cgroup for the workers within the job's, so that they can be killed without the store.
 * Without a store they are in the job's. */
static enum status make_rank_cgroup(struct shim_workers *workers, struct err *err)
{
    const struct cgroup_limits none = {0};
    const char *job = workers->options.cgroup;
    if (!workers->has_store) {
        (void)snprintf(workers->rank_cgroup, sizeof workers->rank_cgroup, "%s", job);
        return STATUS_OK;
    }
    rundir_join(workers->rank_cgroup, job, CGROUP_RANKS);
    return cgroup_make(workers->rank_cgroup, &none, err);
}

enum status shim_workers_prepare(struct shim_workers *workers, struct account *account,
                                 bool as_self, const struct cgroup_limits *limits, struct err *err)
{
    struct err why;
    workers->account = *account;
    account->groups = NULL;
    workers->as_self = as_self;
    workers->memory_bytes = limits->memory_bytes;
    if (workers->options.cgroup[0] == '\0')
        return STATUS_OK;
    enum status status = workers->warm.cgroup[0] != '\0'
                             ? cgroup_limit(workers->options.cgroup, limits, &why)
                             : cgroup_make(workers->options.cgroup, limits, &why);
    workers->has_cgroup = status == STATUS_OK;
    if (workers->has_cgroup)
        return make_rank_cgroup(workers, err);
    if (limits->memory_bytes > 0)
        return err_set(err, why.status, why.code, "node %s: %.200s", workers->options.node_name,
                       why.text);
    log_line(LOG_WARNING, worker_about(&workers->items[0]), "%s: the job runs without it",
             why.text);
    return STATUS_OK;
}

static enum status spawn_one(struct shim_worker *worker, struct worker_spawn_facts *facts,
                             int null_fd, int *exit_code, struct err *err)
{
    struct worker_ends ends;
    enum status status = worker_ends_open(worker, &worker_handlers, &ends, err);

    *exit_code = 125;
    if (status == STATUS_OK && worker->local == 0 && worker->workers->has_store)
        status = workers_store_spawn(worker->workers, ends.stderr_fd, err);
    if (status == STATUS_OK)
        status = worker_spawn(worker, facts, null_fd, &ends, exit_code, err);
    worker_ends_close(&ends);
    return status;
}

static void fail_spawn(struct shim_worker *worker, int exit_code, const struct err *err)
{
    worker->pid = 0;
    (void)snprintf(worker->spawn_text, sizeof worker->spawn_text, "%s", err->text);
    log_line(LOG_ERROR, worker_about(worker), "%s", err->text);
    post(worker->workers, (struct shim_event){.type = SHIM_EVENT_SPAWN_FAILED,
                                              .local = worker->local,
                                              .code = exit_code,
                                              .text = worker->spawn_text});
}

static void tell_spawned(struct shim_worker *worker, enum status status, int exit_code,
                         const struct err *err)
{
    if (status == STATUS_OK)
        post(worker->workers, (struct shim_event){.type = SHIM_EVENT_SPAWNED,
                                                  .local = worker->local,
                                                  .pid = (uint32_t)worker->pid,
                                                  .must_take = worker->take != NULL});
    else
        fail_spawn(worker, exit_code, err);
}

static void on_room(void *owner)
{
    struct shim_workers *workers = owner;
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        output_resume(&workers->items[i].output);
}

/* No process is left, and the logs are written (or the disk hangs): gives TREE_EMPTY. */
static void on_flushed(void *owner, size_t left_bytes)
{
    struct shim_workers *workers = owner;
    char text[128];

    (void)snprintf(text, sizeof text,
                   "up to %zu bytes of it are not written: the disk of the logs takes nothing",
                   left_bytes);
    workers->options.step(
        workers->options.owner,
        (struct shim_event){.type = SHIM_EVENT_TREE_EMPTY, .text = left_bytes > 0 ? text : NULL});
}

enum status shim_workers_open_writer(struct shim_workers *workers, struct err *err)
{
    workers->writer.owner = workers;
    workers->writer.on_room = on_room;
    workers->writer.on_flushed = on_flushed;
    const enum status status = log_writer_open(&workers->writer, workers->options.loop, err);
    if (status == STATUS_OK)
        shm_watch_begin(workers);
    return status;
}

void shim_workers_take_logs(struct shim_workers *workers, const struct log_file *logs)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        workers->items[i].output.file = logs[i];
}

void shim_workers_spawn(struct shim_workers *workers, const char *master_addr, uint32_t master_port)
{
    struct worker_spawn_facts facts = {0};
    struct err err = {0};
    int exit_code = 125;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)snprintf(workers->master_addr, sizeof workers->master_addr, "%s", master_addr);
    workers->master_port = master_port;
    part_address_go(master_addr, workers->node_address);
    worker_spawn_prepare(&facts, workers);

    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        struct shim_worker *worker = &workers->items[i];
        enum status status = spawn_one(worker, &facts, null_fd, &exit_code, &err);

        tell_spawned(worker, status, exit_code, &err);
    }
    if (null_fd >= 0)
        close(null_fd);
    workers_store_probe(workers);
}

void shim_workers_kill_one(const struct shim_workers *workers, uint32_t local)
{
    const struct shim_worker *worker = &workers->items[local];

    log_line(LOG_WARNING, worker_about(worker),
             "process %d, which waited for this rank, has not taken it in %u s: it is killed",
             (int)worker->pid, SHIM_TAKE_US / 1000000);
    (void)kill(-worker->pid, SIGKILL);
}

void shim_workers_spawn_one(struct shim_workers *workers, uint32_t local)
{
    struct shim_worker *worker = &workers->items[local];
    struct worker_spawn_facts facts = {0};
    struct worker_ends ends;
    struct err err = {.text = "its ends are closed"};
    int exit_code = 125, null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    enum status status = STATUS_SYSTEM;

    worker_spawn_prepare(&facts, workers);
    if (worker_take_ends(worker, &ends)) {
        status = worker_spawn(worker, &facts, null_fd, &ends, &exit_code, &err);
        worker_ends_close(&ends);
    }
    if (status == STATUS_OK)
        log_line(LOG_INFO, worker_about(worker), "starts anew, pid %d", (int)worker->pid);
    tell_spawned(worker, status, exit_code, &err);
    if (null_fd >= 0)
        close(null_fd);
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
        log_line(LOG_WARNING, worker_about(worker), "the world was not sent to it: %s", err.text);
}

/* Each worker leads a process group. Until it is reaped, no other group can get its number. */
static void kill_groups(struct shim_workers *workers)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].pid > 0 && !dumps_spare(&workers->items[i])) {
            workers->items[i].signalled = SIGKILL;
            kill(-workers->items[i].pid, SIGKILL);
        }
}

/* The store is the child of another thread, which __WNOTHREAD leaves out; orphans that
 * we adopt become children of this one, the first. */
bool shim_workers_tree_is_empty(const struct shim_workers *workers)
{
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WNOTHREAD) == 0 || errno != ECHILD)
        return false;
    return !workers->has_cgroup || !cgroup_is_populated(workers->rank_cgroup);
}

static void close_outputs(struct shim_workers *workers)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        output_close(&workers->items[i].output);
}

/* Call when no process is left. True: the caller gives TREE_EMPTY. False: on_flushed gives it when
 * the logs are written, because readers of the logs take the end of the job as their end. */
static bool end_kill(struct shim_workers *workers)
{
    workers->killing = workers->watching = false;
    leftovers_forget(workers);
    uv_timer_stop(&workers->sweep_timer);
    close_outputs(workers);
    shm_watch_end(workers);
    return !workers->writer.is_flushing && log_writer_flush(&workers->writer);
}

/* Kills everything in the cgroup at once, then all descendants. Returns how many descendants were
 * alive. */
static uint32_t kill_all(struct shim_workers *workers)
{
    if (workers->has_cgroup && !dumps_spare_any(workers))
        (void)cgroup_kill(workers->rank_cgroup);
    return proc_kill_descendants(getpid(), dumps_spare_pid, workers);
}

static void on_sweep(uv_timer_t *timer)
{
    struct shim_workers *workers = timer->data;
    uint32_t again_ms = SWEEP_FIRST_MS << (workers->sweeps < 8 ? workers->sweeps : 8);
    if (!workers->killing)
        return;
    uint32_t count = kill_all(workers);
    if (++workers->sweeps == 12 && !dumps_spare_any(workers))
        log_line(LOG_WARNING, worker_about(&workers->items[0]),
                 "%u processes do not end although they were killed", count);
    if (shim_workers_tree_is_empty(workers)) {
        if (end_kill(workers))
            on_flushed(workers, 0);
        return;
    }
    uv_timer_start(timer, on_sweep, again_ms < SWEEP_MAX_MS ? again_ms : SWEEP_MAX_MS, 0);
}

/* Kills the cgroup and the process groups first, which usually is everything. Other descendants are
 * searched for a little later, and after each death. */
static void begin_kill(struct shim_workers *workers)
{
    workers->killing = true;
    workers->sweeps = 0;
    if (workers->has_cgroup && !dumps_spare_any(workers))
        (void)cgroup_kill(workers->rank_cgroup);
    kill_groups(workers);
    uv_timer_start(&workers->sweep_timer, on_sweep, SWEEP_FIRST_MS, 0);
}

void shim_workers_kill(struct shim_workers *workers, bool grace_is_over)
{
    failures_flush(&workers->failures);
    if (grace_is_over && !leftovers_name(workers, LEFTOVERS_KILLED, begin_kill))
        return;
    leftovers_forget(workers);
    begin_kill(workers);
    shim_workers_check(workers);
}

void shim_workers_check(struct shim_workers *workers)
{
    failures_flush(&workers->failures);
    workers->watching = true;
    if (!shim_workers_tree_is_empty(workers))
        return;
    if (end_kill(workers))
        post(workers, (struct shim_event){.type = SHIM_EVENT_TREE_EMPTY});
}

static const char *describe_oom(struct shim_workers *workers)
{
    char size[32];
    if (!workers->has_cgroup || cgroup_oom_kills(workers->options.cgroup) == 0)
        return NULL;
    cgroup_format_size(workers->memory_bytes, size, sizeof size);
    if (workers->memory_bytes > 0)
        (void)snprintf(workers->oom_text, sizeof workers->oom_text,
                       "killed by the kernel: out of memory (limit %s)", size);
    else
        (void)snprintf(workers->oom_text, sizeof workers->oom_text,
                       "killed by the kernel: the machine is out of memory");
    return workers->oom_text;
}

static void find_core(struct shim_worker *worker, const siginfo_t *info)
{
    struct core_file_facts facts = {.pid = info->si_pid,
                                    .uid = info->si_uid,
                                    .signal = (uint32_t)info->si_status,
                                    .cwd = worker->workers->options.start->cwd};

    core_file_describe(&facts, worker->core);
}

static void step_exited(struct shim_worker *worker, const siginfo_t *info)
{
    struct shim_workers *workers = worker->workers;
    struct shim_event event = {.type = SHIM_EVENT_EXITED, .local = worker->local, .text = ""};

    worker->pid = 0;
    worker_take_look(worker);
    if (worker->take == NULL)
        input_close(&worker->input); /* else another process may get this rank */
    output_drain(&worker->output);   /* so that the report has its last lines */
    if (info->si_code == CLD_EXITED)
        event.code = info->si_status;
    else
        event.signal = (uint32_t)info->si_status;
    if (info->si_code == CLD_DUMPED) {
        event.text = "core dumped";
        find_core(worker, info);
    } else if (event.signal == SIGKILL && describe_oom(workers) != NULL) {
        event.text = workers->oom_text;
        worker->was_oom = true;
    }
    failures_exited(&workers->failures, &event);
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

        shm_watch_ended(workers, info.si_pid);
        if (worker != NULL)
            step_exited(worker, &info);
        else if (info.si_pid == workers->store.pid)
            workers_store_exited(workers, &info, describe_oom(workers));
    }
    if (!workers->killing && !workers->watching)
        return;
    if (shim_workers_tree_is_empty(workers)) {
        if (end_kill(workers))
            on_flushed(workers, 0);
    } else if (workers->killing && workers_are_reaped(workers)) {
        (void)kill_all(workers);
    }
}

/* The line replaces what is there if there is no room for both. */
static void add_line(char out[TAIL_BYTES_MAX], const char *line)
{
    size_t used = strlen(out);

    if (used + strlen(line) + 2 > TAIL_BYTES_MAX)
        used = 0;
    (void)snprintf(out + used, TAIL_BYTES_MAX - used, "%s%s",
                   used > 0 && out[used - 1] != '\n' ? "\n" : "", line);
}

static void put_tail(const struct shim_worker *worker, char out[TAIL_BYTES_MAX])
{
    output_tail(&worker->output, out);
    if (worker->error_text[0] != '\0' && strstr(out, worker->error_text) == NULL)
        add_line(out, worker->error_text);
}

void shim_workers_tell(const struct shim_workers *workers, uint32_t local,
                       struct shim_workers_texts *texts, struct msg_shim_report *report)
{
    assert(local < workers->options.start->local_count);
    const struct shim_worker *worker = &workers->items[local];

    put_tail(worker, texts->tail);
    failures_error(&workers->failures, local, texts->error);
    if (shm_watch_full(workers)[0] != '\0')
        add_line(texts->error[0] != '\0' ? texts->error : texts->tail, shm_watch_full(workers));
    report->tail = texts->tail;
    report->error = texts->error;
    report->failed_oom = worker->was_oom;
    report->failed_core = worker->core;
}
