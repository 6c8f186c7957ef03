#include "launcherd/process/log_folders.h"

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

#include "common/fnv.h"
#include "common/io/own_path.h"
#include "common/io/own_tree.h"
#include "common/log.h"

#define CLUSTER_CHARS 32u  /* hex digits, as rendezvous makes them */
#define REMOVED ".removed" /* the suffix of a folder that is being removed */

bool log_folder_parse(const char *text, const char *suffix, struct log_folder_name *name)
{
    size_t digits = strspn(text, "0123456789abcdef");
    char *end;

    if (digits != CLUSTER_CHARS || text[digits] != '-' || text[digits + 1] < '1' ||
        text[digits + 1] > '9')
        return false;
    (void)snprintf(name->cluster, sizeof name->cluster, "%.32s", text);
    errno = 0;
    name->job_id = strtoull(text + digits + 1, &end, 10);
    if (end[0] == '-' && end[1] >= '1' && end[1] <= '9')
        end += 1 + strspn(end + 1, "0123456789");
    name->owner[0] = '\0';
    if (end[0] == '.' && strspn(end + 1, "0123456789abcdef") == RUNDIR_OWNER_CHARS) {
        (void)snprintf(name->owner, sizeof name->owner, "%.*s", RUNDIR_OWNER_CHARS, end + 1);
        end += 1 + RUNDIR_OWNER_CHARS;
    }
    return errno == 0 && strcmp(end, suffix) == 0;
}

/* -- what is in it ----------------------------------------------------------------------------- */

/* Skips `word` and a number after it. False: the text is another. */
static bool skip(const char **text, const char *word)
{
    const size_t length = strlen(word);
    size_t digits;

    if (strncmp(*text, word, length) != 0)
        return false;
    digits = strspn(*text + length, "0123456789");
    *text += length + digits;
    return digits > 0;
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static bool is_file_name(const char *name)
{
    static const char *const of_ranks[] = {".log", ".index", ".index.new"};
    const char *shim = name, *rank = name;

    if (strcmp(name, "warm.log") == 0 || (skip(&shim, "shim-g") && strcmp(shim, ".log") == 0))
        return true;
    return skip(&rank, "g") && skip(&rank, "-rank") && is_one_of(rank, of_ranks, 3);
}

static bool is_folder_name(const char *name)
{
    const char *at = name;

    return strcmp(name, "stage") == 0 || (skip(&at, "g") && strcmp(at, "-errors") == 0);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_our_file(const char *name, const struct stat *info)
{
    return is_file_name(name) && S_ISREG(info->st_mode) && info->st_uid == geteuid();
}

static bool is_folder_of_job(const char *name, const struct stat *info)
{
    return is_folder_name(name) && S_ISDIR(info->st_mode);
}

struct content {
    char other[NAME_MAX + 1]; /* something that launcherd did not make; "": nothing */
    struct timespec newest;   /* the last write */
    struct timespec
        changed; /* the last change, also of a name or an owner: nobody can set it back */
};

static void later(struct timespec *newest, const struct timespec *time)
{
    if (time->tv_sec > newest->tv_sec ||
        (time->tv_sec == newest->tv_sec && time->tv_nsec > newest->tv_nsec))
        *newest = *time;
}

static void note(struct content *content, const struct stat *info)
{
    later(&content->newest, &info->st_mtim);
    later(&content->changed, &info->st_mtim);
    later(&content->changed, &info->st_ctim);
}

/* False: the folder cannot be read. */
static bool look_into(int fd, struct content *content)
{
    const struct dirent *entry;
    struct stat info;
    DIR *dir = own_folder_list(fd);

    *content = (struct content){.other = ""};
    if (dir == NULL)
        return false;
    if (fstat(fd, &info) == 0)
        note(content, &info);
    while ((entry = readdir(dir)) != NULL) {
        if (is_dots(entry->d_name))
            continue;
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            (!is_our_file(entry->d_name, &info) && !is_folder_of_job(entry->d_name, &info)) ||
            own_is_mount(fd, entry->d_name))
            (void)snprintf(content->other, sizeof content->other, "%s", entry->d_name);
        else
            note(content, &info);
    }
    (void)closedir(dir);
    return true;
}

/* Looks through the folders of the job's user as well. */
static void look_deeper(int fd, struct content *content)
{
    const struct dirent *entry;
    struct stat info;
    DIR *dir = own_folder_list(fd);

    while (dir != NULL && content->other[0] == '\0' && (entry = readdir(dir)) != NULL)
        if (!is_dots(entry->d_name) &&
            fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            is_folder_of_job(entry->d_name, &info))
            (void)own_tree_is_ours(fd, entry->d_name, content->other);
    if (dir != NULL)
        (void)closedir(dir);
}

static bool is_old(const struct timespec *newest, uint64_t keep_us)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_us =
        (int64_t)(now.tv_sec - newest->tv_sec) * 1000000 + (now.tv_nsec - newest->tv_nsec) / 1000;
    return newest->tv_sec > 0 && age_us > 0 && (uint64_t)age_us > keep_us;
}

