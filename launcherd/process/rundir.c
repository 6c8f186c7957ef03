#include "launcherd/process/rundir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/io/write_all.h"
#include "common/stage.h"

#define REMOVE_DEPTH_MAX 200u /* of folders in folders: each needs a descriptor */

void rundir_join(char out[PATH_MAX], const char *dir, const char *name)
{
    assert(name[0] != '\0' && strlen(name) < 256);
    (void)snprintf(out, PATH_MAX, "%.*s/%s", PATH_MAX - 300, dir, name);
}

void rundir_path(char out[PATH_MAX], const char *state_dir, const char *cluster, uint64_t job_id,
                 uint32_t generation)
{
    (void)snprintf(out, PATH_MAX, "%.*s/run/%s-%llu-g%u", PATH_MAX - 300, state_dir, cluster,
                   (unsigned long long)job_id, generation);
}

void rundir_warm_path(char out[PATH_MAX], const char *state_dir, const char *cluster,
                      uint64_t job_id)
{
    (void)snprintf(out, PATH_MAX, "%.*s/warm/%s-%llu", PATH_MAX - 300, state_dir, cluster,
                   (unsigned long long)job_id);
}

void rundir_log_dir(char out[PATH_MAX], const char *logs_dir, const char *cluster, uint64_t job_id)
{
    (void)snprintf(out, PATH_MAX, "%.*s/%s-%llu", PATH_MAX - 300, logs_dir, cluster,
                   (unsigned long long)job_id);
}

void rundir_rank_log(char out[PATH_MAX], const char *log_dir, uint32_t generation, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/g%u-rank%u.log", PATH_MAX - 300, log_dir, generation, rank);
}

void rundir_rank_dir(char out[PATH_MAX], const char *log_dir, uint32_t generation)
{
    (void)snprintf(out, PATH_MAX, "%.*s/g%u-errors", PATH_MAX - 300, log_dir, generation);
}

void rundir_rank_metrics(char out[PATH_MAX], const char *rank_dir, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/rank%u.metrics.jsonl", PATH_MAX - 200, rank_dir, rank);
}

void rundir_rank_error(char out[PATH_MAX], const char *rank_dir, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/rank%u.json", PATH_MAX - 200, rank_dir, rank);
}

enum status rundir_make(const char *path, mode_t mode, struct err *err)
{
    char text[PATH_MAX];
    (void)snprintf(text, sizeof text, "%s", path);
    for (char *at = text + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char end = *at;
        *at = '\0';
        if (mkdir(text, mode) != 0 && errno != EEXIST)
            return err_set(err, STATUS_IO, errno, "cannot make the folder %.180s: %s", text,
                           strerror(errno));
        *at = end;
        if (end == '\0')
            return STATUS_OK;
    }
}

/* Removes our own files by name. That needs no descriptor, and launcherd may have none left. */
void rundir_remove(const char *path)
{
    static const char *const names[] = {"start.msg", "start.msg.new", "shim.json", "shim.json.new",
                                        "end.msg",   "end.msg.new",   "shim.sock", "stage.tar"};
    char name[PATH_MAX];
    const struct dirent *entry;
    DIR *dir;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rundir_join(name, path, names[i]);
        (void)unlink(name);
    }
    if (rmdir(path) == 0 || (dir = opendir(path)) == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        rundir_join(name, path, entry->d_name);
        unlink(name); /* "." and ".." are refused by the kernel */
    }
    closedir(dir);
    rmdir(path);
}

enum status rundir_link_stage(const char *dir, const char *state_dir, const char *cwd,
                              struct err *err)
{
    char hash[STAGE_HASH_CHARS + 1], from[PATH_MAX], to[PATH_MAX];

    if (!stage_of_cwd(cwd, hash))
        return STATUS_OK;
    (void)snprintf(from, sizeof from, "%.4000s/stage/%s.tar", state_dir, hash);
    rundir_join(to, dir, "stage.tar");
    if (link(from, to) == 0)
        return STATUS_OK;
    return err_set(err, STATUS_IO, errno, "cannot use the staged directory %.16s...: %s", hash,
                   strerror(errno));
}

