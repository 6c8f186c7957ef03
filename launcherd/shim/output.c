#include "launcherd/shim/output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/utf8.h"

#define READ_BYTES (64u * 1024u)
#define READS_A_TURN 16
#define CUT_ALIGN 65536u /* a multiple of every usual block of a file system */
#define MARK_BYTES 64u

/* Where the hole begins: the head of the log is a quarter of all that is kept. */
static uint64_t cut_begin(const struct output *output)
{
    return output->size_max / 4 / CUT_ALIGN * CUT_ALIGN;
}

static void store_last(struct output *output, const char *bytes, size_t byte_count)
{
    size_t capacity = sizeof output->last;
    if (byte_count > capacity) {
        bytes += byte_count - capacity;
        byte_count = capacity;
    }
    size_t room = capacity - output->last_bytes;
    if (byte_count > room) {
        size_t drop = byte_count - room;
        memmove(output->last, output->last + drop, output->last_bytes - drop);
        output->last_bytes -= drop;
    }
    memcpy(output->last + output->last_bytes, bytes, byte_count);
    output->last_bytes += byte_count;
}

/* The bytes of the file that are on the disk. */
static uint64_t kept_bytes(const struct output *output)
{
    return output->cut_end == 0 ? output->size
                                : output->size - (output->cut_end - cut_begin(output));
}

static void write_mark(const struct output *output, const char *text)
{
    char mark[MARK_BYTES + 1];
    int length = snprintf(mark, sizeof mark, "\n[... %s", text);
    (void)snprintf(mark + length, sizeof mark - (size_t)length, "%*s", (int)MARK_BYTES - length,
                   " ...]\n");
    if (pwrite(output->file_fd, mark, MARK_BYTES, (off_t)(cut_begin(output) - MARK_BYTES)) < 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "the mark of a cut log was not written: %s",
                 strerror(errno));
}

/* Makes room: what is kept goes down by an eighth of the limit, so a cut is rare. */
static void cut(struct output *output)
{
    uint64_t begin = cut_begin(output), limit = output->size_max;
    uint64_t tail = limit - begin - limit / 8, end = (output->size - tail) / CUT_ALIGN * CUT_ALIGN;
    char text[48];

    if (fallocate(output->file_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                  (off_t)(end - begin)) != 0) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "a worker's log has %llu bytes and its file system cannot cut it (%s): the rest "
                 "of the output is not kept",
                 (unsigned long long)output->size, strerror(errno));
        output->is_full = true;
        return;
    }
    output->cut_end = end;
    uint64_t gone = end - begin + MARK_BYTES;
    (void)snprintf(text, sizeof text, "%llu bytes cut", (unsigned long long)gone);
    write_mark(output, text);
}

static void write_file(struct output *output, const char *bytes, size_t byte_count)
{
    while (byte_count > 0 && !output->is_full) {
        ssize_t written = pwrite(output->file_fd, bytes, byte_count, (off_t)output->size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            if (!output->disk_failed)
                log_line(LOG_ERROR, LOG_ABOUT_NONE,
                         "a worker's log cannot be written, its output is "
                         "lost from here on: %s",
                         strerror(errno));
            output->disk_failed = true;
            return;
        }
        bytes += written;
        byte_count -= (size_t)written;
        output->size += (uint64_t)written;
        if (output->size_max > 0 && kept_bytes(output) > output->size_max)
            cut(output);
    }
}

static void shut(struct output *output)
{
    if (!output->is_open)
        return;
    output->is_open = false;
    uv_poll_stop(&output->poll);
    uv_close((uv_handle_t *)&output->poll, NULL);
    close(output->pipe_fd);
    close(output->file_fd);
}

/* The number of bytes, at most `bytes_max`; 0: the pipe is empty for now, or closed. */
static size_t read_once(struct output *output, size_t bytes_max)
{
    static char bytes[READ_BYTES]; /* one thread, one loop */
    size_t count = bytes_max < sizeof bytes ? bytes_max : sizeof bytes;
    ssize_t got;

    do
        got = read(output->pipe_fd, bytes, count);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        write_file(output, bytes, (size_t)got);
        store_last(output, bytes, (size_t)got);
        return (size_t)got;
    }
    if (got == 0 || errno != EAGAIN)
        shut(output); /* every writer has closed it */
    return 0;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct output *output = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < READS_A_TURN && output->is_open; i++)
        if (read_once(output, READ_BYTES) == 0)
            return;
}

enum status output_open(struct output *output, uv_loop_t *loop, const char *path, uint64_t size_max,
                        int *write_fd, struct err *err)
{
    int fds[2];
    struct stat stat;
    assert(size_max == 0 || size_max >= OUTPUT_SIZE_MIN);
    memset(output, 0, sizeof *output);
    output->file_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (output->file_fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot open the log %.150s: %s", path,
                       strerror(errno));
    output->size_max = size_max;
    output->size = fstat(output->file_fd, &stat) == 0 ? (uint64_t)stat.st_size : 0;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        close(output->file_fd);
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a pipe: %s", strerror(errno));
    }
    output->pipe_fd = fds[0];
    int rc = uv_poll_init(loop, &output->poll, fds[0]); /* makes only our end non-blocking */
    if (rc != 0) {
        close(fds[0]);
        close(fds[1]);
        close(output->file_fd);
        return err_set(err, STATUS_SYSTEM, rc, "cannot watch a pipe: %s", uv_strerror(rc));
    }
    output->poll.data = output;
    output->is_open = true;
    uv_poll_start(&output->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    *write_fd = fds[1];
    return STATUS_OK;
}

void output_drain(struct output *output)
{
    int capacity = output->is_open ? fcntl(output->pipe_fd, F_GETPIPE_SZ) : 0;
    size_t left = capacity > 0 ? (size_t)capacity : READ_BYTES, got;

    while (output->is_open && left > 0 && (got = read_once(output, left)) > 0)
        left -= got;
}

void output_close(struct output *output)
{
    output_drain(output);
    shut(output);
}

/* The offset at which the last lines begin. A line feed at the very end belongs to the last
 * line. */
static size_t lines_start(const char *bytes, size_t byte_count, size_t bytes_max)
{
    size_t at = byte_count, lines = 0;
    if (at > 0 && bytes[at - 1] == '\n')
        at--;
    while (at > 0 && byte_count - at < bytes_max) {
        if (bytes[at - 1] == '\n' && ++lines == OUTPUT_LINES_KEPT)
            break;
        at--;
    }
    return at;
}

void output_tail(const struct output *output, char out[TAIL_BYTES_MAX])
{
    size_t at = lines_start(output->last, output->last_bytes, TAIL_BYTES_MAX - 1);
    size_t used = 0;
    while (at < output->last_bytes && used < TAIL_BYTES_MAX - 1) {
        const char *from = output->last + at;
        size_t bytes = *from == '\0' ? 0 : utf8_next(from, output->last_bytes - at);
        if (bytes == 0) {
            out[used++] = '?';
            at++;
            continue;
        }
        if (used + bytes > TAIL_BYTES_MAX - 1)
            break;
        memcpy(out + used, from, bytes);
        used += bytes;
        at += bytes;
    }
    out[used] = '\0';
}
