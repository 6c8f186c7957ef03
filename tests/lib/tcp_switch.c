#include "tests/lib/tcp_switch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define PAIRS_MAX 16

struct tcp_switch {
    uint16_t server_port, port;
    int listener, wake[2];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_on, was_seen, is_closing; /* was_seen: the thread has seen is_on */
    int pairs[PAIRS_MAX][2];
    int pair_count; /* only the thread uses this and `pairs` */
};

static struct sockaddr_in local(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void end_pair(struct tcp_switch *relay, int i)
{
    (void)close(relay->pairs[i][0]);
    (void)close(relay->pairs[i][1]);
    relay->pair_count--;
    relay->pairs[i][0] = relay->pairs[relay->pair_count][0];
    relay->pairs[i][1] = relay->pairs[relay->pair_count][1];
}

static void take_connection(struct tcp_switch *relay, bool is_on)
{
    struct sockaddr_in address = local(relay->server_port);
    int fd = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC), other;

    if (fd < 0)
        return;
    other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (is_on && relay->pair_count < PAIRS_MAX && other >= 0 &&
        connect(other, (struct sockaddr *)&address, sizeof address) == 0) {
        relay->pairs[relay->pair_count][0] = fd;
        relay->pairs[relay->pair_count++][1] = other;
        return;
    }
    (void)close(fd);
    if (other >= 0)
        (void)close(other);
}

/* False: one end is closed. */
static bool pass_on(int from, int to)
{
    char bytes[16384];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);

    for (ssize_t at = 0, sent; n > 0 && at < n; at += sent) {
        sent = send(to, bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
    }
    return n > 0;
}

/* Reads the switch. False: the relay must end. */
static bool look(struct tcp_switch *relay, bool *is_on)
{
    bool goes_on;

    (void)pthread_mutex_lock(&relay->mutex);
    *is_on = relay->is_on;
    goes_on = !relay->is_closing;
    while ((!*is_on || !goes_on) && relay->pair_count > 0)
        end_pair(relay, 0);
    relay->was_seen = true;
    (void)pthread_cond_broadcast(&relay->changed);
    (void)pthread_mutex_unlock(&relay->mutex);
    return goes_on;
}

static void *run(void *context)
{
    struct tcp_switch *relay = context;
    bool is_on;

    while (look(relay, &is_on)) {
        struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = relay->listener, .events = POLLIN},
                                                {.fd = relay->wake[0], .events = POLLIN}};
        int count = relay->pair_count;
        char byte;

        for (int i = 0; i < 2 * count; i++)
            fds[2 + i] = (struct pollfd){.fd = relay->pairs[i / 2][i % 2], .events = POLLIN};
        if (poll(fds, 2 + 2 * (nfds_t)count, -1) <= 0)
            continue;
        if (fds[1].revents != 0) {
            CHECK(read(relay->wake[0], &byte, 1) == 1);
            continue;
        }
        for (int i = count - 1; i >= 0; i--) /* from the end, since end_pair moves the last pair */
            for (int k = 0; k < 2; k++)
                if (fds[2 + 2 * i + k].revents != 0 &&
                    !pass_on(relay->pairs[i][k], relay->pairs[i][1 - k])) {
                    end_pair(relay, i);
                    break;
                }
        if (fds[0].revents != 0)
            take_connection(relay, is_on);
    }
    return NULL;
}

struct tcp_switch *tcp_switch_open(uint16_t port)
{
    struct tcp_switch *relay = calloc(1, sizeof *relay);
    struct sockaddr_in address = local(0);
    socklen_t length = sizeof address;

    CHECK(relay != NULL);
    relay->server_port = port;
    relay->is_on = true;
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(relay->listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(relay->listener, 64) == 0);
    CHECK(getsockname(relay->listener, (struct sockaddr *)&address, &length) == 0);
    relay->port = ntohs(address.sin_port);
    CHECK(pipe(relay->wake) == 0);
    (void)pthread_mutex_init(&relay->mutex, NULL);
    (void)pthread_cond_init(&relay->changed, NULL);
    CHECK(pthread_create(&relay->thread, NULL, run, relay) == 0);
    return relay;
}

uint16_t tcp_switch_port(const struct tcp_switch *relay)
{
    return relay->port;
}

static void change(struct tcp_switch *relay, bool is_on, bool is_closing)
{
    (void)pthread_mutex_lock(&relay->mutex);
    relay->is_on = is_on;
    relay->is_closing = is_closing;
    relay->was_seen = false;
    CHECK(write(relay->wake[1], "x", 1) == 1);
    while (!relay->was_seen)
        (void)pthread_cond_wait(&relay->changed, &relay->mutex);
    (void)pthread_mutex_unlock(&relay->mutex);
}

void tcp_switch_set(struct tcp_switch *relay, bool is_on)
{
    change(relay, is_on, false);
}

void tcp_switch_close(struct tcp_switch *relay)
{
    change(relay, false, true);
    (void)pthread_join(relay->thread, NULL);
    (void)close(relay->listener);
    (void)close(relay->wake[0]);
    (void)close(relay->wake[1]);
    (void)pthread_cond_destroy(&relay->changed);
    (void)pthread_mutex_destroy(&relay->mutex);
    free(relay);
}
