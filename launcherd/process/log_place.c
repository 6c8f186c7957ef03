#include "launcherd/process/log_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/process/rundir.h"

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];

    rundir_join(path, dir, name);
    return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int64_t ms_of(int64_t seconds, uint32_t nanoseconds)
{
    return seconds * 1000 + nanoseconds / 1000000;
}

/* When the file was made; if the file system does not know that, when it was last written. 0: it is not there. */
static int64_t made_ms(const char *path)
{
    struct statx stat;

    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_MTIME, &stat) != 0)
        return 0;
    return (stat.stx_mask & STATX_BTIME) != 0
               ? ms_of(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
               : ms_of(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
}

/* A folder of release 0.1.0, by the time of the file in it: the folder of another job has older ones. */
static bool find_old(char out[PATH_MAX], const struct log_place *folder, const char *name)
{
    const struct rundir_logs logs = {.dir = folder->logs.dir, .owner = ""};
    char path[PATH_MAX];

    rundir_log_dir(out, &logs, folder->cluster, folder->job_id, 0);
    rundir_join(path, out, name);
    return has_file(out, name) && made_ms(path) + LOG_PLACE_SLACK_MS >= folder->submitted_ms;
}

/* A folder of an earlier release, without an owner. */
static bool find_unowned(char out[PATH_MAX], const struct log_place *folder, const char *name)
{
    const struct rundir_logs logs = {.dir = folder->logs.dir, .owner = ""};

    rundir_log_dir(out, &logs, folder->cluster, folder->job_id, folder->submitted_ms);
    return has_file(out, name);
}

static bool is_owner(const char *end)
{
    return end[0] == '.' && strlen(end + 1) == RUNDIR_OWNER_CHARS;
}

/* Whether the folder may have the job's logs. `rest`: of its name, after the job's number. A server that does not say when
 * the job was submitted means one that we made; else any launcherd may have made it: we ourselves, with another state
 * directory. The name of the file has the generation and the rank, so there is one such file. */
static bool may_be_it(const struct log_place *folder, const char *path, const char *rest,
                      const char *name)
{
    const char *end = rest + strspn(rest, "0123456789");

    if (folder->submitted_ms == 0)
        return end[0] == '\0' ||
               (is_owner(end) && strncmp(end + 1, folder->logs.owner, RUNDIR_OWNER_CHARS) == 0);
    return is_owner(end) && strtoll(rest, NULL, 10) == folder->submitted_ms && has_file(path, name);
}

/* The only folder of that number. */
static bool find_only(char out[PATH_MAX], const struct log_place *folder, const char *name)
{
    char prefix[64], path[PATH_MAX];
    const struct dirent *entry;
    uint32_t count = 0;
    DIR *dir = opendir(folder->logs.dir);

    (void)snprintf(prefix, sizeof prefix, "%s-%llu-", folder->cluster,
                   (unsigned long long)folder->job_id);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        rundir_join(path, folder->logs.dir, entry->d_name);
        if (may_be_it(folder, path, entry->d_name + strlen(prefix), name) && count++ == 0)
            memcpy(out, path, sizeof path);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return count == 1 && has_file(out, name);
}

void log_place_find(char out[PATH_MAX], const struct log_place *folder, const char *name)
{
    char other[PATH_MAX];
    bool is_found;

    rundir_log_dir(out, &folder->logs, folder->cluster, folder->job_id, folder->submitted_ms);
    if (has_file(out, name))
        return;
    is_found = find_unowned(other, folder, name) ||
               (folder->submitted_ms != 0 && find_old(other, folder, name)) ||
               find_only(other, folder, name);
    if (is_found)
        memcpy(out, other, sizeof other);
}
