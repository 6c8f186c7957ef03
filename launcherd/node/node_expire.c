#include "launcherd/node/node_expire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launcherd/process/rundir.h"

#define INTERVAL_MIN_MS 250u
#define INTERVAL_MAX_MS 3600000u
#define CLUSTER_CHARS 32u  /* hex digits, as rendezvous makes them */
#define REMOVED ".removed" /* the suffix of a folder that is being removed */

/* Parses "<cluster>-<job>" with `suffix` after it, as rendezvous names clusters and jobs. Nothing else
 * in the folder is ours. */
static bool parse_name(const char *name, const char *suffix, struct node_expire_use *use)
{
    size_t digits = strspn(name, "0123456789abcdef");
    char *end;

    if (digits != CLUSTER_CHARS || name[digits] != '-' || name[digits + 1] < '1' ||
        name[digits + 1] > '9')
        return false;
    (void)snprintf(use->cluster, sizeof use->cluster, "%.32s", name);
    errno = 0;
    use->job_id = strtoull(name + digits + 1, &end, 10);
    return errno == 0 && strcmp(end, suffix) == 0;
}

static bool is_used(const struct node_expire *expire, const struct node_expire_use *use)
{
    for (uint32_t i = 0; i < expire->used_count; i++)
        if (expire->used[i].job_id == use->job_id &&
            strcmp(expire->used[i].cluster, use->cluster) == 0)
            return true;
    return false;
}

/* Opens the folder by descriptor without following links, since the user of the job owns a part of
 * it. NULL: it is no folder. */
static DIR *open_folder(int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir == NULL && fd >= 0)
        close(fd);
    return dir;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void later(struct timespec *newest, const struct stat *stat)
{
    if (stat->st_mtim.tv_sec > newest->tv_sec ||
        (stat->st_mtim.tv_sec == newest->tv_sec && stat->st_mtim.tv_nsec > newest->tv_nsec))
        *newest = stat->st_mtim;
}

/* Whether nothing in the folder was written for `keep_us`. */
static bool is_old(int logs_fd, const char *name, uint64_t keep_us)
{
    struct timespec newest = {0}, now;
    const struct dirent *entry;
    struct stat stat;
    DIR *dir = open_folder(logs_fd, name);

    if (dir == NULL)
        return false;
    if (fstat(dirfd(dir), &stat) == 0)
        later(&newest, &stat);
    while ((entry = readdir(dir)) != NULL)
        if (!is_dots(entry->d_name) &&
            fstatat(dirfd(dir), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) == 0)
            later(&newest, &stat);
    closedir(dir);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_us =
        (int64_t)(now.tv_sec - newest.tv_sec) * 1000000 + (now.tv_nsec - newest.tv_nsec) / 1000;
    return newest.tv_sec > 0 && age_us > 0 && (uint64_t)age_us > keep_us;
}

/* Removes the folder under another name: if the job is started again meanwhile, it gets a new one. */
static bool remove_logs(int logs_fd, const char *name)
{
    char removed[NAME_MAX + 1];

    (void)snprintf(removed, sizeof removed, "%.200s" REMOVED, name);
    if (renameat(logs_fd, name, logs_fd, removed) != 0)
        return false;
    rundir_remove_all(logs_fd, removed);
    return faccessat(logs_fd, removed, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
}

static void on_work(uv_work_t *work)
{
    struct node_expire *expire = work->data;
    const struct node_host *host = expire->host;
    const struct dirent *entry;
    DIR *logs = opendir(host->logs_dir);

    if (logs == NULL)
        return;
    while (!atomic_load(&expire->is_stopping) && (entry = readdir(logs)) != NULL) {
        struct node_expire_use use;

        if (parse_name(entry->d_name, REMOVED, &use))
            rundir_remove_all(dirfd(logs), entry->d_name); /* a removal that was cut short */
        else if (parse_name(entry->d_name, "", &use) && !is_used(expire, &use) &&
                 is_old(dirfd(logs), entry->d_name, host->keep_logs_us))
            expire->removed += remove_logs(dirfd(logs), entry->d_name);
    }
    closedir(logs);
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
        struct node_expire_use *use = &expire->used[expire->used_count++];

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

    rundir_log_dir(path, host->logs_dir, cluster, job_id);
    (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
}
