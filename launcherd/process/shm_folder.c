#include "launcherd/process/shm_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/process/cgroup.h"
#include "launcherd/process/proc.h"

#define LISTED_MAX 4u
#define LINE_BYTES_MAX (PATH_MAX + 256)

static DIR *open_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir == NULL && fd >= 0)
        (void)close(fd);
    return dir;
}

/* Or the server's memory of the boot (common/io), which stays. */
static bool is_skipped(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strncmp(name, "ddp-boot-", 9) == 0;
}

void shm_seen_read(const char *folder, struct shm_seen *seen)
{
    DIR *dir = open_folder(folder);
    const struct dirent *entry;

    seen->count = 0;
    seen->is_known = dir != NULL;
    while (seen->is_known && (entry = readdir(dir)) != NULL) {
        if (is_skipped(entry->d_name))
            continue;
        if (seen->count == SHM_SEEN_MAX)
            seen->is_known = false;
        else
            seen->inodes[seen->count++] = entry->d_ino;
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static bool was_seen(const struct shm_seen *seen, ino_t inode)
{
    for (uint32_t i = 0; seen != NULL && i < seen->count; i++)
        if (seen->inodes[i] == inode)
            return true;
    return false;
}

/* Whether it is a file or a folder of the user. */
static bool describe(int folder_fd, const char *name, uid_t user, struct shm_file *file)
{
    struct stat stat;

    if (fstatat(folder_fd, name, &stat, AT_SYMLINK_NOFOLLOW) != 0 || stat.st_uid != user ||
        (!S_ISREG(stat.st_mode) && !S_ISDIR(stat.st_mode)) || strlen(name) >= sizeof file->name)
        return false;
    *file = (struct shm_file){.inode = stat.st_ino, .is_folder = S_ISDIR(stat.st_mode)};
    if (!file->is_folder)
        file->bytes = (uint64_t)stat.st_blocks * 512;
    (void)snprintf(file->name, sizeof file->name, "%s", name);
    return true;
}

static void read_files(const char *folder, const struct shm_seen *seen, uid_t user,
                       struct shm_left *left)
{
    DIR *dir = open_folder(folder);
    const struct dirent *entry;

    while (dir != NULL && left->count < SHM_LEFT_MAX && (entry = readdir(dir)) != NULL)
        if (!is_skipped(entry->d_name) && !was_seen(seen, entry->d_ino) &&
            describe(dirfd(dir), entry->d_name, user, &left->files[left->count]))
            left->count++;
    if (dir != NULL)
        (void)closedir(dir);
}

/* -- who has them open ----------------------------------------------------------------------------- */

/* A path in the folder, of a file or of one in a folder there. */
static void mark(const char *folder, const char *path, struct shm_left *left)
{
    const size_t length = strlen(folder);
    const char *name = path + length + 1;

    if (strncmp(path, folder, length) != 0 || path[length] != '/')
        return;
    for (uint32_t i = 0; i < left->count; i++) {
        const size_t name_length = strlen(left->files[i].name);

        if (strncmp(name, left->files[i].name, name_length) == 0 &&
            strchr("/ \n", name[name_length]) != NULL) /* the NUL, too; " (deleted)" */
            left->files[i].is_used = true;
    }
}

static void mark_open(const char *folder, pid_t pid, struct shm_left *left)
{
    char path[64], target[PATH_MAX];
    const struct dirent *entry;
    DIR *dir;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const ssize_t got = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);

        target[got > 0 ? got : 0] = '\0';
        mark(folder, target, left);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static void mark_mapped(const char *folder, pid_t pid, struct shm_left *left)
{
    char path[64], line[LINE_BYTES_MAX];
    FILE *maps;

    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    maps = fopen(path, "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        const char *at = strchr(line, '/');

        if (at != NULL)
            mark(folder, at, left);
    }
    if (maps != NULL)
        (void)fclose(maps);
}

/* A process that may not be looked at is none of the job's. */
static void mark_used(const char *folder, struct shm_left *left)
{
    DIR *dir = opendir("/proc");

    if (dir == NULL)
        return;
    for (pid_t pid = proc_next_pid(dir); pid != 0; pid = proc_next_pid(dir)) {
        mark_open(folder, pid, left);
        mark_mapped(folder, pid, left);
    }
    (void)closedir(dir);
}

static int compare(const void *a, const void *b)
{
    const struct shm_file *left = a, *right = b;

    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

void shm_left_read(const char *folder, const struct shm_seen *seen, uid_t user,
                   struct shm_left *left)
{
    uint32_t kept = 0;

    left->count = 0;
    read_files(folder, seen, user, left);
    if (left->count > 0)
        mark_used(folder, left);
    for (uint32_t i = 0; i < left->count; i++)
        if (!left->files[i].is_used)
            left->files[kept++] = left->files[i];
    left->count = kept;
    qsort(left->files, left->count, sizeof left->files[0], compare);
}

pid_t shm_maker(const char *name)
{
    static const char *const prefixes[] = {"torch_", "pym-", "sem.loky-", "__KMP_REGISTERED_LIB_"};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const size_t length = strlen(prefixes[i]);
        char *end;
        long pid;

        if (strncmp(name, prefixes[i], length) != 0 || name[length] < '1' || name[length] > '9')
            continue;
        pid = strtol(name + length, &end, 10);
        return pid <= INT_MAX && (*end == '_' || *end == '-') ? (pid_t)pid : 0;
    }
    return 0;
}

static bool remove_file(int folder_fd, const struct shm_file *file, uid_t user)
{
    struct shm_file now;

    return describe(folder_fd, file->name, user, &now) && now.inode == file->inode &&
           !now.is_folder && unlinkat(folder_fd, file->name, 0) == 0;
}

uint32_t shm_left_remove(const char *folder, struct shm_left *left, uid_t user, const pid_t *ended,
                         uint32_t ended_count)
{
    DIR *dir = left->count > 0 ? open_folder(folder) : NULL;
    uint32_t count = 0;

    for (uint32_t i = 0; dir != NULL && i < left->count; i++) {
        struct shm_file *file = &left->files[i];
        const pid_t maker = shm_maker(file->name);

        for (uint32_t k = 0; k < ended_count && maker != 0 && !file->is_removed; k++)
            file->is_removed = ended[k] == maker && remove_file(dirfd(dir), file, user);
        count += file->is_removed;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return count;
}

uint32_t shm_left_list(const struct shm_left *left, bool removed, char *text, uint32_t text_bytes)
{
    uint32_t count = 0;
    size_t used = 0;
    char size[32];

    text[0] = '\0';
    for (uint32_t i = 0; i < left->count; i++) {
        const struct shm_file *file = &left->files[i];

        if (file->is_removed != removed || count++ >= LISTED_MAX || used >= text_bytes)
            continue;
        cgroup_format_size(file->bytes, size, sizeof size);
        used += (size_t)snprintf(text + used, text_bytes - used,
                                 file->is_folder ? "%s%.60s/" : "%s%.60s (%s)",
                                 count > 1 ? ", " : "", file->name, size);
    }
    if (count > LISTED_MAX && used < text_bytes)
        (void)snprintf(text + used, text_bytes - used, " and %u more", count - LISTED_MAX);
    return count;
}