/* -- removal ----------------------------------------------------------------------------------- */

static void tell_once(struct log_folders *folders, const char *name, const char *why)
{
    const uint64_t hash = fnv_add(FNV_START, name, strlen(name));

    for (uint32_t i = 0; i < folders->told_count; i++)
        if (folders->told[i] == hash)
            return;
    if (folders->told_count == LOG_FOLDERS_TOLD_MAX)
        return;
    folders->told[folders->told_count++] = hash;
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s/%s is left alone by --keep-logs: %s",
             folders->logs.dir, name, why);
}

static void empty(int fd)
{
    const struct dirent *entry;
    struct stat info;
    DIR *dir = own_folder_list(fd);

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (is_dots(entry->d_name) || fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (is_our_file(entry->d_name, &info))
            (void)unlinkat(fd, entry->d_name, 0);
        else if (is_folder_of_job(entry->d_name, &info))
            own_tree_remove(fd, entry->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

/* Removes the folder under another name: if the job is started again meanwhile, it gets a new one. */
static bool remove_folder(int logs_fd, const char *name, int fd)
{
    char removed[NAME_MAX + 1];

    (void)snprintf(removed, sizeof removed, "%.200s" REMOVED, name);
    if (faccessat(logs_fd, removed, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
        renameat(logs_fd, name, logs_fd, removed) != 0)
        return false;
    empty(fd);
    return unlinkat(logs_fd, removed, AT_REMOVEDIR) == 0;
}

/* Whether the removal is ours. In a folder that only we use, one without an owner is, too. */
static bool is_ours(const struct log_folders *folders, const struct log_folder_name *name)
{
    return strncmp(name->owner, folders->logs.owner, RUNDIR_OWNER_CHARS) == 0;
}

/* `is_begun`: an earlier removal of ours was cut short. */
static bool may_go(const struct log_folders *folders, const struct content *content, bool is_ours,
                   bool is_begun)
{
    if (is_ours)
        return is_begun || is_old(&content->newest, folders->keep_us);
    return is_old(&content->changed, folders->keep_us > LOG_FOLDERS_FOREIGN_US
                                         ? folders->keep_us
                                         : LOG_FOLDERS_FOREIGN_US);
}

/* `is_begun`: a removal of it was cut short. */
static bool try_remove(struct log_folders *folders, int logs_fd, const char *name, bool is_ours,
                       bool is_begun)
{
    struct content content;
    struct err err;
    char text[NAME_MAX + 64];
    bool is_removed = false;
    int fd;

    if (own_folder_open_at(logs_fd, name, &fd, &err) != STATUS_OK) {
        if (err.status == STATUS_REFUSED)
            tell_once(folders, name, err.text);
        return false;
    }
    if (look_into(fd, &content) && may_go(folders, &content, is_ours, is_begun)) {
        if (content.other[0] == '\0')
            look_deeper(fd, &content);
        (void)snprintf(text, sizeof text, "launcherd did not make \"%s\" in it", content.other);
        if (content.other[0] != '\0') {
            tell_once(folders, name, text);
        } else if (is_begun) {
            empty(fd);
            (void)unlinkat(logs_fd, name, AT_REMOVEDIR);
        } else {
            is_removed = remove_folder(logs_fd, name, fd);
        }
    }
    (void)close(fd);
    return is_removed;
}

/* So that other launcherds see that the job is known. */
static void touch(const struct log_folders *folders, int logs_fd, const char *name,
                  const char *owner)
{
    char path[64];
    struct err err;
    int fd;

    if (folders->logs.owner[0] == '\0' ||
        (owner[0] != '\0' && strncmp(owner, folders->logs.owner, RUNDIR_OWNER_CHARS) != 0) ||
        own_folder_open_at(logs_fd, name, &fd, &err) != STATUS_OK)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)utimensat(AT_FDCWD, path, NULL, 0);
    (void)close(fd);
}

uint32_t log_folders_expire(struct log_folders *folders)
{
    struct log_folder_name name;
    const struct dirent *entry;
    struct err err;
    uint32_t count = 0;
    DIR *dir;
    int fd;

    if (own_folder_open(folders->logs.dir, 0, &fd, &err) != STATUS_OK)
        return 0;
    dir = own_folder_list(fd);
    while (dir != NULL && !folders->is_stopping(folders->owner) && (entry = readdir(dir)) != NULL) {
        if (log_folder_parse(entry->d_name, REMOVED, &name))
            (void)try_remove(folders, fd, entry->d_name, is_ours(folders, &name), true);
        else if (!log_folder_parse(entry->d_name, "", &name))
            continue;
        else if (folders->is_used(folders->owner, &name))
            touch(folders, fd, entry->d_name, name.owner);
        else
            count += try_remove(folders, fd, entry->d_name, is_ours(folders, &name), false);
    }
    if (dir != NULL)
        (void)closedir(dir);
    (void)close(fd);
    return count;
}
