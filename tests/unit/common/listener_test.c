/* Listening and connecting: unix sockets and loopback TCP. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/conn.h"
#include "tests/lib/test.h"
#include "tests/unit/common/conn_tools.h"

struct server {
    struct listener listener;
    struct side sides[4];
    uint32_t side_count;
};

static void on_connection(struct listener *listener)
{
    struct server *server = listener->owner;
    struct side *side = &server->sides[server->side_count++];

    *side = (struct side){.conn.owner = side, .answers = true};
    CHECK_EQ(
        conn_open_accept(&side->conn, &listener->handle.stream, FRAME_BYTES_MAX, &handlers, NULL),
        STATUS_OK);
}

static enum status open_server(struct server *server, const char *address, struct err *err)
{
    *server = (struct server){.listener = {.owner = server, .on_connection = on_connection}};
    return listener_open(&server->listener, &loop, address, 0600, err);
}

/* On a slow link what the kernel has taken is sent before any beat. */
static void check_kernel_is_short(const struct conn *conn)
{
    int unsent_bytes = 0;
    socklen_t byte_count = sizeof unsent_bytes;
    uv_os_fd_t fd;

    CHECK_EQ(uv_fileno((const uv_handle_t *)&conn->handle.stream, &fd), 0);
    CHECK_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, &byte_count), 0);
    CHECK_EQ(unsent_bytes, 65536);
}

/* Sends a message there and back, then closes everything. */
static void check_echo(struct server *server, const char *address)
{
    struct msg msg = {.type = MSG_TYPE_BEAT_ACK, .beat_ack = {.sent_us = 42}};
    struct err err = {.text = ""};
    struct side client = {.conn.owner = &client};

    if (conn_open_to(&client.conn, &loop, address, FRAME_BYTES_MAX, &handlers, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(strncmp(client.conn.label, address, sizeof client.conn.label - 1), 0);
    CHECK_EQ(conn_send(&client.conn, &msg, &err), STATUS_OK);
    RUN_UNTIL(client.last_sent_us == 42);
    if (strncmp(address, "unix:", 5) != 0) {
        check_kernel_is_short(&client.conn);
        check_kernel_is_short(&server->sides[0].conn);
    }
    conn_close(&client.conn, STATUS_OK, "done");
    RUN_UNTIL(client.closed_count + server->sides[0].closed_count == 2);
    CHECK_EQ(server->sides[0].why, STATUS_CLOSED);
}

TEST(loopback_tcp_with_a_port_of_the_kernels_choice)
{
    static const char *const addresses[] = {"127.0.0.1:0", "localhost:0", "[::1]:0"};

    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct err err = {.text = ""};
        struct server server;

        open_loop();
        if (open_server(&server, addresses[i], &err) != STATUS_OK) {
            if (i < 2)
                FAIL("%s", err.text);
            (void)printf("# no IPv6 here: %s\n", err.text);
        } else {
            CHECK(strcmp(strrchr(server.listener.bound, ':'), ":0") != 0);
            check_echo(&server, server.listener.bound);
            listener_close(&server.listener);
        }
        close_loop();
    }
}

TEST(unix_sockets_know_the_peer_and_remove_their_file)
{
    struct err err = {.text = ""};
    struct side client = {.conn.owner = &client};
    struct server server;
    struct stat info;
    char address[256];
    uid_t uid = 1;
    pid_t pid = 0;

    (void)snprintf(address, sizeof address, "unix:%s/s", test_dir());
    open_loop();
    if (open_server(&server, address, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_STR(server.listener.bound, address);
    CHECK_EQ(stat(address + 5, &info), 0);
    CHECK_EQ(info.st_mode & 0777, 0600);
    CHECK_EQ(conn_open_to(&client.conn, &loop, address, FRAME_BYTES_MAX, &handlers, &err),
             STATUS_OK);
    RUN_UNTIL(server.side_count == 1);
    CHECK_EQ(conn_peer(&server.sides[0].conn, &uid, &pid, &err), STATUS_OK);
    CHECK_EQ(uid, getuid());
    CHECK_EQ(pid, getpid());
    conn_close(&server.sides[0].conn, STATUS_OK, "done");
    RUN_UNTIL(client.closed_count + server.sides[0].closed_count == 2);
    listener_close(&server.listener);
    listener_close(&server.listener);
    CHECK_EQ(stat(address + 5, &info), -1);
    close_loop();
}

TEST(paths_longer_than_a_socket_address_work)
{
    struct err err = {.text = ""};
    struct server server;
    struct stat info;
    char address[600];
    int count = snprintf(address, sizeof address, "unix:%s", test_dir());

    for (int i = 0; i < 4; i++) {
        count += snprintf(address + count, sizeof address - (size_t)count, "/%060d", i);
        CHECK_EQ(mkdir(address + 5, 0700), 0);
    }
    (void)snprintf(address + count, sizeof address - (size_t)count, "/rendezvous.sock");
    open_loop();
    if (open_server(&server, address, &err) != STATUS_OK)
        FAIL("%s", err.text);
    check_echo(&server, address);
    listener_close(&server.listener);
    CHECK_EQ(stat(address + 5, &info), -1);
    close_loop();
}

/* Root could remove it; but it is not ours. */
TEST(a_stale_socket_of_another_user_stays)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct err err = {.text = ""};
    struct stat made;
    char address[PATH_MAX];
    int fd, listening;

    if (geteuid() != 0)
        SKIP("needs root");
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%.90s/theirs", test_dir());
    (void)snprintf(address, sizeof address, "unix:%s", name.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)&name, sizeof name) == 0 && close(fd) == 0);
    CHECK(chown(name.sun_path, 65534, 65534) == 0);
    CHECK_EQ(address_listen(address, 0600, &listening, &made, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "a socket of user 65534") != NULL);
    CHECK(access(name.sun_path, F_OK) == 0);
    CHECK(chown(name.sun_path, 0, 0) == 0);
    CHECK_EQ(address_listen(address, 0600, &listening, &made, &err), STATUS_OK);
    (void)close(listening);
    address_remove_socket(name.sun_path, &made);
    CHECK(access(name.sun_path, F_OK) != 0);
}

