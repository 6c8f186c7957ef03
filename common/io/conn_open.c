/* Opens connections: accepted, connected, or from a descriptor; with TLS or without. */
#include "common/io/conn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/internal.h"

static void start(struct conn *conn, uv_loop_t *loop, bool is_unix, size_t payload_max,
                  const struct conn_handlers *handlers)
{
    int code;

    assert(handlers->on_message != NULL && handlers->on_closed != NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* see conn.h */
    *conn = (struct conn){.owner = conn->owner,
                          .payload_max = payload_max,
                          .protocols = {msg_protocol(), msg_protocol()},
                          .handlers = handlers};
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

/* The kernel takes up to 4 MiB of a connection, and sends them in order: on a slow link beats and acknowledgements would
 * wait behind them for many seconds, out of our sight. So it takes no more than this ahead of what is on its way; the rest
 * waits here, where it is counted. Linux; elsewhere nothing changes. */
static void keep_kernel_short(struct conn *conn)
{
    const int unsent_bytes = 64 * 1024;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&conn->handle.stream, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
}

/* From here on a failure is reported by on_closed, since the handles are open. */
static void begin(struct conn *conn, bool is_unix, int code)
{
    if (code == 0 && is_unix)
        label_unix(conn);
    else if (code == 0)
        label_tcp(conn);
    if (code == 0 && !is_unix) {
        (void)uv_tcp_nodelay(&conn->handle.tcp, 1);
        keep_kernel_short(conn);
    }
    if (code == 0)
        code = conn_read_start(conn);
    if (code < 0)
        conn_drop(conn, STATUS_SYSTEM, uv_strerror(code));
}

enum status conn_open_accept(struct conn *conn, uv_stream_t *listener, size_t payload_max,
                             const struct conn_handlers *handlers, struct err *err)
{
    bool is_unix = listener->type == UV_NAMED_PIPE;

    (void)err; /* on_closed reports this failure */
    start(conn, listener->loop, is_unix, payload_max, handlers);
    begin(conn, is_unix, uv_accept(listener, &conn->handle.stream));
    return STATUS_OK;
}

/* Is this stream socket AF_UNIX? */
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

enum status conn_secure(struct conn *conn, struct tls_context *context, struct err *err)
{
    struct buf wire = {0};
    enum status status;

    assert(conn->tls == NULL && conn->in.byte_count == 0);
    status = tls_new(&conn->tls, context, err);
    if (status == STATUS_OK)
        status = tls_start(conn->tls, &wire, err);
    if (status == STATUS_OK && wire.byte_count > 0 && !conn->closing)
        status = conn_write(conn, &wire, err);
    else
        buf_free(&wire);
    if (status != STATUS_OK)
        conn_close(conn, status, "TLS could not begin");
    return status;
}

bool conn_is_proved(const struct conn *conn)
{
    return conn->tls != NULL && tls_is_ready(conn->tls);
}

const char *conn_identity(const struct conn *conn)
{
    return conn_is_proved(conn) ? tls_identity(conn->tls) : "";
}

const char *conn_offered(const struct conn *conn)
{
    return conn->tls != NULL ? tls_offered(conn->tls) : "";
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
