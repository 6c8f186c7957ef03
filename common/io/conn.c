/* A connection lives through: open; closing (conn_close was called: what is queued is written, then
 * our side is shut down, then the peer's end is awaited for a moment, so that what it has not read
 * yet is not lost to a reset); finished (handles are being closed); on_closed. A peer that ends,
 * breaks or is too slow goes to finished at once. */
#include "common/io/conn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/frame.h"
#include "common/io/address.h"
#include "common/utf8.h"

#define READ_BYTES (64u * 1024u)
#define FLUSH_TIMEOUT_US 2000000u /* to write out what is queued */
#define LINGER_TIMEOUT_US 250000u /* for the peer to end its side */

/* What a full socket buffer did not take. */
struct pending_write {
    uv_write_t request;
    struct conn *conn;
    struct buf buf;
};

/* Reads go here first: libuv reads and hands over within one call, and a loop has one thread. */
static _Thread_local char read_bytes[READ_BYTES];

/* -- closing ----------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;

    assert(conn->handles_open > 0);
    if (--conn->handles_open > 0)
        return;
    buf_free(&conn->in);
    arena_reset(&conn->arena);
    conn->handlers->on_closed(conn, conn->close_status, conn->close_text);
}

static void finish(struct conn *conn)
{
    if (uv_is_closing((uv_handle_t *)&conn->handle.stream))
        return;
    uv_close((uv_handle_t *)&conn->handle.stream, on_handle_closed);
    uv_close((uv_handle_t *)&conn->deadline, on_handle_closed);
}

static void set_reason(struct conn *conn, enum status why, const char *text)
{
    conn->closing = true;
    conn->close_status = why;
    utf8_printable(text, strlen(text), conn->close_text, sizeof conn->close_text);
}

/* At once, without writing out. */
static void drop(struct conn *conn, enum status why, const char *text)
{
    if (!conn->closing)
        set_reason(conn, why, text);
    finish(conn);
}

static void on_deadline(uv_timer_t *timer)
{
    struct conn *conn = timer->data;
    char text[160];

    if (conn->closing || conn->broken) { /* it had its time */
        drop(conn, STATUS_CLOSED, "the peer closed the connection");
        return;
    }
    (void)snprintf(text, sizeof text, "no %s within %.3g s", conn->deadline_what,
                   (double)conn->deadline_us / 1e6);
    conn_close(conn, STATUS_TIMEOUT, text);
}

static void arm(struct conn *conn, uint64_t timeout_us)
{
    int code;

    uv_update_time(conn->deadline.loop);
    code = uv_timer_start(&conn->deadline, on_deadline, (timeout_us + 999) / 1000, 0);
    assert(code == 0);
    (void)code;
}

static void on_shut_down(uv_shutdown_t *request, int code)
{
    struct conn *conn = request->data;

    if (uv_is_closing((uv_handle_t *)&conn->handle.stream))
        return;
    if (code < 0 || conn->peer_ended) {
        finish(conn);
        return;
    }
    conn->shut_down = true;
    arm(conn, LINGER_TIMEOUT_US);
}

void conn_close(struct conn *conn, enum status why, const char *text)
{
    if (conn->closing)
        return;
    set_reason(conn, why, text);
    conn->shutdown.data = conn;
    if (conn->broken || uv_shutdown(&conn->shutdown, &conn->handle.stream, on_shut_down) < 0) {
        finish(conn);
        return;
    }
    arm(conn, FLUSH_TIMEOUT_US);
}

void conn_deadline(struct conn *conn, uint64_t timeout_us, const char *what)
{
    if (conn->closing || conn->broken)
        return; /* the timer is ours now */
    if (timeout_us == 0) {
        (void)uv_timer_stop(&conn->deadline);
        return;
    }
    conn->deadline_us = timeout_us;
    utf8_printable(what, strlen(what), conn->deadline_what, sizeof conn->deadline_what);
    arm(conn, timeout_us);
}

/* -- writing ----------------------------------------------------------------------------------- */

/* The peer takes no more. It may have said why before it went: what it sent is still read, then its
 * end is seen. */