/* Its process is about to listen, or never does: connecting to it is refused as to a stale one. */
TEST(a_socket_that_is_bound_and_does_not_listen_stays)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct err err = {.text = ""};
    struct stat made;
    char address[PATH_MAX];
    int fd, listening;

    (void)snprintf(name.sun_path, sizeof name.sun_path, "%.90s/bound", test_dir());
    (void)snprintf(address, sizeof address, "unix:%s", name.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)&name, sizeof name) == 0);
    CHECK_EQ(address_listen(address, 0600, &listening, &made, &err), STATUS_BUSY);
    CHECK(strstr(err.text, "another process has bound unix:") != NULL);
    CHECK(access(name.sun_path, F_OK) == 0);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(address_listen(address, 0600, &listening, &made, &err), STATUS_OK);
    (void)close(listening);
    address_remove_socket(name.sun_path, &made);
}

#define FLOOD_COUNT 100u /* below the least somaxconn of a Linux, 128 */

struct flood {
    struct listener listener;
    struct side sides[FLOOD_COUNT];
    uint32_t count;
};

static void on_flood(struct listener *listener)
{
    struct flood *flood = listener->owner;
    struct side *side = &flood->sides[flood->count++];

    *side = (struct side){.conn.owner = side};
    CHECK_EQ(
        conn_open_accept(&side->conn, &listener->handle.stream, FRAME_BYTES_MAX, &handlers, NULL),
        STATUS_OK);
}

