#include "launcherd/node/seen_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "common/io/write_all.h"
#include "launcherd/process/rundir.h"

#define NAME "seen"
#define NAME_NEW "seen.new"
#define HEAD "ddp-seen 1\n"
#define LINE_BYTES_MAX 128u
#define FILE_BYTES_MAX                                                                             \
    (sizeof HEAD + 2 * CLUSTERS_SEEN_MAX * LINE_BYTES_MAX) /* with words of later versions */

static enum status damaged(struct seen_record *record, struct err *err)
{
    record->count = 0;
    return err_set(err, STATUS_BAD_INPUT, 0, "the record of the newest jobs, " NAME ", is damaged");
}

/* A number of 1..max that ends at a blank or at the end of the line. */
static bool take_number(const char **at, uint64_t max, uint64_t *out)
{
    char *end;

    if (**at < '1' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end + (*end == ' ');
    return errno == 0 && *out <= max && (*end == ' ' || *end == '\n');
}

static bool take_line(const char **at, struct seen_job *job)
{
    const size_t length = strspn(*at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789._-");
    uint64_t generation;

    if (length == 0 || length >= sizeof job->cluster || (*at)[length] != ' ')
        return false;
    memcpy(job->cluster, *at, length);
    job->cluster[length] = '\0';
    *at += length + 1;
    if (!take_number(at, JOB_ID_MAX, &job->job_id) || !take_number(at, GENERATION_MAX, &generation))
        return false;
    job->generation = (uint32_t)generation;
    if (!take_number(at, DURATION_US_MAX, &job->lease_us))
        job->lease_us = 0; /* written by a version that did not know it */
    *at += strcspn(*at, "\n");
    return *(*at)++ == '\n';
}

enum status seen_file_decode(const char *text, struct seen_record *record, struct err *err)
{
    const char *at = text + strlen(HEAD);

    memset(record, 0, sizeof *record);
    if (strncmp(text, HEAD, strlen(HEAD)) != 0)
        return damaged(record, err);
    while (*at != '\0') {
        if (record->count == CLUSTERS_SEEN_MAX || !take_line(&at, &record->jobs[record->count]))
            return damaged(record, err);
        for (uint32_t i = 0; i < record->count; i++)
            if (strcmp(record->jobs[i].cluster, record->jobs[record->count].cluster) == 0)
                return damaged(record, err);
        record->count++;
    }
    return STATUS_OK;
}

enum status seen_file_read(const char *state_dir, struct seen_record *record, struct err *err)
{
    char path[PATH_MAX], text[FILE_BYTES_MAX + 1];
    enum status status;
    ssize_t got;
    int fd;

    memset(record, 0, sizeof *record);
    (void)snprintf(path, sizeof path, "%.*s/" NAME, PATH_MAX - 300, state_dir);
    status = own_file_open(path, 0, O_RDONLY, 0, &fd, err);
    if (status != STATUS_OK)
        return status;
    got = read_all(fd, text, FILE_BYTES_MAX + 1);
    if (got < 0)
        status = err_set(err, STATUS_IO, errno, "cannot read %.180s: %s", path, strerror(errno));
    (void)close(fd);
    if (got < 0)
        return status;
    if (got > (ssize_t)FILE_BYTES_MAX)
        return damaged(record, err);
    text[got] = '\0';
    return seen_file_decode(text, record, err);
}

static bool write_new(int dir_fd, const char *text, size_t byte_count)
{
    int fd = openat(dir_fd, NAME_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool is_written = fd >= 0 && write_all(fd, text, byte_count) && fsync(fd) == 0;

    if (fd >= 0 && close(fd) != 0)
        is_written = false;
    return is_written && renameat(dir_fd, NAME_NEW, dir_fd, NAME) == 0 && fsync(dir_fd) == 0;
}

/* The old record stands, and nothing is left beside it. Keeps errno. */
static void remove_new(int dir_fd)
{
    const int code = errno;

    (void)unlinkat(dir_fd, NAME_NEW, 0);
    errno = code;
}

/* Whether the file may be replaced. */
static enum status make_way(const char *state_dir, struct err *note, struct err *err)
{
    char path[PATH_MAX];
    struct seen_record before;
    enum status status = seen_file_read(state_dir, &before, err);

    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status != STATUS_BAD_INPUT)
        return status;
    (void)snprintf(path, sizeof path, "%.*s/" NAME, PATH_MAX - 300, state_dir);
    status = own_file_keep_damaged(path, 0, err);
    if (status == STATUS_OK)
        (void)err_set(note, STATUS_BAD_INPUT, 0,
                      "the record of the newest jobs was damaged, and begins anew; it is kept as "
                      "%.150s.damaged, with a number if there was one",
                      path);
    return status;
}

enum status seen_file_write(const char *state_dir, const struct seen_record *record,
                            struct err *note, struct err *err)
{
    char text[sizeof HEAD + CLUSTERS_SEEN_MAX * LINE_BYTES_MAX] = HEAD;
    size_t used = strlen(text);
    int dir_fd, code;
    bool is_written;
    enum status status = rundir_state_check(state_dir, err);

    if (status == STATUS_OK)
        status = make_way(state_dir, note, err);
    if (status != STATUS_OK)
        return status;
    dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (uint32_t i = 0; i < record->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %" PRIu64 " %u %" PRIu64 "\n",
                                 record->jobs[i].cluster, record->jobs[i].job_id,
                                 record->jobs[i].generation, record->jobs[i].lease_us);
    if (dir_fd >= 0)
        (void)unlinkat(dir_fd, NAME_NEW, 0); /* left by a launcherd that was killed here */
    is_written = dir_fd >= 0 && write_new(dir_fd, text, used);
    if (dir_fd >= 0 && !is_written)
        remove_new(dir_fd);
    code = errno;
    if (dir_fd >= 0)
        (void)close(dir_fd);
    return is_written ? STATUS_OK
                      : err_set(err, STATUS_IO, code, "cannot write %.180s/" NAME ": %s", state_dir,
                                strerror(code));
}

static void drop(struct file_work *work)
{
    free(work);
}

struct seen_files *seen_files_new(const char *state_dir, void *owner)
{
    struct seen_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_KEEP;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.drop = drop;
    files->owner = owner;
    (void)snprintf(files->state_dir, sizeof files->state_dir, "%s", state_dir);
    return files;
}

void seen_files_read(struct file_work *work)
{
    struct seen_files *files = (struct seen_files *)work;

    file_work_at(work, FILE_DISK_STATE, "read");
    files->status = seen_file_read(files->state_dir, &files->record, &files->err);
}

void seen_files_write(struct file_work *work)
{
    struct seen_files *files = (struct seen_files *)work;

    if (file_work_is_late(work))
        return; /* a newer one follows */
    file_work_at(work, FILE_DISK_STATE, "write");
    files->status = seen_file_write(files->state_dir, &files->record, &files->note, &files->err);
}
