/* A file is "ddp plan 1\nKEY\nBYTES HASH\n" and then the text. */
#include "worker/backend/cuda/plans/plan_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/fnv.h"
#include "common/io/mono.h"

#define MAGIC "ddp plan 1"
#define LOCK_LOOK_US 5000 /* between two looks at a lock: flock has no time limit */
#define PATH_BYTES_MAX 640
#define TEXT_BYTES_MAX (64U << 20)

/* Detects accidental damage, not attacks; attackers cannot write to the folder. */
static uint64_t hash(const char *bytes, size_t count)
{
    return fnv_add(FNV_START, bytes, count);
}

/* Creates every folder of `path` that does not exist. */
static bool make_folders(const char *path)
{
    char part[512];
    const size_t length = strlen(path);

    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST)
            return false;
    }
    return true;
}

static bool default_folder(char *folder, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;

    if (cache != NULL && cache[0] == '/')
        length = snprintf(folder, bytes, "%s/ddp/plans", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(folder, bytes, "%s/.cache/ddp/plans", home);
    else
        return false;
    return length > 0 && (size_t)length < bytes;
}

bool plan_cache_open(struct plan_cache *cache, const char *folder, char *why, size_t why_bytes)
{
    char path[512];
    struct stat info;

    cache->folder[0] = '\0';
    if (folder != NULL && folder[0] == '\0')
        return true;
    if (folder != NULL ? snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path
                       : !default_folder(path, sizeof path)) {
        (void)snprintf(why, why_bytes,
                       "no cache of plans: no home folder, or its name is too long");
        return false;
    }
    if (!make_folders(path) || stat(path, &info) < 0) {
        (void)snprintf(why, why_bytes, "no cache of plans: %.200s: %s", path, strerror(errno));
        return false;
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        (void)snprintf(why, why_bytes,
                       "no cache of plans: %.200s is not a folder of this user alone", path);
        return false;
    }
    (void)snprintf(cache->folder, sizeof cache->folder, "%s", path);
    return true;
}

static void file_of(const struct plan_cache *cache, const char *key, char path[PATH_BYTES_MAX])
{
    (void)snprintf(path, PATH_BYTES_MAX, "%s/%016" PRIx64 ".plan", cache->folder,
                   hash(key, strlen(key)));
}

/* Reads a line without its end; false at the end of the file. */
static bool read_line(FILE *file, char *line, size_t bytes)
{
    size_t length;

    if (fgets(line, (int)bytes, file) == NULL)
        return false;
    length = strlen(line);
    if (length == 0 || line[length - 1] != '\n')
        return false;
    line[length - 1] = '\0';
    return true;
}

static char *read_text(FILE *file, const char *key, size_t *byte_count)
{
    char line[PLAN_CACHE_KEY_MAX + 2];
    uint64_t bytes = 0, wanted = 0;
    char *text;

    if (!read_line(file, line, sizeof line) || strcmp(line, MAGIC) != 0 ||
        !read_line(file, line, sizeof line) || strcmp(line, key) != 0 ||
        !read_line(file, line, sizeof line) ||
        sscanf(line, "%" SCNu64 " %" SCNx64, &bytes, &wanted) != 2 || /* NOLINT(cert-err34-c) */
        bytes == 0 || bytes > TEXT_BYTES_MAX)
        return NULL;
    text = malloc((size_t)bytes + 1);
    if (text == NULL)
        return NULL;
    if (fread(text, 1, (size_t)bytes, file) != bytes || fgetc(file) != EOF ||
        hash(text, (size_t)bytes) != wanted) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    *byte_count = (size_t)bytes;
    return text;
}

enum plan_cache_answer plan_cache_read(const struct plan_cache *cache, const char *key, char **text,
                                       size_t *byte_count)
{
    char path[PATH_BYTES_MAX];
    FILE *file;

    *text = NULL;
    if (cache->folder[0] == '\0')
        return PLAN_CACHE_NONE;
    file_of(cache, key, path);
    file = fopen(path, "rbe");
    if (file == NULL)
        return PLAN_CACHE_NONE;
    *text = read_text(file, key, byte_count);
    (void)fclose(file);
    return *text != NULL ? PLAN_CACHE_FOUND : PLAN_CACHE_DAMAGED;
}

bool plan_cache_write(const struct plan_cache *cache, const char *key, const char *text,
                      size_t byte_count)
{
    char path[PATH_BYTES_MAX], temp[PATH_BYTES_MAX + 16];
    bool is_written;
    FILE *file;
    int fd;

    if (cache->folder[0] == '\0' || strlen(key) > PLAN_CACHE_KEY_MAX)
        return false;
    file_of(cache, key, path);
    (void)snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    fd = mkstemp(temp);
    if (fd < 0)
        return false;
    file = fdopen(fd, "wb");
    if (file == NULL) {
        (void)close(fd);
        (void)unlink(temp);
        return false;
    }
    is_written = fprintf(file, MAGIC "\n%s\n%zu %016" PRIx64 "\n", key, byte_count,
                         hash(text, byte_count)) > 0 &&
                 fwrite(text, 1, byte_count, file) == byte_count;
    is_written = fclose(file) == 0 && is_written;
    is_written = is_written && rename(temp, path) == 0;
    if (!is_written)
        (void)unlink(temp);
    return is_written;
}

static int open_lock(const struct plan_cache *cache, uint64_t name)
{
    char path[PATH_BYTES_MAX];

    if (cache->folder[0] == '\0')
        return -1;
    (void)snprintf(path, sizeof path, "%s/.%016" PRIx64 ".lock", cache->folder, name);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

enum plan_lock_answer plan_lock_take(struct plan_lock *lock, const struct plan_cache *cache,
                                     uint64_t name, uint64_t limit_us,
                                     bool (*goes_on)(void *user, uint64_t waited_us), void *user)
{
    const struct timespec pause = {.tv_nsec = LOCK_LOOK_US * 1000};
    const uint64_t begun_us = mono_us();
    uint64_t waited_us = 0;
    bool has_waited = false;

    lock->fd = open_lock(cache, name);
    while (lock->fd >= 0 && flock(lock->fd, LOCK_EX | LOCK_NB) < 0) {
        const int code = errno;

        if (code != EINTR && (code != EWOULDBLOCK || waited_us >= limit_us)) {
            plan_lock_release(lock);
            return code == EWOULDBLOCK ? PLAN_LOCK_BUSY : PLAN_LOCK_NONE;
        }
        has_waited = true;
        (void)nanosleep(&pause, NULL);
        waited_us = mono_us() - begun_us;
        if (goes_on != NULL && !goes_on(user, waited_us))
            limit_us = 0;
    }
    if (lock->fd < 0)
        return PLAN_LOCK_NONE;
    return has_waited ? PLAN_LOCK_WAITED : PLAN_LOCK_TAKEN;
}

void plan_lock_release(struct plan_lock *lock)
{
    if (lock->fd >= 0)
        (void)close(lock->fd);
    lock->fd = -1;
}