/* Whoever connects all the time does not keep the loop from everything else. */
TEST(a_turn_of_the_loop_takes_a_few_connections)
{
    static const char *const tcp = "127.0.0.1:0";
    static struct flood flood;
    int fds[FLOOD_COUNT];
    char address[256];
    struct err err = {.text = ""};

    for (uint32_t round = 0; round < 2; round++) {
        uint32_t closed_count = 0, before = 0, turns = 0;

        flood = (struct flood){.listener = {.owner = &flood, .on_connection = on_flood}};
        (void)snprintf(address, sizeof address, "unix:%s/s", test_dir());
        open_loop();
        if (listener_open(&flood.listener, &loop, round == 0 ? address : tcp, 0600, &err) !=
            STATUS_OK)
            FAIL("%s", err.text);
        for (uint32_t i = 0; i < FLOOD_COUNT; i++)
            CHECK_EQ(address_connect(flood.listener.bound, &fds[i], &err), STATUS_OK);
        for (; flood.count < FLOOD_COUNT && turns < 10 * FLOOD_COUNT; turns++) {
            (void)uv_run(&loop, UV_RUN_NOWAIT);
            CHECK(flood.count - before <= ACCEPT_TURN_MAX);
            before = flood.count;
        }
        CHECK_EQ(flood.count, FLOOD_COUNT);
        CHECK(turns >= FLOOD_COUNT / ACCEPT_TURN_MAX);
        for (uint32_t i = 0; i < FLOOD_COUNT; i++) {
            conn_abort(&flood.sides[i].conn, STATUS_OK, "done");
            (void)close(fds[i]);
        }
        while (closed_count < FLOOD_COUNT) {
            (void)uv_run(&loop, UV_RUN_NOWAIT);
            closed_count = 0;
            for (uint32_t i = 0; i < FLOOD_COUNT; i++)
                closed_count += flood.sides[i].closed_count;
        }
        listener_close(&flood.listener);
        close_loop();
    }
}

/* A listener that is closed while a connection is left for the next turn. */
TEST(a_listener_is_closed_between_two_turns)
{
    static struct flood flood;
    int fds[2 * ACCEPT_TURN_MAX];
    char address[256];
    struct err err = {.text = ""};

    flood = (struct flood){.listener = {.owner = &flood, .on_connection = on_flood}};
    (void)snprintf(address, sizeof address, "unix:%s/s", test_dir());
    open_loop();
    CHECK_EQ(listener_open(&flood.listener, &loop, address, 0600, &err), STATUS_OK);
    for (uint32_t i = 0; i < 2 * ACCEPT_TURN_MAX; i++)
        CHECK_EQ(address_connect(flood.listener.bound, &fds[i], &err), STATUS_OK);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK_EQ(flood.count, ACCEPT_TURN_MAX);
    listener_close(&flood.listener);
    for (uint32_t i = 0; i < flood.count; i++)
        conn_abort(&flood.sides[i].conn, STATUS_OK, "done");
    RUN_UNTIL(flood.sides[ACCEPT_TURN_MAX - 1].closed_count == 1);
    CHECK_EQ(flood.count, ACCEPT_TURN_MAX);
    for (uint32_t i = 0; i < 2 * ACCEPT_TURN_MAX; i++)
        (void)close(fds[i]);
    close_loop();
}

TEST(stale_sockets_are_replaced_live_ones_are_not)
{
    struct err err = {.text = ""};
    struct server server, second;
    char address[256];
    int fd, copy;

    (void)snprintf(address, sizeof address, "unix:%s/s", test_dir());
    open_loop();
    CHECK_EQ(open_server(&server, address, &err), STATUS_OK);
    CHECK_EQ(open_server(&second, address, &err), STATUS_BUSY);
    CHECK(strstr(err.text, "another process listens on unix:") != NULL);
    server.listener.unlink_path[0] = '\0'; /* leaves its file, as a killed daemon does */
    listener_close(&server.listener);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK_EQ(access(address + 5, F_OK), 0);
    CHECK_EQ(open_server(&second, address, &err), STATUS_OK);
    check_echo(&second, address);

    /* the file of another process in its place is left alone */
    CHECK_EQ(unlink(address + 5), 0);
    fd = open(address + 5, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    (void)close(fd);
    listener_close(&second.listener);
    CHECK_EQ(access(address + 5, F_OK), 0);
    CHECK_EQ(open_server(&server, address, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "exists and is not a socket") != NULL);
    copy = (int)err.status;
    CHECK_EQ(copy, STATUS_CONFLICT);
    close_loop();
}

TEST(other_machines_reach_a_wildcard)
{
    static const struct {
        const char *address;
        bool is_network;
    } cases[] = {{"0.0.0.0:0", true}, {"127.0.0.1:0", false}, {"127.9.8.7:0", false}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct server server;

        open_loop();
        CHECK_EQ(open_server(&server, cases[i].address, NULL), STATUS_OK);
        CHECK_EQ(server.listener.is_network, cases[i].is_network);
        listener_close(&server.listener);
        close_loop();
    }
}

/* The port is bound at once, and no connection is accepted before the start. */
TEST(a_bound_address_waits_for_its_start)
{
    struct server server = {.listener = {.owner = &server, .on_connection = on_connection}};
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct err err;
    int fd;

    open_loop();
    CHECK_EQ(listener_bind(&server.listener, &loop, "127.0.0.1:0", 0, &err), STATUS_OK);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)strtoul(strrchr(server.listener.bound, ':') + 1, NULL, 10));
    CHECK(to.sin_port != 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 && errno == ECONNREFUSED);
    (void)close(fd);
    CHECK_EQ(listener_start(&server.listener, &err), STATUS_OK);
    check_echo(&server, server.listener.bound);
    listener_close(&server.listener);
    close_loop();
}