static void break_off(struct conn *conn)
{
    if (conn->closing) {
        finish(conn);
        return;
    }
    if (!conn->broken)
        arm(conn, LINGER_TIMEOUT_US);
    conn->broken = true;
}

static void on_written(uv_write_t *request, int code)
{
    struct pending_write *pending = request->data;
    struct conn *conn = pending->conn;

    buf_free(&pending->buf);
    free(pending);
    conn->queued_bytes = uv_stream_get_write_queue_size(&conn->handle.stream);
    if (code < 0 && !uv_is_closing((uv_handle_t *)&conn->handle.stream))
        break_off(conn);
}

static enum status queue(struct conn *conn, struct buf *buf, size_t written, struct err *err)
{
    struct pending_write *pending = malloc(sizeof *pending);
    uv_buf_t part = uv_buf_init(buf->bytes + written, (unsigned)(buf->byte_count - written));

    if (pending == NULL) {
        buf_free(buf);
        drop(conn, STATUS_MEMORY, "no memory to queue a message");
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to queue a message", conn->label);
    }
    *pending = (struct pending_write){.conn = conn, .buf = *buf};
    pending->request.data = pending;
    if (uv_write(&pending->request, &conn->handle.stream, &part, 1, on_written) < 0) {
        buf_free(&pending->buf);
        free(pending);
        break_off(conn);
        return err_set(err, STATUS_CLOSED, 0, "%s: the peer takes no more", conn->label);
    }
    conn->queued_bytes = uv_stream_get_write_queue_size(&conn->handle.stream);
    return STATUS_OK;
}

static enum status drop_slow(struct conn *conn, struct err *err)
{
    char text[128];

    (void)snprintf(text, sizeof text, "the peer is too slow: %zu bytes wait to be read",
                   conn->queued_bytes);
    drop(conn, STATUS_BUSY, text);
    return err_set(err, STATUS_BUSY, 0, "%s: %s", conn->label, text);
}

/* Takes `buf` over. */
static enum status write_out(struct conn *conn, struct buf *buf, struct err *err)
{
    uv_buf_t whole = uv_buf_init(buf->bytes, (unsigned)buf->byte_count);
    int count = uv_try_write(&conn->handle.stream, &whole, 1);

    if (count < 0 && count != UV_EAGAIN) {
        buf_free(buf);
        break_off(conn);
        return err_set(err, STATUS_CLOSED, count, "%s: write: %s", conn->label, uv_strerror(count));
    }
    if (count < 0)
        count = 0;
    if ((size_t)count < buf->byte_count)
        return queue(conn, buf, (size_t)count, err);
    buf_free(buf);
    return STATUS_OK;
}

enum status conn_send(struct conn *conn, struct msg *msg, struct err *err)
{
    struct buf buf = {0};
    enum status status;

    if (conn->closing || conn->broken)
        return err_set(err, STATUS_CLOSED, 0, "%s: the connection is closing", conn->label);
    msg->seq = link_stamp(&conn->link);
    status = msg_encode(msg, &buf, err);
    if (status != STATUS_OK) {
        conn->link.sent--; /* the number was not used */
        buf_free(&buf);
        return status;
    }
    conn->queued_bytes = uv_stream_get_write_queue_size(&conn->handle.stream);
    if (conn->queued_bytes > 0 && conn->queued_bytes + buf.byte_count > CONN_QUEUE_BYTES_MAX) {
        buf_free(&buf);
        return drop_slow(conn, err);
    }
    return write_out(conn, &buf, err);
}

/* -- reading ----------------------------------------------------------------------------------- */

static void close_bad_frame(struct conn *conn, const struct err *why)
{
    struct msg answer = {.type = MSG_TYPE_ERROR};
    char text[sizeof why->text];

    utf8_printable(why->text, strlen(why->text), text, sizeof text);
    answer.error = (struct msg_error){.code = "bad_request", .message = text, .hint = ""};
    (void)conn_send(conn, &answer, NULL);
    conn_close(conn, why->status, text);
}

