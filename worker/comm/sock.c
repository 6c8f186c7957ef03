/* TCP sockets with deadlines. See sock.h. */
#include "worker/comm/sock.h"

#include <assert.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/mono.h"

int comm_left_ms(uint64_t deadline_us)
{
    uint64_t now_us = mono_us();
    uint64_t left_ms;

    if (now_us >= deadline_us)
        return 0;
    left_ms = (deadline_us - now_us + 999) / 1000;
    return left_ms > 1000000 ? 1000000 : (int)left_ms;
}

static int resolve(const char *host, uint16_t port, int flags, struct addrinfo **found)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    char service[8];

    (void)snprintf(service, sizeof service, "%u", port);
    return getaddrinfo(host, service, &hints, found);
}

static bool name_socket(int fd, struct comm_place *place)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t length = sizeof address;
    const void *host = &address.v4.sin_addr;
    uint16_t port;

    memset(place, 0, sizeof *place);
    memset(&address, 0, sizeof address);
    if (getsockname(fd, &address.any, &length) < 0)
        return false;
    if (address.any.sa_family == AF_INET6)
        host = &address.v6.sin6_addr;
    port = address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port;
    place->port = ntohs(port);
    return inet_ntop(address.any.sa_family, host, place->host, sizeof place->host) != NULL;
}

enum status comm_listen(const char *address, int *fd, struct comm_place *place, struct err *err)
{
    struct addrinfo *found = NULL;
    int rc = resolve(address, 0, AI_PASSIVE, &found);
    enum status status = STATUS_OK;

    if (rc != 0)
        return err_set(err, STATUS_BAD_INPUT, rc, "address of this node %s: %s", address,
                       gai_strerror(rc));
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, found->ai_addr, found->ai_addrlen) < 0 || listen(*fd, 1024) < 0 ||
        !name_socket(*fd, place)) {
        status = err_set(err, STATUS_SYSTEM, errno, "listen on %s: %s", address, strerror(errno));
        comm_sock_close(fd);
    }
    freeaddrinfo(found);
    return status;
}

int comm_connect_begin(const struct comm_place *place)
{
    struct addrinfo *found = NULL;
    int fd;

    if (resolve(place->host, place->port, AI_NUMERICHOST, &found) != 0) {
        errno = EINVAL;
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS) {
        int reason = errno;

        comm_sock_close(&fd);
        errno = reason;
    }
    freeaddrinfo(found);
    return fd;
}

int comm_connect_result(int fd)
{
    int reason = 0;
    socklen_t length = sizeof reason;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &length) < 0)
        return errno;
    return reason;
}

void comm_sock_tune(int fd)
{
    int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static enum status wait_for(int fd, short events, uint64_t deadline_us)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int rc;

    do
        rc = poll(&poll_fd, 1, comm_left_ms(deadline_us));
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return STATUS_IO;
    return rc == 0 ? STATUS_TIMEOUT : STATUS_OK;
}

/* After a send or recv that failed: waits until it can be repeated, or returns why it cannot. */
static enum status wait_to_retry(int fd, short events, uint64_t deadline_us)
{
    if (errno == EINTR)
        return STATUS_OK;
    return errno == EAGAIN ? wait_for(fd, events, deadline_us) : STATUS_CLOSED;
}

enum status comm_send_all(int fd, const void *bytes, size_t byte_count, uint64_t deadline_us)
{
    const uint8_t *next = bytes;
    enum status status;

    assert(fd >= 0);
    while (byte_count > 0) {
        ssize_t n = send(fd, next, byte_count, MSG_NOSIGNAL);

        if (n > 0) {
            next += n;
            byte_count -= (size_t)n;
            continue;
        }
        status = wait_to_retry(fd, POLLOUT, deadline_us);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status comm_receive_all(int fd, void *bytes, size_t byte_count, uint64_t deadline_us)
{
    uint8_t *next = bytes;
    enum status status;

    assert(fd >= 0);
    while (byte_count > 0) {
        ssize_t n = recv(fd, next, byte_count, 0);

        if (n == 0)
            return STATUS_CLOSED;
        if (n > 0) {
            next += n;
            byte_count -= (size_t)n;
            continue;
        }
        status = wait_to_retry(fd, POLLIN, deadline_us);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

void comm_sock_close(int *fd)
{
    if (*fd < 0)
        return;
    (void)shutdown(*fd, SHUT_WR); /* fails for a listener or an unconnected socket: harmless */
    (void)close(*fd);
    *fd = -1;
}
