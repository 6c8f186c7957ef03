#include "launcherd/node/node_start.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/node/node_sweep.h"
#include "launcherd/node/node_warm.h"
#include "launcherd/node/shim_files.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/shim_io.h"

/* The arguments of a shim. */
struct shim_texts {
    char log_dir[PATH_MAX], state_id[IDENTITY_BYTES_MAX], gpus[DEVICES_TEXT_BYTES], lease_until[24],
        lease[24], log_max[24], cgroups[PATH_MAX], memory[24], allow_root[2],
        node_name[NODE_NAME_BYTES_MAX], address[ADDRESS_BYTES_MAX];
    char *items[SHIM_ARG_COUNT + 1]; /* the last is NULL */
};

static void fill_texts(struct node_shim *shim, const char *log_dir, struct shim_texts *texts)
{
    const struct node_host *host = shim->shims->host;
    const struct launcher *core = host->core;

    (void)snprintf(texts->log_dir, sizeof texts->log_dir, "%s", log_dir);
    (void)snprintf(texts->state_id, sizeof texts->state_id, "%s", core->options.state_id);
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
    texts->items[SHIM_ARG_STATE_ID] = texts->state_id;
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

/* -- the process ---------------------------------------------------------------------------------- */

static void step(const struct node_shims *shims, struct launcher_event event)
{
    shims->host->step(shims->host->owner, event);
}

static struct launcher_event failed_event(uint64_t job_id, uint32_t generation, const char *text)
{
    return (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_FAILED,
                                   .job_id = job_id,
                                   .generation = generation,
                                   .text = text};
}

static void fail(struct node_shim *shim, const char *text)
{
    char cause[REASON_BYTES_MAX];

    shim->exited = shim->reported = true;
    log_line(LOG_ERROR, node_shim_about(shim), "the shim was not started: %s", text);
    (void)snprintf(cause, sizeof cause, "node %s: %s", shim->shims->host->core->options.name, text);
    step(shim->shims, failed_event(shim->job_id, shim->generation, cause));
}

static void watch(struct node_shim *shim, int fd, bool was_warm)
{
    shim->is_child = true;
    if (!node_shim_open(shim, fd))
        step(shim->shims, node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED)); /* it will connect */
    if (was_warm)
        step(shim->shims, node_shim_event(shim, LAUNCHER_EVENT_SHIM_WARM));
}

/* The work also starts a process. False: no memory. */
static bool add_process(struct node_shim *shim, struct start_files *files)
{
    struct shim_texts texts;

    shim->child = node_child_new(shim->shims->host->children);
    if (shim->child == NULL)
        return false;
    fill_texts(shim, files->log_dir, &texts);
    child_order_new(&files->order, shim->child, SHIM_ARGUMENT);
    for (uint32_t i = 0; i < SHIM_ARG_COUNT; i++)
        child_order_add(&files->order, texts.items[i]);
    return true;
}

/* True: there is no process, nor will there be one. False: it is killed, and until its end is known it counts as
 * alive, so its slots stay taken. */
static bool stop_start(struct node_shim *shim, const char *why)
{
    struct node_children *children = shim->shims->host->children;
    const bool is_over = shim->child == NULL || node_child_cancel(children, shim->child);

    shim->starting = NULL; /* its `done` finds out; what was made is removed with the shim */
    if (is_over) {
        node_child_drop(children, &shim->child);
        return true;
    }
    shim->is_given_up = true;
    (void)snprintf(shim->how, sizeof shim->how, "was not started: %s", why);
    log_line(LOG_ERROR, node_shim_about(shim), "the shim %s; process %d is killed", shim->how,
             (int)node_child_pid(shim->child));
    return false;
}

/* The process runs its program. It may have ended since. */
static void take_process(struct node_shim *shim, struct start_files *files)
{
    const bool has_ended = shim->child->has_ended;
    const siginfo_t info = shim->child->info;
    const int fd = files->link_fd;

    shim->pid = node_child_pid(shim->child);
    files->link_fd = -1;
    node_child_drop(shim->shims->host->children, &shim->child);
    watch(shim, fd, false);
    if (!has_ended)
        return;
    node_sweep_describe(shim, &info);
    node_sweep_begin(shim);
}

