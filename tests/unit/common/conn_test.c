/* Connections on a real loop, over socket pairs, unix sockets and loopback TCP. The peer that
 * misbehaves is a plain descriptor, written to before the loop runs and read after. */
#include "common/io/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/frame.h"
#include "tests/lib/test.h"

#define TIMEOUT_US 20000000u

struct side {
    struct conn conn;
    uint32_t message_count, closed_count;
    uint64_t last_sent_us; /* of the last beat_ack */
    enum msg_type last_type;
    enum status why;
    char text[256];
    bool answers, closes_on_message, sends_many_on_message;
};

static uv_loop_t loop;
static uv_timer_t tick; /* wakes the loop, so that waiting ends */

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct side *side = conn->owner;

    side->message_count++;
    side->last_type = msg->type;
    if (msg->type == MSG_TYPE_BEAT_ACK)
        side->last_sent_us = msg->beat_ack.sent_us;
    if (msg->type == MSG_TYPE_ERROR)
        (void)snprintf(side->text, sizeof side->text, "%s", msg->error.message);
    if (side->answers) {
        struct msg answer = *msg;

        (void)conn_send(conn, &answer, NULL);
    }
    for (int i = 0; side->sends_many_on_message && i < 10; i++) {
        struct msg many = {.type = MSG_TYPE_BEAT_ACK};

        (void)conn_send(conn, &many, NULL);
    }
    if (side->closes_on_message) {
        conn_close(conn, STATUS_OK, "done");
        conn_close(conn, STATUS_IO, "again is nothing");
        CHECK_EQ(conn_send(conn, &(struct msg){.type = MSG_TYPE_BEAT_ACK}, NULL), STATUS_CLOSED);
    }
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct side *side = conn->owner;

    side->closed_count++;
    side->why = why;
    (void)snprintf(side->text, sizeof side->text, "%s", text);
    memset(conn, 0xa5, sizeof *conn); /* free from here on */
    conn->owner = side;
}

static const struct conn_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void open_loop(void)
{
    CHECK_EQ(uv_loop_init(&loop), 0);
    CHECK_EQ(uv_timer_init(&loop, &tick), 0);
    CHECK_EQ(uv_timer_start(&tick, on_tick, 20, 20), 0);
}

