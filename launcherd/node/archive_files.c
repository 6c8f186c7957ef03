#include "launcherd/node/archive_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/stage_files.h"

#define LATE_MS 60000u /* an archive is read as a whole */

static void drop(struct file_work *work)
{
    struct archive_files *files = (struct archive_files *)work;

    if (files->fd >= 0)
        (void)close(files->fd);
    stage_digest_free(&files->digest);
    free(files->bytes);
    free(files);
}

static void make_path(const struct archive_files *files, const char *suffix, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%.4000s/%s%s", files->dir, files->hash, suffix);
}

struct archive_files *archive_files_new(const char *dir, const char *hash, void *owner)
{
    struct archive_files *files = calloc(1, sizeof *files);
    char path[PATH_MAX];

    if (files == NULL)
        return NULL;
    (void)snprintf(files->dir, sizeof files->dir, "%s", dir);
    (void)snprintf(files->hash, sizeof files->hash, "%s", hash);
    make_path(files, "", path);
    files->work.lane = FILE_LANE_STAGE;
    files->work.key = file_work_key(path);
    files->work.limit_ms = LATE_MS;
    files->work.drop = drop;
    files->owner = owner;
    files->fd = -1;
    return files;
}

void archive_files_check(struct file_work *work)
{
    struct archive_files *files = (struct archive_files *)work;
    char path[PATH_MAX], hash[STAGE_HASH_CHARS + 1] = "";
    uint64_t byte_count;
    int fd;

    file_work_at(work, FILE_DISK_STATE, "read");
    make_path(files, ".tar", path);
    if (own_file_open(path, 1, O_RDONLY, 0, &fd, &files->err) != STATUS_OK)
        return;
    files->is_there = stage_digest_file(fd, hash, &byte_count, &files->err) == STATUS_OK &&
                      strcmp(hash, files->hash) == 0 && futimens(fd, NULL) == 0;
    (void)close(fd);
}

void archive_files_begin(struct file_work *work)
{
    struct archive_files *files = (struct archive_files *)work;
    char part[PATH_MAX];

    file_work_at(work, FILE_DISK_STATE, "mkdir");
    make_path(files, ".part", part);
    files->status = rundir_make(files->dir, 0700, &files->err);
    if (files->status == STATUS_OK)
        files->status = stage_digest_new(&files->digest, &files->err);
    file_work_at(work, FILE_DISK_STATE, "open");
    if (files->status == STATUS_OK)
        files->status = own_file_make(part, 1, 0600, &files->fd, &files->err);
}

static enum status refused(struct archive_files *files, int code)
{
    if (code == ENOSPC)
        return err_set(&files->err, STATUS_IO, code, "the disk of the state directory is full");
    return err_set(&files->err, STATUS_IO, code, "its bytes cannot be written: %s", strerror(code));
}

static enum status complete(struct archive_files *files)
{
    char part[PATH_MAX], path[PATH_MAX], hash[STAGE_HASH_CHARS + 1];
    struct err err;

    stage_digest_end(&files->digest, hash);
    if (strcmp(hash, files->hash) != 0)
        return err_set(&files->err, STATUS_BAD_INPUT, 0, "its bytes do not have its hash");
    file_work_at(&files->work, FILE_DISK_STATE, "fsync");
    if (fsync(files->fd) != 0)
        return refused(files, errno);
    make_path(files, ".part", part);
    make_path(files, ".tar", path);
    file_work_at(&files->work, FILE_DISK_STATE, "rename");
    if (own_file_rename(part, path, 1, &err) != STATUS_OK)
        return err_set(&files->err, STATUS_IO, err.code,
                       "it cannot be renamed in the state directory: %.150s", err.text);
    return STATUS_OK;
}

void archive_files_write(struct file_work *work)
{
    struct archive_files *files = (struct archive_files *)work;

    file_work_at(work, FILE_DISK_STATE, "write");
    files->status = STATUS_OK;
    if (!pwrite_all(files->fd, files->bytes, files->byte_count, (off_t)files->have)) {
        files->status = refused(files, errno);
        return;
    }
    stage_digest_add(files->digest, files->bytes, files->byte_count);
    files->have += files->byte_count;
    if (files->is_last)
        files->status = complete(files);
}

void archive_files_abandon(struct file_work *work)
{
    struct archive_files *files = (struct archive_files *)work;
    char part[PATH_MAX];

    file_work_at(work, FILE_DISK_STATE, "unlink");
    make_path(files, ".part", part);
    (void)own_file_remove(part, 1, &files->err);
    if (files->fd >= 0)
        (void)close(files->fd);
    files->fd = -1;
}

void archive_files_trim(struct file_work *work)
{
    const struct archive_files *files = (struct archive_files *)work;

    file_work_at(work, FILE_DISK_STATE, "opendir");
    stage_files_trim(files->dir, files->bytes_max);
}
