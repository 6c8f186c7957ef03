#include "launcherd/node/node_expire.h"

#include <stdio.h>
#include <string.h>

#include "launcherd/node/expire_files.h"
#include "launcherd/node/shim_files.h"
#include "launcherd/process/rundir.h"

#define INTERVAL_MIN_MS 250u
#define INTERVAL_MAX_MS 3600000u
#define SWEEP_MS 1000u /* after the start, which it would make longer */

static void on_timer(uv_timer_t *timer);

static void arm(struct node_expire *expire)
{
    uint64_t interval_ms = expire->host->keep_logs_us / 8000;

    if (interval_ms < INTERVAL_MIN_MS)
        interval_ms = INTERVAL_MIN_MS;
    if (interval_ms > INTERVAL_MAX_MS)
        interval_ms = INTERVAL_MAX_MS;
    uv_timer_start(&expire->timer, on_timer, interval_ms, 0);
}

static void on_removed(struct file_work *work, const char *late)
{
    const struct expire_files *files = (struct expire_files *)work;
    struct node_expire *expire = files->owner;

    if (late == NULL) {
        memcpy(expire->told, files->folders.told, sizeof expire->told);
        expire->told_count = files->folders.told_count;
    }
    if (late == NULL && files->removed > 0)
        log_line(LOG_INFO, node_about(expire->host),
                 "the logs of %u jobs that ended long ago were removed (--keep-logs)",
                 files->removed);
    if (!expire->host->closed)
        arm(expire);
}

static void begin_work(struct node_expire *expire)
{
    const struct launcher *core = expire->host->core;
    const struct rundir_logs logs = node_logs_of(expire->host);
    struct expire_files *files = expire_files_new(&logs, expire->host->keep_logs_us, expire);

    if (files == NULL) {
        arm(expire);
        return;
    }
    files->work.done = on_removed;
    memcpy(files->folders.told, expire->told, sizeof expire->told);
    files->folders.told_count = expire->told_count;
    for (uint32_t i = 0; i < core->shim_count; i++) {
        struct log_folder_name *use = &files->used[files->used_count++];

        use->job_id = core->shims[i].job_id;
        (void)snprintf(use->cluster, sizeof use->cluster, "%s", core->shims[i].cluster);
    }
    if (!file_work_start(expire->host->files, &files->work))
        arm(expire);
}

static void on_timer(uv_timer_t *timer)
{
    begin_work(timer->data);
}

static void on_sweep_timer(uv_timer_t *timer)
{
    const struct node_expire *expire = timer->data;
    struct sweep_files *files =
        expire->host->cgroups[0] != '\0' ? sweep_files_new(expire->host->cgroups) : NULL;

    if (files != NULL)
        (void)file_work_start(expire->host->files, &files->work);
}

void node_expire_open(struct node_expire *expire, const struct node_host *host)
{
    expire->host = host;
    uv_timer_init(host->loop, &expire->timer);
    uv_timer_init(host->loop, &expire->sweep_timer);
    expire->timer.data = expire->sweep_timer.data = expire;
    uv_timer_start(&expire->sweep_timer, on_sweep_timer, SWEEP_MS, 0);
    arm(expire);
}

void node_expire_close(struct node_expire *expire)
{
    uv_close((uv_handle_t *)&expire->timer, NULL);
    uv_close((uv_handle_t *)&expire->sweep_timer, NULL);
}

void node_expire_touch(const struct node_host *host, const char *cluster, uint64_t job_id,
                       int64_t submitted_ms)
{
    struct shim_files *files = shim_files_new("");

    if (files == NULL)
        return; /* its last write counts */
    files->work.lane = FILE_LANE_EXPIRE;
    files->work.key = 0;
    files->work.run = shim_files_touch;
    node_log_dir(host, files->log_dir, cluster, job_id, submitted_ms);
    (void)file_work_start(host->files, &files->work);
}