/* One payload. False: the connection is closing. */
static bool take_payload(struct conn *conn, const char *payload, size_t byte_count)
{
    struct err err = {.status = STATUS_OK};
    struct msg msg;

    if (msg_decode(payload, byte_count, &conn->arena, &msg, &err) != STATUS_OK)
        close_bad_frame(conn, &err);
    else if (link_take(&conn->link, msg.seq))
        conn->handlers->on_message(conn, &msg);
    arena_reset(&conn->arena);
    return !conn->closing;
}

/* The whole frames at the start of `bytes`; returns how many bytes they took. */
static size_t take_frames(struct conn *conn, const char *bytes, size_t byte_count)
{
    size_t taken = 0, payload_bytes;
    const char *payload;
    struct err err;

    for (;;) {
        enum status status = frame_next(bytes + taken, byte_count - taken, conn->payload_max,
                                        &payload, &payload_bytes, &err);

        if (status == STATUS_BUSY)
            return taken;
        if (status != STATUS_OK) {
            close_bad_frame(conn, &err);
            return taken;
        }
        if (!take_payload(conn, payload, payload_bytes))
            return taken;
        taken += FRAME_HEAD_BYTES + payload_bytes;
    }
}

static void take_bytes(struct conn *conn, const char *bytes, size_t byte_count)
{
    size_t taken;

    if (conn->in.byte_count == 0) { /* the common case: whole frames, no copy */
        taken = take_frames(conn, bytes, byte_count);
        if (!conn->closing)
            buf_add(&conn->in, bytes + taken, byte_count - taken);
    } else {
        buf_add(&conn->in, bytes, byte_count);
        if (!conn->in.failed) {
            taken = take_frames(conn, conn->in.bytes, conn->in.byte_count);
            buf_drop(&conn->in, taken);
        }
    }
    if (conn->in.failed && !conn->closing)
        drop(conn, STATUS_MEMORY, "no memory for what the peer sends");
    if (conn->in.byte_count == 0 && conn->in.capacity > READ_BYTES)
        buf_free(&conn->in); /* a large frame is rare */
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *into)
{
    (void)handle;
    (void)suggested;
    *into = uv_buf_init(read_bytes, sizeof read_bytes);
}

/* The peer ended, or reading failed. */
static void on_ended(struct conn *conn, int code)
{
    char text[160];

    conn->peer_ended = true;
    if (conn->closing) {
        (void)uv_read_stop(&conn->handle.stream);
        if (conn->shut_down)
            finish(conn); /* else once all is written, or in time */
        return;
    }
    if (code != UV_EOF)
        (void)snprintf(text, sizeof text, "read: %s", uv_strerror(code));
    else
        (void)snprintf(text, sizeof text, "the peer closed the connection%s",
                       conn->in.byte_count > 0 ? " within a frame" : "");
    if (code != UV_EOF)
        drop(conn, STATUS_CLOSED, text);
    else
        conn_close(conn, STATUS_CLOSED, text); /* it may still read what is queued */
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct conn *conn = stream->data;

    if (count < 0)
        on_ended(conn, (int)count);
    else if (count > 0 && !conn->closing)
        take_bytes(conn, bytes->base, (size_t)count);
}

/* -- opening ----------------------------------------------------------------------------------- */