/* Opens a folder of ours whatever its permissions are, and lets us remove what is in it. */
static int open_to_remove(int parent_fd, const char *name)
{
    const int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(parent_fd, name, O_RDONLY | flags), path_fd = -1;
    char path[64];

    if (fd >= 0) {
        (void)fchmod(fd, 0700);
        return fd;
    }
    if (errno != EACCES || (path_fd = openat(parent_fd, name, O_PATH | flags)) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", path_fd);
    if (chmod(path, 0700) == 0)
        fd = openat(parent_fd, name, O_RDONLY | flags);
    close(path_fd);
    return fd;
}

static void remove_all(int parent_fd, const char *name, uint32_t depth)
{
    int fd = open_to_remove(parent_fd, name);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (dir == NULL && fd >= 0)
        close(fd);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(fd, entry->d_name, 0) != 0 && depth > 0)
            remove_all(fd, entry->d_name, depth - 1);
    if (dir != NULL)
        closedir(dir);
    (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

void rundir_remove_all(int parent_fd, const char *name)
{
    remove_all(parent_fd, name, REMOVE_DEPTH_MAX);
}

/* Not synced: a crash of the machine may lose the rename, but it also ends the processes that the
 * file describes. */
enum status rundir_write(const char *dir, const char *name, const void *bytes, size_t byte_count,
                         struct err *err)
{
    assert(byte_count == 0 || bytes != NULL);
    char path[PATH_MAX], temporary[PATH_MAX];
    rundir_join(path, dir, name);
    (void)snprintf(temporary, sizeof temporary, "%.*s/%s.new", PATH_MAX - 300, dir, name);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool done = fd >= 0 && write_all(fd, bytes, byte_count);
    int code = errno;
    if (fd >= 0)
        close(fd);
    if (done && rename(temporary, path) == 0)
        return STATUS_OK;
    code = done ? errno : code;
    unlink(temporary);
    return err_set(err, STATUS_IO, code, "cannot write %.180s: %s", path, strerror(code));
}

enum status rundir_write_msg(const char *dir, const char *name, struct msg *msg, struct err *err)
{
    struct buf buf = {0};
    enum status status = msg_encode(msg, &buf, err);
    if (status == STATUS_OK)
        status = rundir_write(dir, name, buf.bytes, buf.byte_count, err);
    buf_free(&buf);
    return status;
}

enum status rundir_read(const char *dir, const char *name, struct arena *arena, char **bytes,
                        size_t *byte_count, struct err *err)
{
    char path[PATH_MAX];
    struct stat stat;
    rundir_join(path, dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "cannot read %.180s: %s", path, strerror(errno));
    enum status status = STATUS_OK;
    if (fstat(fd, &stat) != 0 || stat.st_size < 0 ||
        stat.st_size > (off_t)(FRAME_LARGE_BYTES_MAX + FRAME_HEAD_BYTES)) {
        status = err_set(err, STATUS_TOO_BIG, 0, "%.180s is larger than any message", path);
    } else {
        *byte_count = (size_t)stat.st_size;
        *bytes = arena_alloc(arena, *byte_count + 1);
        ssize_t got = *bytes == NULL ? -1 : read(fd, *bytes, *byte_count);
        if (got != stat.st_size)
            status = err_set(err, STATUS_IO, errno, "cannot read %.180s", path);
    }
    close(fd);
    return status;
}

enum status rundir_read_msg(const char *dir, const char *name, struct arena *arena, struct msg *msg,
                            struct err *err)
{
    char *bytes = NULL;
    const char *payload = NULL;
    size_t byte_count = 0, payload_bytes = 0;

    enum status status = rundir_read(dir, name, arena, &bytes, &byte_count, err);
    if (status != STATUS_OK)
        return status;
    status = frame_next(bytes, byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes, err);
    if (status == STATUS_BUSY)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.120s/%.60s is cut short", dir, name);
    if (status != STATUS_OK)
        return status;
    return msg_decode_stored(payload, payload_bytes, arena, msg, err);
}

enum status rundir_write_shim(const char *dir, const struct rundir_shim *shim, struct err *err)
{
    char ticks[32], *text = NULL;
    enum status status;
    cJSON *object = cJSON_CreateObject();

    (void)snprintf(ticks, sizeof ticks, "%llu", (unsigned long long)shim->start_ticks);
    if (cJSON_AddNumberToObject(object, "pid", shim->pid) != NULL &&
        cJSON_AddStringToObject(object, "start_ticks", ticks) != NULL &&
        cJSON_AddStringToObject(object, "boot_id", shim->boot_id) != NULL &&
        cJSON_AddStringToObject(object, "token", shim->token) != NULL &&
        cJSON_AddStringToObject(object, "cgroup", shim->cgroup) != NULL)
        text = cJSON_PrintUnformatted(object);
    status = text == NULL ? err_set(err, STATUS_MEMORY, ENOMEM, "no memory")
                          : rundir_write(dir, "shim.json", text, strlen(text), err);
    cJSON_free(text);
    cJSON_Delete(object);
    return status;
}

static bool take_text(const cJSON *object, const char *name, char *out, size_t out_bytes)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    if (text == NULL || strlen(text) >= out_bytes)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

enum status rundir_read_shim(const char *dir, struct rundir_shim *shim, struct err *err)
{
    char ticks[32], *bytes = NULL;
    size_t byte_count = 0;
    struct arena arena = {.byte_limit = 65536};

    enum status status = rundir_read(dir, "shim.json", &arena, &bytes, &byte_count, err);
    if (status == STATUS_OK) {
        cJSON *object = cJSON_ParseWithLength(bytes, byte_count);
        const cJSON *pid = cJSON_GetObjectItemCaseSensitive(object, "pid");
        if (cJSON_IsNumber(pid) && pid->valuedouble >= 1 && pid->valuedouble <= INT32_MAX &&
            take_text(object, "start_ticks", ticks, sizeof ticks) &&
            take_text(object, "boot_id", shim->boot_id, sizeof shim->boot_id) &&
            take_text(object, "token", shim->token, sizeof shim->token)) {
            if (!take_text(object, "cgroup", shim->cgroup, sizeof shim->cgroup))
                shim->cgroup[0] = '\0'; /* written by a launcherd from before there were cgroups */
            shim->pid = (pid_t)pid->valuedouble;
            shim->start_ticks = strtoull(ticks, NULL, 10);
        } else {
            status =
                err_set(err, STATUS_BAD_INPUT, 0, "%.180s/shim.json does not describe a shim", dir);
        }
        cJSON_Delete(object);
    }
    arena_reset(&arena);
    return status;
}
