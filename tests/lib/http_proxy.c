#include "tests/lib/http_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"

#define CONNECTIONS_MAX 64

struct proxy {
    uint16_t server_port, port;
    int listener, stop[2];
    proxy_choose *choose;
    void *context;
    pthread_t acceptor;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t requests, passed;
    uint32_t open, late;
    bool is_closing;
};

struct connection {
    struct proxy *proxy;
    int fd;
};

/* -- one message of HTTP -- */

static size_t header_bytes(const struct buf *buf)
{
    const char *end =
        buf->byte_count > 0 ? memmem(buf->bytes, buf->byte_count, "\r\n\r\n", 4) : NULL;

    return end != NULL ? (size_t)(end - buf->bytes) + 4 : 0;
}

/* Size of the body according to the header; 0 if the header does not give it. */
static size_t body_bytes(const struct buf *buf, size_t head)
{
    static const char name[] = "content-length:";

    for (size_t i = 0; i + sizeof name < head; i++)
        if (strncasecmp(buf->bytes + i, name, sizeof name - 1) == 0)
            return (size_t)strtoull(buf->bytes + i + sizeof name - 1, NULL, 10);
    return 0;
}

/* Waits for data or for the proxy's end. False: the proxy must end. */
static bool wait_readable(struct proxy *proxy, int fd)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = proxy->stop[0], .events = POLLIN}};

    return poll(fds, 2, -1) > 0 && fds[1].revents == 0;
}

/* Reads one whole request. */
static bool read_request(struct proxy *proxy, int fd, struct buf *request)
{
    char bytes[16384];

    request->byte_count = 0;
    for (;;) {
        size_t head = header_bytes(request);
        ssize_t n;

        if (head > 0 && request->byte_count >= head + body_bytes(request, head))
            return true;
        if (!wait_readable(proxy, fd))
            return false;
        n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            return false;
        buf_add(request, bytes, (size_t)n);
    }
}

static bool send_all(int fd, const char *bytes, size_t byte_count)
{
    while (byte_count > 0) {
        ssize_t n = send(fd, bytes, byte_count, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        bytes += n;
        byte_count -= (size_t)n;
    }
    return true;
}

/* The server closes the connection after its answer, so read until the end. The answer to a watch of
 * etcd has no end: then until the proxy's. */
static bool ask_server(struct proxy *proxy, const struct buf *request, struct buf *answer)
{
    static const char close_line[] = "Connection: close\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(proxy->server_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *line = memmem(request->bytes, request->byte_count, "\r\n", 2);
    size_t first = (size_t)(line - request->bytes) + 2;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char bytes[16384];
    ssize_t n;
    bool is_good;

    answer->byte_count = 0;
    is_good = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
              send_all(fd, request->bytes, first) &&
              send_all(fd, close_line, sizeof close_line - 1) &&
              send_all(fd, request->bytes + first, request->byte_count - first);
    while (is_good && (is_good = wait_readable(proxy, fd)) &&
           (n = recv(fd, bytes, sizeof bytes, 0)) != 0) {
        is_good = n > 0;
        if (is_good)
            buf_add(answer, bytes, (size_t)n);
    }
    if (fd >= 0)
        (void)close(fd);
    return is_good && answer->byte_count > 0;
}

/* -- a request with its fault -- */

static void count_passed(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->passed++;
    (void)pthread_cond_broadcast(&proxy->changed);
    (void)pthread_mutex_unlock(&proxy->mutex);
}

/* Waits until another request has passed, or the proxy settles. */
static void pass_late(struct proxy *proxy, const struct buf *request, struct buf *answer)
{
    uint64_t passed;

    (void)pthread_mutex_lock(&proxy->mutex);
    passed = proxy->passed;
    proxy->late++;
    while (proxy->passed == passed && !proxy->is_closing)
        (void)pthread_cond_wait(&proxy->changed, &proxy->mutex);
    (void)pthread_mutex_unlock(&proxy->mutex);
    (void)ask_server(proxy, request, answer);
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->late--;
    (void)pthread_cond_broadcast(&proxy->changed);
    (void)pthread_mutex_unlock(&proxy->mutex);
}

/* False: the connection ends. */
static bool answer_with(struct proxy *proxy, int fd, enum proxy_fault fault,
                        const struct buf *request, struct buf *answer)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}";
    static const char garbage[] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"header\"";

    if (fault == PROXY_CUTS_BEFORE)
        return false;
    if (fault == PROXY_BUSY)
        return send_all(fd, busy, sizeof busy - 1);
    if (fault == PROXY_LATE) {
        pass_late(proxy, request, answer);
        return false;
    }
    if (!ask_server(proxy, request, answer))
        return false;
    if (fault == PROXY_PASSES)
        count_passed(proxy);
    if (fault == PROXY_PASSES)
        (void)send_all(fd, answer->bytes, answer->byte_count);
    else if (fault == PROXY_CUTS_WITHIN)
        (void)send_all(fd, answer->bytes, answer->byte_count / 2);
    else if (fault == PROXY_GARBAGE)
        (void)send_all(fd, garbage, sizeof garbage - 1);
    else if (fault == PROXY_SILENT)
        while (wait_readable(proxy, fd) && recv(fd, answer->bytes, 1, 0) > 0)
            ;
    return false;
}