/* Every handle must be closed by now but the tick. */
static void close_loop(void)
{
    uv_close((uv_handle_t *)&tick, NULL);
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

#define RUN_UNTIL(condition)                                                                       \
    for (uint64_t end_us = clock_boot_us() + TIMEOUT_US; !(condition);) {                          \
        if (clock_boot_us() > end_us)                                                              \
            FAIL("waited in vain for %s", #condition);                                             \
        (void)uv_run(&loop, UV_RUN_ONCE);                                                          \
    }

static void open_side(struct side *side, int fd, size_t payload_max)
{
    struct err err = {.text = ""};

    *side = (struct side){.conn.owner = side};
    if (conn_open_fd(&side->conn, &loop, fd, payload_max, &handlers, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

/* One end for the connection, one for the test. */
static int open_with_raw_peer(struct side *side)
{
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    open_loop();
    open_side(side, fds[0], FRAME_BYTES_MAX);
    return fds[1];
}

static void write_raw(int fd, const void *bytes, size_t byte_count)
{
    CHECK_EQ(write(fd, bytes, byte_count), (ssize_t)byte_count);
}

static void make_ack(struct buf *buf, uint64_t sent_us, uint32_t seq)
{
    struct msg msg = {.type = MSG_TYPE_BEAT_ACK, .seq = seq, .beat_ack = {.sent_us = sent_us}};

    CHECK_EQ(msg_encode(&msg, buf, NULL), STATUS_OK);
}

/* Reads all that is there, to the end; then the first frame's text is in `text`. */
static void read_answer(int fd, char *text, size_t text_bytes)
{
    char bytes[4096];
    ssize_t count = read(fd, bytes, sizeof bytes);

    CHECK(count > 4);
    (void)snprintf(text, text_bytes, "%.*s", (int)count - 4, bytes + 4);
}

TEST(messages_go_both_ways_in_order)
{
    struct side a, b;
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_loop();
    open_side(&a, fds[0], FRAME_BYTES_MAX);
    open_side(&b, fds[1], FRAME_BYTES_MAX);
    b.answers = true;
    CHECK((fcntl(fds[0], F_GETFD) & FD_CLOEXEC) != 0);
    for (uint64_t i = 1; i <= 20000; i++) {
        struct msg msg = {.type = MSG_TYPE_BEAT_ACK, .beat_ack = {.sent_us = i}};

        CHECK_EQ(conn_send(&a.conn, &msg, NULL), STATUS_OK);
        if (i % 1000 == 0)
            (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    RUN_UNTIL(a.message_count == 20000);
    CHECK_EQ(b.message_count, 20000);
    CHECK_EQ(a.last_sent_us, 20000);
    conn_close(&a.conn, STATUS_OK, "done");
    RUN_UNTIL(a.closed_count + b.closed_count == 2);
    CHECK_EQ(a.why, STATUS_OK);
    CHECK_STR(a.text, "done");
    CHECK_EQ(b.why, STATUS_CLOSED);
    CHECK_STR(b.text, "the peer closed the connection");
    close_loop();
}

TEST(one_byte_at_a_time_is_enough)
{
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    for (uint32_t i = 1; i <= 20; i++)
        make_ack(&buf, i, i);
    for (size_t i = 0; i < buf.byte_count; i++) {
        write_raw(peer, buf.bytes + i, 1);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    RUN_UNTIL(side.message_count == 20);
    CHECK_EQ(side.last_sent_us, 20);
    (void)close(peer);
    RUN_UNTIL(side.closed_count == 1);
    buf_free(&buf);
    close_loop();
}

TEST(old_numbers_are_dropped)
{
    static const uint32_t seqs[] = {5, 5, 4, 1, 6, 0, 6, 9};
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++)
        make_ack(&buf, seqs[i], seqs[i]);
    write_raw(peer, buf.bytes, buf.byte_count);
    RUN_UNTIL(side.last_sent_us == 9);
    CHECK_EQ(side.message_count, 3);
    (void)close(peer);
    RUN_UNTIL(side.closed_count == 1);
    buf_free(&buf);
    close_loop();
}

/* Sends `bytes`, expects an error message that begins so, and the end. */
static void check_refused(const void *bytes, size_t byte_count, enum status why, const char *text)
{
    struct side side;
    int peer = open_with_raw_peer(&side);
    char answer[512];

    write_raw(peer, bytes, byte_count);
    CHECK_EQ(shutdown(peer, SHUT_WR), 0);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.message_count, 0);
    CHECK_EQ(side.why, why);
    if (strncmp(side.text, text, strlen(text)) != 0)
        FAIL("\"%s\", expected \"%s\"", side.text, text);
    read_answer(peer, answer, sizeof answer);
    CHECK(strstr(answer, "\"type\":\"error\"") != NULL);
    CHECK(strstr(answer, "\"code\":\"bad_request\"") != NULL);
    (void)close(peer);
    close_loop();
}

TEST(bad_frames_are_answered_and_end_it)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    static const char ssh[] = "SSH-2.0-OpenSSH_9.2\r\n";
    static const char not_json[] = "\0\0\0\5hello";
    static const char no_type[] = "\0\0\0\2{}";

    check_refused(http, sizeof http - 1, STATUS_BAD_INPUT, "the peer speaks HTTP");
    check_refused(tls, sizeof tls - 1, STATUS_BAD_INPUT, "the peer speaks TLS");
    check_refused(ssh, sizeof ssh - 1, STATUS_BAD_INPUT, "the peer speaks SSH");
    check_refused("\0\0\0\0", 4, STATUS_BAD_INPUT, "a frame of 0 bytes");
    check_refused("\0\1\0\1", 4, STATUS_TOO_BIG, "a frame of 65537 bytes, at most 65536");
    check_refused("\xff\xff\xff\xff", 4, STATUS_TOO_BIG, "a frame of 4294967295 bytes");
    check_refused(not_json, sizeof not_json - 1, STATUS_BAD_INPUT, "JSON at byte 0");
    check_refused(no_type, sizeof no_type - 1, STATUS_BAD_INPUT, "message: expected an object");
}

TEST(what_follows_a_bad_frame_is_not_taken)
{
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    make_ack(&buf, 1, 1);
    buf_add(&buf, "\0\0\0\2[]", 6);
    make_ack(&buf, 2, 2);
    write_raw(peer, buf.bytes, buf.byte_count);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.message_count, 1);
    CHECK_EQ(side.why, STATUS_BAD_INPUT);
    (void)close(peer);
    buf_free(&buf);
    close_loop();
}

TEST(an_end_within_a_frame_is_told)
{
    struct side side;
    int peer = open_with_raw_peer(&side);

    write_raw(peer, "\0\0\1\0{\"type\":", 12);
    (void)close(peer);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.why, STATUS_CLOSED);
    CHECK_STR(side.text, "the peer closed the connection within a frame");
    close_loop();
}

TEST(a_deadline_closes_unless_renewed)
{
    struct side side;
    int peer = open_with_raw_peer(&side);
    uint64_t begin_us = clock_boot_us();

    conn_deadline(&side.conn, 1, "hello");
    conn_deadline(&side.conn, 0, "");
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_ONCE);
    CHECK_EQ(side.conn.closing, false);
    conn_deadline(&side.conn, 150000, "hello");
    RUN_UNTIL(side.conn.closing || side.closed_count == 1);
    CHECK(clock_boot_us() - begin_us >= 150000);
    (void)close(peer);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.why, STATUS_TIMEOUT);
    CHECK_STR(side.text, "no hello within 0.15 s");
    close_loop();
}

/* A message of about 44 KB. */
static enum status send_chunk(struct conn *conn, struct err *err)
{
    static uint8_t bytes[LOG_CHUNK_BYTES_MAX];
    struct msg msg = {.type = MSG_TYPE_LOG_DATA,
                      .log_data = {.bytes = {bytes, sizeof bytes}, .problem = ""}};

    return conn_send(conn, &msg, err);
}

TEST(a_slow_reader_is_dropped_at_the_cap)
{
    struct err err = {.text = ""};
    enum status status = STATUS_OK;
    struct side side;
    uint32_t sent = 0;
    int peer = open_with_raw_peer(&side);

    while (status == STATUS_OK && sent < 1000) {
        CHECK(side.conn.queued_bytes <= CONN_QUEUE_BYTES_MAX);
        status = send_chunk(&side.conn, &err);
        sent++;
    }
    CHECK_EQ(status, STATUS_BUSY);
    CHECK(sent > 90 && sent < 120);
    CHECK(strstr(err.text, "the peer is too slow: 4") != NULL);
    CHECK_EQ(side.closed_count, 0); /* never from within a call */
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.why, STATUS_BUSY);
    (void)close(peer);
    close_loop();
}

