#include "launcherd/node/node_warm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/io/own_path.h"
#include "common/log.h"
#include "launcherd/node/node_sweep.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_main.h"
#include "launcherd/shim/warm_order.h"

#define KILL_AFTER_MS 5000u
#define SWEEP_MS 20u
#define WARM_LOG "warm.log"

extern char **environ;

struct node_warm_job {
    struct node_warm *warm;
    struct node_warm_job *next;
    enum warm_state state;
    pid_t pid;     /* 0: none, or reaped */
    bool has_left; /* reaped, and processes that it started are still there */
    int link;      /* -1: closed */
    uv_poll_t poll;
    bool poll_open, removed;
    struct arena arena;
    struct msg order; /* warm */
};

static struct log_about about(const struct node_warm_job *job)
{
    struct log_about about = node_about(job->warm->host);

    about.job_id = job->order.warm.job_id;
    return about;
}

void node_warm_init(struct node_warm *warm, const struct node_host *host)
{
    *warm = (struct node_warm){.host = host};
    (void)uv_timer_init(host->loop, &warm->kill_timer);
    (void)uv_timer_init(host->loop, &warm->lease_timer);
    (void)uv_timer_init(host->loop, &warm->sweep_timer);
    warm->kill_timer.data = warm->lease_timer.data = warm->sweep_timer.data = warm;
}

static struct node_warm_job *find(const struct node_warm *warm, uint64_t job_id)
{
    for (struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (job->order.warm.job_id == job_id && !job->removed)
            return job;
    return NULL;
}

/* -- the end of one -- */

static void free_job(struct node_warm_job *job)
{
    arena_reset(&job->arena);
    free(job);
}

static void unlink_job(struct node_warm_job *job)
{
    struct node_warm_job **at = &job->warm->first;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct node_warm_job *job = handle->data;

    job->poll_open = false;
    if (job->link >= 0)
        (void)close(job->link);
    job->link = -1;
    if (!job->removed)
        return;
    unlink_job(job);
    free_job(job);
}

static void close_link(struct node_warm_job *job)
{
    if (job->link >= 0)
        (void)shutdown(job->link,
                       SHUT_RDWR); /* at once; the descriptor is closed with the handle */
    if (job->poll_open && !uv_is_closing((uv_handle_t *)&job->poll))
        uv_close((uv_handle_t *)&job->poll, on_poll_closed);
}

static void remove_job(struct node_warm_job *job)
{
    job->removed = true;
    close_link(job);
    if (job->poll_open)
        return; /* freed with its handle */
    unlink_job(job);
    free_job(job);
}

static void warm_dir(const struct node_warm_job *job, char out[PATH_MAX])
{
    rundir_warm_path(out, job->warm->host->state_dir, job->order.warm.cluster,
                     job->order.warm.job_id);
}

/* Whether processes of an ended `launcherd --warm` are still there; kills them. If it ended in order it
 * has removed its shim.json, and left none. */
static bool has_left(const struct node_warm_job *job)
{
    struct rundir_shim process;
    enum status status;
    struct err err;
    char dir[PATH_MAX];

    warm_dir(job, dir);
    status = rundir_read_shim(dir, &process, &err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
        log_line(LOG_ERROR, about(job), "what it has left is not known: %s", err.text);
        return false; /* the directory stays for the next start */
    }
    if (status == STATUS_OK) {
        if (node_sweep_kill_described(&process) > 0)
            return true;
        if (process.cgroup[0] != '\0')
            cgroup_remove(process.cgroup);
    }
    rundir_remove(dir);
    return false;
}

/* Looks for what ended processes have left, and whether a start order that was dropped can be
 * repeated: it can once no process is left that is being ended. */
static void on_sweep_timer(uv_timer_t *timer)
{
    struct node_warm *warm = timer->data;
    const struct node_host *host = warm->host;
    struct node_warm_job *next;
    bool again = false, any_ends = false;

    for (struct node_warm_job *job = warm->first; job != NULL; job = next) {
        next = job->next;
        if (job->removed)
            continue;
        if (job->has_left) {
            job->has_left = has_left(job);
            again = again || job->has_left;
            if (!job->has_left && job->state == WARM_ENDING) {
                remove_job(job);
                continue;
            }
        }
        any_ends = any_ends || (job->state == WARM_ENDING && (job->pid > 0 || job->has_left));
    }
    if (again)
        (void)uv_timer_start(timer, on_sweep_timer, SWEEP_MS, 0);
    if (!warm->holds_up_order || any_ends)
        return;
    warm->holds_up_order = false;
    host->step(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_START_POSSIBLE});
}

