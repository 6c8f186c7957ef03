#include "launcherd/shim/log_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "common/log.h"

#define CUT_ALIGN 65536u /* a multiple of all usual file system block sizes */
#define MARK_BYTES 64u
#define LOST_NOTE_BYTES 192u

/* The offset of the hole. The head of the log before it is a quarter of size_max. */
static uint64_t cut_begin(const struct log_file *file)
{
    return file->size_max / 4 / CUT_ALIGN * CUT_ALIGN;
}

/* The number of bytes in the file without its hole. */
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
    if (!pwrite_all(file->fd, mark, MARK_BYTES, (off_t)(cut_begin(file) - MARK_BYTES)))
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "the mark of a cut log was not written: %s",
                 strerror(errno));
}

/* Punches the hole, or makes it longer. An eighth of size_max is free after that, so cuts are
 * rare. */
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
    log_index_cut(&file->index, begin - MARK_BYTES, begin, end);
    uint64_t gone = end - begin + MARK_BYTES;
    (void)snprintf(text, sizeof text, "%llu bytes cut", (unsigned long long)gone);
    write_mark(file, text);
}

/* A hole ends at a block. Fills the rest of its last block, up to `size`, with one line of spaces: as
 * zeros those bytes would be output for a reader. */
static void fill_block(int fd, uint64_t size)
{
    char spaces[4096];
    struct stat info;
    uint64_t at = fstat(fd, &info) == 0 && info.st_blksize > 0
                      ? size - size % (uint64_t)info.st_blksize
                      : size;

    memset(spaces, ' ', sizeof spaces);
    while (at < size) {
        size_t count = size - at < sizeof spaces ? (size_t)(size - at) : sizeof spaces;

        if (at + count == size)
            spaces[count - 1] = '\n';
        if (!pwrite_all(fd, spaces, count, (off_t)at))
            return; /* the disk is full; the next write says so */
        at += count;
    }
}

/* Whatever a cleaner has removed of the way to the log: at the worst all of a temporary folder. */
static void make_folders(const char *path)
{
    char folder[PATH_MAX];
    struct err none;
    int fd;

    (void)snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    if (own_folder_make(folder, 1, 0700, &fd, &none) == STATUS_OK)
        (void)close(fd);
}

/* Creates the deleted log again. The offsets go on, so positions of readers stay valid. */
static void open_again(struct log_file *file, int64_t at_ms)
{
    char note[128];
    struct err err = {.text = ""};
    int fd;

    if (own_file_open(file->path, 1, O_WRONLY | O_CREAT, 0600, &fd, &err) == STATUS_NOT_FOUND) {
        make_folders(file->path);
        (void)own_file_open(file->path, 1, O_WRONLY | O_CREAT, 0600, &fd, &err);
    }
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "the log %s was deleted while it is written: %s%s",
             file->path,
             fd >= 0 ? "it is made again" : "it cannot be made again: ", fd >= 0 ? "" : err.text);
    file->is_gone = fd < 0;
    if (file->is_gone)
        return;
    (void)close(file->fd);
    file->fd = fd;
    file->is_full = false;
    fill_block(fd, file->size);
    int length =
        snprintf(note, sizeof note, "[... this log was deleted: %llu bytes are gone ...]\n",
                 (unsigned long long)file->size + file->dropped_bytes);
    file->dropped_bytes = 0;
    log_index_note(&file->index, file->size, true, at_ms);
    if (pwrite_all(fd, note, (size_t)length, (off_t)file->size))
        file->size += (uint64_t)length;
    /* A hole that ends in the head is not counted: the first cut makes its hole after the head. */
    if (file->size_max > 0 && file->size > cut_begin(file))
        file->cut_end = file->size;
}

static int lost_note(const struct log_file *file, uint64_t lost_bytes, char note[LOST_NOTE_BYTES])
{
    const unsigned long long bytes = lost_bytes;

    if (file->lost_code == ENOSPC || file->lost_code == EDQUOT || file->lost_code == EFBIG)
        return snprintf(note, LOST_NOTE_BYTES,
                        "\n[... %llu bytes lost: the disk of the log was full ...]\n", bytes);
    return snprintf(note, LOST_NOTE_BYTES,
                    "\n[... %llu bytes lost: the disk of the log refused them: %.80s ...]\n", bytes,
                    strerror(file->lost_code));
}

