#include "launcherd/shim/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/utf8.h"

#define READ_BYTES (64u * 1024u)
#define READS_A_TURN 16

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

/* In the place of what was dropped. False: there is no room for that either. */
static bool tell_lost(struct output *output)
{
    char note[96];
    int length = snprintf(note, sizeof note,
                          "\n[... %llu bytes lost: the disk of the log took nothing ...]\n",
                          (unsigned long long)output->lost_bytes);

    if (!log_writer_add(output->writer, &output->file, note, (size_t)length))
        return false;
    output->lost_bytes = 0;
    return true;
}

static void give(struct output *output, const char *bytes, size_t byte_count)
{
    if (!log_writer_takes(output->writer) || (output->lost_bytes > 0 && !tell_lost(output)) ||
        !log_writer_add(output->writer, &output->file, bytes, byte_count))
        output->lost_bytes += byte_count;
}

static void shut(struct output *output)
{
    if (!output->is_open)
        return;
    output->is_open = false;
    uv_poll_stop(&output->poll);
    uv_close((uv_handle_t *)&output->poll, NULL);
    close(output->pipe_fd);
    if (output->lost_bytes > 0)
        (void)tell_lost(output);
    log_writer_add_close(output->writer, &output->file);
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
        give(output, bytes, (size_t)got);
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
    for (int i = 0; i < READS_A_TURN && output->is_open; i++) {
        if (!log_writer_has_room(output->writer)) {
            output->is_paused = true;
            uv_poll_stop(&output->poll);
            return;
        }
        if (read_once(output, READ_BYTES) == 0)
            return;
    }
}

void output_resume(struct output *output)
{
    if (!output->is_open || !output->is_paused)
        return;
    output->is_paused = false;
    uv_poll_start(&output->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

enum status output_open(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                        const char *path, uint64_t size_max, int *write_fd, struct err *err)
{
    int fds[2];

    memset(output, 0, sizeof *output);
    output->writer = writer;
    enum status status = log_file_open(&output->file, path, size_max, err);
    if (status != STATUS_OK)
        return status;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        log_file_close(&output->file);
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a pipe: %s", strerror(errno));
    }
    output->pipe_fd = fds[0];
    int rc = uv_poll_init(loop, &output->poll, fds[0]); /* makes only our end non-blocking */
    if (rc != 0) {
        close(fds[0]);
        close(fds[1]);
        log_file_close(&output->file);
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