static void on_started(struct file_work *work, const char *late)
{
    struct start_files *files = (struct start_files *)work;
    struct node_shim *shim = node_shim_find(files->shims, files->job_id, files->generation);
    char text[160];

    if (shim == NULL || shim->starting != work)
        return;
    if (late != NULL) {
        late = node_child_explain(shim->child, late, text, sizeof text);
        if (stop_start(shim, late))
            fail(shim, late);
        return;
    }
    shim->starting = NULL;
    if (files->has_child && !files->shims->host->closed) {
        take_process(shim, files);
        return;
    }
    (void)node_child_cancel(files->shims->host->children, shim->child);
    node_child_drop(files->shims->host->children, &shim->child);
    if (files->shims->host->closed)
        node_shim_remove_dir(shim);
    else
        fail(shim, files->err.text);
}

void node_start_check(struct node_shims *shims)
{
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next) {
        if (!shim->is_given_up || shim->child == NULL || !node_child_over(shim->child))
            continue;
        shim->pid = node_child_pid(shim->child);
        node_child_drop(shims->host->children, &shim->child);
        shim->is_child = true;
        node_sweep_begin(shim); /* it may have run its program in the end */
    }
}

/* -- the files ------------------------------------------------------------------------------------ */

/* The shim of finished work. NULL: it is not wanted any more; what was made is removed. */
static struct node_shim *take_shim(struct file_work *work)
{
    struct start_files *files = (struct start_files *)work;
    struct node_shim *shim = node_shim_find(files->shims, files->job_id, files->generation);

    if (shim == NULL || shim->starting != work)
        return NULL;
    shim->starting = NULL;
    if (!files->shims->host->closed)
        return shim;
    node_shim_remove_dir(shim);
    return NULL;
}

static void on_started_cold(struct file_work *work, const char *late)
{
    const struct start_files *files = (struct start_files *)work;

    node_warm_release(files->shims->warm, files->job_id);
    on_started(work, late);
}

/* The warm process does not take the order: it gets its description back, and another process is started. */
static void start_cold(struct node_shim *shim, struct start_files *files)
{
    struct start_files *cold = start_files_new(NULL);
    const char *why = "no memory";

    if (cold != NULL) {
        cold->work.lane = FILE_LANE_START;
        cold->work.key = files->work.key;
        cold->work.limit_ms = FILE_WORK_LATE_MS;
        cold->work.run = start_files_start;
        cold->work.done = on_started_cold;
        cold->shims = files->shims;
        cold->job_id = files->job_id;
        cold->generation = files->generation;
        cold->log_fd = files->log_fd;
        files->log_fd = -1;
        cold->has_moved = files->has_moved;
        (void)snprintf(cold->log_dir, sizeof cold->log_dir, "%s", files->log_dir);
        (void)snprintf(cold->dir, sizeof cold->dir, "%s", files->dir);
        (void)snprintf(cold->warm, sizeof cold->warm, "%s", files->warm);
        shim->starting = &cold->work;
        if (!add_process(shim, cold))
            start_files_drop(&cold->work);
        else if (file_work_start(files->shims->host->files, &cold->work))
            return;
        else
            why = "too much waits for the disks already";
    }
    (void)stop_start(shim, why);
    node_warm_release(files->shims->warm, files->job_id);
    fail(shim, why);
}

/* False: another process is needed. */
static bool take_warm(struct node_shim *shim, const struct start_files *files)
{
    struct shim_texts texts;
    int fd;

    fill_texts(shim, files->log_dir, &texts);
    if (!files->has_moved ||
        !node_warm_take(shim->shims->warm, files->job_id, (const char *const *)texts.items,
                        files->log, &shim->pid, &fd))
        return false;
    log_line(LOG_INFO, node_shim_about(shim), "process %d, which was warm, is its shim",
             (int)shim->pid);
    shim->was_warm = true;
    watch(shim, fd, true);
    return true;
}

/* The files of a start that a warm process may take. */
static void on_made(struct file_work *work, const char *late)
{
    struct start_files *files = (struct start_files *)work;
    struct node_shim *shim = take_shim(work);
    const bool is_made = late == NULL && files->status == STATUS_OK;

    if (shim != NULL && is_made) {
        if (!take_warm(shim, files))
            start_cold(shim, files);
        return;
    }
    node_warm_release(files->shims->warm, files->job_id);
    if (shim != NULL)
        fail(shim, late != NULL ? late : files->err.text);
}

