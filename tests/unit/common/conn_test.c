/* Connections on a real loop, over socket pairs. */
#include "common/io/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/frame.h"
#include "tests/lib/test.h"
#include "tests/unit/common/conn_tools.h"

/* A loop, and both ends of a connection on it. */
static void open_pair(struct side *a, struct side *b, int fds[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    open_loop();
    open_side(a, fds[0], FRAME_BYTES_MAX);
    open_side(b, fds[1], FRAME_BYTES_MAX);
}

TEST(messages_arrive_in_order_both_ways)
{
    struct side a, b;
    int fds[2];

    open_pair(&a, &b, fds);
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
        make_ack(&buf, i);
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

/* Sends `bytes`; expects an error message with this beginning, then the end of the connection. */
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

TEST(what_follows_a_bad_frame_is_ignored)
{
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    make_ack(&buf, 1);
    buf_add(&buf, "\0\0\0\2[]", 6);
    make_ack(&buf, 2);
    write_raw(peer, buf.bytes, buf.byte_count);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.message_count, 1);
    CHECK_EQ(side.why, STATUS_BAD_INPUT);
    (void)close(peer);
    buf_free(&buf);
    close_loop();
}

TEST(an_end_within_a_frame_is_reported)
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

TEST(a_slow_reader_is_dropped_at_the_limit)
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
    CHECK(sent > 180 && sent < 210);
    CHECK(strstr(err.text, "the peer is too slow: 8") != NULL);
    CHECK_EQ(side.closed_count, 0); /* the callback never runs within a call */
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.why, STATUS_BUSY);
    (void)close(peer);
    close_loop();
}

TEST(a_paused_connection_delivers_later)
{
    struct side side;
    struct buf buf = {0};
    int peer = open_with_raw_peer(&side);

    for (uint32_t i = 1; i <= 5; i++)
        make_ack(&buf, i);
    side.pauses_on_message = true;
    write_raw(peer, buf.bytes, buf.byte_count - 3); /* the last frame is not whole */
    for (uint32_t i = 1; i <= 4; i++) {
        RUN_UNTIL(side.message_count == i);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        CHECK_EQ(side.last_sent_us, i); /* one at a time */
        CHECK(conn_held_bytes(&side.conn) >= 4 - i);
        conn_resume(&side.conn);
    }
    write_raw(peer, buf.bytes + buf.byte_count - 3, 3);
    RUN_UNTIL(side.message_count == 5);
    conn_close(&side.conn, STATUS_OK, "done");
    RUN_UNTIL(side.closed_count == 1);
    (void)close(peer);
    buf_free(&buf);
    close_loop();
}

TEST(what_is_queued_holds_no_more_than_its_rest)
{
    struct side side;
    int peer = open_with_raw_peer(&side);

    while (side.conn.queued_bytes == 0)
        CHECK_EQ(send_chunk(&side.conn, NULL), STATUS_OK);
    CHECK_EQ(conn_held_bytes(&side.conn), side.conn.queued_bytes);
    CHECK(side.moved_count == 0);
    while (side.conn.queued_bytes > 0) {
        char bytes[65536];

        (void)!read(peer, bytes, sizeof bytes);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    CHECK(side.moved_count == 1);
    CHECK_EQ(conn_held_bytes(&side.conn), 0);
    conn_close(&side.conn, STATUS_OK, "done");
    RUN_UNTIL(side.closed_count == 1);
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
    uint64_t begin_us = clock_boot_us();
    struct side side;
    int peer = open_with_raw_peer(&side);

    for (int i = 0; i < 60; i++)
        CHECK_EQ(send_chunk(&side.conn, NULL), STATUS_OK);
    conn_close(&side.conn, STATUS_OK, "done");
    RUN_UNTIL(side.closed_count == 1);
    CHECK(clock_boot_us() - begin_us >= 1900000);
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
        make_ack(&buf, i);
    write_raw(peer, buf.bytes, buf.byte_count);
    RUN_UNTIL(side.closed_count == 1);
    CHECK_EQ(side.message_count, 1);
    CHECK_STR(side.text, "done");
    (void)close(peer);
    buf_free(&buf);
    close_loop();
}

TEST(a_write_to_a_closed_peer_raises_no_signal)
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

/* The peer sends the reason and closes; then we write to it. The reason must still be read. */
TEST(the_last_message_is_read_though_writing_failed)
{
    struct msg words = {.type = MSG_TYPE_ERROR,
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
    RUN_UNTIL(reader.message_count == 1);
    conn_close(&reader.conn, STATUS_OK, "done");
    RUN_UNTIL(side.closed_count + reader.closed_count == 2);
    close_loop();
}

TEST(sending_much_from_a_callback_to_a_peer_that_closes)
{
    struct side a, b;
    int fds[2];

    open_pair(&a, &b, fds);
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
