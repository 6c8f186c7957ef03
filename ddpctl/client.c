#include "ddpctl/client.h"

#include <string.h>

#define DELAY_FIRST_MS 10u
#define DELAY_MAX_MS 500u
#define TELL_AFTER_US 2000000u

static void on_timer(uv_timer_t *timer);

static void lost(struct client *client, enum status status, const char *text)
{
    uint64_t now_us = clock_boot_us(), patience_us = client->patience_us, since_us;

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
        client_close(client);
        client->handlers->on_failed(client, &client->why);
        return;
    }
    if (since_us >= TELL_AFTER_US && !client->told && client->handlers->on_waiting) {
        client->told = true;
        client->handlers->on_waiting(client, &client->why);
    }
    (void)uv_timer_start(&client->timer, on_timer, client->delay_ms, 0);
    client->delay_ms = client->delay_ms * 2 < DELAY_MAX_MS ? client->delay_ms * 2 : DELAY_MAX_MS;
}

static void on_conn_closed(struct conn *conn, enum status why, const char *text)
{
    struct client *client = conn->owner;

    client->conn_live = false;
    lost(client, why, text);
}

static void on_conn_message(struct conn *conn, const struct msg *msg)
{
    struct client *client = conn->owner;

    if (client->closing)
        return;
    client->lost_at_us = 0;
    client->told = false;
    client->was_open = true;
    if (msg->type != MSG_TYPE_CLIENT_WELCOME)
        client->handlers->on_message(client, msg);
}

static const struct conn_handlers conn_handlers = {.on_message = on_conn_message,
                                                   .on_closed = on_conn_closed};

static void on_timer(uv_timer_t *timer)
{
    struct client *client = timer->data;
    struct msg hello = {.type = MSG_TYPE_CLIENT_HELLO,
                        .client_hello = {.protocol = PROTOCOL_VERSION, .version = DDP_VERSION}};
    struct err err = {0};
    enum status status;

    memset(&client->conn, 0, sizeof client->conn);
    status = conn_open_to(&client->conn, timer->loop, client->address, FRAME_LARGE_BYTES_MAX,
                          &conn_handlers, &err);
    if (status != STATUS_OK) {
        lost(client, status, err.text);
        return;
    }
    client->conn.owner = client;
    client->conn_live = client->open = true;
    if (conn_send(&client->conn, &hello, &err) == STATUS_OK)
        client->handlers->on_open(client);
}

void client_open(struct client *client, uv_loop_t *loop, const char *address, uint64_t patience_us,
                 const struct client_handlers *handlers, void *owner)
{
    memset(client, 0, sizeof *client);
    client->address = address;
    client->patience_us = patience_us;
    client->handlers = handlers;
    client->owner = owner;
    (void)uv_timer_init(loop, &client->timer);
    client->timer.data = client;
    (void)uv_timer_start(&client->timer, on_timer, 0, 0);
}

enum status client_send(struct client *client, struct msg *msg, struct err *err)
{
    if (!client->open || client->closing)
        return STATUS_OK; /* on_open will ask again */
    return conn_send(&client->conn, msg, err);
}

void client_expect(struct client *client, uint64_t timeout_us)
{
    if (client->open && !client->closing)
        conn_deadline(&client->conn, timeout_us, "no answer in time");
}

void client_close(struct client *client)
{
    if (client->closing)
        return;
    client->closing = true;
    client->open = false;
    uv_close((uv_handle_t *)&client->timer, NULL);
    if (client->conn_live)
        conn_close(&client->conn, STATUS_CLOSED, "done");
}
