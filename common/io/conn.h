/* One connection on a libuv loop that carries messages in frames, with bounded queues, deadlines
 * and an orderly close. Unix sockets, TCP with or without TLS, and socket pairs. An edge: it decides
 * nothing.
 *
 * Reading: each whole frame is decoded and given to on_message. After a bad frame an `error` message
 * is sent, the connection closes, and on_closed gets the reason.
 *
 * Writing: conn_send encodes at once and queues. With more than CONN_QUEUE_BYTES_MAX queued, the
 * connection is closed ("too slow").
 *
 * Ownership: the owner embeds `struct conn`. Its memory is free only in or after on_closed, which
 * is called exactly once for each conn_open_* that succeeded, and never from within a call of ours.
 * on_message may call conn_close, conn_send and conn_deadline of any connection. All connections of a process
 * belong to one thread.
 *
 * The first connection makes the process ignore SIGPIPE, which libuv does not do: whoever spawns a
 * program must restore the default action. */
#ifndef COMMON_IO_CONN_H
#define COMMON_IO_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <uv.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/io/accept_turn.h"
#include "common/io/tls.h"
#include "common/msg.h"
#include "common/msg_version.h"
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
    struct buf in;
    struct arena arena;
    struct tls *tls;                /* NULL: plain. See conn_secure */
    struct buf unsent;              /* frames that wait until the TLS handshake is over */
    size_t handshake_bytes;         /* received before that */
    size_t payload_max;             /* limit for frames of the peer */
    struct msg_protocols protocols; /* as negotiated by the hellos of both sides */
    const struct conn_handlers *handlers;
    void *owner; /* for the owner's use */
    /* For the owner to set after opening: bytes have come, or queued ones were written, so
     * conn_held_bytes may differ. NULL: nobody asks. */
    void (*on_moved)(struct conn *conn);
    size_t queued_bytes;
    uint32_t handles_open;
    uint64_t deadline_us;
    char deadline_what[64];
    bool is_paused; /* conn_pause */
    bool closing;
    bool broken;     /* writes fail; bytes that the peer sent earlier are still read */
    bool peer_ended; /* nothing more will be read */
    bool shut_down;  /* everything is written, and our side is shut down */
    enum status close_status;
    char close_text[256];
    char label[96]; /* "unix:/run/x.sock", "127.0.0.1:5000": for messages */
};

/* The owner may set `owner` before or after opening; everything else is set here. No callback comes
 * before the loop runs.
 *
 * conn_open_accept: takes a connection from a listening handle, within its connection callback. */
enum status conn_open_accept(struct conn *conn, uv_stream_t *listener, size_t payload_max,
                             const struct conn_handlers *handlers, struct err *err);
/* Takes over the connected stream socket `fd`. After a failure it still belongs to the caller. */
enum status conn_open_fd(struct conn *conn, uv_loop_t *loop, int fd, size_t payload_max,
                         const struct conn_handlers *handlers, struct err *err);
/* Connects to "unix:PATH" or "HOST:PORT" (a numeric address or localhost). Local, so it blocks only
 * as long as the kernel takes. Paths longer than sun_path (108) work too. STATUS_NOT_FOUND or
 * STATUS_REFUSED: nobody listens. */
enum status conn_open_to(struct conn *conn, uv_loop_t *loop, const char *address,
                         size_t payload_max, const struct conn_handlers *handlers, struct err *err);

/* Adds TLS between the frames and the socket. Call it once, right after a successful conn_open_*. A
 * client's handshake begins at once. Until it is over, outgoing messages are queued and none is
 * delivered. If it fails, or takes more than CONN_HANDSHAKE_BYTES_MAX, the connection closes:
 * on_closed gets STATUS_REFUSED (the key) or STATUS_BAD_INPUT. The owner's conn_deadline limits its
 * time. `context` must outlive the connection. */
