/* Loads one c10d store or TCPStore server with its own protocol, without PyTorch's client in between. usage:
 *   store_client PORT add|setget|wake|connect CLIENTS COUNT
 * CLIENTS connections to 127.0.0.1. Prints "ready"; then for each line on stdin one round and its figure:
 *   add      microseconds for an ADD and its reply, over COUNT of each connection
 *   setget   the same for a SET, and a GET in a packet of its own, of 128 bytes
 *   wake     microseconds from the SET of a key for which all connections wait to the last of their answers
 *   connect  microseconds from connect to the answer to PING, over COUNT connections one after the other
 * Each connection has one request outstanding. tests/bench/store.py drives it and measures the servers. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 100000u
#define VALUE_BYTES 128u
#define PATIENCE_S 60

enum { SET = 1, GET = 3, ADD = 4, WAIT = 6, PING = 13 };

struct bench {
    uint16_t port;
    uint32_t clients, count, round;
    int *fds; /* [clients] */
    int setter, epoll;
    uint32_t *left; /* [clients]: requests still to be sent in this round */
};

struct request {
    char bytes[512];
    size_t byte_count;
};

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fprintf(stderr, "store_client: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    exit(EXIT_FAILURE);
}

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void put_number(struct request *request, uint64_t value, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++)
        request->bytes[request->byte_count++] = (char)(value >> (8 * i));
}

static void put_text(struct request *request, const char *bytes, size_t byte_count)
{
    put_number(request, byte_count, 8);
    memcpy(request->bytes + request->byte_count, bytes, byte_count);
    request->byte_count += byte_count;
}

static void send_all(int fd, const struct request *request)
{
    if (send(fd, request->bytes, request->byte_count, MSG_NOSIGNAL) != (ssize_t)request->byte_count)
        fail("send: %s", strerror(errno));
}

static void receive(int fd, char *bytes, size_t byte_count)
{
    const ssize_t got = recv(fd, bytes, byte_count, MSG_WAITALL);

    if (got != (ssize_t)byte_count)
        fail("%zd of %zu bytes of a reply: %s", got, byte_count,
             got < 0 ? strerror(errno) : "the server closed the connection");
}

/* Returns when the server has answered. */
static int open_one(const struct bench *bench)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(bench->port),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct request hello = {.bytes = "\0\xCE\xF7\x85\x3C", .byte_count = 5};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    char answer[4];

    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
        fail("connect to port %u: %s", bench->port, strerror(errno));
    put_number(&hello, PING, 1);
    put_number(&hello, (uint64_t)getpid(), 4);
    send_all(fd, &hello);
    receive(fd, answer, sizeof answer);
    return fd;
}

static void open_all(struct bench *bench)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    bench->fds = calloc(bench->clients, sizeof *bench->fds);
    bench->left = calloc(bench->clients, sizeof *bench->left);
    bench->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (bench->fds == NULL || bench->left == NULL || bench->epoll < 0)
        fail("no memory");
    bench->setter = open_one(bench);
    for (uint32_t i = 0; i < bench->clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = i}};

        bench->fds[i] = open_one(bench);
        if (epoll_ctl(bench->epoll, EPOLL_CTL_ADD, bench->fds[i], &event) != 0)
            fail("epoll: %s", strerror(errno));
    }
}

/* -- add and setget ---------------------------------------------------------------------------- */

static void ask(const struct bench *bench, uint32_t i, bool is_add)
{
    char key[32], value[VALUE_BYTES];
    const size_t key_bytes =
        (size_t)snprintf(key, sizeof key, is_add ? "/n" : "/k%u/%u", i, bench->left[i]);
    struct request request = {.byte_count = 0};

    if (is_add) {
        put_number(&request, ADD, 1);
        put_text(&request, key, key_bytes);
        put_number(&request, 1, 8);
        send_all(bench->fds[i], &request);
        return;
    }
    memset(value, 'x', sizeof value);
    put_number(&request, SET, 1);
    put_text(&request, key, key_bytes);
    put_text(&request, value, sizeof value);
    send_all(bench->fds[i], &request);
    request.byte_count = 0;
    put_number(&request, GET, 1);
    put_text(&request, key, key_bytes);
    send_all(bench->fds[i], &request);
}

