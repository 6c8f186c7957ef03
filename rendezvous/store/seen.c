#include "rendezvous/store/seen.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/log.h"

enum status seen_read(const char *path, struct seen *seen, int64_t *at_ms, struct err *err)
{
    char text[SEEN_FILE_BYTES + 1];
    struct stat info = {0};
    enum status status;
    ssize_t got;
    int fd;

    *seen = (struct seen){.commit = 0};
    status = own_file_open(path, 0, O_RDONLY, 0, &fd, err);
    if (status != STATUS_OK)
        return status;
    got = fstat(fd, &info) == 0 ? read(fd, text, sizeof text - 1) : -1;
    if (got < 0)
        status = err_set(err, STATUS_IO, errno, "cannot read %.180s: %s", path, strerror(errno));
    (void)close(fd);
    if (status != STATUS_OK)
        return status;
    text[got] = '\0';
    if (at_ms != NULL)
        *at_ms = (int64_t)info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1000000;
    if (seen_decode(text, seen))
        return STATUS_OK;
    *seen = (struct seen){.commit = 0};
    return err_set(err, STATUS_BAD_INPUT, 0, "%.180s is damaged", path);
}

bool seen_text(enum status status, const struct seen *seen, int64_t at_ms, const char *why,
               char text[SEEN_TEXT_BYTES])
{
    const time_t at_s = (time_t)(at_ms / 1000);
    struct tm parts;
    char at[32] = "";

    if (status == STATUS_OK && gmtime_r(&at_s, &parts) != NULL)
        (void)strftime(at, sizeof at, "%Y-%m-%d %H:%M UTC", &parts);
    if (status == STATUS_OK)
        (void)snprintf(text, SEEN_TEXT_BYTES,
                       "cluster %.8s... (commit %" PRIu64 ", job %" PRIu64 ", on %s)",
                       seen->cluster, seen->commit, seen->job_id, at);
    else
        (void)snprintf(text, SEEN_TEXT_BYTES, "one, or nobody knows: %.120s", why);
    return status != STATUS_NOT_FOUND;
}

/* Whether the file may be replaced. A damaged one is kept under another name. */
static enum status make_way(const char *path, enum status found, struct err *err)
{
    enum status status;

    if (found == STATUS_OK || found == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (found != STATUS_BAD_INPUT)
        return found;
    status = own_file_keep_damaged(path, 0, err);
    if (status == STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s is damaged and begins anew: it is kept beside it, with .damaged in its name",
                 path);
    return status;
}

/* Over a text of the same length: that is one write to one block, and moves nothing on the disk. */
static bool write_in_place(const char *path, const char *text, size_t length)
{
    struct stat info;
    struct err none;
    bool is_written;
    int fd;

    if (own_file_open(path, 0, O_WRONLY, 0, &fd, &none) != STATUS_OK)
        return false;
    is_written = fstat(fd, &info) == 0 && info.st_size == (off_t)length &&
                 pwrite(fd, text, length, 0) == (ssize_t)length;
    (void)close(fd);
    return is_written;
}

/* It is not synced: after a loss of power it may be a few seconds old, as it may be anyway. */
enum status seen_write(const char *path, const struct seen *seen, struct err *err)
{
    struct seen before, next = *seen;
    char temp[4200], text[SEEN_FILE_BYTES];
    size_t length;
    int fd;
    bool is_written;
    enum status status = seen_read(path, &before, NULL, err);

    if (status == STATUS_OK && !seen_follow(&next, &before))
        return STATUS_OK;
    length = seen_encode(&next, text);
    if (status == STATUS_OK && write_in_place(path, text, length))
        return STATUS_OK;
    status = make_way(path, status, err);
    if (status != STATUS_OK)
        return status;
    (void)snprintf(temp, sizeof temp, "%.4100s.new", path);
    status = own_file_make(temp, 0, 0600, &fd, err);
    if (status != STATUS_OK)
        return status;
    is_written = write(fd, text, length) == (ssize_t)length;
    if (!is_written)
        status = err_set(err, STATUS_IO, errno, "cannot write %s: %s", path, strerror(errno));
    (void)close(fd);
    return is_written ? own_file_rename(temp, path, 0, err) : status;
}