static void on_kill_timer(uv_timer_t *timer)
{
    const struct node_warm *warm = timer->data;

    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (job->state == WARM_ENDING && job->pid > 0 && !job->removed) {
            log_line(LOG_WARNING, about(job),
                     "process %d, which waited for it, does not end: it is killed", (int)job->pid);
            (void)kill(job->pid, SIGKILL);
        }
}

static void end_job(struct node_warm_job *job, const char *why)
{
    struct node_warm *warm = job->warm;

    if (job->state == WARM_ENDING)
        return;
    log_line(LOG_INFO, about(job), "what waited for it ends: %s", why);
    job->state = WARM_ENDING;
    if (job->pid == 0) {
        if (!job->has_left) /* else the sweep removes it */
            remove_job(job);
        return;
    }
    close_link(job);
    if (!warm->host->closed)
        (void)uv_timer_start(&warm->kill_timer, on_kill_timer, KILL_AFTER_MS, 0);
}

static void end_all(struct node_warm *warm, const char *why)
{
    struct node_warm_job *next;

    for (struct node_warm_job *job = warm->first; job != NULL; job = next) {
        next = job->next;
        if (!job->removed)
            end_job(job, why);
    }
}

void node_warm_cool(struct node_warm *warm, uint64_t job_id)
{
    struct node_warm_job *job = find(warm, job_id);

    if (job != NULL)
        end_job(job, "the node is no spare of the job any more");
}

void node_warm_close(struct node_warm *warm)
{
    struct node_warm_job *next;

    uv_close((uv_handle_t *)&warm->kill_timer, NULL);
    uv_close((uv_handle_t *)&warm->lease_timer, NULL);
    uv_close((uv_handle_t *)&warm->sweep_timer, NULL);
    for (struct node_warm_job *job = warm->first; job != NULL; job = next) {
        next = job->next;
        if (!job->removed)
            remove_job(job); /* its process ends because our end of the link is closed */
    }
}

void node_warm_free(struct node_warm *warm)
{
    while (warm->first != NULL) {
        struct node_warm_job *job = warm->first;

        warm->first = job->next;
        free_job(job);
    }
}

/* -- the server -- */

static void on_lease(uv_timer_t *timer)
{
    end_all(timer->data, "the server was away for as long as the lease");
}

void node_warm_check(struct node_warm *warm)
{
    const struct launcher *core = warm->host->core;
    struct node_warm_job *next;

    if (warm->host->closed)
        return;
    if (warm->has_server && !core->welcomed)
        (void)uv_timer_start(&warm->lease_timer, on_lease, core->lease_us / 1000, 0);
    if (core->welcomed && !warm->has_server) {
        (void)uv_timer_stop(&warm->lease_timer);
        for (struct node_warm_job *job = warm->first; job != NULL; job = next) {
            next = job->next;
            if (!job->removed && strcmp(job->order.warm.cluster, core->cluster) != 0)
                end_job(job, "the server is another one");
        }
    }
    warm->has_server = core->welcomed;
}

uint32_t node_warm_list(const struct node_warm *warm, struct part_warm_job *out)
{
    uint32_t count = 0;

    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (!job->removed && count < SLOTS_PER_NODE_MAX)
            out[count++] = (struct part_warm_job){job->order.warm.job_id, job->state};
    return count;
}

