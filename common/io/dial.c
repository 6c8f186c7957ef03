#include "common/io/dial.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/spare_threads.h"

static void try_next(struct dial *dial);

static bool split(struct dial *dial, const char *address)
{
    in_port_t port = 0;

    if (!address_split_tcp(address, dial->host, sizeof dial->host, &port) || port == 0)
        return false;
    (void)snprintf(dial->port, sizeof dial->port, "%u", ntohs(port));
    return true;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct dial *dial = handle->data;
    int fd = dial->fd;

    assert(dial->handles_open > 0);
    if (--dial->handles_open > 0)
        return;
    uv_freeaddrinfo(dial->addresses);
    if (dial->status != STATUS_OK && fd >= 0) {
        (void)close(fd);
        fd = -1;
    }
    dial->done(dial, dial->status, fd, dial->text);
}

/* Ends the dial with dial->status and dial->text; `done` comes when the handles are closed. */
static void finish(struct dial *dial)
{
    assert(!dial->is_over && !dial->is_looking_up);
    dial->is_over = true;
    uv_close((uv_handle_t *)&dial->timer, on_handle_closed);
    if (dial->fd >= 0)
        uv_close((uv_handle_t *)&dial->poll, on_handle_closed);
}

static void set_result(struct dial *dial, const char *to, int code)
{
    dial->status = code == ECONNREFUSED                        ? STATUS_REFUSED
                   : code == ETIMEDOUT || code == EHOSTUNREACH ? STATUS_TIMEOUT
                                                               : STATUS_SYSTEM;
    (void)snprintf(dial->text, sizeof dial->text, "connect to %.120s: %s", to, strerror(code));
}

static void describe(const struct addrinfo *address, char *text, size_t text_bytes)
{
    struct sockaddr_storage resolved = {0};

    assert(address->ai_addrlen <= sizeof resolved);
    memcpy(&resolved, address->ai_addr, address->ai_addrlen);
    address_format_tcp(&resolved, text, text_bytes);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct dial *dial = handle->data;

    dial->handles_open--;
    (void)close(dial->fd);
    dial->fd = -1;
    if (dial->status == STATUS_CLOSED)
        finish(dial);
    else
        try_next(dial);
}

/* The current attempt has failed. */
static void give_up(struct dial *dial, int code)
{
    char to[64];

    describe(dial->next, to, sizeof to);
    set_result(dial, to, code);
    dial->next = dial->next->ai_next;
    (void)uv_timer_stop(&dial->timer);
    uv_close((uv_handle_t *)&dial->poll, on_poll_closed);
}

static void on_attempt_timeout(uv_timer_t *timer)
{
    give_up(timer->data, ETIMEDOUT);
}

static void on_writable(uv_poll_t *poll, int code, int events)
{
    struct dial *dial = poll->data;
    socklen_t byte_count = sizeof(int);
    int error = 0;

    (void)events;
    if (uv_is_closing((uv_handle_t *)poll))
        return;
    /* libuv reports EBADF for every POLLERR: ask the socket for the error. */
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &byte_count) < 0)
        error = errno;
    else if (error == 0 && code < 0)
        error = -code;
    if (error != 0) {
        give_up(dial, error);
        return;
    }
    dial->status = STATUS_OK;
    describe(dial->next, dial->text, sizeof dial->text);
    dial_keep_alive(dial->fd);
    finish(dial);
}

/* Begins to connect to dial->next. Returns 0 or an errno. */
static int begin_attempt(struct dial *dial)
{
    const struct addrinfo *address = dial->next;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int code = 0;

    if (fd < 0)
        return errno;
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS)
        code = errno;
    else
        code = -uv_poll_init(dial->loop, &dial->poll, fd);
    if (code != 0) {
        (void)close(fd);
        return code;
    }
    dial->fd = fd;
    dial->poll.data = dial;
    dial->handles_open++;
    (void)uv_poll_start(&dial->poll, UV_WRITABLE, on_writable); /* the arguments are right */
    (void)uv_timer_start(&dial->timer, on_attempt_timeout, DIAL_ATTEMPT_US / 1000, 0);
    return 0;
}

static void try_next(struct dial *dial)
{
    assert(dial->fd < 0);
    for (; dial->next != NULL; dial->next = dial->next->ai_next) {
        int code = begin_attempt(dial);
        char to[64];

        if (code == 0)
            return;
        describe(dial->next, to, sizeof to);
        set_result(dial, to, code);
    }
    finish(dial);
}

static void on_looked_up(uv_getaddrinfo_t *lookup, int code, struct addrinfo *addresses)
{
    struct dial *dial = lookup->data;

    dial->is_looking_up = false;
    dial->addresses = addresses;
    dial->next = addresses;
    if (dial->status == STATUS_CLOSED) { /* cancelled meanwhile */
        finish(dial);
        return;
    }
    if (code < 0) {
        dial->status =
            code == UV_EAI_NONAME || code == UV_EAI_NODATA ? STATUS_NOT_FOUND : STATUS_TIMEOUT;
        (void)snprintf(dial->text, sizeof dial->text, "the name \"%.150s\" %s: %s", dial->host,
                       dial->status == STATUS_NOT_FOUND ? "has no address" : "cannot be looked up",
                       uv_strerror(code));
        finish(dial);
        return;
    }
    try_next(dial);
}

enum status dial_start(struct dial *dial, uv_loop_t *loop, const char *address, dial_done done,
                       struct err *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int code;

    *dial = (struct dial){.loop = loop, .fd = -1, .done = done, .owner = dial->owner};
    dial->status = STATUS_SYSTEM; /* until something is known */
    if (!split(dial, address))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "\"%.80s\" is not HOST:PORT (an IPv6 address stands in brackets)", address);
    /* libuv starts its own with the first lookup, and would abort */
    if (spare_threads_check(POOL_THREADS, err) != STATUS_OK)
        return STATUS_SYSTEM;
    code = uv_getaddrinfo(loop, &dial->lookup, on_looked_up, dial->host, dial->port, &hints);
    if (code < 0)
        return err_set(err, STATUS_SYSTEM, code, "look up %.80s: %s", dial->host,
                       uv_strerror(code));
    dial->lookup.data = dial;
    dial->is_looking_up = true;
    (void)uv_timer_init(loop, &dial->timer);
    dial->timer.data = dial;
    dial->handles_open = 1;
    return STATUS_OK;
}

void dial_cancel(struct dial *dial)
{
    if (dial->is_over || dial->status == STATUS_CLOSED)
        return;
    dial->status = STATUS_CLOSED;
    (void)snprintf(dial->text, sizeof dial->text, "cancelled");
    if (dial->is_looking_up)
        (void)uv_cancel((uv_req_t *)&dial->lookup); /* on_looked_up comes in any case */
    else if (!uv_is_closing((uv_handle_t *)&dial->poll))
        finish(dial);
}

void dial_keep_alive(int fd)
{
    const int on = 1, idle_s = 5, interval_s = 5, count = 3;
    const unsigned timeout_ms = DIAL_PEER_TIMEOUT_US / 1000;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}
