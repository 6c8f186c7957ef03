#include "launcherd/node/node_guards.h"

#include <stdio.h>
#include <unistd.h>

#include "launcherd/node/guard_files.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/guard.h"

#define AFTER_MS 500u /* a program that starts reads its files meanwhile */
#define LOOK_MS 1000u
#define MISSES 2u /* looks: the shim may have gone first, which this launcherd finds out soon */
#define PAUSE_MS 2000u /* after a start, and twice as long after the next one, up to 64 s */
#define PAUSE_DOUBLES 5u
#define LASTED_MS 60000u /* then a guard counts as one that lasts */

/* Once, until a guard lasts: whoever ends a guard may end each of them. */
static void tell(struct node_shim *shim, const char *what, const char *why)
{
    if (!shim->guard.is_told && !shim->exited && !shim->shims->host->closed)
        log_line(LOG_WARNING, node_shim_about(shim),
                 "its shim has no guard now: %s%s. While it has none, its ranks may outlive their "
                 "lease if both it and launcherd are stopped or killed. launcherd starts a guard "
                 "again",
                 what, why);
    shim->guard.is_told = true;
}

static void drop(struct node_shim *shim)
{
    shim->guard.starting = NULL;
    node_child_drop(shim->shims->host->children, &shim->guard.child);
}

static void on_started(struct file_work *work, const char *late)
{
    struct guard_files *files = (struct guard_files *)work;
    struct node_shims *shims = files->shims;
    struct node_shim *shim = node_shim_find(shims, files->job_id, files->generation);
    char text[160];

    if (shim == NULL || shim->guard.starting != work)
        return;
    shim->guard.starting = NULL;
    if (late == NULL && shim->page == NULL) {
        shim->page = files->page;
        files->page = NULL;
    }
    if (late == NULL && shim->guard.page_fd < 0) {
        shim->guard.page_fd = files->page_fd;
        files->page_fd = -1;
    }
    if (late == NULL && files->status == STATUS_OK)
        return;
    tell(shim, "it could not be started: ",
         late != NULL ? node_child_explain(shim->guard.child, late, text, sizeof text)
                      : files->err.text);
    if (late != NULL)
        (void)node_child_cancel(shims->host->children, shim->guard.child);
    drop(shim);
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
    struct node_guard *guard = &shim->guard;
    struct guard_files *files = NULL;

    drop(shim);
    guard->begun_ms = uv_now(shims->host->loop);
    guard->tries++;
    guard->child = node_child_new(shims->host->children);
    if (guard->child != NULL)
        files = guard_files_new(guard->child, shim->pid);
    if (files != NULL) {
        files->work.done = on_started;
        files->shims = shims;
        files->job_id = shim->job_id;
        files->generation = shim->generation;
        add_arguments(shim, &files->order);
        guard->starting = &files->work;
        if (file_work_start(shims->host->files, &files->work))
            return;
    }
    tell(shim, "it could not be started: ",
         files == NULL ? "no memory" : "too many processes are being started");
    drop(shim);
}

/* How the guard ended that this launcherd has started last; empty: it has started none, or there is one. */
static void explain(const struct node_guard *guard, char *text, size_t text_bytes)
{
    const struct node_child *child = guard->child;

    text[0] = '\0';
    if (child == NULL || !child->has_ended)
        return;
    (void)snprintf(text, text_bytes, " (pid %d, %s %d)", (int)node_child_pid(child),
                   child->info.si_code == CLD_EXITED ? "exit code" : "signal",
                   child->info.si_status);
}

static bool may_start(const struct node_guard *guard, uint64_t now_ms)
{
    const uint32_t doubles = guard->tries > PAUSE_DOUBLES ? PAUSE_DOUBLES : guard->tries - 1;

    return guard->tries == 0 || now_ms - guard->begun_ms >= (uint64_t)PAUSE_MS << doubles;
}

/* One that is being made, or does not run its program yet, has no lock. */
static bool is_guarded(const struct node_guard *guard)
{
    return guard->starting != NULL ||
           (guard->page_fd >= 0 && lease_page_is_guarded(guard->page_fd)) ||
           (guard->child != NULL && node_child_pid(guard->child) > 0 && !guard->child->has_ended);
}

static void look(struct node_shim *shim, uint64_t now_ms)
{
    struct node_guard *guard = &shim->guard;
    char how[64];

    if (is_guarded(guard)) {
        guard->misses = 0;
        if (now_ms - guard->begun_ms < LASTED_MS)
            return;
        guard->tries = 0;
        guard->is_told = false;
        return;
    }
    if (guard->begun_ms != 0 && ++guard->misses < MISSES)
        return;
    if (!may_start(guard, now_ms))
        return;
    if (guard->page_fd >= 0) {
        explain(guard, how, sizeof how);
        tell(shim, "it has ended", how);
    }
    guard->misses = 0;
    start(shim);
}

static void on_timer(uv_timer_t *timer);

static void arm(struct node_shims *shims)
{
    const uint64_t now_ms = uv_now(shims->host->loop);
    uint64_t at_ms = UINT64_MAX;

    for (const struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->guard.due_ms != 0 && shim->guard.due_ms < at_ms)
            at_ms = shim->guard.due_ms;
    if (at_ms != UINT64_MAX)
        uv_timer_start(&shims->guard_timer, on_timer, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct node_shims *shims = timer->data;
    const uint64_t now_ms = uv_now(shims->host->loop);

    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next) {
        struct node_guard *guard = &shim->guard;

        if (guard->due_ms == 0 || guard->due_ms > now_ms)
            continue;
        guard->due_ms = shim->exited || shim->removed ? 0 : now_ms + LOOK_MS;
        if (guard->due_ms != 0 && shim->pid > 0)
            look(shim, now_ms);
    }
    arm(shims);
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

    if (shim->guard.due_ms != 0 || shim->exited || shims->host->closed)
        return;
    shim->guard.due_ms = uv_now(shims->host->loop) + AFTER_MS;
    arm(shims);
}

void node_guards_over(struct node_shim *shim)
{
    struct node_guard *guard = &shim->guard;

    if (shim->exited && guard->child != NULL && !guard->child->has_ended)
        (void)node_child_cancel(shim->shims->host->children, guard->child);
}

void node_guards_free(struct node_shim *shim)
{
    drop(shim);
    if (shim->guard.page_fd >= 0)
        (void)close(shim->guard.page_fd);
    shim->guard.page_fd = -1;
}