/* -- the start of one -- */

static void on_link(uv_poll_t *poll, int status, int events)
{
    struct node_warm_job *job = poll->data;
    char byte;

    (void)status;
    (void)events;
    if (recv(job->link, &byte, 1, MSG_DONTWAIT) != 1 || byte != WARM_IS_READY) {
        (void)uv_poll_stop(poll); /* its process ends, and is reaped */
        return;
    }
    if (job->state != WARM_STARTING)
        return;
    job->state = WARM_READY;
    log_line(LOG_INFO, about(job), "process %d is warm", (int)job->pid);
}

/* Writes the order into a file in memory, the process's stdin. Returns its descriptor;
 * -1: failed. */
static int make_stdin(struct node_warm_job *job, const struct msg_warm *order)
{
    const struct msg msg = {.type = MSG_TYPE_WARM, .warm = *order};
    struct buf frame = {0};
    struct err err = {.text = ""};
    const char *payload;
    size_t payload_bytes;
    int fd = memfd_create("warm", MFD_CLOEXEC);
    bool done =
        fd >= 0 && msg_encode(&msg, &frame, &err) == STATUS_OK &&
        frame_next(frame.bytes, frame.byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes,
                   &err) == STATUS_OK &&
        msg_decode_stored(payload, payload_bytes, &job->arena, &job->order, &err) == STATUS_OK &&
        write(fd, frame.bytes, frame.byte_count) == (ssize_t)frame.byte_count &&
        lseek(fd, 0, SEEK_SET) == 0;

    buf_free(&frame);
    if (done || fd < 0)
        return fd;
    (void)close(fd);
    errno = EINVAL;
    return -1;
}

static enum status spawn(struct node_warm_job *job, int stdin_fd, int link_fd, struct err *err)
{
    const struct node_host *host = job->warm->host;
    static char program[] = "launcherd", mode[] = WARM_ARGUMENT, none[] = "";
    char dir[PATH_MAX], log_dir[PATH_MAX], path[PATH_MAX], gpus[DEVICES_TEXT_BYTES];
    char cgroups[PATH_MAX];
    char name[NODE_NAME_BYTES_MAX], address[ADDRESS_BYTES_MAX];
    char allow_root[2] = {host->allow_root ? '1' : '0', '\0'};
    char *argv[SHIM_ARG_COUNT + 3] = {program, mode};
    int exit_code, log_fd;
    enum status status;

