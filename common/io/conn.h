/* One framed connection on a libuv loop: bytes to messages and back, bounded queues, deadlines,
 * orderly close. Unix sockets, loopback TCP, and socket pairs. An edge: it decides nothing.
 *
 * Reading: each whole frame is decoded and handed to on_message, unless link_take refuses it. A bad
 * frame ends the connection: an `error` message is sent to the peer first, then on_closed says why.
 * Writing: conn_send encodes at once and queues; over CONN_QUEUE_BYTES_MAX waiting, the connection
 * is closed ("too slow"). Ownership: `struct conn` is embedded by its owner, and is free only in or
 * after on_closed, which is called exactly once for each conn_open_* that succeeded, never from
 * within a call of ours. on_message may call conn_close, conn_send and conn_deadline of any
 * connection.
 *
 * The first one opened makes the process ignore SIGPIPE, which libuv leaves to its user: whoever
 * spawns programs gives them the default action back. */
#ifndef COMMON_IO_CONN_H
#define COMMON_IO_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/link.h"
#include "common/msg.h"
#include "common/status.h"

struct conn;

struct conn_handlers {
    void (*on_message)(struct conn *conn, const struct msg *msg); /* msg is borrowed for the call */
    void (*on_closed)(struct conn *conn, enum status why, const char *text);
};

struct conn {
    union {
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } handle;
    uv_timer_t deadline; /* the owner's; while closing, ours */
    uv_shutdown_t shutdown;
    struct link link;
    struct buf in;
    struct arena arena;
    size_t payload_max; /* of frames that the peer may send */
    const struct conn_handlers *handlers;
    void *owner; /* for the owner's use */
    size_t queued_bytes;
    uint32_t handles_open;
    uint64_t deadline_us;
    char deadline_what[64];
    bool closing;
    bool broken;     /* the peer takes no more; what it sent before is still read */
    bool peer_ended; /* nothing more will be read */
    bool shut_down;  /* all is written, and the peer was told that no more comes */
    enum status close_status;
    char close_text[256];
    char label[96]; /* "unix:/run/x.sock", "127.0.0.1:5000": for messages */
};

/* The owner may set `owner` before or after opening; all else is set here. Nothing is called back
 * before the loop runs.
 *
 * Take a connection from a listening handle (in its connection callback). */
enum status conn_open_accept(struct conn *conn, uv_stream_t *listener, size_t payload_max,
                             const struct conn_handlers *handlers, struct err *err);
/* Take over a connected stream socket `fd`; on failure it is still the caller's. */
enum status conn_open_fd(struct conn *conn, uv_loop_t *loop, int fd, size_t payload_max,
                         const struct conn_handlers *handlers, struct err *err);
/* Connect to "unix:PATH" or "HOST:PORT" (a numeric address or localhost). Local, so it blocks only
 * as long as the kernel takes; paths longer than sun_path (108) work too. STATUS_NOT_FOUND or
 * STATUS_REFUSED when nobody listens. */
enum status conn_open_to(struct conn *conn, uv_loop_t *loop, const char *address,
                         size_t payload_max, const struct conn_handlers *handlers, struct err *err);

/* Stamp, encode, write or queue. A message over its limits is STATUS_TOO_BIG or STATUS_BAD_INPUT
 * and is not sent. STATUS_CLOSED: the connection is closing; STATUS_BUSY: the peer reads too
 * slowly, and the connection closes now. In every case on_closed comes only later, from the loop.
 */
enum status conn_send(struct conn *conn, struct msg *msg, struct err *err);
/* Close if conn_deadline is not called again within `timeout_us`; 0 disarms. `what` is for the
 * message. */
void conn_deadline(struct conn *conn, uint64_t timeout_us, const char *what);
/* Write out what is queued (2 s at most), then close; on_closed follows with `why`. No message is
 * handed over any more. Again is nothing. */
void conn_close(struct conn *conn, enum status why, const char *text);
/* Unix sockets: who is there, told by the kernel. */
enum status conn_peer(const struct conn *conn, uid_t *uid, pid_t *pid, struct err *err);

/* Listens on "unix:PATH" (a stale socket file, on which nobody answers, is replaced; a live one is
 * STATUS_BUSY) or on HOST:PORT; only loopback hosts: others are STATUS_REFUSED with the reason.
 * `on_connection` calls conn_open_accept. The owner sets `owner` and `on_connection` first. `mode`:
 * rights of the socket file, 0 for 0600. */
struct listener {
    union {
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } handle;
    char bound[4200];       /* the address with the port that the kernel chose: "127.0.0.1:41235" */
    char unlink_path[4096]; /* empty: nothing to remove */
    dev_t unlink_device;    /* removed only while it is still this file */
    ino_t unlink_inode;
    void *owner;
    void (*on_connection)(struct listener *listener);
};
enum status listener_open(struct listener *listener, uv_loop_t *loop, const char *address, int mode,
                          struct err *err);
/* Removes its socket file. The struct must stay until the loop has run once more. Again is nothing.
 */
void listener_close(struct listener *listener);

/* CLOCK_BOOTTIME in microseconds: the time of every event. */
uint64_t clock_boot_us(void);
/* Wall clock, milliseconds since 1970: for stamps that people read, never for logic. */
int64_t clock_wall_ms(void);

#endif
