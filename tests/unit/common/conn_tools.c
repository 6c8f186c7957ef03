#include "tests/unit/common/conn_tools.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uv_loop_t loop;
static uv_timer_t tick; /* wakes the loop, so that a wait can time out */

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
    if (side->pauses_on_message)
        conn_pause(conn);
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
    memset(conn, 0xa5, sizeof *conn); /* its memory is free from here on */
    conn->owner = side;
}

static void on_moved(struct conn *conn)
{
    struct side *side = conn->owner;

    side->moved_count++;
}

const struct conn_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

void open_loop(void)
{
    CHECK_EQ(uv_loop_init(&loop), 0);
    CHECK_EQ(uv_timer_init(&loop, &tick), 0);
    CHECK_EQ(uv_timer_start(&tick, on_tick, 20, 20), 0);
}

/* Every handle except the tick must be closed by now. */
void close_loop(void)
{
    uv_close((uv_handle_t *)&tick, NULL);
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

void open_side(struct side *side, int fd, size_t payload_max)
{
    struct err err = {.text = ""};

    *side = (struct side){.conn.owner = side};
    if (conn_open_fd(&side->conn, &loop, fd, payload_max, &handlers, &err) != STATUS_OK)
        FAIL("%s", err.text);
    side->conn.on_moved = on_moved;
}

/* One end for the connection, one for the test. */
int open_with_raw_peer(struct side *side)
{
    int fds[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    open_loop();
    open_side(side, fds[0], FRAME_BYTES_MAX);
    return fds[1];
}

void write_raw(int fd, const void *bytes, size_t byte_count)
{
    CHECK_EQ(write(fd, bytes, byte_count), (ssize_t)byte_count);
}

void make_ack(struct buf *buf, uint64_t sent_us)
{
    struct msg msg = {.type = MSG_TYPE_BEAT_ACK, .beat_ack = {.sent_us = sent_us}};

    CHECK_EQ(msg_encode(&msg, buf, NULL), STATUS_OK);
}

/* Reads everything up to the end; `text` gets the text of the first frame. */
void read_answer(int fd, char *text, size_t text_bytes)
{
    char bytes[4096];
    ssize_t count = read(fd, bytes, sizeof bytes);

    CHECK(count > 4);
    (void)snprintf(text, text_bytes, "%.*s", (int)count - 4, bytes + 4);
}
