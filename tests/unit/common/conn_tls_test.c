/* Connections with TLS on a real loop. */
#include "common/io/conn.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/unit/common/conn_tools.h"

static struct key key;
static char identity[KEY_IDENTITY_BYTES_MAX];

static bool find(void *user, const char *offered, size_t byte_count,
                 uint8_t secret[KEY_SECRET_BYTES])
{
    (void)user;
    if (byte_count != strlen(identity) || memcmp(offered, identity, byte_count) != 0)
        return false;
    memcpy(secret, key.secret, KEY_SECRET_BYTES);
    return true;
}

static bool are_all(void *user, const char *offered)
{
    (void)offered;
    (void)user;
    return true;
}

static struct tls_context *server_context(void)
{
    static const struct tls_keys keys = {.find = find, .are_all = are_all};
    struct tls_context *context;

    CHECK_EQ(key_parse("ddp://h:1/node0#AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", &key, NULL),
             STATUS_OK);
    CHECK_EQ(key_identity(&key, identity, NULL), STATUS_OK);
    CHECK_EQ(tls_server_new(&context, &keys, NULL), STATUS_OK);
    return context;
}

static struct tls_context *client_context(bool has_right_key)
{
    struct tls_context *context;
    struct key own = key;

    if (!has_right_key)
        CHECK_EQ(key_secret_new(own.secret, NULL), STATUS_OK);
    CHECK_EQ(tls_client_new(&context, &own, NULL), STATUS_OK);
    return context;
}

static void open_sides(struct side *server, struct side *client, struct tls_context *at_server,
                       struct tls_context *at_client)
{
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    open_loop();
    open_side(server, fds[0], FRAME_LARGE_BYTES_MAX);
    open_side(client, fds[1], FRAME_LARGE_BYTES_MAX);
    CHECK_EQ(conn_secure(&server->conn, at_server, NULL), STATUS_OK);
    CHECK_EQ(conn_secure(&client->conn, at_client, NULL), STATUS_OK);
}

static void send_ack(struct side *side, uint64_t number)
{
    struct msg msg = {.type = MSG_TYPE_BEAT_ACK, .beat_ack = {.sent_us = number}};

    CHECK_EQ(conn_send(&side->conn, &msg, NULL), STATUS_OK);
}

TEST(messages_that_are_sent_at_once_follow_the_handshake)
{
    struct tls_context *at_server = server_context(), *at_client = client_context(true);
    struct side server, client;

    open_sides(&server, &client, at_server, at_client);
    server.answers = true;
    CHECK(!conn_is_proved(&server.conn));
    CHECK_STR(conn_identity(&server.conn), "");
    for (uint64_t i = 1; i <= 5000; i++)
        send_ack(&client, i);
    RUN_UNTIL(client.message_count == 5000);
    CHECK_EQ(server.message_count, 5000);
    CHECK_EQ(client.last_sent_us, 5000);
    CHECK(conn_is_proved(&server.conn) && conn_is_proved(&client.conn));
    CHECK_STR(conn_identity(&server.conn), identity);
    conn_close(&client.conn, STATUS_OK, "done");
    RUN_UNTIL(server.closed_count + client.closed_count == 2);
    CHECK_EQ(server.why, STATUS_CLOSED);
    CHECK_STR(server.text, "the peer closed the connection");
    close_loop();
    tls_context_free(&at_server);
    tls_context_free(&at_client);
}

TEST(a_wrong_key_is_named_on_both_sides)
{
    struct tls_context *at_server = server_context(), *at_client = client_context(false);
    struct side server, client;

    open_sides(&server, &client, at_server, at_client);
    send_ack(&client, 1);
    RUN_UNTIL(server.closed_count + client.closed_count == 2);
    CHECK_EQ(server.message_count, 0);
    CHECK_EQ(server.why, STATUS_REFUSED);
    CHECK(strstr(server.text, "node0:") != NULL && strstr(server.text, "is unknown here") != NULL);
    CHECK_EQ(client.why, STATUS_REFUSED);
    CHECK(strstr(client.text, "the server does not take this key") != NULL);
    close_loop();
    tls_context_free(&at_server);
    tls_context_free(&at_client);
}

TEST(a_plain_client_gets_no_message_through)
{
    struct tls_context *at_server = server_context();
    struct buf frame = {0};
    struct side server;
    int peer = open_with_raw_peer(&server);

    CHECK_EQ(conn_secure(&server.conn, at_server, NULL), STATUS_OK);
    make_ack(&frame, 1);
    write_raw(peer, frame.bytes, frame.byte_count);
    RUN_UNTIL(server.closed_count == 1);
    CHECK_EQ(server.message_count, 0);
    CHECK_EQ(server.why, STATUS_BAD_INPUT);
    (void)close(peer);
    buf_free(&frame);
    close_loop();
    tls_context_free(&at_server);
}

/* A TLS record may hold 16 KiB, and a handshake message may span several records. */
TEST(a_handshake_without_end_is_cut_off)
{
    struct tls_context *at_server = server_context();
    static char record[5 + 4000];
    struct side server;
    int peer = open_with_raw_peer(&server);

    CHECK_EQ(conn_secure(&server.conn, at_server, NULL), STATUS_OK);
    memcpy(record, "\x16\x03\x01\x0f\xa0\x01\x00\xff\xff", 9); /* a ClientHello of 64 KiB */
    for (int i = 0; i < 6 && server.closed_count == 0; i++) {
        if (write(peer, record, sizeof record) < 0)
            break;
        memset(record + 5, 0, 4);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    RUN_UNTIL(server.closed_count == 1);
    CHECK(server.why == STATUS_TOO_BIG || server.why == STATUS_BAD_INPUT);
    (void)close(peer);
    close_loop();
    tls_context_free(&at_server);
}

TEST(half_a_handshake_ends_at_the_deadline)
{
    struct tls_context *at_server = server_context();
    struct side server;
    int peer = open_with_raw_peer(&server);

    CHECK_EQ(conn_secure(&server.conn, at_server, NULL), STATUS_OK);
    conn_deadline(&server.conn, 50000, "TLS handshake");
    write_raw(peer, "\x16\x03\x01", 3);
    RUN_UNTIL(server.closed_count == 1);
    CHECK_EQ(server.why, STATUS_TIMEOUT);
    CHECK(strstr(server.text, "no TLS handshake within") != NULL);
    (void)close(peer);
    close_loop();
    tls_context_free(&at_server);
}

TEST_MAIN