enum status conn_secure(struct conn *conn, struct tls_context *context, struct err *err);
/* Whether the peer has proved that it has the key of conn_identity. False without TLS. */
bool conn_is_proved(const struct conn *conn);
/* On the server's side, once proved: the peer's identity (common/key.h). Otherwise "". */
const char *conn_identity(const struct conn *conn);
/* See tls_offered. */
const char *conn_offered(const struct conn *conn);

/* Encode, write or queue. A message over its limits is STATUS_TOO_BIG or STATUS_BAD_INPUT
 * and is not sent. STATUS_CLOSED: the connection is closing; STATUS_BUSY: the peer reads too
 * slowly, and the connection closes now. In every case on_closed comes only later, from the loop.
 */
enum status conn_send(struct conn *conn, struct msg *msg, struct err *err);
/* Stops reading until conn_resume; deadlines go on. No further message is delivered: what has come
 * already waits, and the rest waits with the peer. Also from on_message. Meanwhile the end of the
 * peer's side is not seen, but a failed write is. */
void conn_pause(struct conn *conn);
/* Delivers what has waited, then reads on. Not from on_message of the same connection. */
void conn_resume(struct conn *conn);
/* The memory that the peer makes us hold: the part of a frame that has come, and what it has not
 * read. */
size_t conn_held_bytes(const struct conn *conn);
/* Closes the connection unless conn_deadline is called again within `timeout_us`; 0 disarms it.
 * `what` is used in the message. */
void conn_deadline(struct conn *conn, uint64_t timeout_us, const char *what);
/* Writes what is queued, for at most 2 s, then closes; on_closed follows with `why`. No more
 * messages are delivered. A second call does nothing. */
void conn_close(struct conn *conn, enum status why, const char *text);
/* Closes at once, without writing what is queued; on_closed follows. */
void conn_abort(struct conn *conn, enum status why, const char *text);
/* The user and pid of the peer of a unix socket, from the kernel. */
enum status conn_peer(const struct conn *conn, uid_t *uid, pid_t *pid, struct err *err);

/* Listens on "unix:PATH" (a stale socket file, on which nobody answers, is replaced; a live one is
 * STATUS_BUSY) or on HOST:PORT, any address or name of this machine (see address_listen).
 * `on_connection` calls conn_open_accept. The owner sets `owner` and `on_connection` first. `mode`:
 * rights of the socket file, 0 for 0600. */
struct listener {
    union {
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } handle;
    struct accept_turn turn;
    char bound[4200];       /* the address with the port that the kernel chose: "127.0.0.1:41235" */
    char unlink_path[4096]; /* empty: nothing to remove */
    struct stat unlink_made; /* the file is removed only if it is still this one */
    bool is_network; /* other machines can reach it: TCP on an address that is not loopback */
    void *owner;
    void (*on_connection)(struct listener *listener);
};
enum status listener_open(struct listener *listener, uv_loop_t *loop, const char *address, int mode,
                          struct err *err);
/* listener_open in two steps. After listener_bind the address is taken and `bound` is set; over TCP
 * nobody can connect before listener_start. */
enum status listener_bind(struct listener *listener, uv_loop_t *loop, const char *address, int mode,
                          struct err *err);
/* Instead of listener_bind: `fd` is a unix socket that listens already, at `address`, made by whoever started
 * this process. Its file is theirs to remove. STATUS_BAD_INPUT: it is no such socket, and stays open. */
enum status listener_adopt(struct listener *listener, uv_loop_t *loop, const char *address, int fd,
                           struct err *err);
enum status listener_start(struct listener *listener, struct err *err);
/* Removes its socket file. The struct must stay until the loop has run once more. A second call
 * does nothing. */
void listener_close(struct listener *listener);

/* CLOCK_BOOTTIME in microseconds: the time of every event. */
uint64_t clock_boot_us(void);
/* Wall clock in milliseconds since 1970: for timestamps that people read, never for logic. */
int64_t clock_wall_ms(void);

#endif
