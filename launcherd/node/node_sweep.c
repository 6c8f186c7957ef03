#include "launcherd/node/node_sweep.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcherd/node/shim_files.h"
#include "launcherd/process/proc.h"

#define SWEEP_MAX_MS 50u
#define SWEEPS_FAST 200u
#define SWEEP_SLOW_MS 1000u

static bool is_live_child(void *arg, pid_t pid)
{
    const struct node_shims *shims = arg;
    for (const struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->pid == pid && shim->is_child && !shim->exited)
            return true;
    return node_children_have(shims->host->children, pid) ||
           shims->host->is_helper(shims->host->owner, pid);
}

void node_sweep_orphans(struct node_shims *shims)
{
    (void)proc_kill_descendants(getpid(), is_live_child, shims);
}

static void report_gone(struct node_shim *shim, const struct msg *end)
{
    assert(shim->exited && !shim->reported);
    const struct node_host *host = shim->shims->host;
    struct launcher_event event = node_shim_event(shim, LAUNCHER_EVENT_SHIM_GONE);
    shim->reported = true;
    event.text = shim->how;
    event.msg = end;
    host->step(host->owner, event);
}

/* Reports SHIM_EXITED to the core, once. */
static void report_exited(struct node_shim *shim)
{
    const struct node_host *host = shim->shims->host;
    if (shim->exit_reported)
        return;
    shim->exit_reported = true;
    host->step(host->owner, node_shim_event(shim, LAUNCHER_EVENT_SHIM_EXITED));
}

static void on_sweep_timer(uv_timer_t *timer);

/* Sweeps again what is not clean yet, after a pause. */
static void arm(struct node_shims *shims)
{
    uint32_t delay_ms = shims->sweeps < 6 ? 1u << shims->sweeps : SWEEP_MAX_MS;

    if (shims->sweeps >= SWEEPS_FAST)
        delay_ms = SWEEP_SLOW_MS; /* the rest hang in the kernel */
    if (!shims->host->closed && !uv_is_active((uv_handle_t *)&shims->sweep_timer))
        uv_timer_start(&shims->sweep_timer, on_sweep_timer, delay_ms, 0);
}

static void log_silent(struct node_shim *shim, const char *why)
{
    if (!shim->is_silent)
        log_line(LOG_WARNING, node_shim_about(shim), "how its shim ended is not known yet: %s",
                 why);
    shim->is_silent = true;
}

/* Processes were found, or what the shim has left cannot be read now: it is swept again. */
static void on_swept(struct file_work *work, const char *late)
{
    struct shim_files *files = (struct shim_files *)work;
    struct node_shims *shims = files->shims;
    struct node_shim *shim = shims->first; /* it may be removed already */
    uint32_t found = files->found;

    while (shim != NULL && shim->sweeping != work)
        shim = shim->next;
    if (shim == NULL)
        return;
    shim->sweeping = NULL;
    if (shims->host->closed || shim->reported)
        return;
    if (late == NULL && !files->has_msg && shim->is_child)
        found += proc_kill_descendants(getpid(), is_live_child, shims);
    if (late == NULL && (files->has_msg || (found == 0 && !files->is_unknown))) {
        report_gone(shim, files->has_msg ? &files->msg : NULL);
        return;
    }
    if (late != NULL || files->is_unknown)
        log_silent(shim, late != NULL ? late : files->err.text);
    report_exited(shim);
    arm(shims);
}

static void sweep_shim(struct node_shim *shim)
{
    struct shim_files *files = shim_files_new(shim->dir);

    if (files != NULL) {
        files->work.lane = FILE_LANE_SWEEP;
        files->work.limit_ms = FILE_WORK_LATE_MS;
        files->work.run = shim_files_sweep;
        files->work.done = on_swept;
        files->shims = shim->shims;
        shim->sweeping = &files->work;
        if (file_work_start(shim->shims->host->files, &files->work))
            return;
        shim->sweeping = NULL;
    }
    report_exited(shim);
    arm(shim->shims);
}

static void on_sweep_timer(uv_timer_t *timer)
{
    struct node_shims *shims = timer->data;

    shims->sweeps++;
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->exited && !shim->reported && shim->sweeping == NULL)
            sweep_shim(shim);
}

void node_sweep_begin(struct node_shim *shim)
{
    assert(!shim->exited);
    shim->exited = true;
    shim->shims->sweeps = 0;
    if (!shim->shims->host->closed)
        uv_timer_start(&shim->shims->sweep_timer, on_sweep_timer, 0, 0);
}

void node_sweep_describe(struct node_shim *shim, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        (void)snprintf(shim->how, sizeof shim->how,
                       "ended early (exit code %d), see its shim-g%u.log", info->si_status,
                       shim->generation);
    else
        (void)snprintf(shim->how, sizeof shim->how, "was killed (signal %d)%s", info->si_status,
                       shim->doing);
}

void node_sweep_reap(struct node_shims *shims)
{
    siginfo_t info;
    while (proc_reap(&info)) {
        shims->host->helper_reaped(shims->host->owner, &info);
        for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next) {
            if (shim->pid == info.si_pid && shim->is_child && !shim->exited) {
                node_sweep_describe(shim, &info);
                node_sweep_begin(shim);
                break;
            }
        }
    }
}

uint32_t node_sweep_left(const struct node_shims *shims)
{
    uint32_t count = 0;
    for (const struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        count += !shim->reported;
    return count;
}

static void send_signal(const struct node_shim *shim, int signal)
{
    if (shim->exited)
        return;
    if (shim->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, shim->pidfd, signal, NULL, 0);
    else if (shim->is_child && shim->pid > 0)
        kill(shim->pid, signal);
}

uint32_t node_sweep_signal(struct node_shims *shims, int signal)
{
    for (const struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        send_signal(shim, signal);
    return node_sweep_left(shims);
}

void node_sweep_kill(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                     const char *why)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    if (shim == NULL)
        return;
    doing_read(shim->exited ? 0 : shim->pid, shim->doing);
    log_line(LOG_WARNING, node_shim_about(shim), "its shim is killed%s: %s", shim->doing, why);
    send_signal(shim, SIGKILL);
}