TEST(closing_writes_out_what_is_queued)
{
    struct side side, reader;
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_loop();
    open_side(&side, fds[0], FRAME_BYTES_MAX);
    for (int i = 0; i < 60; i++)
        CHECK_EQ(send_chunk(&side.conn, NULL), STATUS_OK);
    CHECK(side.conn.queued_bytes > 1000000);
    conn_close(&side.conn, STATUS_OK, "done");
    open_side(&reader, fds[1], FRAME_BYTES_MAX);
    RUN_UNTIL(side.closed_count + reader.closed_count == 2);
    CHECK_EQ(reader.message_count, 60);
    CHECK_EQ(side.why, STATUS_OK);
    close_loop();
}

TEST(closing_does_not_wait_for_ever)
{
    uint64_t begin_us = clock_boot_us(), took_us;
    struct side side;
    int peer = open_with_raw_peer(&side);

    for (int i = 0; i < 60; i++)
        CHECK_EQ(send_chunk(&side.conn, NULL), STATUS_OK);
    conn_close(&side.conn, STATUS_OK, "done");
    RUN_UNTIL(side.closed_count == 1);
    took_us = clock_boot_us() - begin_us;
    CHECK(took_us >= 1900000 && took_us < 10000000);
    CHECK_EQ(side.why, STATUS_OK);
    (void)close(peer);
    close_loop();
}

TEST(closing_within_a_callback)
{
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    side.closes_on_message = true;
    for (uint32_t i = 1; i <= 5; i++)
        make_ack(&buf, i, i);
    write_raw(peer, buf.bytes, buf.byte_count);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.message_count, 1);
    CHECK_STR(side.text, "done");
    (void)close(peer);
    buf_free(&buf);
    close_loop();
}

TEST(a_peer_that_is_gone_is_no_signal)
{
    struct side side;
    int peer = open_with_raw_peer(&side);

    (void)close(peer);
    (void)send_chunk(&side.conn, NULL); /* SIGPIPE would end the test */
    (void)send_chunk(&side.conn, NULL);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.why, STATUS_CLOSED);
    close_loop();
}

/* The peer says why, and goes; we write into that. Its words must still be read. */
TEST(last_words_are_read_though_writing_failed)
{
    struct msg words = {.type = MSG_TYPE_ERROR,
                        .seq = 1,
                        .error = {.code = "refused", .message = "go away", .hint = ""}};
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    CHECK_EQ(msg_encode(&words, &buf, NULL), STATUS_OK);
    write_raw(peer, buf.bytes, buf.byte_count);
    (void)close(peer);
    CHECK_EQ(send_chunk(&side.conn, NULL), STATUS_CLOSED);
    CHECK_EQ(send_chunk(&side.conn, NULL), STATUS_CLOSED);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.message_count, 1);
    CHECK_EQ(side.last_type, MSG_TYPE_ERROR);
    buf_free(&buf);
    close_loop();
}