static void answered(const struct bench *bench, uint32_t i, bool is_add)
{
    char reply[8 + VALUE_BYTES];

    receive(bench->fds[i], reply, is_add ? 8 : sizeof reply);
    if (!is_add && (reply[0] != (char)VALUE_BYTES || reply[8] != 'x'))
        fail("a GET has not the value of its SET");
}

/* A connection's next request leaves as soon as its reply is there. One connection alone is read without epoll. */
static double exchange(struct bench *bench, bool is_add)
{
    const double begin = now_us();
    uint32_t busy = bench->clients;

    for (uint32_t i = 0; i < bench->clients; i++) {
        bench->left[i] = bench->count;
        ask(bench, i, is_add);
    }
    while (busy > 0) {
        struct epoll_event events[256] = {{.data = {.u32 = 0}}};
        const int count =
            bench->clients == 1 ? 1 : epoll_wait(bench->epoll, events, 256, PATIENCE_S * 1000);

        if (count <= 0)
            fail("no reply within %d s", PATIENCE_S);
        for (int k = 0; k < count; k++) {
            const uint32_t i = events[k].data.u32;

            answered(bench, i, is_add);
            if (--bench->left[i] > 0)
                ask(bench, i, is_add);
            else
                busy--;
        }
    }
    return (now_us() - begin) / ((double)bench->clients * bench->count);
}

/* -- wake -------------------------------------------------------------------------------------- */

/* All waits have been carried out once each connection has answered what follows its own: an ADD, which gets its 8 bytes
 * although the wait goes on. */
static double wake(struct bench *bench)
{
    char key[32], reply[8];
    const size_t key_bytes =
        (size_t)snprintf(key, sizeof key, "/wake%d/%u", getpid(), bench->round);
    struct request request = {.byte_count = 0};
    double begin;

    put_number(&request, WAIT, 1);
    put_number(&request, 1, 8);
    put_text(&request, key, key_bytes);
    put_number(&request, ADD, 1);
    put_text(&request, "/arrived", 8);
    put_number(&request, 1, 8);
    for (uint32_t i = 0; i < bench->clients; i++) {
        send_all(bench->fds[i], &request);
        receive(bench->fds[i], reply, 8);
    }
    request.byte_count = 0;
    put_number(&request, SET, 1);
    put_text(&request, key, key_bytes);
    put_text(&request, "x", 1);
    begin = now_us();
    send_all(bench->setter, &request);
    for (uint32_t i = 0; i < bench->clients; i++) {
        receive(bench->fds[i], reply, 1);
        if (reply[0] != 0)
            fail("%d is no answer to WAIT", reply[0]);
    }
    return now_us() - begin;
}

static double connect_again(const struct bench *bench)
{
    const double begin = now_us();

    for (uint32_t i = 0; i < bench->count; i++)
        (void)close(open_one(bench));
    return (now_us() - begin) / bench->count;
}

static double measure(struct bench *bench, const char *what)
{
    if (strcmp(what, "wake") == 0)
        return wake(bench);
    if (strcmp(what, "connect") == 0)
        return connect_again(bench);
    if (strcmp(what, "add") != 0 && strcmp(what, "setget") != 0)
        fail("%s is none of add, setget, wake and connect", what);
    return exchange(bench, strcmp(what, "add") == 0);
}

int main(int argc, char **argv)
{
    struct bench bench = {.port = 0};
    char line[16];

    if (argc == 5) {
        bench.port = (uint16_t)strtoul(argv[1], NULL, 10);
        bench.clients = (uint32_t)strtoul(argv[3], NULL, 10);
        bench.count = (uint32_t)strtoul(argv[4], NULL, 10);
    }
    if (bench.port == 0 || bench.clients == 0 || bench.clients > CLIENTS_MAX || bench.count == 0)
        fail("usage: store_client PORT add|setget|wake|connect CLIENTS COUNT");
    open_all(&bench);
    (void)printf("ready\n");
    (void)fflush(stdout);
    for (; fgets(line, sizeof line, stdin) != NULL; bench.round++) {
        (void)printf("%.3f\n", measure(&bench, argv[2]));
        (void)fflush(stdout);
    }
    free(bench.fds);
    free(bench.left);
    return 0;
}
