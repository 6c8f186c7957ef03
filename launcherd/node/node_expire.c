#include "launcherd/node/node_expire.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "launcherd/process/rundir.h"

#define INTERVAL_MIN_MS 250u
#define INTERVAL_MAX_MS 3600000u

static bool is_used(void *owner, const struct log_folder_name *name)
{
    const struct node_expire *expire = owner;

    for (uint32_t i = 0; i < expire->used_count; i++)
        if (expire->used[i].job_id == name->job_id &&
            strcmp(expire->used[i].cluster, name->cluster) == 0)
            return true;
    return false;
}

static bool is_stopping(void *owner)
{
    struct node_expire *expire = owner;

    return atomic_load(&expire->is_stopping);
}

static void on_work(uv_work_t *work)
{
    struct node_expire *expire = work->data;

    expire->removed = log_folders_expire(&expire->folders);
}

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

static void on_worked(uv_work_t *work, int status)
{
    struct node_expire *expire = work->data;

    (void)status;
    expire->is_working = false;
    if (expire->removed > 0)
        log_line(LOG_INFO, node_about(expire->host),
                 "the logs of %u jobs that ended long ago were removed (--keep-logs)",
                 expire->removed);
    if (!atomic_load(&expire->is_stopping))
        arm(expire);
}

static void begin_work(struct node_expire *expire)
{
    const struct launcher *core = expire->host->core;

    expire->used_count = expire->removed = 0;
    for (uint32_t i = 0; i < core->shim_count; i++) {
        struct log_folder_name *use = &expire->used[expire->used_count++];

        use->job_id = core->shims[i].job_id;
        (void)snprintf(use->cluster, sizeof use->cluster, "%s", core->shims[i].cluster);
    }
    expire->work.data = expire;
    expire->is_working = uv_queue_work(expire->host->loop, &expire->work, on_work, on_worked) == 0;
}

static void on_timer(uv_timer_t *timer)
{
    begin_work(timer->data);
}

void node_expire_open(struct node_expire *expire, const struct node_host *host)
{
    expire->host = host;
    expire->folders = (struct log_folders){.logs_dir = host->logs_dir,
                                           .keep_us = host->keep_logs_us,
                                           .is_used = is_used,
                                           .is_stopping = is_stopping,
                                           .owner = expire};
    atomic_init(&expire->is_stopping, false);
    uv_timer_init(host->loop, &expire->timer);
    expire->timer.data = expire;
    arm(expire);
}

void node_expire_close(struct node_expire *expire)
{
    atomic_store(&expire->is_stopping, true);
    uv_close((uv_handle_t *)&expire->timer, NULL);
    if (expire->is_working)
        (void)uv_cancel((uv_req_t *)&expire->work); /* unless a thread has it already */
}

void node_expire_touch(const struct node_host *host, const char *cluster, uint64_t job_id)
{
    char path[PATH_MAX];
    struct err err;
    int fd;

    rundir_log_dir(path, host->logs_dir, cluster, job_id);
    if (own_folder_open(path, 1, &fd, &err) != STATUS_OK)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)utimensat(AT_FDCWD, path, NULL, 0);
    close(fd);
}
