#include "launcherd/shim/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/io/conn.h"

#define READ_BYTES (64u * 1024u)
#define READS_A_TURN 16
#define OUTPUT_NOTE_BYTES_MAX 1024

/* Adds a line in place of the dropped bytes. False: there is no room for the line either. */
static bool tell_lost(struct output *output)
{
    char note[96];
    int length = snprintf(note, sizeof note,
                          "\n[... %llu bytes lost: the disk of the log took nothing ...]\n",
                          (unsigned long long)output->lost_bytes);
    const struct log_piece piece = {
        .is_error = true, .at_ms = clock_wall_ms(), .bytes = note, .byte_count = (size_t)length};

    if (!log_writer_add(output->writer, &output->file, &piece))
        return false;
    output->lost_bytes = 0;
    return true;
}

static void give(struct output *output, const struct log_piece *piece)
{
    if (!log_writer_takes(output->writer) || (output->lost_bytes > 0 && !tell_lost(output)) ||
        !log_writer_add(output->writer, &output->file, piece))
        output->lost_bytes += piece->byte_count;
}

static bool is_open(const struct output *output)
{
    return output->streams[0].is_open || output->streams[1].is_open;
}

static void shut(struct output_stream *stream)
{
    struct output *output = stream->poll.data;

    if (!stream->is_open)
        return;
    stream->is_open = false;
    uv_poll_stop(&stream->poll);
    uv_close((uv_handle_t *)&stream->poll, NULL);
    close(stream->fd);
    if (is_open(output))
        return;
    if (output->lost_bytes > 0)
        (void)tell_lost(output);
    log_writer_add_close(output->writer, &output->file);
}

/* Reads at most `bytes_max` bytes and returns their number; 0: the pipe is empty for now, or
 * closed. */
static size_t read_once(struct output_stream *stream, size_t bytes_max)
{
    static char bytes[READ_BYTES]; /* only the loop's thread uses it */
    struct output *output = stream->poll.data;
    size_t count = bytes_max < sizeof bytes ? bytes_max : sizeof bytes;
    ssize_t got;

    do
        got = read(stream->fd, bytes, count);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        give(output, &(struct log_piece){.is_error = stream->is_error,
                                         .at_ms = clock_wall_ms(),
                                         .bytes = bytes,
                                         .byte_count = (size_t)got});
        causes_add(&output->causes, stream->is_error, (struct text){bytes, (size_t)got},
                   uv_hrtime() / 1000);
        return (size_t)got;
    }
    if (got == 0 || errno != EAGAIN)
        shut(stream); /* all writers have closed it, or an error: EIO of a terminal */
    return 0;
}

static struct output_stream *stream_of(uv_poll_t *poll)
{
    struct output *output = poll->data;

    return poll == &output->streams[0].poll ? &output->streams[0] : &output->streams[1];
}

/* epoll reports the pipes in the order in which they became readable. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct output_stream *stream = stream_of(poll);
    struct output *output = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < READS_A_TURN && stream->is_open; i++) {
        if (!log_writer_has_room(output->writer)) {
            stream->is_paused = true;
            uv_poll_stop(&stream->poll);
            return;
        }
        if (read_once(stream, READ_BYTES) == 0)
            return;
    }
}

void output_resume(struct output *output)
{
    for (int i = 0; i < 2; i++) {
        struct output_stream *stream = &output->streams[i];

        if (!stream->is_open || !stream->is_paused)
            continue;
        stream->is_paused = false;
        uv_poll_start(&stream->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    }
}

/* Takes `fd`, and closes it on failure too. */
static enum status watch_stream(struct output *output, int number, uv_loop_t *loop, int fd,
                                struct err *err)
{
    struct output_stream *stream = &output->streams[number];
    int rc = uv_poll_init(loop, &stream->poll, fd); /* makes only our end non-blocking */

    if (rc != 0) {
        close(fd);
        return err_set(err, STATUS_SYSTEM, rc, "cannot watch a pipe: %s", uv_strerror(rc));
    }
    stream->fd = fd;
    stream->is_error = number == 1;
    stream->is_open = true;
    stream->poll.data = output;
    uv_poll_start(&stream->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    return STATUS_OK;
}

static enum status open_stream(struct output *output, int number, uv_loop_t *loop, int *write_fd,
                               struct err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a pipe: %s", strerror(errno));
    enum status status = watch_stream(output, number, loop, fds[0], err);
    if (status == STATUS_OK)
        *write_fd = fds[1];
    else
        close(fds[1]);
    return status;
}

enum status output_open_terminal(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                                 int master_fd, struct err *err)
{
    enum status status;

    output->writer = writer;
    causes_open(&output->causes, true);
    status = watch_stream(output, 0, loop, master_fd, err);
    if (status != STATUS_OK)
        log_writer_add_close(writer, &output->file);
    return status;
}

enum status output_open(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                        int write_fds[2], struct err *err)
{
    enum status status;

    output->writer = writer;
    causes_open(&output->causes, false);
    write_fds[0] = write_fds[1] = -1;
    status = open_stream(output, 0, loop, &write_fds[0], err);
    if (status != STATUS_OK) {
        log_writer_add_close(writer, &output->file);
        return status;
    }
    status = open_stream(output, 1, loop, &write_fds[1], err);
    if (status != STATUS_OK) {
        close(write_fds[0]);
        write_fds[0] = -1;
        shut(&output->streams[0]); /* closes the file, too */
    }
    return status;
}

enum status output_open_one(struct output *output, uv_loop_t *loop, struct log_writer *writer,
                            int write_fds[2], struct err *err)
{
    enum status status;

    output->writer = writer;
    causes_open(&output->causes, true);
    write_fds[0] = write_fds[1] = -1;
    status = open_stream(output, 0, loop, &write_fds[0], err);
    if (status != STATUS_OK) {
        log_writer_add_close(writer, &output->file);
        return status;
    }
    write_fds[1] = fcntl(write_fds[0], F_DUPFD_CLOEXEC, 0);
    if (write_fds[1] >= 0)
        return STATUS_OK;
    status = err_set(err, STATUS_SYSTEM, errno, "cannot copy a pipe: %s", strerror(errno));
    close(write_fds[0]);
    write_fds[0] = -1;
    shut(&output->streams[0]);
    return status;
}

static void drain(struct output_stream *stream)
{
    int capacity = stream->is_open ? fcntl(stream->fd, F_GETPIPE_SZ) : 0;
    size_t left = capacity > 0 ? (size_t)capacity : READ_BYTES, got;

    while (stream->is_open && left > 0 && (got = read_once(stream, left)) > 0)
        left -= got;
}

void output_drain(struct output *output)
{
    drain(&output->streams[0]);
    drain(&output->streams[1]);
}

bool output_note(struct output *output, const char *text)
{
    char note[OUTPUT_NOTE_BYTES_MAX];
    struct log_piece piece = {.is_error = true, .at_ms = clock_wall_ms(), .bytes = note};

    output_drain(output);
    if (!is_open(output) || !log_writer_takes(output->writer))
        return false;
    piece.byte_count =
        (size_t)snprintf(note, sizeof note, "%s[... %.*s ...]\n",
                         output->causes.is_in_line ? "\n" : "", OUTPUT_NOTE_BYTES_MAX - 16, text);
    return log_writer_add(output->writer, &output->file, &piece);
}

void output_close(struct output *output)
{
    output_drain(output);
    shut(&output->streams[0]);
    shut(&output->streams[1]);
}

void output_tail(const struct output *output, char out[TAIL_BYTES_MAX])
{
    causes_tail(&output->causes, OUTPUT_LINES_KEPT, out);
}
