#include "ddpctl/client.h"

#include <assert.h>
#include <string.h>

#include "common/io/address.h"

#define DELAY_FIRST_MS 10u
#define DELAY_MAX_MS 500u
#define REPORT_AFTER_US 2000000u

static void on_timer(uv_timer_t *timer);

static void fail(struct client *client, enum status status, const char *text)
{
    client_close(client);
    (void)err_set(&client->why, status, 0, "%s", text);
    client->handlers->on_failed(client, &client->why);
}

static void lost(struct client *client, enum status status, const char *text)
{
    uint64_t now_us = clock_boot_us(), patience_us = client->patience_us, since_us;

    assert(!client->conn_live);
    client->open = false;
    (void)err_set(&client->why, status, 0, "%s", text);
    if (client->closing)
        return;
    if (client->lost_at_us == 0) {
        client->lost_at_us = now_us;
        client->delay_ms = DELAY_FIRST_MS;
    }
    if (!client->was_open && !client->first_is_patient)
        patience_us = 0;
    since_us = now_us - client->lost_at_us;
    if (since_us >= patience_us) {
        fail(client, status, text);
        return;
    }
    if (since_us >= REPORT_AFTER_US && !client->loss_reported && client->handlers->on_waiting) {
        client->loss_reported = true;
        client->handlers->on_waiting(client, &client->why);
    }
    (void)uv_timer_start(&client->timer, on_timer, client->delay_ms, 0);
    client->delay_ms = client->delay_ms * 2 < DELAY_MAX_MS ? client->delay_ms * 2 : DELAY_MAX_MS;
}

/* The server wants a key, and ours is none that it takes. */
static const char *refusal(const struct client *client, enum status why)
{
    const bool is_first_answer = !client->is_answered;

    if (client->server->tls != NULL && why == STATUS_REFUSED)
        return "it was removed or rotated, or is of another server";
    /* TLS, where we expected frames */
    if (client->server->tls == NULL && !address_is_unix(client->server->address) &&
        is_first_answer && (why == STATUS_TOO_BIG || why == STATUS_BAD_INPUT))
        return "it takes only clients with a key";
    return NULL;
}

static void on_conn_closed(struct conn *conn, enum status why, const char *text)
{
    struct client *client = conn->owner;
    const char *refused = refusal(client, why);

    client->conn_live = false;
    if (client->begins_again && !client->closing) {
        client->begins_again = client->open = false;
        (void)uv_timer_start(&client->timer, on_timer, 0, 0);
        return;
    }
    if (refused != NULL && !client->closing)
        fail(client, STATUS_REFUSED, refused);
    else
        lost(client, why == STATUS_REFUSED ? STATUS_CLOSED : why, text);
}

static void on_conn_message(struct conn *conn, const struct msg *msg)
{
    struct client *client = conn->owner;

    if (client->closing)
        return;
    if (msg->type == MSG_TYPE_ERROR && !client->is_answered && !client->speaks_earlier &&
        msg_wants_first_protocol(&msg->error, msg_protocol())) {
        client->speaks_earlier = client->begins_again = true;
        conn_close(conn, STATUS_UNSUPPORTED, "the server is of the version before");
        return;
    }
    client->lost_at_us = 0;
    client->loss_reported = false;
    client->was_open = client->is_answered = true;
    if (msg->type != MSG_TYPE_CLIENT_WELCOME)
        client->handlers->on_message(client, msg);
}

static const struct conn_handlers conn_handlers = {.on_message = on_conn_message,
                                                   .on_closed = on_conn_closed};

/* Connected. The TLS handshake, where there is one, counts as part of the first answer. */
static void opened(struct client *client)
{
    struct msg hello = {.type = MSG_TYPE_CLIENT_HELLO,
                        .client_hello = {.protocol = msg_protocol() - client->speaks_earlier,
                                         .version = DDP_VERSION}};
    struct err err = {0};

    client->conn_live = client->open = true;
    client->is_answered = false;
    if (client->server->tls != NULL)
        conn_deadline(&client->conn, HELLO_TIMEOUT_US, "end of the TLS handshake");
    if (conn_send(&client->conn, &hello, &err) == STATUS_OK)
        client->handlers->on_open(client);
}

/* STATUS_REFUSED is for keys: here it means that nobody listens. */
static void not_connected(struct client *client, enum status status, const char *text)
{
    lost(client, status == STATUS_REFUSED ? STATUS_NOT_FOUND : status, text);
}

static void on_dialed(struct conn_dial *dial, enum status status, const char *text)
{
    struct client *client = dial->owner;

    if (status == STATUS_OK && client->closing) {
        client->conn_live = true;
        conn_close(&client->conn, STATUS_CLOSED, "done");
    } else if (status == STATUS_OK) {
        opened(client);
    } else {
        not_connected(client, status, text);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct client *client = timer->data;
    const struct server *server = client->server;
    enum status status;
    struct err err = {0};

    assert(!client->closing && !client->conn_live && !client->dial.is_running);
    if (server->problem.status != STATUS_OK) {
        fail(client, server->problem.status, server->problem.text);
        return;
    }
    memset(&client->conn, 0, sizeof client->conn);
    client->conn.owner = client->dial.owner = client;
    status = conn_dial_start(&client->dial, &client->conn, timer->loop, server->address,
                             server->tls, FRAME_LARGE_BYTES_MAX, &conn_handlers, on_dialed, &err);
    if (status != STATUS_OK)
        not_connected(client, status, err.text);
    else if (!client->dial.is_running)
        opened(client);
}

void client_open(struct client *client, uv_loop_t *loop, const struct server *server,
                 uint64_t patience_us, const struct client_handlers *handlers, void *owner)
{
    assert(handlers->on_open != NULL && handlers->on_message != NULL &&
           handlers->on_failed != NULL);
    assert(server->address != NULL);
    memset(client, 0, sizeof *client);
    client->server = server;
    client->patience_us = patience_us;
    client->handlers = handlers;
    client->owner = owner;
    (void)uv_timer_init(loop, &client->timer);
    client->timer.data = client;
    (void)uv_timer_start(&client->timer, on_timer, 0, 0);
}

enum status client_send(struct client *client, struct msg *msg, struct err *err)
{
    enum status status;

    if (!client->open || client->closing)
        return STATUS_OK; /* on_open will send it again */
    status = conn_send(&client->conn, msg, err);
    /* The connection has just ended: on_conn_closed follows, and then on_open sends it again. */
    return status == STATUS_CLOSED || status == STATUS_BUSY ? STATUS_OK : status;
}

void client_expect(struct client *client, uint64_t timeout_us)
{
    if (client->open && !client->closing)
        conn_deadline(&client->conn, timeout_us, "answer");
}

void client_close(struct client *client)
{
    if (client->closing)
        return;
    client->closing = true;
    client->open = false;
    uv_close((uv_handle_t *)&client->timer, NULL);
    conn_dial_cancel(&client->dial);
    if (client->conn_live)
        conn_close(&client->conn, STATUS_CLOSED, "done");
}
