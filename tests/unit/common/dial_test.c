/* Dialling on a real loop, to loopback. */
#include "common/io/dial.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"

static uv_loop_t loop;

struct result {
    uint32_t count;
    enum status status;
    int fd;
    char text[256];
};

static void on_done(struct dial *dial, enum status status, int fd, const char *text)
{
    struct result *result = dial->owner;

    result->count++;
    result->status = status;
    result->fd = fd;
    (void)snprintf(result->text, sizeof result->text, "%s", text);
    memset(dial, 0xa5, sizeof *dial); /* its memory is free from here on */
}

/* A socket on a port that the kernel chose. */
static int bind_on(int family, uint16_t *port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t byte_count = family == AF_INET6 ? sizeof v6 : sizeof v4;
    struct sockaddr *address = family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;

    if (fd < 0 || bind(fd, address, byte_count) < 0)
        return -1;
    CHECK_EQ(getsockname(fd, address, &byte_count), 0);
    *port = ntohs(family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    return fd;
}

static int listen_on(int family, uint16_t *port)
{
    int fd = bind_on(family, port);

    if (fd >= 0)
        CHECK_EQ(listen(fd, 8), 0);
    return fd;
}

static struct result dial_to(const char *host, uint16_t port, bool cancels)
{
    struct result result = {.fd = -1};
    struct dial dial = {.owner = &result};
    char address[300];
    struct err err = {.text = ""};

    (void)snprintf(address, sizeof address, "%s:%u", host, port);
    CHECK_EQ(uv_loop_init(&loop), 0);
    if (dial_start(&dial, &loop, address, on_done, &err) != STATUS_OK)
        FAIL("%s", err.text);
    if (cancels) {
        dial_cancel(&dial);
        dial_cancel(&dial);
    }
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
    CHECK_EQ(result.count, 1);
    return result;
}

TEST(a_name_and_both_families_connect)
{
    static const struct {
        const char *host;
        int family;
    } cases[] = {{"127.0.0.1", AF_INET}, {"localhost", AF_INET}, {"[::1]", AF_INET6}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t port = 0;
        int listener = listen_on(cases[i].family, &port), keepalive = 0, accepted;
        socklen_t byte_count = sizeof keepalive;
        struct result result;

        if (listener < 0)
            continue; /* a machine without IPv6 */
        result = dial_to(cases[i].host, port, false);
        CHECK_EQ(result.status, STATUS_OK);
        accepted = accept(listener, NULL, NULL);
        CHECK(accepted >= 0);
        CHECK_EQ(write(accepted, "x", 1), 1);
        CHECK((fcntl(result.fd, F_GETFL) & O_NONBLOCK) != 0);
        CHECK((fcntl(result.fd, F_GETFD) & FD_CLOEXEC) != 0);
        CHECK_EQ(getsockopt(result.fd, SOL_SOCKET, SO_KEEPALIVE, &keepalive, &byte_count), 0);
        CHECK_EQ(keepalive, 1);
        (void)close(accepted);
        (void)close(result.fd);
        (void)close(listener);
    }
}

TEST(nobody_listening_is_refused)
{
    uint16_t port = 0;
    int bound = bind_on(AF_INET, &port); /* so that no other program can listen there */
    struct result result;

    CHECK(bound >= 0);
    result = dial_to("127.0.0.1", port, false);
    (void)close(bound);
    CHECK_EQ(result.status, STATUS_REFUSED);
    CHECK_EQ(result.fd, -1);
    CHECK(strstr(result.text, "connect to 127.0.0.1:") != NULL);
}

/* RFC 2606: .invalid never has an address. If no name server answers, the dialler cannot know
 * that. */
TEST(a_name_without_address_is_named)
{
    struct result result = dial_to("nobody.invalid", 7400, false);

    CHECK(result.status == STATUS_NOT_FOUND || result.status == STATUS_TIMEOUT);
    CHECK(strstr(result.text, result.status == STATUS_NOT_FOUND
                                  ? "\"nobody.invalid\" has no address"
                                  : "\"nobody.invalid\" cannot be looked up") != NULL);
}

TEST(a_cancelled_dial_ends_once)
{
    struct result result = dial_to("127.0.0.1", 7400, true);

    CHECK_EQ(result.status, STATUS_CLOSED);
    CHECK_EQ(result.fd, -1);
}

TEST(what_is_no_address_is_refused)
{
    static const char *const bad[] = {"",        ":",    "h",     "h:",    ":1",   "h:0",
                                      "h:65536", "h:1x", "::1:1", "[::1]", "h:-1", "h: 1"};
    struct dial dial = {.owner = NULL};
    struct err err;

    CHECK_EQ(uv_loop_init(&loop), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (dial_start(&dial, &loop, bad[i], on_done, &err) != STATUS_BAD_INPUT)
            FAIL("%s was taken", bad[i]);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

TEST_MAIN
