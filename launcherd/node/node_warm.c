#include "launcherd/node/node_warm.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/log.h"
#include "launcherd/node/node_warm_job.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_order.h"

#define KILL_AFTER_MS 5000u
#define SWEEP_MS 20u
#define SWEEP_SLOW_MS 1000u

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
    if (job->stdin_fd >= 0)
        (void)close(job->stdin_fd);
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
    (void)node_warm_stop_start(job);
    node_child_drop(job->warm->host->children, &job->child);
    close_link(job);
    if (job->poll_open)
        return; /* freed with its handle */
    unlink_job(job);
    free_job(job);
}

static bool has_process(const struct node_warm_job *job)
{
    return job->pid > 0 || job->child != NULL;
}

/* A start order that was dropped can be repeated once no process is left that is being ended. */
static void check_order(struct node_warm *warm)
{
    const struct node_host *host = warm->host;
    bool any_ends = false;

    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        any_ends = any_ends || (!job->removed && job->state == WARM_ENDING &&
                                (has_process(job) || job->has_left));
    if (!warm->holds_up_order || any_ends)
        return;
    warm->holds_up_order = false;
    host->step(host->owner, (struct launcher_event){.type = LAUNCHER_EVENT_START_POSSIBLE});
}

static void on_sweep_timer(uv_timer_t *timer);

static void sweep_soon(struct node_warm *warm, uint64_t delay_ms)
{
    if (!warm->host->closed)
        (void)uv_timer_start(&warm->sweep_timer, on_sweep_timer, delay_ms, 0);
}

static void on_swept(struct file_work *work, const char *late)
{
    const struct warm_files *files = (struct warm_files *)work;
    struct node_warm *warm = files->warm;
    struct node_warm_job *job = warm->first;

    while (job != NULL && job->sweeping != work)
        job = job->next;
    if (job == NULL || warm->host->closed)
        return;
    job->sweeping = NULL;
    job->has_left = late != NULL || files->has_left;
    if (job->has_left)
        sweep_soon(warm, late != NULL ? SWEEP_SLOW_MS : SWEEP_MS);
    else if (job->state == WARM_ENDING)
        remove_job(job);
    check_order(warm);
}

static void sweep(struct node_warm_job *job)
{
    struct warm_files *files = node_warm_files(job, FILE_LANE_SWEEP);

    if (files == NULL)
        return;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.run = warm_files_sweep;
    files->work.done = on_swept;
    job->sweeping = &files->work;
    if (!file_work_start(job->warm->host->files, &files->work))
        job->sweeping = NULL;
}