static void *serve(void *context)
{
    struct connection *connection = context;
    struct proxy *proxy = connection->proxy;
    struct buf request = {0}, answer = {0};
    bool goes_on = true;

    while (goes_on && read_request(proxy, connection->fd, &request)) {
        enum proxy_fault fault;

        (void)pthread_mutex_lock(&proxy->mutex);
        fault = proxy->choose(++proxy->requests, proxy->context);
        (void)pthread_mutex_unlock(&proxy->mutex);
        goes_on = answer_with(proxy, connection->fd, fault, &request, &answer);
    }
    (void)close(connection->fd);
    free(connection);
    buf_free(&request);
    buf_free(&answer);
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->open--;
    (void)pthread_cond_broadcast(&proxy->changed);
    (void)pthread_mutex_unlock(&proxy->mutex);
    return NULL;
}

/* -- opening -- */

static void *accept_all(void *context)
{
    struct proxy *proxy = context;

    while (wait_readable(proxy, proxy->listener)) {
        struct connection *connection = calloc(1, sizeof *connection);
        pthread_t thread;

        if (connection == NULL)
            abort();
        *connection = (struct connection){proxy, accept(proxy->listener, NULL, NULL)};
        if (connection->fd < 0)
            abort();
        (void)pthread_mutex_lock(&proxy->mutex);
        proxy->open++;
        (void)pthread_mutex_unlock(&proxy->mutex);
        if (pthread_create(&thread, NULL, serve, connection) != 0 || pthread_detach(thread) != 0)
            abort();
    }
    return NULL;
}

struct proxy *proxy_open(uint16_t port, proxy_choose *choose, void *context)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct proxy *proxy = calloc(1, sizeof *proxy);

    if (proxy == NULL)
        abort();
    proxy->server_port = port;
    proxy->choose = choose;
    proxy->context = context;
    (void)pthread_mutex_init(&proxy->mutex, NULL);
    (void)pthread_cond_init(&proxy->changed, NULL);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (proxy->listener < 0 || pipe(proxy->stop) != 0 ||
        bind(proxy->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(proxy->listener, CONNECTIONS_MAX) != 0 ||
        getsockname(proxy->listener, (struct sockaddr *)&address, &length) != 0 ||
        pthread_create(&proxy->acceptor, NULL, accept_all, proxy) != 0)
        abort();
    proxy->port = ntohs(address.sin_port);
    return proxy;
}

uint16_t proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

uint64_t proxy_requests(struct proxy *proxy)
{
    uint64_t requests;

    (void)pthread_mutex_lock(&proxy->mutex);
    requests = proxy->requests;
    (void)pthread_mutex_unlock(&proxy->mutex);
    return requests;
}

void proxy_settle(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->passed++;
    (void)pthread_cond_broadcast(&proxy->changed);
    while (proxy->late > 0)
        (void)pthread_cond_wait(&proxy->changed, &proxy->mutex);
    (void)pthread_mutex_unlock(&proxy->mutex);
}

void proxy_close(struct proxy *proxy)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->is_closing = true;
    (void)pthread_cond_broadcast(&proxy->changed);
    (void)pthread_mutex_unlock(&proxy->mutex);
    (void)close(proxy->stop[1]); /* wakes all threads that wait for data */
    (void)pthread_join(proxy->acceptor, NULL);
    (void)pthread_mutex_lock(&proxy->mutex);
    while (proxy->open > 0)
        (void)pthread_cond_wait(&proxy->changed, &proxy->mutex);
    (void)pthread_mutex_unlock(&proxy->mutex);
    (void)close(proxy->stop[0]);
    (void)close(proxy->listener);
    (void)pthread_mutex_destroy(&proxy->mutex);
    (void)pthread_cond_destroy(&proxy->changed);
    free(proxy);
}
