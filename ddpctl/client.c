#include "ddpctl/client.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/io/address.h"
#include "common/io/default_server.h"
#include "common/msg_schema.h"
#include "common/msg_version.h"

#define DELAY_FIRST_MS 10u
#define DELAY_MAX_MS 500u
#define DELAY_FULL_MS                                                                              \
    10u /* a full queue has room again as soon as the server takes one, and others want it, too */
#define WELCOME_US 2000000u       /* where there are other servers */
#define WELCOME_WAIT_US 10000000u /* where there are none */
#define REPORT_AFTER_US 2000000u
#define STEADY_US                                                                                  \
    1000000u /* a connection that ends earlier is a failed attempt, whatever it brought */

static void on_timer(uv_timer_t *timer);

static void fail(struct client *client, enum status status, const char *text)
{
    client_close(client);
    (void)err_set(&client->why, status, client->is_full ? EAGAIN : 0, "%s", text);
    client->handlers->on_failed(client, &client->why);
}

/* How long to go on trying. Several servers are all tried at least once, and there may be no leader
 * for a while until another one takes over. */
static uint64_t patience_of(const struct client *client)
{
    const bool is_patient =
        client->was_open || client->was_dropped || client->was_full || client->first_is_patient;
    const bool has_others = client->stands_by || (client->was_open && client->list.count > 1);

    if (!client->is_once && has_others)
        return client->patience_us > CLIENT_FAILOVER_US ? client->patience_us : CLIENT_FAILOVER_US;
    return is_patient ? client->patience_us : 0;
}

/* 0 if `is_hasty` or while some servers were not tried. Otherwise the delay doubles each time; the
 * result is random, between half of it and all of it. */
static uint64_t next_delay_ms(struct client *client, bool is_hasty)
{
    const uint64_t delay_ms = client->is_full ? DELAY_FULL_MS : client->delay_ms;

    if (is_hasty || !server_list_all_failed(&client->list))
        return 0;
    if (!client->is_full)
        client->delay_ms = delay_ms * 2 < DELAY_MAX_MS ? delay_ms * 2 : DELAY_MAX_MS;
    return delay_ms / 2 + uv_hrtime() % (delay_ms / 2 + 1);
}

/* Since when a request on this connection has had no answer. */
static uint64_t unanswered_since(const struct client *client, uint64_t now_us)
{
    if (client->opened_at_us == 0 || client->expect_us == 0)
        return now_us;
    return client->expect_at_us > client->opened_at_us ? client->expect_at_us
                                                       : client->opened_at_us;
}

/* What a connection was good for, now that it is over. Patience ends only with an answer to a request:
 * a server that welcomes us and closes gives none. With no request open, a connection that has lasted
 * is as good. The delay and the report begin anew only after a connection that has lasted: answers of
 * a server that always closes after one do not make us call it in a tight loop. */
static void judge(struct client *client, uint64_t now_us)
{
    const bool has_lasted = client->opened_at_us != 0 && now_us - client->opened_at_us >= STEADY_US;
    const bool is_good =
        client->is_useful || (client->is_answered && has_lasted && client->expect_us == 0);

    if (is_good || client->lost_at_us == 0)
        client->lost_at_us = is_good ? now_us : unanswered_since(client, now_us);
    if ((is_good && has_lasted) || client->unsteady_at_us == 0) {
        client->unsteady_at_us = is_good ? now_us : unanswered_since(client, now_us);
        client->delay_ms = DELAY_FIRST_MS;
        client->loss_reported = false;
    }
    client->is_useful = client->is_answered = false;
    client->opened_at_us = 0;
}

/* `is_hasty`: the server named another server, which we have not tried yet: try it at once. */
static void lost(struct client *client, enum status status, const char *text, bool is_hasty)
{
    const uint64_t now_us = clock_boot_us();
    const bool has_tried = client->list.count == 1 || server_list_all_failed(&client->list);
    uint64_t since_us;

    assert(!client->conn_live);
    client->open = false;
    (void)err_set(&client->why, status, 0, "%s", text);
    if (client->closing)
        return;
    judge(client, now_us);
    since_us = now_us - client->lost_at_us;
    if (since_us >= patience_of(client) && has_tried && !is_hasty) {
        fail(client, client->stands_by ? STATUS_BUSY : status, text);
        return;
    }
    if (now_us - client->unsteady_at_us >= REPORT_AFTER_US && !client->loss_reported &&
        client->handlers->on_waiting) {
        client->loss_reported = true;
        client->handlers->on_waiting(client, &client->why);
    }
    (void)uv_timer_start(&client->timer, on_timer, next_delay_ms(client, is_hasty), 0);
}

