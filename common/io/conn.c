/* The states of a connection:
 *   open
 *   closing   conn_close was called. Queued bytes are written, our side is shut down, then we wait a moment for
 *             the peer's end, because a reset could destroy bytes that the peer has not read yet
 *   finished  the handles are being closed; on_closed follows
 * When the peer closes, breaks or is too slow, open goes to finished at once. */
#include "common/io/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/frame.h"
#include "common/io/internal.h"
#include "common/utf8.h"

#define READ_BYTES (64u * 1024u)
#define KEPT_BYTES_MAX 4096u      /* an empty buffer that stays */
#define FLUSH_TIMEOUT_US 2000000u /* to write out what is queued */
#define LINGER_TIMEOUT_US 250000u /* for the peer to end its side */

/* Bytes that did not fit in the socket buffer. */
struct pending_write {
    uv_write_t request;
    struct conn *conn;
    struct buf buf;
};

/* All connections share this buffer: libuv reads and calls back within one call, and one thread of a process
 * has connections. (In thread-local memory every other thread would have a copy.) */
static char read_bytes[READ_BYTES];

static bool is_same_thread(void)
{
    static uv_thread_t first;
    static bool is_known;
    const uv_thread_t self = uv_thread_self();

    first = is_known ? first : self;
    is_known = true;
    return uv_thread_equal(&first, &self) != 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;

    assert(conn->handles_open > 0);
    if (--conn->handles_open > 0)
        return;
    buf_free(&conn->in);
    buf_free(&conn->unsent);
    arena_reset(&conn->arena);
    tls_free(&conn->tls);
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
    assert(!conn->closing);
    conn->closing = true;
    conn->close_status = why;
    utf8_printable(text, strlen(text), conn->close_text, sizeof conn->close_text);
}

void conn_drop(struct conn *conn, enum status why, const char *text)
{
    if (!conn->closing)
        set_reason(conn, why, text);
    finish(conn);
}

void conn_abort(struct conn *conn, enum status why, const char *text)
{
    conn_drop(conn, why, text);
}