/* A client can connect before the server exists, and the server does not remove the file, which is not its own. */
TEST(a_socket_that_listens_already_is_adopted)
{
    struct server server = {.listener = {.owner = &server, .on_connection = on_connection}};
    struct stat made;
    struct err err = {.text = ""};
    char address[256];
    int fd, client;

    open_loop();
    (void)snprintf(address, sizeof address, "unix:%s/adopted", test_dir());
    CHECK_EQ(address_listen(address, 0600, &fd, &made, &err), STATUS_OK);
    CHECK_EQ(address_connect(address, &client, &err), STATUS_OK);
    CHECK_EQ(listener_adopt(&server.listener, &loop, address, fd, &err), STATUS_OK);
    CHECK_STR(server.listener.bound, address);
    CHECK_EQ(listener_start(&server.listener, &err), STATUS_OK);
    RUN_UNTIL(server.side_count == 1);
    (void)close(client);
    RUN_UNTIL(server.sides[0].closed_count == 1);
    server.side_count = 0;
    check_echo(&server, address);
    listener_close(&server.listener);
    close_loop();
    CHECK_EQ(access(address_path(address), F_OK), 0);
}

/* The number of a closed descriptor soon belongs to somebody else, such as another thread's file. */
TEST(a_failure_leaves_no_descriptor_behind)
{
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in bound;
    socklen_t byte_count = sizeof bound;
    struct stat made;
    struct err err;
    char address[256];
    int fd = -1, taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address, sizeof address, "unix:%s/nobody", test_dir());
    CHECK_EQ(address_connect(address, &fd, &err), STATUS_NOT_FOUND);
    CHECK_EQ(fd, -1);
    CHECK_EQ(bind(taken, (const struct sockaddr *)&loopback, sizeof loopback), 0);
    CHECK_EQ(getsockname(taken, (struct sockaddr *)&bound, &byte_count), 0);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(bound.sin_port));
    CHECK_EQ(address_connect(address, &fd, &err), STATUS_REFUSED);
    CHECK_EQ(fd, -1);
    CHECK_EQ(address_listen(address, 0, &fd, &made, &err), STATUS_BUSY);
    CHECK_EQ(fd, -1);
    (void)close(taken);
}

TEST(a_descriptor_that_does_not_listen_is_refused)
{
    struct server server = {.listener = {.owner = &server, .on_connection = on_connection}};
    struct err err = {.text = ""};
    int pair[2];

    open_loop();
    CHECK_EQ(listener_adopt(&server.listener, &loop, "unix:/x", 999, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "descriptor 999") != NULL);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_EQ(listener_adopt(&server.listener, &loop, "unix:/x", pair[0], &err), STATUS_BAD_INPUT);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    close_loop();
}

