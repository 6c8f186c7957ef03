#include "tests/lib/caller.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/frame.h"

enum status caller_find(const char *address, struct caller_place *place, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    struct sockaddr_un *local = (struct sockaddr_un *)&place->address;
    const char *colon = strrchr(address, ':');
    char host[256];
    size_t byte_count;

    memset(place, 0, sizeof *place);
    if (strncmp(address, "unix:", 5) == 0) {
        local->sun_family = AF_UNIX;
        (void)snprintf(local->sun_path, sizeof local->sun_path, "%s", address + 5);
        place->byte_count = sizeof *local;
        return STATUS_OK;
    }
    byte_count = colon == NULL ? 0 : (size_t)(colon - address);
    if (byte_count > 2 && address[0] == '[') {
        address++;
        byte_count -= 2;
    }
    if (byte_count == 0 || byte_count >= sizeof host)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s is not HOST:PORT", address);
    (void)snprintf(host, sizeof host, "%.*s", (int)byte_count, address);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return err_set(err, STATUS_NOT_FOUND, 0, "%s has no address", host);
    memcpy(&place->address, found->ai_addr, found->ai_addrlen);
    place->byte_count = found->ai_addrlen;
    freeaddrinfo(found);
    return STATUS_OK;
}

enum status caller_open(struct caller *caller, const struct caller_place *place,
                        struct tls_context *context, struct err *err)
{
    enum status status;
    int on = 1;

    *caller =
        (struct caller){.fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (caller->fd < 0 ||
        connect(caller->fd, (const struct sockaddr *)&place->address, place->byte_count) < 0) {
        status = err_set(err, STATUS_REFUSED, errno, "connect: %s", strerror(errno));
        caller_close(caller);
        return status;
    }
    (void)setsockopt(caller->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)fcntl(caller->fd, F_SETFL, O_NONBLOCK);
    if (context == NULL)
        return STATUS_OK;
    status = tls_new(&caller->tls, context, err);
    if (status == STATUS_OK)
        status = tls_start(caller->tls, &caller->wire, err);
    if (status == STATUS_OK)
        status = caller_flush(caller, err);
    if (status != STATUS_OK)
        caller_close(caller);
    return status;
}

void caller_close(struct caller *caller)
{
    if (caller->fd >= 0)
        (void)close(caller->fd);
    caller->fd = -1;
    tls_free(&caller->tls);
    buf_free(&caller->wire);
    buf_free(&caller->plain);
}

bool caller_is_ready(const struct caller *caller)
{
    return caller->fd >= 0 && (caller->tls == NULL || tls_is_ready(caller->tls));
}

bool caller_is_full(const struct caller *caller)
{
    return caller->sent < caller->wire.byte_count;
}

enum status caller_flush(struct caller *caller, struct err *err)
{
    while (caller_is_full(caller)) {
        ssize_t n = send(caller->fd, caller->wire.bytes + caller->sent,
                         caller->wire.byte_count - caller->sent, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return STATUS_OK;
        if (n < 0)
            return err_set(err, STATUS_CLOSED, errno, "send: %s", strerror(errno));
        caller->sent += (size_t)n;
    }
    buf_drop(&caller->wire, caller->sent);
    caller->sent = 0;
    return STATUS_OK;
}

static enum status take(struct caller *caller, const char *bytes, size_t byte_count,
                        struct err *err)
{
    enum status status;

    if (caller->tls == NULL) {
        buf_add(&caller->plain, bytes, byte_count);
        return STATUS_OK;
    }
    status = tls_receive(caller->tls, bytes, byte_count, &caller->plain, &caller->wire, err);
    if (status == STATUS_OK)
        status = caller_flush(caller, err);
    return status;
}

enum status caller_receive(struct caller *caller, struct err *err)
{
    char bytes[16384];

    for (;;) {
        ssize_t n = recv(caller->fd, bytes, sizeof bytes, 0);
        enum status status;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return STATUS_OK;
        if (n <= 0)
            return err_set(err, STATUS_CLOSED, n < 0 ? errno : 0,
                           "the server closed the connection");
        status = take(caller, bytes, (size_t)n, err);
        if (status != STATUS_OK)
            return status;
        if ((size_t)n < sizeof bytes)
            return STATUS_OK;
    }
}

bool caller_next(const struct caller *caller, const char **json, size_t *byte_count)
{
    return frame_next(caller->plain.bytes, caller->plain.byte_count, FRAME_LARGE_BYTES_MAX, json,
                      byte_count, NULL) == STATUS_OK;
}

void caller_drop(struct caller *caller, size_t byte_count)
{
    buf_drop(&caller->plain, FRAME_HEAD_BYTES + byte_count);
}

enum status caller_send_bytes(struct caller *caller, const void *bytes, size_t byte_count,
                              struct err *err)
{
    enum status status = STATUS_OK;

    assert(caller_is_ready(caller));
    if (caller->tls == NULL)
        buf_add(&caller->wire, bytes, byte_count);
    else
        status = tls_send(caller->tls, bytes, byte_count, &caller->wire, err);
    return status == STATUS_OK ? caller_flush(caller, err) : status;
}

enum status caller_send(struct caller *caller, const struct msg *msg, struct err *err)
{
    struct buf frame = {0};
    enum status status = msg_encode(msg, &frame, err);

    if (status == STATUS_OK)
        status = caller_send_bytes(caller, frame.bytes, frame.byte_count, err);
    buf_free(&frame);
    return status;
}
