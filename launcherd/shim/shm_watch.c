#include "launcherd/shim/shm_watch.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/log.h"
#include "common/utf8.h"
#include "launcherd/shim/shim_workers.h"

#define LIST_BYTES_MAX 400u

static uid_t user_of(const struct shim_workers *workers)
{
    return workers->as_self ? geteuid() : workers->account.uid;
}

/* -- the thread ------------------------------------------------------------------------------------ */

static void see(void *argument)
{
    struct shim_workers *workers = argument;

    shm_seen_read(SHM_FOLDER, &workers->shm.seen);
}

/* A twentieth is free or less. */
static void look_if_full(void *argument)
{
    struct shim_workers *workers = argument;
    struct shm_watch *shm = &workers->shm;
    struct statvfs space;
    char size[32], list[LIST_BYTES_MAX], text[LIST_BYTES_MAX + 200];

    if (statvfs(SHM_FOLDER, &space) == 0 && space.f_blocks > 0 &&
        space.f_bavail <= space.f_blocks / 20) {
        shm_left_read(SHM_FOLDER, NULL, user_of(workers), &shm->left);
        cgroup_format_size((uint64_t)space.f_blocks * space.f_frsize, size, sizeof size);
        const uint32_t count = shm_left_list(&shm->left, false, list, sizeof list);
        (void)snprintf(text, sizeof text, SHM_FOLDER " of node %.60s is full (%s)%s%s",
                       workers->options.node_name, size,
                       count > 0 ? "; in no process's use: " : ", and all of it may be in use",
                       list);
        text[sizeof shm->full - 1] = '\0';
        utf8_printable(text, strlen(text), shm->full, sizeof shm->full);
    }
    atomic_store(&shm->is_looked, true);
}

static void tell(const struct shim_workers *workers, const char *text)
{
    const struct msg_start *start = workers->options.start;
    char line[LIST_BYTES_MAX + 200];

    utf8_printable(text, strlen(text), line, sizeof line);
    log_line(
        LOG_WARNING,
        (struct log_about){.job_id = start->job_id, .generation = start->generation, .rank = -1},
        "%s", line);
}

static void clear(void *argument)
{
    struct shim_workers *workers = argument;
    struct shm_watch *shm = &workers->shm;
    char list[LIST_BYTES_MAX], text[LIST_BYTES_MAX + 128];

    if (!shm->seen.is_known)
        return;
    shm_left_read(SHM_FOLDER, &shm->seen, user_of(workers), &shm->left);
    (void)shm_left_remove(SHM_FOLDER, &shm->left, user_of(workers), shm->ended, shm->ended_count);
    if (shm_left_list(&shm->left, true, list, sizeof list) > 0) {
        (void)snprintf(text, sizeof text,
                       "removed from " SHM_FOLDER ", as its process has ended: %s", list);
        tell(workers, text);
    }
    if (shm_left_list(&shm->left, false, list, sizeof list) > 0) {
        (void)snprintf(text, sizeof text,
                       "left in " SHM_FOLDER " during this generation, and open in no process: %s",
                       list);
        tell(workers, text);
    }
}

/* -- the loop -------------------------------------------------------------------------------------- */

void shm_watch_begin(struct shim_workers *workers)
{
    (void)log_writer_add_work(&workers->writer, see, workers);
}

void shm_watch_ended(struct shim_workers *workers, pid_t pid)
{
    if (workers->shm.ended_count < SHM_ENDED_MAX)
        workers->shm.ended[workers->shm.ended_count++] = pid;
}

void shm_watch_failed(struct shim_workers *workers)
{
    (void)log_writer_add_work(&workers->writer, look_if_full, workers);
}

const char *shm_watch_full(const struct shim_workers *workers)
{
    return atomic_load(&workers->shm.is_looked) ? workers->shm.full : "";
}

void shm_watch_end(struct shim_workers *workers)
{
    if (!workers->shm.is_cleared)
        workers->shm.is_cleared = log_writer_add_work(&workers->writer, clear, workers);
}