/* `shim`: NULL: no memory. False: `*why` says why it does not begin. */
static bool begin(struct node_shims *shims, struct node_shim *shim, const struct msg_start *start,
                  const char **why)
{
    struct start_files *files = shim != NULL ? start_files_new(start) : NULL;
    char name[64];

    *why = "no memory";
    if (files == NULL)
        return false;
    files->work.lane = FILE_LANE_START;
    files->work.key = file_work_key(shim->dir);
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.done = on_started;
    files->shims = shims;
    files->log_mode = geteuid() == 0 ? 0711 : 0700;
    node_log_dir(shims->host, files->log_dir, shim->cluster, shim->job_id, shim->submitted_ms);
    (void)snprintf(name, sizeof name, "shim-g%u.log", shim->generation);
    rundir_join(files->log, files->log_dir, name);
    (void)snprintf(files->dir, sizeof files->dir, "%s", shim->dir);
    (void)snprintf(files->state_dir, sizeof files->state_dir, "%s", shims->host->state_dir);
    if (shims->warm != NULL && node_warm_reserve(shims->warm, start, files->warm)) {
        files->work.done = on_made;
    } else if (!add_process(shim, files)) {
        start_files_drop(&files->work);
        return false;
    }
    shim->starting = &files->work;
    *why = "too much waits for the disks already";
    if (file_work_start(shims->host->files, &files->work))
        return true;
    (void)stop_start(shim, *why);
    if (shims->warm != NULL)
        node_warm_release(shims->warm, start->job_id);
    return false;
}

/* Within an action: the event waits until the step is over. */
static void begin_or_post(struct node_shims *shims, struct node_shim *shim,
                          const struct msg_start *start)
{
    const char *why;

    if (begin(shims, shim, start, &why))
        return;
    if (shim != NULL)
        shim->exited = shim->reported = true;
    shims->host->post(shims->host->owner, failed_event(start->job_id, start->generation, why));
}

void node_start_shim(struct node_shims *shims, const struct msg *start)
{
    begin_or_post(shims, node_shim_new(shims, &start->start), &start->start);
}

/* -- again ---------------------------------------------------------------------------------------- */

static void on_order_read(struct file_work *work, const char *late)
{
    struct shim_files *files = (struct shim_files *)work;
    struct node_shims *shims = files->shims;
    struct node_shim *last = node_shim_find(shims, files->job_id, files->generation);
    const char *why = files->err.text[0] != '\0' ? files->err.text : "its order is gone";

    if (last == NULL || last->starting != work)
        return;
    last->starting = NULL;
    if (shims->host->closed)
        return;
    if (late == NULL && files->has_msg) {
        struct node_shim *next = node_shim_add(shims, &files->msg.start);

        last->removed = true;
        if (last->conn_open)
            conn_close(&last->conn, STATUS_OK, "another one is started");
        if (begin(shims, next, &files->msg.start, &why))
            return;
        if (next != NULL)
            next->exited = next->reported = true;
    }
    step(shims, failed_event(files->job_id, files->generation, late != NULL ? late : why));
}

void node_start_again(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *last = node_shim_find(shims, job_id, generation);
    struct shim_files *files = last != NULL ? shim_files_new(last->dir) : NULL;

    if (files != NULL) {
        files->work.lane = FILE_LANE_START;
        files->work.limit_ms = FILE_WORK_LATE_MS;
        files->work.run = shim_files_read_order;
        files->work.done = on_order_read;
        files->shims = shims;
        files->job_id = job_id;
        files->generation = generation;
        last->starting = &files->work;
        if (file_work_start(shims->host->files, &files->work))
            return;
        last->starting = NULL;
    }
    shims->host->post(shims->host->owner,
                      failed_event(job_id, generation, "its order cannot be read"));
}

/* -- no start after all --------------------------------------------------------------------------- */

void node_start_cancel(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                       const char *why)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);

    if (shim == NULL || shim->starting == NULL || !stop_start(shim, why))
        return;
    log_line(LOG_WARNING, node_shim_about(shim), "its shim is not started: %s", why);
    shim->exited = shim->reported = true;
    shims->host->post(shims->host->owner, failed_event(job_id, generation, why));
}

bool node_start_any(const struct node_shims *shims)
{
    for (const struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->starting != NULL && !shim->removed)
            return true;
    return false;
}

void node_start_cancel_all(struct node_shims *shims)
{
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->starting != NULL && !shim->removed && stop_start(shim, "launcherd ends"))
            shim->exited = shim->reported = true;
}
