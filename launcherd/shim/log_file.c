#include "launcherd/shim/log_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define CUT_ALIGN 65536u /* a multiple of every usual block of a file system */
#define MARK_BYTES 64u

/* Where the hole begins: the head of the log is a quarter of all that is kept. */
static uint64_t cut_begin(const struct log_file *file)
{
    return file->size_max / 4 / CUT_ALIGN * CUT_ALIGN;
}

/* The bytes of the file that are on the disk. */
static uint64_t kept_bytes(const struct log_file *file)
{
    return file->cut_end == 0 ? file->size : file->size - (file->cut_end - cut_begin(file));
}

static void write_mark(const struct log_file *file, const char *text)
{
    char mark[MARK_BYTES + 1];
    int length = snprintf(mark, sizeof mark, "\n[... %s", text);
    (void)snprintf(mark + length, sizeof mark - (size_t)length, "%*s", (int)MARK_BYTES - length,
                   " ...]\n");
    if (pwrite(file->fd, mark, MARK_BYTES, (off_t)(cut_begin(file) - MARK_BYTES)) < 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "the mark of a cut log was not written: %s",
                 strerror(errno));
}

/* Makes room: what is kept goes down by an eighth of the limit, so a cut is rare. */
static void cut(struct log_file *file)
{
    uint64_t begin = cut_begin(file), limit = file->size_max;
    uint64_t tail = limit - begin - limit / 8, end = (file->size - tail) / CUT_ALIGN * CUT_ALIGN;
    char text[48];

    if (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                  (off_t)(end - begin)) != 0) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "a worker's log has %llu bytes and its file system cannot cut it (%s): the rest "
                 "of the output is not kept",
                 (unsigned long long)file->size, strerror(errno));
        file->is_full = true;
        return;
    }
    file->cut_end = end;
    uint64_t gone = end - begin + MARK_BYTES;
    (void)snprintf(text, sizeof text, "%llu bytes cut", (unsigned long long)gone);
    write_mark(file, text);
}

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

/* Positions of readers stay valid, since what comes has the offset that it would have had. */
static void open_again(struct log_file *file)
{
    char note[128];
    int fd = open_file(file->path);

    log_line(
        LOG_WARNING, LOG_ABOUT_NONE, "the log %s was deleted while it is written: %s%s", file->path,
        fd >= 0 ? "it is made again" : "it cannot be made again: ", fd >= 0 ? "" : strerror(errno));
    file->is_gone = fd < 0;
    if (file->is_gone)
        return;
    (void)close(file->fd);
    file->fd = fd;
    int length =
        snprintf(note, sizeof note, "[... this log was deleted: %llu bytes are gone ...]\n",
                 (unsigned long long)file->size);
    if (pwrite(fd, note, (size_t)length, (off_t)file->size) == length)
        file->size += (uint64_t)length;
    if (file->size_max > 0)
        file->cut_end = file->size;
}

/* In the place of what the disk has refused. False: it refuses this too. */
static bool tell_lost(struct log_file *file)
{
    char note[96];
    int length =
        snprintf(note, sizeof note, "\n[... %llu bytes lost: the disk of the log was full ...]\n",
                 (unsigned long long)file->lost_bytes);

    if (pwrite(file->fd, note, (size_t)length, (off_t)file->size) != length)
        return false; /* a part of the line is written over by the next try */
    file->size += (uint64_t)length;
    file->lost_bytes = 0;
    file->disk_failed = false;
    return true;
}

void log_file_write(struct log_file *file, const char *bytes, size_t byte_count)
{
    struct stat stat;

    if (!file->is_gone && fstat(file->fd, &stat) == 0 && stat.st_nlink == 0)
        open_again(file);

    if (file->lost_bytes > 0 && !tell_lost(file)) {
        file->lost_bytes += byte_count;
        return;
    }
    while (byte_count > 0 && !file->is_full) {
        ssize_t written = pwrite(file->fd, bytes, byte_count, (off_t)file->size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            if (!file->disk_failed)
                log_line(LOG_ERROR, LOG_ABOUT_NONE,
                         "a worker's log cannot be written, its output is "
                         "lost until it can: %s",
                         strerror(errno));
            file->disk_failed = true;
            file->lost_bytes += byte_count;
            return;
        }
        bytes += written;
        byte_count -= (size_t)written;
        file->size += (uint64_t)written;
        if (file->size_max > 0 && kept_bytes(file) > file->size_max)
            cut(file);
    }
}

enum status log_file_open(struct log_file *file, const char *path, uint64_t size_max,
                          struct err *err)
{
    struct stat stat;

    assert(size_max == 0 || size_max >= LOG_FILE_SIZE_MIN);
    *file = (struct log_file){.size_max = size_max};
    (void)snprintf(file->path, sizeof file->path, "%s", path);
    file->fd = open_file(path);
    if (file->fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot open the log %.150s: %s", path,
                       strerror(errno));
    file->size = fstat(file->fd, &stat) == 0 ? (uint64_t)stat.st_size : 0;
    return STATUS_OK;
}

void log_file_close(struct log_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}