TEST(a_message_out_of_range_is_not_sent)
{
    struct msg bad = {.type = MSG_TYPE_GO}, good = {.type = MSG_TYPE_BEAT_ACK};
    struct err err = {.text = ""};
    struct side side, reader;
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_loop();
    open_side(&side, fds[0], FRAME_BYTES_MAX);
    open_side(&reader, fds[1], FRAME_BYTES_MAX);
    CHECK_EQ(conn_send(&side.conn, &bad, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "go.job_id: 0 is not in 1..9007199254740991");
    CHECK_EQ(conn_send(&side.conn, &good, &err), STATUS_OK);
    CHECK_EQ(good.seq, 1);
    RUN_UNTIL(reader.message_count == 1);
    conn_close(&reader.conn, STATUS_OK, "done");
    RUN_UNTIL(side.closed_count + reader.closed_count == 2);
    close_loop();
}

/* -- listening and connecting
 * ----------------------------------------------------------------------------------------- */

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

/* A message there and back, then all is closed. */
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

TEST(unix_sockets_know_who_is_there_and_remove_their_file)
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

    /* somebody else's file in its place is left alone */
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

TEST(addresses_that_will_not_do)
{
    static const struct {
        const char *address;
        enum status status;
        const char *text;
    } cases[] = {
        {"0.0.0.0:7400", STATUS_REFUSED,
         "refusing to listen on 0.0.0.0:7400: without keys only loopback is allowed (keys and TLS "
         "are not available in this version); use 127.0.0.1, or a unix socket"},
        {"10.1.2.3:7400", STATUS_REFUSED, "refusing to listen on 10.1.2.3:7400"},
        {"[::]:7400", STATUS_REFUSED, "refusing to listen on [::]:7400"},
        {"[::ffff:127.0.0.1]:7400", STATUS_REFUSED, "refusing to listen on"},
        {"127.0.0.1", STATUS_BAD_INPUT, "\"127.0.0.1\" is no address"},
        {"127.0.0.1:", STATUS_BAD_INPUT, "\"127.0.0.1:\" is no address"},
        {"127.0.0.1:65536", STATUS_BAD_INPUT, "\"127.0.0.1:65536\" is no address"},
        {"127.0.0.1:-1", STATUS_BAD_INPUT, "\"127.0.0.1:-1\" is no address"},
        {"127.1:80", STATUS_BAD_INPUT, "\"127.1:80\" is no address"},
        {"::1:80", STATUS_BAD_INPUT, "\"::1:80\" is no address"},
        {"head:7400", STATUS_BAD_INPUT, "\"head:7400\" is no address"},
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

TEST(nobody_there_is_told)
{
    struct err err = {.text = ""};
    struct side client = {.conn.owner = &client};
    struct server server;
    char address[sizeof server.listener.bound];

    open_loop();
    (void)snprintf(address, sizeof address, "unix:%s/s", test_dir());
    CHECK_EQ(conn_open_to(&client.conn, &loop, address, 1000, &handlers, &err), STATUS_NOT_FOUND);
    CHECK(strstr(err.text, "nobody listens on unix:") != NULL);
    CHECK_EQ(open_server(&server, "127.0.0.1:0", &err), STATUS_OK);
    (void)snprintf(address, sizeof address, "%s", server.listener.bound);
    listener_close(&server.listener);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK_EQ(conn_open_to(&client.conn, &loop, address, 1000, &handlers, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "nobody listens on 127.0.0.1:") != NULL);
    CHECK_EQ(conn_open_to(&client.conn, &loop, "10.0.0.1:80", 1000, &handlers, &err),
             STATUS_REFUSED);
    CHECK(strstr(err.text, "refusing to connect to 10.0.0.1:80") != NULL);
    close_loop();
}

TEST(descriptors_that_will_not_do_stay_the_callers)
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
    to.sin_port = htons((uint16_t)atoi(strrchr(server.listener.bound, ':') + 1));
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

TEST(sending_much_from_a_callback_to_a_peer_that_closes)
{
    struct side a, b;
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_loop();
    open_side(&a, fds[0], FRAME_BYTES_MAX);
    open_side(&b, fds[1], FRAME_BYTES_MAX);
    a.sends_many_on_message = true;
    b.closes_on_message = true;
    CHECK_EQ(conn_send(&b.conn, &(struct msg){.type = MSG_TYPE_BEAT_ACK}, NULL), STATUS_OK);
    RUN_UNTIL(a.closed_count + b.closed_count == 2);
    CHECK_EQ(a.message_count, 1);
    CHECK_EQ(b.message_count, 1);
    CHECK_EQ(b.why, STATUS_OK);
    CHECK_EQ(a.why, STATUS_CLOSED);
    close_loop();
}

TEST_MAIN