static void failed(struct client *client, enum status status, const char *text)
{
    server_list_failed(&client->list);
    lost(client, status, text, false);
}

/* Why the server does not accept our key or a client without a key; NULL: it was not that. */
static const char *refusal(const struct client *client, enum status why, const char *text)
{
    const bool is_first_answer = !client->is_answered;

    if (client->tls != NULL && why == STATUS_REFUSED)
        return "it was removed or rotated, or is of another server";
    /* it answered with TLS, and we expected frames of our protocol; what speaks another is no server of ours */
    if (client->tls == NULL && !address_is_unix(server_list_address(&client->list)) &&
        is_first_answer && why == STATUS_BAD_INPUT && strstr(text, "the peer speaks TLS") != NULL)
        return "it takes only clients with a key";
    return NULL;
}

/* The server is a standby, and this connection to it is over. */
static void refer(struct client *client)
{
    char text[SERVER_ADDRESS_BYTES_MAX + 80];
    bool is_hasty;

    if (client->leader[0] != '\0')
        (void)snprintf(text, sizeof text, "it stands by for the server at %s", client->leader);
    else if (client->why_none[0] != '\0')
        (void)snprintf(text, sizeof text, "no server leads: %s", client->why_none);
    else
        (void)snprintf(text, sizeof text, "it stands by, and no server leads now");
    client->is_referred = false;
    client->stands_by = true;
    is_hasty = server_list_referred(&client->list, client->leader);
    lost(client, STATUS_BUSY, text, is_hasty);
}

static void on_conn_closed(struct conn *conn, enum status why, const char *text)
{
    struct client *client = conn->owner;
    const char *refused = refusal(client, why, text);

    client->conn_live = false;
    if (client->is_referred) {
        refer(client);
        return;
    }
    /* It cannot say whether our key is valid: it stands by, and the leader may know the key. */
    client->stands_by = client->stands_by || (client->tls != NULL && why == STATUS_BUSY);
    client->was_dropped = client->was_dropped || (!client->is_answered && why == STATUS_CLOSED);
    /* One of several servers may not know the key yet: try the others first. */
    if (refused != NULL && !client->closing && client->list.failures + 1 >= client->list.count)
        fail(client, STATUS_REFUSED, refused);
    else
        failed(client, why == STATUS_REFUSED || why == STATUS_BUSY ? STATUS_CLOSED : why, text);
}

/* With several servers the first answer must come soon: if a server is stopped or its machine
 * hangs, we can ask another one. */
static void arm_deadline(struct client *client)
{
    if (!client->is_answered && client->list.count > 1)
        conn_deadline(&client->conn, WELCOME_US, "welcome");
    else
        conn_deadline(&client->conn, client->expect_us, "answer");
}

static void on_conn_message(struct conn *conn, const struct msg *msg)
{
    struct client *client = conn->owner;

    if (client->closing)
        return;
    if (msg->type == MSG_TYPE_REFER) {
        client->is_referred = true;
        (void)snprintf(client->leader, sizeof client->leader, "%s", msg->refer.leader);
        (void)snprintf(client->why_none, sizeof client->why_none, "%s", msg->refer.why);
        conn_close(conn, STATUS_BUSY, "it stands by");
        return;
    }
    client->was_open = client->is_answered = true;
    if (msg->type == MSG_TYPE_ERROR && strcmp(msg->error.code, "later") == 0) {
        conn_close(conn, STATUS_PEER_LOST, msg->error.message); /* its owner asks again */
        return;
    }
    if (msg->type == MSG_TYPE_CLIENT_WELCOME) {
        client->stands_by = false;
        if (client->awaits_welcome)
            client->handlers->on_open(client);
    } else {
        client->was_useful = client->is_useful;
        client->is_useful = true;
        server_list_reached(&client->list);
    }
    if (msg->type == MSG_TYPE_CLIENT_WELCOME && client->list.count > 1)
        arm_deadline(client);
    if (msg->type != MSG_TYPE_CLIENT_WELCOME)
        client->handlers->on_message(client, msg);
    else if (client->handlers->on_welcome != NULL)
        client->handlers->on_welcome(client, &msg->client_welcome);
}

static const struct conn_handlers conn_handlers = {.on_message = on_conn_message,
                                                   .on_closed = on_conn_closed};