/* Writes a line in place of the bytes that the disk refused. False: it refuses the line too. */
static bool tell_lost(struct log_file *file, int64_t at_ms)
{
    char note[LOST_NOTE_BYTES];
    int length = lost_note(file, file->lost_bytes, note);

    log_index_note(&file->index, file->size, true, at_ms);
    if (!pwrite_all(file->fd, note, (size_t)length, (off_t)file->size))
        return false; /* the next try overwrites a partly written line */
    file->size += (uint64_t)length;
    file->lost_bytes = 0;
    file->disk_failed = false;
    return true;
}

/* Whether there is nothing in the file, or nothing but a hole. */
static bool has_nothing(int fd)
{
    return lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
}

/* Tells in the length of a log that has nothing how much was lost. False: it has something, or its
 * file system makes no holes. */
static bool leave_hole(const struct log_file *file)
{
    const uint64_t size = LOG_LOST_BYTES + file->size + file->lost_bytes;

    if (!has_nothing(file->fd) || ftruncate(file->fd, (off_t)size) != 0)
        return false;
    if (has_nothing(file->fd))
        return true;
    (void)ftruncate(file->fd, 0); /* it would be read as output */
    return false;
}

/* Call when the log ends. If the disk is still full, the line overwrites the last bytes of the log,
 * which are then lost too. */
static void tell_lost_at_end(struct log_file *file)
{
    char note[LOST_NOTE_BYTES];
    uint64_t lost_bytes = file->lost_bytes;
    int length = 0;

    if (lost_bytes == 0 || tell_lost(file, file->last_ms) || leave_hole(file))
        return;
    for (int i = 0; i < 3; i++) /* the line's own length may add a digit to the number */
        length = lost_note(file, lost_bytes + (uint64_t)length, note);
    if (file->size < (uint64_t)length ||
        !pwrite_all(file->fd, note, (size_t)length, (off_t)file->size - length) ||
        ftruncate(file->fd, (off_t)file->size) != 0) /* cuts a part of tell_lost's line */
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "a log lacks its last %llu bytes, and there is no room to say so in it",
                 (unsigned long long)lost_bytes);
}

void log_file_write(struct log_file *file, const struct log_piece *piece)
{
    const char *bytes = piece->bytes;
    size_t byte_count = piece->byte_count;
    struct stat stat;

    if (!file->is_gone && fstat(file->fd, &stat) == 0 && stat.st_nlink == 0)
        open_again(file, piece->at_ms);

    file->last_ms = piece->at_ms;
    if (file->lost_bytes > 0 && !tell_lost(file, piece->at_ms)) {
        file->lost_bytes += byte_count;
        return;
    }
    if (byte_count > 0 && !file->is_full)
        log_index_note(&file->index, file->size, piece->is_error, piece->at_ms);
    while (byte_count > 0 && !file->is_full) {
        ssize_t written = pwrite(file->fd, bytes, byte_count, (off_t)file->size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            file->lost_code = errno;
            if (!file->disk_failed)
                log_line(LOG_ERROR, LOG_ABOUT_NONE,
                         "a worker's log cannot be written, its output is "
                         "lost until it can: %s",
                         strerror(file->lost_code));
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
    file->dropped_bytes += byte_count;
}

enum status log_file_open(struct log_file *file, const char *path, uint64_t size_max,
                          struct err *err)
{
    struct stat stat;
    enum status status;

    assert(size_max == 0 || size_max >= LOG_FILE_SIZE_MIN);
    *file = (struct log_file){.size_max = size_max};
    (void)snprintf(file->path, sizeof file->path, "%s", path);
    status = own_file_open(path, 1, O_WRONLY | O_CREAT, 0600, &file->fd, err);
    if (status != STATUS_OK)
        return status;
    log_index_open(&file->index, path);
    file->size = fstat(file->fd, &stat) == 0 ? (uint64_t)stat.st_size : 0;
    return STATUS_OK;
}

/* Of a log that is_full. */
static void tell_dropped(struct log_file *file)
{
    char note[LOST_NOTE_BYTES];
    int length;

    if (file->dropped_bytes == 0)
        return;
    length =
        snprintf(note, sizeof note,
                 "\n[... %llu bytes not kept: the log has its largest size, and its file system "
                 "cannot cut it ...]\n",
                 (unsigned long long)file->dropped_bytes);
    log_index_note(&file->index, file->size, true, file->last_ms);
    if (pwrite_all(file->fd, note, (size_t)length, (off_t)file->size))
        file->size += (uint64_t)length;
}

void log_file_close(struct log_file *file)
{
    if (file->fd >= 0) {
        tell_dropped(file);
        tell_lost_at_end(file);
        (void)close(file->fd);
    }
    log_index_close(&file->index);
    file->fd = -1;
}