    for (uint32_t i = 0; i < SHIM_ARG_COUNT; i++)
        argv[2 + i] = none;
    rundir_log_dir(log_dir, host->logs_dir, job->order.warm.cluster, job->order.warm.job_id);
    warm_dir(job, dir);
    status = rundir_make(log_dir, geteuid() == 0 ? 0711 : 0700, err);
    if (status == STATUS_OK)
        status = rundir_make_dir(dir, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(cgroups, sizeof cgroups, "%s", host->cgroups);
    (void)snprintf(name, sizeof name, "%s", host->core->options.name);
    (void)snprintf(address, sizeof address, "%s", host->core->options.address);
    devices_format(host->devices, host->core->options.gpus, gpus);
    rundir_join(path, log_dir, WARM_LOG);
    argv[2 + SHIM_ARG_RUN_DIR] = dir;
    argv[2 + SHIM_ARG_CGROUPS] = cgroups;
    argv[2 + SHIM_ARG_LOG_DIR] = log_dir;
    argv[2 + SHIM_ARG_NODE_NAME] = name;
    argv[2 + SHIM_ARG_NODE_ADDRESS] = address;
    argv[2 + SHIM_ARG_GPUS] = gpus;
    argv[2 + SHIM_ARG_ALLOW_ROOT] = allow_root;
    status = own_file_open(path, 1, O_WRONLY | O_CREAT | O_APPEND, 0600, &log_fd, err);
    if (status != STATUS_OK)
        return status;
    const struct spawn_order order = {.path = "/proc/self/exe",
                                      .argv = argv,
                                      .envp = environ,
                                      .stdin_fd = stdin_fd,
                                      .stdout_fd = log_fd,
                                      .stderr_fd = log_fd,
                                      .extra_fd = link_fd};
    status = spawn_process(&order, &job->pid, &exit_code, err);
    (void)close(log_fd);
    return status;
}

static enum status start(struct node_warm_job *job, int stdin_fd, struct err *err)
{
    int pair[2];
    enum status status;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    status = spawn(job, stdin_fd, pair[1], err);
    (void)close(pair[1]);
    if (status == STATUS_OK && uv_poll_init(job->warm->host->loop, &job->poll, pair[0]) != 0)
        status = err_set(err, STATUS_SYSTEM, 0, "its connection cannot be watched");
    if (status != STATUS_OK) {
        (void)close(pair[0]);
        return status;
    }
    job->link = pair[0];
    job->poll_open = true;
    job->poll.data = job;
    (void)uv_poll_start(&job->poll, UV_READABLE | UV_DISCONNECT, on_link);
    return STATUS_OK;
}

void node_warm_order(struct node_warm *warm, const struct msg_warm *order)
{
    const struct launcher *core = warm->host->core;
    struct node_warm_job *job;
    struct err err = {.text = "no memory"};
    int stdin_fd;

    if (!core->welcomed || strcmp(order->cluster, core->cluster) != 0 ||
        find(warm, order->job_id) != NULL ||
        (core->options.slots < 64 && order->slot_mask >> core->options.slots != 0))
        return;
    job = calloc(1, sizeof *job);
    if (job == NULL)
        return;
    job->warm = warm;
    job->link = -1;
    stdin_fd = make_stdin(job, order);
    if (stdin_fd < 0) {
        free_job(job);
        return;
    }
    job->next = warm->first;
    warm->first = job;
    /* Memory that they use before they enter the job's cgroup would not count against its limit. */
    if (warm->host->job_memory_bytes > 0)
        (void)err_set(&err, STATUS_UNSUPPORTED, 0, "--job-memory counts from a start");
    else if (start(job, stdin_fd, &err) == STATUS_OK)
        err.text[0] = '\0';
    (void)close(stdin_fd);
    if (err.text[0] == '\0')
        return;
    job->state = WARM_FAILED;
    log_line(LOG_WARNING, about(job), "nothing is kept warm for it: %s", err.text);
}

/* -- its start order -- */

bool node_warm_blocks(struct node_warm *warm, const struct msg_start *start)
{
    bool blocks = false, is_stopped;
    struct node_warm_job *next;

    for (struct node_warm_job *job = warm->first; job != NULL; job = next) {
        next = job->next;
        if (job->removed || (job->order.warm.job_id != start->job_id &&
                             (job->order.warm.slot_mask & start->slot_mask) == 0))
            continue;
        is_stopped = job->pid > 0 && proc_is_stopped(job->pid);
        if (job->state == WARM_READY && !is_stopped && warm_fits(&job->order.warm, start))
            continue;
        blocks = blocks || job->pid > 0 || job->has_left;
        end_job(job, is_stopped ? "its process is stopped (SIGSTOP, or a debugger)"
                                : "a start order for its slots does not fit");
    }
    warm->holds_up_order = warm->holds_up_order || blocks;
    return blocks;
}

/* Moves shim.json to the run directory, or back, with one rename: at any moment exactly one directory
 * describes the processes. */
static bool move_description(const struct node_warm_job *job, const char *run_dir, bool to_it)
{
    char dir[PATH_MAX];

    warm_dir(job, dir);
    return to_it ? rundir_move_shim(dir, run_dir) : rundir_move_shim(run_dir, dir);
}

bool node_warm_take(struct node_warm *warm, const struct msg_start *start,
                    const char *const *arguments, const char *log, pid_t *pid, int *fd)
{
    struct node_warm_job *job = find(warm, start->job_id);
    const char *texts[SHIM_ARG_COUNT + 1];
    struct buf order = {0};
    char dir[PATH_MAX];
    int link;

    if (job == NULL || job->state != WARM_READY || job->pid == 0 ||
        !warm_fits(&job->order.warm, start))
        return false;
    memcpy(texts, arguments, SHIM_ARG_COUNT * sizeof *texts);
    texts[SHIM_ARG_COUNT] = log;
    link = fcntl(job->link, F_DUPFD_CLOEXEC, 0); /* the loop still polls the old one */
    if (link >= 0 && move_description(job, arguments[SHIM_ARG_RUN_DIR], true) &&
        warm_order_build(&order, texts, SHIM_ARG_COUNT + 1) &&
        send(link, order.bytes, order.byte_count, MSG_DONTWAIT | MSG_NOSIGNAL) ==
            (ssize_t)order.byte_count) {
        *pid = job->pid;
        *fd = link;
        job->pid = 0;
        job->removed = true;
        uv_close((uv_handle_t *)&job->poll, on_poll_closed);
        buf_free(&order);
        warm_dir(job, dir);
        rundir_remove(dir);
        return true;
    }
    buf_free(&order);
    (void)move_description(job, arguments[SHIM_ARG_RUN_DIR], false);
    if (link >= 0)
        (void)close(link);
    end_job(job, "it does not take the start order");
    return false;
}

/* -- the processes -- */

bool node_warm_has(const struct node_warm *warm, pid_t pid)
{
    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (job->pid == pid && pid != 0)
            return true;
    return false;
}

bool node_warm_reaped(struct node_warm *warm, const siginfo_t *info)
{
    struct node_warm_job *job = warm->first;

    while (job != NULL && job->pid != info->si_pid)
        job = job->next;
    if (job == NULL)
        return false;
    job->pid = 0;
    job->has_left = has_left(job);
    if (job->has_left && !warm->host->closed)
        (void)uv_timer_start(&warm->sweep_timer, on_sweep_timer, SWEEP_MS, 0);
    if (job->state == WARM_ENDING) {
        if (!job->has_left)
            remove_job(job);
        if (warm->holds_up_order && !warm->host->closed)
            (void)uv_timer_start(&warm->sweep_timer, on_sweep_timer, 0, 0);
        return true;
    }
    log_line(LOG_WARNING, about(job),
             "what waited for it has ended (%s %d), see " WARM_LOG
             " beside its logs: it starts without",
             info->si_code == CLD_EXITED ? "exit code" : "signal", info->si_status);
    job->state = WARM_FAILED;
    close_link(job);
    return true;
}

/* Whether the process is a child of one of our warm processes. */
static bool is_warm(const struct node_warm *warm, uint32_t pid)
{
    struct proc_stat stat;

    return proc_stat_of((pid_t)pid, &stat) && node_warm_has(warm, stat.ppid);
}

static bool is_on(const struct node_warm *warm, uint32_t slot)
{
    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (job->pid > 0 && (job->order.warm.slot_mask >> slot & 1) != 0)
            return true;
    return false;
}

void node_warm_explain(const struct node_warm *warm, struct gpu_facts *facts)
{
    const struct launcher_slot *slot = &warm->host->core->slots[facts->slot];
    uint32_t listed =
        facts->process_count < GPU_PROCESSES_MAX ? facts->process_count : GPU_PROCESSES_MAX;
    uint32_t kept = 0;

    if (facts->error != 0 || !is_on(warm, facts->slot))
        return;
    for (uint32_t i = 0; i < listed; i++) {
        const struct gpu_process process = facts->processes[i];

        /* A process that is not visible here is in another PID namespace. The job's processes may
         * be, too. */
        if (!process.is_gone && !is_warm(warm, process.pid))
            facts->processes[kept++] = process;
    }
    facts->process_count -= listed - kept;
    facts->opener_count = 0;
    if (facts->process_count == 0 && slot->has_baseline)
        facts->used_bytes = slot->baseline_bytes;
}