/* Connected. A TLS handshake counts as part of the first answer. */
static void opened(struct client *client)
{
    struct msg hello = {.type = MSG_TYPE_CLIENT_HELLO,
                        .client_hello = {.protocol = msg_protocol(),
                                         .version = msg_release(),
                                         .schema = msg_schema()}};
    struct err err = {0};

    client->conn_live = client->open = true;
    client->is_full = false;
    client->is_answered = client->is_useful = false;
    client->opened_at_us = clock_boot_us();
    client->expect_us = 0;
    if (client->tls != NULL)
        conn_deadline(&client->conn, HELLO_TIMEOUT_US, "end of the TLS handshake");
    if (client->list.count > 1)
        arm_deadline(client);
    if (client->awaits_welcome)
        client_expect(client, WELCOME_WAIT_US);
    if (conn_send(&client->conn, &hello, &err) == STATUS_OK && !client->awaits_welcome)
        client->handlers->on_open(client);
}

/* STATUS_REFUSED would mean a refused key; here it means that no process listens there. STATUS_BUSY would mean that no
 * server leads; here the queue is full. */
static void not_connected(struct client *client, enum status status, const char *text)
{
    client->is_full = status == STATUS_BUSY;
    client->was_full = client->was_full || client->is_full;
    failed(client,
           status == STATUS_REFUSED ? STATUS_NOT_FOUND
           : client->is_full        ? STATUS_TIMEOUT
                                    : status,
           text);
}

/* Without a key we connect only to servers on this machine: conn_dial.h refuses all others. */
static struct tls_context *tls_for(const struct client *client)
{
    const char *address = server_list_address(&client->list);

    if (address_is_unix(address))
        return NULL;
    if (client->server->tls == NULL && server_list_is_foreign(&client->list) &&
        !address_is_loopback(address))
        return client->server->referred_tls;
    return client->server->tls;
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

/* We were referred to a server that takes only clients with a key, and we have none. The first time
 * the user gets an error with its address at once. If we were connected before, we keep trying: the
 * server that we may talk to may become the leader again. */
static void fail_referred(struct client *client)
{
    char text[SERVER_ADDRESS_BYTES_MAX + 100];

    (void)snprintf(text, sizeof text,
                   "it stands by for the server at %s, which takes only clients with a key",
                   client->leader);
    if (client->was_open)
        failed(client, STATUS_NOT_FOUND, text);
    else
        fail(client, STATUS_REFUSED, text);
}

/* A server on another machine takes only clients with a key. */
static bool lacks_key(const struct client *client)
{
    const char *address = server_list_address(&client->list);

    return client->tls == NULL && server_list_is_foreign(&client->list) &&
           !address_is_unix(address) && !address_is_loopback(address);
}

/* The server of this machine may have been started anew at another place of the defaults. */
static void find_anew(struct client *client)
{
    char address[PATH_MAX];
    struct err none;

    if (!client->was_open || !client->server->is_default ||
        !address_is_unix(server_list_address(&client->list)))
        return;
    default_server_find(true, address);
    if (strcmp(address, server_list_at(&client->list, 0)) != 0)
        (void)server_list_parse(&client->list, address, &none);
}

static void on_timer(uv_timer_t *timer)
{
    struct client *client = timer->data;
    enum status status;
    struct err err = {0};

    assert(!client->closing && !client->conn_live && !client->dial.is_running);
    if (client->problem.status != STATUS_OK) {
        fail(client, client->problem.status, client->problem.text);
        return;
    }
    find_anew(client);
    memset(&client->conn, 0, sizeof client->conn);
    client->conn.owner = client->dial.owner = client;
    client->tls = tls_for(client);
    if (lacks_key(client)) {
        fail_referred(client);
        return;
    }
    status = conn_dial_start(&client->dial, &client->conn, timer->loop,
                             server_list_address(&client->list), client->tls, FRAME_LARGE_BYTES_MAX,
                             &conn_handlers, on_dialed, &err);
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
    if (server->problem.status == STATUS_OK)
        client->problem.status =
            server_list_parse(&client->list, server->address, &client->problem);
    else
        client->problem = server->problem;
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
    client->expect_us = timeout_us;
    client->expect_at_us = clock_boot_us();
    if (client->open && !client->closing)
        arm_deadline(client);
}

void client_was_unasked(struct client *client)
{
    client->is_useful = client->was_useful;
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
