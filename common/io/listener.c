#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/conn.h"
#include "common/log.h"

#define BACKLOG 1024 /* the kernel may take fewer: somaxconn */

static void on_connection(uv_stream_t *stream, int code)
{
    struct listener *listener = stream->data;

    if (code < 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "accept on %s: %s", listener->bound,
                 uv_strerror(code));
    else if (!accept_turn_is_over(&listener->turn))
        listener->on_connection(listener);
}

static void on_turn(void *owner)
{
    struct listener *listener = owner;

    listener->on_connection(listener);
}

static void set_bound(struct listener *listener, const char *address, int fd,
                      const struct stat *made)
{
    struct sockaddr_storage resolved = {0};
    socklen_t byte_count = sizeof resolved;

    listener->unlink_path[0] = '\0';
    listener->is_network = false;
    if (address_is_unix(address)) {
        (void)snprintf(listener->bound, sizeof listener->bound, "%s", address);
        (void)snprintf(listener->unlink_path, sizeof listener->unlink_path, "%s",
                       address_path(address));
        listener->unlink_made = *made;
        return;
    }
    (void)getsockname(fd, (struct sockaddr *)&resolved, &byte_count);
    listener->is_network = !address_is_local(&resolved);
    address_format_tcp(&resolved, listener->bound, sizeof listener->bound);
}

static int open_handle(struct listener *listener, uv_loop_t *loop, bool is_unix, int fd)
{
    int code = is_unix ? uv_pipe_init(loop, &listener->handle.pipe, 0)
                       : uv_tcp_init(loop, &listener->handle.tcp);

    assert(code == 0); /* neither allocates nor asks the kernel */
    listener->handle.stream.data = listener;
    accept_turn_open(&listener->turn, loop, on_turn, listener);
    code =
        is_unix ? uv_pipe_open(&listener->handle.pipe, fd) : uv_tcp_open(&listener->handle.tcp, fd);
    if (code < 0) {
        (void)close(fd);
        return code;
    }
    return 0;
}

enum status listener_bind(struct listener *listener, uv_loop_t *loop, const char *address, int mode,
                          struct err *err)
{
    struct stat made = {0};
    enum status status;
    int fd = -1, code;

    assert(listener->on_connection != NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* see conn.h */
    status = address_listen(address, mode, &fd, &made, err);
    if (status != STATUS_OK)
        return status;
    set_bound(listener, address, fd, &made);
    code = open_handle(listener, loop, address_is_unix(address), fd);
    if (code < 0) {
        listener_close(listener);
        return err_set(err, STATUS_SYSTEM, code, "listen on %.150s: %s", address,
                       uv_strerror(code));
    }
    return STATUS_OK;
}

static bool is_listening(int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t own_bytes = sizeof own, answer_bytes = sizeof(int);
    int answer = 0;

    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 && own.ss_family == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &answer, &answer_bytes) == 0 && answer != 0;
}

enum status listener_adopt(struct listener *listener, uv_loop_t *loop, const char *address, int fd,
                           struct err *err)
{
    const struct stat made = {0};
    int code;

    assert(listener->on_connection != NULL && address_is_unix(address));
    if (!is_listening(fd))
        return err_set(err, STATUS_BAD_INPUT, errno,
                       "descriptor %d, which this process was given, is no socket that listens at "
                       "%.150s",
                       fd, address);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    set_bound(listener, address, fd, &made);
    listener->unlink_path[0] = '\0';
    code = open_handle(listener, loop, true, fd);
    if (code == 0)
        return STATUS_OK;
    listener_close(listener);
    return err_set(err, STATUS_SYSTEM, code, "listen on %.150s: %s", address, uv_strerror(code));
}

enum status listener_start(struct listener *listener, struct err *err)
{
    int code = uv_listen(&listener->handle.stream, BACKLOG, on_connection);

    if (code < 0)
        return err_set(err, code == UV_EADDRINUSE ? STATUS_BUSY : STATUS_SYSTEM, code,
                       "listen on %.150s: %s", listener->bound, strerror(-code));
    return STATUS_OK;
}

enum status listener_open(struct listener *listener, uv_loop_t *loop, const char *address, int mode,
                          struct err *err)
{
    enum status status = listener_bind(listener, loop, address, mode, err);

    if (status != STATUS_OK)
        return status;
    status = listener_start(listener, err);
    if (status != STATUS_OK)
        listener_close(listener);
    return status;
}

/* Removes only our own file: another process may have put its socket there. */
static void remove_file(const struct listener *listener)
{
    if (listener->unlink_path[0] != '\0')
        address_remove_socket(listener->unlink_path, &listener->unlink_made);
}

void listener_close(struct listener *listener)
{
    if (uv_is_closing((uv_handle_t *)&listener->handle.stream))
        return;
    remove_file(listener);
    accept_turn_close(&listener->turn, NULL);
    uv_close((uv_handle_t *)&listener->handle.stream, NULL);
}