/* Looks for what ended processes have left. Not while a start order takes one: its description may have moved. */
static void on_sweep_timer(uv_timer_t *timer)
{
    struct node_warm *warm = timer->data;

    for (struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (!job->removed && job->has_left && !job->is_taken && job->sweeping == NULL)
            sweep(job);
    check_order(warm);
}

static void on_kill_timer(uv_timer_t *timer)
{
    const struct node_warm *warm = timer->data;

    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (job->state == WARM_ENDING && job->pid > 0 && !job->removed) {
            log_line(LOG_WARNING, node_warm_about(job),
                     "process %d, which waited for it, does not end: it is killed", (int)job->pid);
            (void)kill(job->pid, SIGKILL);
        }
}

static void end_job(struct node_warm_job *job, const char *why)
{
    struct node_warm *warm = job->warm;

    if (job->state == WARM_ENDING)
        return;
    log_line(LOG_INFO, node_warm_about(job), "what waited for it ends: %s", why);
    job->state = WARM_ENDING;
    if (job->pid == 0 && !node_warm_stop_start(job))
        return; /* node_warm_check_children goes on */
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

void node_warm_order(struct node_warm *warm, const struct msg_warm *order)
{
    const struct launcher *core = warm->host->core;
    struct node_warm_job *job;

    if (!core->welcomed || strcmp(order->cluster, core->cluster) != 0 ||
        find(warm, order->job_id) != NULL ||
        (core->options.slots < 64 && order->slot_mask >> core->options.slots != 0))
        return;
    job = calloc(1, sizeof *job);
    if (job == NULL)
        return;
    job->warm = warm;
    job->link = -1;
    job->stdin_fd = -1;
    if (!node_warm_take_order(job, order)) {
        free_job(job);
        return;
    }
    job->next = warm->first;
    warm->first = job;
    node_warm_start(job);
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
        blocks = blocks || has_process(job) || job->has_left;
        end_job(job, is_stopped ? "its process is stopped (SIGSTOP, or a debugger)"
                                : "a start order for its slots does not fit");
    }
    warm->holds_up_order = warm->holds_up_order || blocks;
    return blocks;
}

bool node_warm_reserve(struct node_warm *warm, const struct msg_start *start, char dir[PATH_MAX])
{
    struct node_warm_job *job = find(warm, start->job_id);

    if (job == NULL || job->state != WARM_READY || job->pid == 0 ||
        !warm_fits(&job->order.warm, start))
        return false;
    job->is_taken = true;
    node_warm_dir(job, dir);
    return true;
}

void node_warm_release(struct node_warm *warm, uint64_t job_id)
{
    struct node_warm_job *job = find(warm, job_id);

    if (job == NULL || !job->is_taken)
        return;
    job->is_taken = false;
    if (job->has_left)
        sweep_soon(warm, 0);
    end_job(job, "it does not take the start order");
}

bool node_warm_take(struct node_warm *warm, uint64_t job_id, const char *const *arguments,
                    const char *log, pid_t *pid, int *fd)
{
    struct node_warm_job *job = find(warm, job_id);
    const char *texts[SHIM_ARG_COUNT + 1];
    struct warm_files *files;
    struct buf order = {0};
    int link;

    if (job == NULL || !job->is_taken || job->state != WARM_READY || job->pid == 0)
        return false;
    memcpy(texts, arguments, SHIM_ARG_COUNT * sizeof *texts);
    texts[SHIM_ARG_COUNT] = log;
    link = fcntl(job->link, F_DUPFD_CLOEXEC, 0); /* the loop still polls the old one */
    if (link < 0 || !warm_order_build(&order, texts, SHIM_ARG_COUNT + 1) ||
        send(link, order.bytes, order.byte_count, MSG_DONTWAIT | MSG_NOSIGNAL) !=
            (ssize_t)order.byte_count) {
        buf_free(&order);
        if (link >= 0)
            (void)close(link);
        return false;
    }
    buf_free(&order);
    *pid = job->pid;
    *fd = link;
    job->pid = 0;
    job->removed = true;
    uv_close((uv_handle_t *)&job->poll, on_poll_closed);
    files = node_warm_files(job, FILE_LANE_REMOVE);
    if (files == NULL)
        return true; /* the folder stays, and is empty */
    files->work.run = warm_files_remove;
    (void)file_work_start(warm->host->files, &files->work);
    return true;
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
    job->has_left = true; /* until a thread has looked */
    sweep_soon(warm, 0);
    if (job->state == WARM_ENDING)
        return true;
    log_line(LOG_WARNING, node_warm_about(job),
             "what waited for it has ended (%s %d), see " WARM_LOG
             " beside its logs: it starts without",
             info->si_code == CLD_EXITED ? "exit code" : "signal", info->si_status);
    job->state = WARM_FAILED;
    close_link(job);
    return true;
}

void node_warm_check_children(struct node_warm *warm)
{
    for (struct node_warm_job *job = warm->first; job != NULL; job = job->next) {
        if (job->removed || job->child == NULL || job->making != NULL ||
            !node_child_over(job->child))
            continue;
        node_child_drop(warm->host->children, &job->child);
        job->has_left = true; /* until a thread has looked */
        sweep_soon(warm, 0);
    }
}

/* Whether the process is a child of one of our warm processes. */
static bool is_warm(const struct node_warm *warm, uint32_t pid)
{
    struct proc_stat stat;

    return proc_stat_of((pid_t)pid, &stat) && node_warm_has(warm, stat.is.parent);
}

static bool is_on(const struct node_warm *warm, uint32_t slot)
{
    for (const struct node_warm_job *job = warm->first; job != NULL; job = job->next)
        if (has_process(job) && (job->order.warm.slot_mask >> slot & 1) != 0)
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