static void on_deadline(uv_timer_t *timer)
{
    struct conn *conn = timer->data;
    char text[160];

    if (conn->closing || conn->broken) { /* the time limit for closing is over */
        conn_drop(conn, STATUS_CLOSED, "the peer closed the connection");
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

    assert(conn->closing);
    if (uv_is_closing((uv_handle_t *)&conn->handle.stream))
        return;
    if (code < 0 || conn->peer_ended) {
        finish(conn);
        return;
    }
    conn->shut_down = true;
    arm(conn, LINGER_TIMEOUT_US);
}

/* Tells the peer that this end of the stream is intended, not an attacker's truncation. */
static void end_tls(struct conn *conn)
{
    struct buf wire = {0};

    if (conn->tls == NULL || conn->broken)
        return;
    tls_end(conn->tls, &wire);
    if (wire.byte_count > 0 && !wire.failed)
        (void)conn_write(conn, &wire, NULL);
    else
        buf_free(&wire);
}

void conn_close(struct conn *conn, enum status why, const char *text)
{
    if (conn->closing)
        return;
    end_tls(conn);
    if (conn->closing)
        return; /* the write failed and closed it */
    set_reason(conn, why, text);
    if (conn->is_paused) /* what the peer still sends is dropped: unread, it would reset the connection */
        (void)conn_read_start(conn);
    conn->shutdown.data = conn;
    if (conn->broken || uv_shutdown(&conn->shutdown, &conn->handle.stream, on_shut_down) < 0) {
        finish(conn);
        return;
    }
    arm(conn, FLUSH_TIMEOUT_US);
}

void conn_deadline(struct conn *conn, uint64_t timeout_us, const char *what)
{
    assert(timeout_us == 0 || what != NULL);
    if (conn->closing || conn->broken)
        return; /* while closing, the timer is ours */
    if (timeout_us == 0) {
        (void)uv_timer_stop(&conn->deadline);
        return;
    }
    conn->deadline_us = timeout_us;
    utf8_printable(what, strlen(what), conn->deadline_what, sizeof conn->deadline_what);
    arm(conn, timeout_us);
}

/* A write failed. The peer may have sent the reason before, so we still read to the end. */
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

static void moved(struct conn *conn)
{
    if (!conn->closing && conn->on_moved != NULL)
        conn->on_moved(conn);
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
    moved(conn);
}

/* Drops what was written, and gives back the memory that it had. */
static void keep_rest(struct buf *buf, size_t written)
{
    char *rest;

    buf_drop(buf, written);
    rest = realloc(buf->bytes, buf->byte_count);
    if (rest == NULL)
        return;
    buf->bytes = rest;
    buf->capacity = buf->byte_count;
}

static enum status queue(struct conn *conn, struct buf *buf, size_t written, struct err *err)
{
    struct pending_write *pending = malloc(sizeof *pending);
    uv_buf_t part;

    keep_rest(buf, written);
    part = uv_buf_init(buf->bytes, (unsigned)buf->byte_count);
    if (pending == NULL) {
        buf_free(buf);
        conn_drop(conn, STATUS_MEMORY, "no memory to queue a message");
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

    assert(!conn->closing);
    (void)snprintf(text, sizeof text, "the peer is too slow: %zu bytes wait to be read",
                   conn->queued_bytes);
    conn_drop(conn, STATUS_BUSY, text);
    return err_set(err, STATUS_BUSY, 0, "%s: %s", conn->label, text);
}

enum status conn_write(struct conn *conn, struct buf *buf, struct err *err)
{
    uv_buf_t whole = uv_buf_init(buf->bytes, (unsigned)buf->byte_count);
    int count = uv_try_write(&conn->handle.stream, &whole, 1);

    assert(buf->byte_count > 0 && !buf->failed);
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

/* Encrypts and writes; takes over the content of `plain`. */
static enum status write_secure(struct conn *conn, struct buf *plain, struct err *err)
{
    struct buf wire = {0};
    enum status status;

    if (!tls_is_ready(conn->tls)) {
        buf_add(&conn->unsent, plain->bytes, plain->byte_count);
        buf_free(plain);
        if (!conn->unsent.failed)
            return STATUS_OK;
        conn_drop(conn, STATUS_MEMORY, "no memory to queue a message");
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to queue a message", conn->label);
    }
    status = tls_send(conn->tls, plain->bytes, plain->byte_count, &wire, err);
    buf_free(plain);
    if (status == STATUS_OK)
        return conn_write(conn, &wire, err);
    buf_free(&wire);
    conn_drop(conn, status, "TLS failed to encrypt a message");
    return status;
}

/* From now on we speak the version in our hello, which may be earlier than our latest. */
static void take_own_version(struct conn *conn, const struct msg *msg)
{
    uint32_t said = msg_hello_protocol(msg);

    if (said == 0)
        return;
    conn->protocols.own = said;
    if (conn->protocols.peer > said)
        conn->protocols.peer = said;
}

enum status conn_send(struct conn *conn, struct msg *msg, struct err *err)
{
    struct buf buf = {0};
    enum status status;

    if (conn->closing || conn->broken)
        return err_set(err, STATUS_CLOSED, 0, "%s: the connection is closing", conn->label);
    take_own_version(conn, msg);
    status = msg_encode_between(msg, &conn->protocols, &buf, err);
    if (status != STATUS_OK) {
        buf_free(&buf);
        return status;
    }
    conn->queued_bytes =
        uv_stream_get_write_queue_size(&conn->handle.stream) + conn->unsent.byte_count;
    if (conn->queued_bytes > 0 && conn->queued_bytes + buf.byte_count > CONN_QUEUE_BYTES_MAX) {
        buf_free(&buf);
        return drop_slow(conn, err);
    }
    return conn->tls != NULL ? write_secure(conn, &buf, err) : conn_write(conn, &buf, err);
}

static void close_bad_frame(struct conn *conn, const struct err *why)
{
    struct msg answer = {.type = MSG_TYPE_ERROR};
    char text[sizeof why->text];

    utf8_printable(why->text, strlen(why->text), text, sizeof text);
    answer.error = (struct msg_error){.code = "bad_request", .message = text, .hint = ""};
    (void)conn_send(conn, &answer, NULL);
    conn_close(conn, why->status, text);
}

/* Handles one payload. False: the connection is closing. */
static bool take_payload(struct conn *conn, const char *payload, size_t byte_count)
{
    struct err err = {.status = STATUS_OK};
    struct msg msg;

    if (msg_decode_between(payload, byte_count, &conn->protocols, &conn->arena, &msg, &err) !=
        STATUS_OK)
        close_bad_frame(conn, &err);
    else
        conn->handlers->on_message(conn, &msg);
    arena_reset(&conn->arena);
    return !conn->closing;
}

/* Handles the whole frames at the start of `bytes`; returns how many bytes they have. */
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
        if (conn->is_paused)
            return taken;
    }
}

/* Handles the whole frames at the start of what has come. */
static void take_kept(struct conn *conn)
{
    if (!conn->in.failed)
        buf_drop(&conn->in, take_frames(conn, conn->in.bytes, conn->in.byte_count));
    if (conn->in.byte_count == 0 && conn->in.capacity > KEPT_BYTES_MAX)
        buf_free(&conn->in); /* a frame in pieces is rare */
}

static void take_bytes(struct conn *conn, const char *bytes, size_t byte_count)
{
    size_t taken = 0;

    if (conn->is_paused || conn->in.byte_count > 0) {
        buf_add(&conn->in, bytes, byte_count);
        if (!conn->is_paused)
            take_kept(conn);
    } else { /* the common case: whole frames, no copy */
        taken = take_frames(conn, bytes, byte_count);
        if (!conn->closing)
            buf_add(&conn->in, bytes + taken, byte_count - taken);
    }
    if (conn->in.failed && !conn->closing)
        conn_drop(conn, STATUS_MEMORY, "no memory for what the peer sends");
}

/* The handshake is over: sends what has waited for it. */
static void send_unsent(struct conn *conn)
{
    struct buf plain = conn->unsent;

    conn->unsent = (struct buf){0};
    if (plain.byte_count > 0)
        (void)write_secure(conn, &plain, NULL); /* a failure closes the connection */
}

/* Takes bytes of a TLS session. If the session fails, its alert is still written. */
static void take_secure_bytes(struct conn *conn, const char *bytes, size_t byte_count)
{
    const bool was_ready = tls_is_ready(conn->tls);
    struct buf plain = {0}, wire = {0};
    struct err err = {.status = STATUS_OK};
    enum status status;

    if (!was_ready)
        conn->handshake_bytes += byte_count;
    status = tls_receive(conn->tls, bytes, byte_count, &plain, &wire, &err);
    if (status == STATUS_OK && !tls_is_ready(conn->tls) &&
        conn->handshake_bytes > CONN_HANDSHAKE_BYTES_MAX)
        status = err_set(&err, STATUS_TOO_BIG, 0, "a TLS handshake of more than %u bytes",
                         CONN_HANDSHAKE_BYTES_MAX);
    if (wire.byte_count > 0)
        (void)conn_write(conn, &wire, NULL);
    if (status != STATUS_OK)
        conn_close(conn, status, err.text);
    else if (!was_ready && tls_is_ready(conn->tls))
        send_unsent(conn);
    if (plain.byte_count > 0 && !conn->closing)
        take_bytes(conn, plain.bytes, plain.byte_count);
    buf_free(&plain);
    if (!conn->closing && tls_is_closed(conn->tls))
        conn_close(conn, STATUS_CLOSED, "the peer closed the connection");
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *into)
{
    (void)handle;
    (void)suggested;
    assert(is_same_thread());
    *into = uv_buf_init(read_bytes, sizeof read_bytes);
}

/* The peer closed, or reading failed. */
static void on_ended(struct conn *conn, int code)
{
    char text[160];

    conn->peer_ended = true;
    if (conn->closing) {
        (void)uv_read_stop(&conn->handle.stream);
        if (conn->shut_down)
            finish(conn); /* otherwise when everything is written, or at the time-out */
        return;
    }
    if (code != UV_EOF)
        (void)snprintf(text, sizeof text, "read: %s", uv_strerror(code));
    else
        (void)snprintf(text, sizeof text, "the peer closed the connection%s",
                       conn->in.byte_count > 0 ? " within a frame" : "");
    if (code != UV_EOF)
        conn_drop(conn, STATUS_CLOSED, text);
    else
        conn_close(conn, STATUS_CLOSED, text); /* the peer may still read what is queued */
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct conn *conn = stream->data;

    if (count < 0)
        on_ended(conn, (int)count);
    else if (count > 0 && !conn->closing && conn->tls != NULL)
        take_secure_bytes(conn, bytes->base, (size_t)count);
    else if (count > 0 && !conn->closing)
        take_bytes(conn, bytes->base, (size_t)count);
    moved(conn);
}

int conn_read_start(struct conn *conn)
{
    return uv_read_start(&conn->handle.stream, on_alloc, on_read);
}

void conn_pause(struct conn *conn)
{
    conn->is_paused = true;
    (void)uv_read_stop(&conn->handle.stream);
}

void conn_resume(struct conn *conn)
{
    int code;

    if (conn->closing || !conn->is_paused)
        return;
    conn->is_paused = false;
    if (conn->in.byte_count > 0)
        take_kept(conn);
    if (conn->closing || conn->is_paused)
        return;
    code = conn_read_start(conn);
    if (code < 0)
        conn_drop(conn, STATUS_SYSTEM, uv_strerror(code));
}

size_t conn_held_bytes(const struct conn *conn)
{
    return conn->in.capacity + conn->unsent.capacity +
           uv_stream_get_write_queue_size(&conn->handle.stream);
}
