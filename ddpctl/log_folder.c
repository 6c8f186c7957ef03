#include "ddpctl/log_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"
#include "ddpctl/private_daemons.h"

#define RUNS_MAX 1000000u

enum status log_folder_make(struct log_folder *folder, const char *dir, struct err *err)
{
    struct timespec now;
    enum status status;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    *folder = (struct log_folder){.since_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000};
    status = private_folder(dir, "--log-dir", folder->dir, sizeof folder->dir - 64, err);
    if (status != STATUS_OK)
        return status;
    for (uint32_t i = 1; i < RUNS_MAX; i++) {
        (void)snprintf(folder->path, sizeof folder->path, "%.4000s/%u", folder->dir, i);
        if (mkdir(folder->path, 0777) == 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    folder->path[0] = '\0'; /* what uses it says why: the first that writes there */
    return STATUS_OK;
}

/* Whether the name is "<cluster>-<job>-<submitted_ms>.<owner>", of a job of this run. */
static bool is_of_run(const char *name, int64_t since_ms)
{
    const char *dash = strrchr(name, '-');

    return dash != NULL && dash[1] >= '0' && dash[1] <= '9' &&
           strtoll(dash + 1, NULL, 10) >= since_ms;
}

/* "g1-rank0.log" */
static bool is_log(const char *name)
{
    const size_t digits = name[0] == 'g' ? strspn(name + 1, "0123456789") : 0;

    return digits > 0 && strncmp(name + 1 + digits, "-rank", 5) == 0 &&
           text_ends_with(name, ".log");
}

static void link_logs(int to_fd, int dir_fd, const char *name)
{
    const int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *logs = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    char target[2 * NAME_MAX + 8];

    while (logs != NULL && (entry = readdir(logs)) != NULL) {
        if (!is_log(entry->d_name))
            continue;
        (void)snprintf(target, sizeof target, "../%s/%s", name, entry->d_name);
        (void)symlinkat(target, to_fd, entry->d_name);
    }
    if (logs != NULL)
        (void)closedir(logs);
    else if (fd >= 0)
        (void)close(fd);
}

static void link_all(const struct log_folder *folder)
{
    DIR *dir = folder->path[0] != '\0' ? opendir(folder->dir) : NULL;
    const int to_fd =
        dir != NULL ? open(folder->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    const struct dirent *entry;

    while (to_fd >= 0 && (entry = readdir(dir)) != NULL)
        if (is_of_run(entry->d_name, folder->since_ms))
            link_logs(to_fd, dirfd(dir), entry->d_name);
    if (to_fd >= 0)
        (void)close(to_fd);
    if (dir != NULL)
        (void)closedir(dir);
}

void log_folder_tell(const struct log_folder *folder, struct screen *screen)
{
    link_all(folder);
    screen_message(screen, "-- the logs of the ranks are in %s --",
                   folder->path[0] != '\0' ? folder->path : folder->dir);
}
