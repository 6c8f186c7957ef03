#include "launcherd/node/node_sweep.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcherd/process/cgroup.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"

#define SWEEP_MAX_MS 50u
#define SWEEPS_FAST 200u
#define SWEEP_SLOW_MS 1000u

static bool is_live_child(void *arg, pid_t pid)
{
    const struct node_shims *shims = arg;
    for (const struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->pid == pid && shim->is_child && !shim->exited)
            return true;
    return shims->host->is_helper(shims->host->owner, pid);
}

void node_sweep_orphans(struct node_shims *shims)
{
    (void)proc_kill_descendants(getpid(), is_live_child, shims);
}

uint32_t node_sweep_kill_described(const struct rundir_shim *process)
{
    uint32_t count = 0;
    if (process->cgroup[0] != '\0' && cgroup_is_populated(process->cgroup)) {
        (void)cgroup_kill(process->cgroup);
        count++;
    }
    return count + proc_kill_token(process->token);
}

/* Kills the remaining processes of a shim. Returns how many were found. */
static uint32_t kill_rest(struct node_shim *shim)
{
    struct rundir_shim process;
    struct err err;
    uint32_t count = 0;
    enum status status = rundir_read_shim(shim->dir, &process, &err);
    if (shim->is_child)
        count += proc_kill_descendants(getpid(), is_live_child, shim->shims);
    if (status == STATUS_OK)
        count += node_sweep_kill_described(&process);
    else if (status == STATUS_IO)
        count++;  /* the disk does not say what it had started: ask again */
    return count; /* without shim.json it had not started anything */
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

/* False: processes were found, so it must be swept again. */
static bool sweep_shim(struct node_shim *shim)
{
    struct arena arena = {0};
    struct msg end;
    struct err err;
    bool has_end = rundir_read_msg(shim->dir, "end.msg", &arena, &end, &err) == STATUS_OK;
    bool is_clean = has_end || kill_rest(shim) == 0;

    if (is_clean)
        report_gone(shim, has_end ? &end : NULL);
    arena_reset(&arena);
    return is_clean;
}

static void on_sweep_timer(uv_timer_t *timer)
{
    struct node_shims *shims = timer->data;
    uint32_t delay_ms = shims->sweeps < 6 ? 1u << shims->sweeps : SWEEP_MAX_MS;
    if (shims->sweeps >= SWEEPS_FAST)
        delay_ms = SWEEP_SLOW_MS; /* the rest hang in the kernel */
    bool again = false;
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->exited && !shim->reported && !sweep_shim(shim)) {
            again = true;
            report_exited(shim);
        }
    shims->sweeps++;
    if (again && !shims->host->closed)
        uv_timer_start(timer, on_sweep_timer, delay_ms, 0);
}

void node_sweep_begin(struct node_shim *shim)
{
    assert(!shim->exited);
    shim->exited = true;
    shim->shims->sweeps = 0;
    if (!shim->shims->host->closed)
        uv_timer_start(&shim->shims->sweep_timer, on_sweep_timer, 0, 0);
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

void node_sweep_reap(struct node_shims *shims)
{
    siginfo_t info;
    while (proc_reap(&info)) {
        shims->host->helper_reaped(shims->host->owner, &info);
        for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next) {
            if (shim->pid == info.si_pid && shim->is_child && !shim->exited) {
                describe_exit(shim, &info);
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
    const struct node_shim *shim = node_shim_find(shims, job_id, generation);
    if (shim == NULL)
        return;
    log_line(LOG_WARNING, node_shim_about(shim), "its shim is killed: %s", why);
    send_signal(shim, SIGKILL);
}
