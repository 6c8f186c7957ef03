#include "launcherd/node/node_guards.h"

#include <stdio.h>

#include "launcherd/node/guard_files.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/guard.h"

#define AFTER_MS 500u /* a program that starts reads its files meanwhile */

static void on_started(struct file_work *work, const char *late)
{
    struct guard_files *files = (struct guard_files *)work;
    struct node_shims *shims = files->shims;
    struct node_shim *shim = node_shim_find(shims, files->job_id, files->generation);
    char text[160];

    if (shim == NULL || shim->guarding != work)
        return;
    shim->guarding = NULL;
    if (late == NULL && shim->page == NULL) {
        shim->page = files->page;
        files->page = NULL;
    }
    if (late == NULL && files->status == STATUS_OK)
        return;
    if (!shim->exited && !shims->host->closed)
        log_line(
            LOG_WARNING, node_shim_about(shim),
            "its shim has no guard: %s. If both it and launcherd are stopped or killed, its ranks "
            "may outlive their lease",
            late != NULL ? node_child_explain(shim->guard, late, text, sizeof text)
                         : files->err.text);
    if (late != NULL)
        (void)node_child_cancel(shims->host->children, shim->guard);
    node_guards_drop(shim);
}

static void add_arguments(const struct node_shim *shim, struct child_order *order)
{
    const struct node_host *host = shim->shims->host;
    char log_dir[PATH_MAX], log[PATH_MAX], name[64];

    node_log_dir(host, log_dir, shim->cluster, shim->job_id, shim->submitted_ms);
    (void)snprintf(name, sizeof name, "shim-g%u.log", shim->generation);
    rundir_join(log, log_dir, name);
    child_order_add(order, shim->dir);
    child_order_add(order, log);
}

static void start(struct node_shim *shim)
{
    struct node_shims *shims = shim->shims;
    struct guard_files *files = NULL;

    if (shim->exited || shim->removed || shim->pid <= 0)
        return;
    shim->guard = node_child_new(shims->host->children);
    if (shim->guard != NULL)
        files = guard_files_new(shim->guard, shim->pid);
    if (files != NULL) {
        files->work.done = on_started;
        files->shims = shims;
        files->job_id = shim->job_id;
        files->generation = shim->generation;
        add_arguments(shim, &files->order);
        shim->guarding = &files->work;
        if (file_work_start(shims->host->files, &files->work))
            return;
        shim->guarding = NULL;
    }
    log_line(LOG_WARNING, node_shim_about(shim), "its shim has no guard: %s",
             files == NULL ? "no memory" : "too many processes are being started");
    node_guards_drop(shim);
}

static void on_timer(uv_timer_t *timer)
{
    struct node_shims *shims = timer->data;

    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->guard_state == GUARD_WANTED) {
            shim->guard_state = GUARD_ASKED;
            start(shim);
        }
}

void node_guards_init(struct node_shims *shims)
{
    uv_timer_init(shims->host->loop, &shims->guard_timer);
    shims->guard_timer.data = shims;
}

void node_guards_close(struct node_shims *shims)
{
    uv_close((uv_handle_t *)&shims->guard_timer, NULL);
}

void node_guards_want(struct node_shim *shim)
{
    struct node_shims *shims = shim->shims;

    if (shim->guard_state != GUARD_NONE || shims->host->closed)
        return;
    shim->guard_state = GUARD_WANTED;
    if (!uv_is_active((uv_handle_t *)&shims->guard_timer))
        uv_timer_start(&shims->guard_timer, on_timer, AFTER_MS, 0);
}

void node_guards_drop(struct node_shim *shim)
{
    shim->guarding = NULL;
    node_child_drop(shim->shims->host->children, &shim->guard);
}
