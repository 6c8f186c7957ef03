#include "launcherd/node/node_adopt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/node/adopt_files.h"
#include "launcherd/node/node_guards.h"
#include "launcherd/node/node_sweep.h"
#include "launcherd/process/proc.h"

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    struct node_shim *shim = poll->data;
    (void)status;
    (void)events;
    node_shim_close_poll(shim);
    if (shim->exited)
        return;
    (void)snprintf(shim->how, sizeof shim->how, "has ended unexpectedly");
    node_sweep_begin(shim);
}

/* Watches the process. False: it is gone. Its start time is compared again once the pidfd is open,
 * because only then the pid cannot be reused by another process. */
static bool watch(struct node_shim *shim, const struct rundir_shim *process)
{
    if (proc_start_ticks(process->pid) != process->start_ticks)
        return false;
    shim->pidfd = proc_pidfd(process->pid);
    if (shim->pidfd < 0)
        return false;
    if (proc_start_ticks(process->pid) != process->start_ticks ||
        uv_poll_init(shim->shims->host->loop, &shim->pidfd_poll, shim->pidfd) != 0) {
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
    out->grace_us = start->grace_us;
    out->submitted_ms = start->submitted_ms;
    (void)snprintf(out->cluster, sizeof out->cluster, "%s", start->cluster);
}

static const char *how_it_ended(const struct adopt_found *found)
{
    if (found->is_restored)
        return "was ended: its run directory had been removed";
    if (found->has_ns_ended)
        return "ended with the container of the launcherd before";
    return found->has_process && !found->same_boot && !found->has_end
               ? "ended with a restart of the node"
               : "ended while launcherd was away";
}

/* A shim that died in this boot counts as alive until its processes have been swept. Then SHIM_GONE
 * follows. */
static void adopt_shim(struct node_shim *shim, struct adopt_found *found)
{
    static struct launcher_shim core;
    const struct node_host *host = shim->shims->host;
    struct launcher_event event;
    const bool lives = found->lives && watch(shim, &found->process);

    shim->age_us = lives ? 0 : found->age_us;
    event = node_shim_event(shim, LAUNCHER_EVENT_ADOPT);
    fill_core_shim(&core, &found->start.start);
    core.phase = found->has_end ? SHIM_ENDED : SHIM_PREPARING;
    core.lease_until_us = lease_page_until_us(found->page);
    shim->page = found->page;
    found->page = NULL;
    if (lives && !found->has_end)
        node_guards_want(shim);
    event.shim = &core;
    event.alive = found->same_boot || found->is_unseen;
    event.is_unseen = found->is_unseen;
    (void)snprintf(shim->how, sizeof shim->how, "%s", how_it_ended(found));
    event.text = shim->how;
    event.msg = found->has_end ? &found->end : NULL;
    log_line(LOG_INFO, node_shim_about(shim),
             found->is_unseen ? "its shim (pid %d) cannot be seen from here: it counts as running "
                                "until its lease is over, unless it answers"
             : lives          ? "adopted its shim, pid %d"
                              : "its shim is gone (pid %d)",
             found->has_process ? (int)found->process.pid : 0);
    if (found->is_unseen)
        shim->reported = true; /* nobody waits for the end of a process */
    else if (!lives && found->same_boot)
        node_sweep_begin(shim);
    else if (!lives)
        shim->exited = shim->reported = true;
    host->step(host->owner, event);
    if (lives && found->is_warm)
        node_sweep_kill(shim->shims, shim->job_id, shim->generation,
                        "it was warm, and has not taken the start order");
}

struct adoption {
    struct adopt_found *first;
    enum status status;
    struct err *err;
};

static void on_read(struct file_work *work, const char *late)
{
    struct adopt_files *files = (struct adopt_files *)work;
    struct adoption *adoption = files->owner;

    adoption->status = STATUS_OK;
    if (late != NULL) {
        adoption->status = err_set(adoption->err, STATUS_TIMEOUT, 0, "%s", late);
        return;
    }
    if (files->status != STATUS_OK) { /* a list without what cannot be read would not be all */
        adoption->status = files->status;
        *adoption->err = files->err;
        return;
    }
    adoption->first = files->first;
    files->first = NULL;
}

enum status node_adopt(struct node_shims *shims, struct err *err)
{
    const struct node_host *host = shims->host;
    struct adoption adoption = {.err = err};
    struct adopt_files *files = adopt_files_new(host->state_dir, &host->core->options, &adoption);

    adoption.status = err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    if (files == NULL)
        return adoption.status;
    files->work.done = on_read;
    files->is_new = host->is_new;
    file_work_wait(host->files, &files->work);
    for (struct adopt_found *found = adoption.first; found != NULL; found = found->next) {
        struct node_shim *shim = node_shim_new(shims, &found->start.start);

        if (shim != NULL)
            adopt_shim(shim, found);
        else
            log_line(LOG_ERROR, node_about(host), "no memory to adopt the shim of %s", found->dir);
    }
    adopt_found_free(adoption.first);
    return adoption.status;
}
