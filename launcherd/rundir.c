#include "launcherd/rundir.h"

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

void rundir_join(char out[PATH_MAX], const char *dir, const char *name)
{
    (void)snprintf(out, PATH_MAX, "%.*s/%s", PATH_MAX - 300, dir, name);
}

void rundir_path(char out[PATH_MAX], const char *state_dir, const char *cluster, uint64_t job_id,
                 uint32_t generation)
{
    (void)snprintf(out, PATH_MAX, "%.*s/run/%s-%llu-g%u", PATH_MAX - 300, state_dir, cluster,
                   (unsigned long long)job_id, generation);
}

void rundir_log_dir(char out[PATH_MAX], const char *state_dir, const char *cluster, uint64_t job_id)
{
    (void)snprintf(out, PATH_MAX, "%.*s/logs/%s-%llu", PATH_MAX - 300, state_dir, cluster,
                   (unsigned long long)job_id);
}

void rundir_rank_log(char out[PATH_MAX], const char *log_dir, uint32_t generation, uint32_t rank)
{
    (void)snprintf(out, PATH_MAX, "%.*s/g%u-rank%u.log", PATH_MAX - 300, log_dir, generation, rank);
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

void rundir_remove(const char *path)
{
    char name[PATH_MAX];
    struct dirent *entry;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        rundir_join(name, path, entry->d_name);
        unlink(name); /* "." and ".." are refused by the kernel */
    }
    closedir(dir);
    rmdir(path);
}

static bool write_all(int fd, const char *bytes, size_t byte_count)
{
    while (byte_count > 0) {
        ssize_t written = write(fd, bytes, byte_count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        bytes += written;
        byte_count -= (size_t)written;
    }
    return true;
}

/* Not synced: what it tells of are processes, and they do not survive what a rename does not. */
enum status rundir_write(const char *dir, const char *name, const void *bytes, size_t byte_count,
                         struct err *err)
{
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

static enum status read_whole(const char *path, struct arena *arena, char **bytes,
                              size_t *byte_count, struct err *err)
{
    struct stat stat;
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
    char path[PATH_MAX], *bytes = NULL;
    const char *payload = NULL;
    size_t byte_count = 0, payload_bytes = 0;

    rundir_join(path, dir, name);
    enum status status = read_whole(path, arena, &bytes, &byte_count, err);
    if (status != STATUS_OK)
        return status;
    status = frame_next(bytes, byte_count, FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes, err);
    if (status == STATUS_BUSY)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.180s is cut short", path);
    if (status != STATUS_OK)
        return status;
    return msg_decode(payload, payload_bytes, arena, msg, err);
}

enum status rundir_write_shim(const char *dir, const struct rundir_shim *shim, struct err *err)
{
    char text[512];
    int length =
        snprintf(text, sizeof text,
                 "{\"pid\":%d,\"start_ticks\":\"%llu\",\"boot_id\":\"%s\","
                 "\"token\":\"%s\"}\n",
                 (int)shim->pid, (unsigned long long)shim->start_ticks, shim->boot_id, shim->token);
    return rundir_write(dir, "shim.json", text, (size_t)length, err);
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
    char path[PATH_MAX], ticks[32], *bytes = NULL;
    size_t byte_count = 0;
    struct arena arena = {.byte_limit = 65536};

    rundir_join(path, dir, "shim.json");
    enum status status = read_whole(path, &arena, &bytes, &byte_count, err);
    if (status == STATUS_OK) {
        cJSON *object = cJSON_ParseWithLength(bytes, byte_count);
        const cJSON *pid = cJSON_GetObjectItemCaseSensitive(object, "pid");
        if (cJSON_IsNumber(pid) && pid->valuedouble >= 1 && pid->valuedouble <= INT32_MAX &&
            take_text(object, "start_ticks", ticks, sizeof ticks) &&
            take_text(object, "boot_id", shim->boot_id, sizeof shim->boot_id) &&
            take_text(object, "token", shim->token, sizeof shim->token)) {
            shim->pid = (pid_t)pid->valuedouble;
            shim->start_ticks = strtoull(ticks, NULL, 10);
        } else {
            status = err_set(err, STATUS_BAD_INPUT, 0, "%.180s does not describe a shim", path);
        }
        cJSON_Delete(object);
    }
    arena_reset(&arena);
    return status;
}