static void start(struct conn *conn, uv_loop_t *loop, bool is_unix, size_t payload_max,
                  const struct conn_handlers *handlers)
{
    int code;

    assert(handlers->on_message != NULL && handlers->on_closed != NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* see conn.h */
    *conn = (struct conn){.owner = conn->owner, .payload_max = payload_max, .handlers = handlers};
    code =
        is_unix ? uv_pipe_init(loop, &conn->handle.pipe, 0) : uv_tcp_init(loop, &conn->handle.tcp);
    assert(code == 0); /* neither allocates nor asks the kernel */
    code = uv_timer_init(loop, &conn->deadline);
    assert(code == 0);
    (void)code;
    conn->handle.stream.data = conn;
    conn->deadline.data = conn;
    conn->handles_open = 2;
}

static void label_tcp(struct conn *conn)
{
    struct sockaddr_storage peer = {0};
    int byte_count = sizeof peer;

    if (uv_tcp_getpeername(&conn->handle.tcp, (struct sockaddr *)&peer, &byte_count) == 0)
        address_format_tcp(&peer, conn->label, sizeof conn->label);
}

static void label_unix(struct conn *conn)
{
    pid_t pid = 0;
    uid_t uid = 0;

    if (conn_peer(conn, &uid, &pid, NULL) == STATUS_OK)
        (void)snprintf(conn->label, sizeof conn->label, "unix:pid %ld", (long)pid);
    else
        (void)snprintf(conn->label, sizeof conn->label, "unix:?");
}

/* From here on a failure is told by on_closed, since the handles are there. */
static void begin(struct conn *conn, bool is_unix, int code)
{
    if (code == 0 && is_unix)
        label_unix(conn);
    else if (code == 0)
        label_tcp(conn);
    if (code == 0 && !is_unix)
        (void)uv_tcp_nodelay(&conn->handle.tcp, 1);
    if (code == 0)
        code = uv_read_start(&conn->handle.stream, on_alloc, on_read);
    if (code < 0)
        drop(conn, STATUS_SYSTEM, uv_strerror(code));
}

enum status conn_open_accept(struct conn *conn, uv_stream_t *listener, size_t payload_max,
                             const struct conn_handlers *handlers, struct err *err)
{
    bool is_unix = listener->type == UV_NAMED_PIPE;

    (void)err; /* what fails, fails with handles open: on_closed tells */
    start(conn, listener->loop, is_unix, payload_max, handlers);
    begin(conn, is_unix, uv_accept(listener, &conn->handle.stream));
    return STATUS_OK;
}

/* AF_UNIX or not, for a stream socket. */
static enum status socket_family(int fd, bool *is_unix, struct err *err)
{
    int type = 0, domain = 0;
    socklen_t byte_count = sizeof(int);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &byte_count) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &byte_count) < 0)
        return err_set(err, STATUS_SYSTEM, errno, "descriptor %d is no socket: %s", fd,
                       strerror(errno));
    if (type != SOCK_STREAM || (domain != AF_UNIX && domain != AF_INET && domain != AF_INET6))
        return err_set(err, STATUS_BAD_INPUT, 0, "descriptor %d is no stream socket", fd);
    *is_unix = domain == AF_UNIX;
    return STATUS_OK;
}

enum status conn_open_fd(struct conn *conn, uv_loop_t *loop, int fd, size_t payload_max,
                         const struct conn_handlers *handlers, struct err *err)
{
    enum status status;
    bool is_unix = false;
    int code;

    status = socket_family(fd, &is_unix, err);
    if (status != STATUS_OK)
        return status;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    start(conn, loop, is_unix, payload_max, handlers);
    code = is_unix ? uv_pipe_open(&conn->handle.pipe, fd) : uv_tcp_open(&conn->handle.tcp, fd);
    if (code < 0)
        (void)close(fd);
    begin(conn, is_unix, code);
    return STATUS_OK;
}

enum status conn_open_to(struct conn *conn, uv_loop_t *loop, const char *address,
                         size_t payload_max, const struct conn_handlers *handlers, struct err *err)
{
    enum status status;
    int fd = -1;

    status = address_connect(address, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = conn_open_fd(conn, loop, fd, payload_max, handlers, err);
    if (status != STATUS_OK) {
        (void)close(fd);
        return status;
    }
    (void)snprintf(conn->label, sizeof conn->label, "%s", address);
    return STATUS_OK;
}

enum status conn_peer(const struct conn *conn, uid_t *uid, pid_t *pid, struct err *err)
{
    struct ucred peer;
    socklen_t byte_count = sizeof peer;
    uv_os_fd_t fd;

    if (conn->handle.stream.type != UV_NAMED_PIPE)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s: the kernel names peers of unix sockets only", conn->label);
    if (uv_fileno((const uv_handle_t *)&conn->handle.stream, &fd) < 0)
        return err_set(err, STATUS_CLOSED, 0, "%s: the connection is closed", conn->label);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &byte_count) < 0)
        return err_set(err, STATUS_SYSTEM, errno, "%s: SO_PEERCRED: %s", conn->label,
                       strerror(errno));
    *uid = peer.uid;
    *pid = peer.pid;
    return STATUS_OK;
}
