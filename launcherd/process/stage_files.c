#include "launcherd/process/stage_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/stage.h"

static bool is_archive(const char *name, const struct stat *info)
{
    char hash[STAGE_HASH_CHARS + 1];

    (void)snprintf(hash, sizeof hash, "%.*s", (int)STAGE_HASH_CHARS, name);
    return strlen(name) == STAGE_HASH_CHARS + 4 && strcmp(name + STAGE_HASH_CHARS, ".tar") == 0 &&
           stage_is_hash(hash) && S_ISREG(info->st_mode) && info->st_uid == geteuid();
}

static bool is_older(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec < other->tv_sec ||
           (one->tv_sec == other->tv_sec && one->tv_nsec < other->tv_nsec);
}

/* The bytes of all archives, and the name of the one that was not used for longest. */
static uint64_t look(int fd, char oldest[NAME_MAX + 1])
{
    struct timespec oldest_time = {0};
    const struct dirent *entry;
    struct stat info;
    uint64_t total = 0;
    DIR *dir = own_folder_list(fd);

    oldest[0] = '\0';
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !is_archive(entry->d_name, &info))
            continue;
        total += (uint64_t)info.st_size;
        if (oldest[0] != '\0' && !is_older(&info.st_mtim, &oldest_time))
            continue;
        (void)snprintf(oldest, NAME_MAX + 1, "%s", entry->d_name);
        oldest_time = info.st_mtim;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return total;
}

void stage_files_trim(const char *dir, uint64_t bytes_max)
{
    char oldest[NAME_MAX + 1];
    struct err err;
    int fd;

    if (own_folder_open(dir, 1, &fd, &err) != STATUS_OK)
        return;
    while (look(fd, oldest) > bytes_max && oldest[0] != '\0' && unlinkat(fd, oldest, 0) == 0)
        ;
    (void)close(fd);
}
