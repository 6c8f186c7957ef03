/* The address of a node in its generation, and whether the store on the first node answers. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcherd/shim/part_address.h"
#include "launcherd/shim/store_probe.h"
#include "tests/lib/test.h"

static uv_loop_t loop;
static struct store_probe probe;
static uint32_t failed_count;
static char failed[REASON_BYTES_MAX];

static void on_failed(void *owner, const char *text)
{
    CHECK(owner == &probe);
    failed_count++;
    (void)snprintf(failed, sizeof failed, "%s", text);
}

/* A port of 127.0.0.1 that listens with that backlog; -1: it only is bound, and refuses. */
static int open_port(int backlog, uint32_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t byte_count = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK_EQ(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &byte_count), 0);
    if (backlog >= 0)
        CHECK_EQ(listen(fd, backlog), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void begin(const char *own, uint32_t port, uint32_t timeout_ms)
{
    const struct store_probe_way way = {
        .node = "far", .address = own, .master = "head", .master_addr = "127.0.0.1", .port = port};

    failed_count = 0;
    CHECK_EQ(uv_loop_init(&loop), 0);
    probe = (struct store_probe){.owner = &probe, .on_failed = on_failed};
    store_probe_begin(&probe, &loop, &way, timeout_ms);
}

static void run(void)
{
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(!probe.is_open && !probe.has_socket);
    store_probe_close(&probe);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

static void check_failed(const char *words)
{
    CHECK_EQ(failed_count, 1);
    if (strstr(failed, words) == NULL || strstr(failed, "node far") == NULL ||
        strstr(failed, "node head") == NULL)
        FAIL("%s", failed);
}

TEST(a_store_that_answers)
{
    uint32_t port;
    const int fd = open_port(1, &port);

    begin("127.0.0.1", port, 60000);
    run();
    CHECK_EQ(failed_count, 0);
    (void)close(fd);
}

/* A queue of connections that is full drops what comes, as a firewall does. */
TEST(nothing_answers)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fds[8];
    uint32_t port;
    char where[40];
    const int fd = open_port(0, &port);

    at.sin_port = htons((in_port_t)port);
    for (int i = 0; i < 8; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fds[i], (const struct sockaddr *)&at, sizeof at);
    }
    begin("127.0.0.1", port, 100);
    run();
    (void)snprintf(where, sizeof where, "nothing answers at 127.0.0.1:%u", port);
    check_failed(where);
    check_failed("a firewall");
    for (int i = 0; i < 8; i++)
        (void)close(fds[i]);
    (void)close(fd);
}

TEST(a_port_that_refuses_until_the_end)
{
    uint32_t port;
    const int fd = open_port(-1, &port);

    begin("127.0.0.1", port, 100);
    run();
    check_failed("connection refused");
    (void)close(fd);
}

/* The store lets in the addresses of the nodes alone. */
TEST(a_node_that_calls_from_another_address)
{
    uint32_t port;
    const int fd = open_port(1, &port);

    begin("10.88.0.2", port, 60000);
    (void)close(accept(fd, NULL, NULL));
    run();
    check_failed("from 127.0.0.1, which is not let in");
    check_failed("--address 127.0.0.1");
    (void)close(fd);
}

/* That of another node on the same machine. */
TEST(another_address_that_is_let_in)
{
    uint32_t port;
    const int fd = open_port(1, &port);
    int accepted;

    begin("10.88.0.2", port, 50);
    accepted = accept(fd, NULL, NULL);
    run();
    CHECK_EQ(failed_count, 0);
    (void)close(accepted);
    (void)close(fd);
}

TEST(the_first_node_takes_the_address_that_the_server_tells)
{
    static const struct msg_pair nodes[] = {{.name = "head", .value = "10.77.0.1"},
                                            {.name = "far", .value = "10.77.0.2"}};
    struct msg_start start = {.nodes = {.items = nodes, .count = 2}};
    char address[ADDRESS_BYTES_MAX];

    part_address_start(&start, "head", "127.0.0.1", address);
    CHECK_STR(address, "10.77.0.1");
    start.nodes.count = 1; /* what the other nodes get */
    part_address_start(&start, "far", "10.88.0.2", address);
    CHECK_STR(address, "10.88.0.2");
}

TEST(the_others_take_the_one_on_the_way_to_the_master)
{
    char address[ADDRESS_BYTES_MAX] = "127.0.0.1";

    part_address_go("127.0.0.1", address);
    CHECK_STR(address, "127.0.0.1");
    part_address_go("head.example.org", address); /* a name shows no way */
    CHECK_STR(address, "127.0.0.1");
    (void)strcpy(address, "10.88.0.2");
    part_address_go("10.77.0.1", address);
    CHECK_STR(address, "10.88.0.2");
}

TEST_MAIN