TEST(invalid_addresses_are_refused)
{
    static const struct {
        const char *address;
        enum status status;
        const char *text;
    } cases[] = {
        {"127.0.0.1", STATUS_BAD_INPUT, "\"127.0.0.1\" is no address"},
        {"127.0.0.1:", STATUS_BAD_INPUT, "\"127.0.0.1:\" is no address"},
        {"127.0.0.1:65536", STATUS_BAD_INPUT, "\"127.0.0.1:65536\" is no address"},
        {"127.0.0.1:-1", STATUS_BAD_INPUT, "\"127.0.0.1:-1\" is no address"},
        {"127.1:80", STATUS_NOT_FOUND, "listen on 127.1:80: \"127.1\" has only a loopback address"},
        {"nobody.invalid:80", STATUS_NOT_FOUND, "listen on nobody.invalid:80: the name"},
        {"::1:80", STATUS_BAD_INPUT, "\"::1:80\" is no address"},
        {":7400", STATUS_BAD_INPUT, "\":7400\" is no address"},
        {"", STATUS_BAD_INPUT, "\"\" is no address"},
        {"unix:", STATUS_BAD_INPUT, "unix: needs a path"},
        {"unix:/no/such/directory/s", STATUS_NOT_FOUND, "unix:/no/such/directory/s: its directory"},
    };

    open_loop();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {.text = ""};
        struct server server;

        CHECK_EQ(open_server(&server, cases[i].address, &err), cases[i].status);
        if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            FAIL("\"%s\", expected \"%s\"", err.text, cases[i].text);
    }
    close_loop();
}

TEST(nobody_listening_is_reported)
{
    struct err err = {.text = ""};
    struct side client = {.conn.owner = &client};
    struct server server = {.listener = {.owner = &server, .on_connection = on_connection}};
    char address[256];

    open_loop();
    (void)snprintf(address, sizeof address, "unix:%s/s", test_dir());
    CHECK_EQ(conn_open_to(&client.conn, &loop, address, 1000, &handlers, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "nobody listens on unix:") != NULL);
    /* bound and not started: no other program can listen on its port meanwhile */
    CHECK_EQ(listener_bind(&server.listener, &loop, "127.0.0.1:0", 0, &err), STATUS_OK);
    CHECK_EQ(conn_open_to(&client.conn, &loop, server.listener.bound, 1000, &handlers, &err),
             STATUS_REFUSED);
    CHECK(strstr(err.text, "nobody listens on 127.0.0.1:") != NULL);
    listener_close(&server.listener);
    CHECK_EQ(conn_open_to(&client.conn, &loop, "10.0.0.1:80", 1000, &handlers, &err),
             STATUS_REFUSED);
    CHECK(strstr(err.text, "refusing to connect to 10.0.0.1:80") != NULL);
    close_loop();
}

TEST(refused_descriptors_still_belong_to_the_caller)
{
    struct err err = {.text = ""};
    struct side side = {.conn.owner = &side};
    int fds[2];

    open_loop();
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    CHECK_EQ(conn_open_fd(&side.conn, &loop, fds[0], 1000, &handlers, &err), STATUS_SYSTEM);
    CHECK_EQ(conn_open_fd(&side.conn, &loop, -1, 1000, &handlers, &err), STATUS_SYSTEM);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0);
    CHECK_EQ(conn_open_fd(&side.conn, &loop, fds[0], 1000, &handlers, &err), STATUS_BAD_INPUT);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    close_loop();
}

TEST(bad_frames_over_tcp_are_answered_though_more_is_unread)
{
    struct err err = {.text = ""};
    struct server server;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char garbage[100000], answer[512];
    int fd;

    memset(garbage, 'G', sizeof garbage);
    open_loop();
    CHECK_EQ(open_server(&server, "127.0.0.1:0", &err), STATUS_OK);
    to.sin_port = htons((uint16_t)strtoul(strrchr(server.listener.bound, ':') + 1, NULL, 10));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    write_raw(fd, garbage, sizeof garbage);
    RUN_UNTIL(server.side_count == 1 && server.sides[0].closed_count == 1);
    CHECK_EQ(server.sides[0].why, STATUS_TOO_BIG);
    read_answer(fd, answer, sizeof answer);
    CHECK(strstr(answer, "\"type\":\"error\"") != NULL);
    (void)close(fd);
    listener_close(&server.listener);
    close_loop();
}

TEST_MAIN
