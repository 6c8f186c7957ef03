/* One connection: finding it, sending, closing, and the user that it belongs to. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/address_reach.h"
#include "common/io/address.h"
#include "common/log.h"
#include "common/utf8.h"
#include "rendezvous/server/internal.h"

struct peer *peer_find(const struct server *server, uint64_t peer_id)
{
    struct peer *peer = server->peers[peer_id % PEERS_MAX];

    return peer != NULL && peer->id == peer_id && !peer->is_closing ? peer : NULL;
}

void peer_close(struct peer *peer, enum status why, const char *text)
{
    if (peer->is_closing)
        return;
    peer->is_closing = true;
    conn_close(&peer->conn, why, text);
}

/* A client waits for an answer to each request. If it cannot be encoded (a stored row is damaged, a
 * list is too long), an error is sent instead. If that cannot be encoded either, it is only
 * logged. */
static void answer_unsent(struct peer *peer, const struct msg *msg, const struct err *err)
{
    char text[sizeof err->text];

    if (peer->kind != PEER_CLIENT || msg->type == MSG_TYPE_ERROR)
        return;
    utf8_printable(err->text, strlen(err->text), text, sizeof text);
    peer_error(peer, err->status == STATUS_MEMORY ? "later" : "internal",
               "the server's log has more", "the answer cannot be sent: %s", text);
}

enum status peer_try_send(struct peer *peer, struct msg *msg, struct err *err)
{
    enum status status;

    if (peer->is_closing)
        return STATUS_CLOSED;
    server_check_lead(peer->server);
    status = conn_send(&peer->conn, msg, err);
    if (status != STATUS_OK && status != STATUS_CLOSED) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s to %s was not sent: %s", msg_type_name(msg->type),
                 peer->kind == PEER_NODE ? peer->name : peer->conn.label, err->text);
        answer_unsent(peer, msg, err);
    }
    backlog_moved(peer);
    return status;
}

bool peer_takes_more(const struct peer *node)
{
    return node->conn.queued_bytes <= CONN_QUEUE_BYTES_MAX / 4;
}

void peer_send(struct peer *peer, struct msg *msg)
{
    struct err err;

    (void)peer_try_send(peer, msg, &err);
}

void peer_error(struct peer *peer, const char *code, const char *hint, const char *format, ...)
{
    struct msg msg = {.type = MSG_TYPE_ERROR};
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    msg.error.code = code;
    msg.error.message = text;
    msg.error.hint = hint;
    peer_send(peer, &msg);
}

bool peer_is_admin(const struct peer *peer)
{
    return (peer->roles & ACCESS_ADMIN) != 0;
}

struct store_viewer peer_viewer(struct peer *peer)
{
    return (struct store_viewer){.user = peer_user(peer), .sees_all = peer_is_admin(peer)};
}

bool peer_find_user(const struct peer *peer, struct err *err)
{
    if (!peer->knows_user)
        (void)err_set(err, STATUS_SYSTEM, peer->user_code,
                      "the server cannot read its user database to know who uid %u is: %s",
                      peer->uid, strerror(peer->user_code));
    return peer->knows_user;
}

const char *peer_user(struct peer *peer)
{
    struct err err;

    if (!peer_find_user(peer, &err)) /* not a client: the name is only for messages */
        (void)snprintf(peer->user, sizeof peer->user, "uid%u", peer->uid);
    return peer->user;
}

uint32_t peer_uid(const struct peer *peer)
{
    return peer->principal_serial == 0 ? peer->uid : UINT32_MAX;
}

uint64_t peer_user_key(const struct peer *peer)
{
    return peer->principal_serial != 0 ? peer->principal_serial : 1ull << 63 | peer->uid;
}

/* Logs a connection that was refused or closed. Anyone on the network can cause such lines, so their number is
 * limited. */
static void log_limited(struct server *server, const char *who, const char *what, const char *text)
{
    uint64_t now_us = clock_boot_us();

    if (now_us - server->refused_since_us >= REFUSED_WINDOW_US) {
        if (server->refused_omitted > 0)
            log_line(LOG_WARNING, LOG_ABOUT_NONE,
                     "%u more connections were refused or closed meanwhile",
                     server->refused_omitted);
        server->refused_since_us = now_us;
        server->refused_lines = 0;
        server->refused_omitted = 0;
    }
    if (server->refused_lines == REFUSED_LINES_MAX) {
        server->refused_omitted++;
        return;
    }
    server->refused_lines++;
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "connection from %s %s: %s", who, what, text);
}

static void name_peer(const struct peer *peer, char *who, size_t byte_count)
{
    (void)snprintf(who, byte_count, "%s%s%s", peer->user, peer->user[0] != '\0' ? " at " : "",
                   peer->conn.label);
}

void peer_log_dropped(const struct peer *peer, const char *text)
{
    char who[NODE_NAME_BYTES_MAX + sizeof peer->conn.label + 8];

    name_peer(peer, who, sizeof who);
    log_limited(peer->server, who, "is closed", text);
}

/* Whether the log has it already; else it is noted. */
static bool is_told(struct peer *peer, const char *reason)
{
    struct server *server = peer->server;
    const uint64_t now_us = clock_boot_us();
    struct told_hello *told;

    for (uint32_t i = 0; i < TOLD_HELLOS_MAX; i++) {
        told = &server->told_hellos[i];
        if (told->reason == reason && told->uid == peer->uid &&
            memcmp(told->source, peer->source, sizeof told->source) == 0 &&
            now_us - told->at_us < TOLD_HELLO_US)
            return true;
    }
    told = &server->told_hellos[server->told_hello_count++ % TOLD_HELLOS_MAX];
    *told = (struct told_hello){.uid = peer->uid, .reason = reason, .at_us = now_us};
    memcpy(told->source, peer->source, sizeof told->source);
    return false;
}

void peer_log_hello(struct peer *peer, const char *reason, const char *format, ...)
{
    char text[512];
    va_list args;

    peer->is_told = true;
    if (is_told(peer, reason))
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "the hello from %s is refused: %s", peer->conn.label,
             text);
}

void peer_log_closed(const struct peer *peer, enum status why, const char *text)
{
    const struct log_about about = {.node = peer->kind == PEER_NODE ? peer->name : NULL,
                                    .rank = -1};
    const bool is_unknown = peer->kind == PEER_UNKNOWN || peer->kind == PEER_REFUSED;
    const bool is_bad = why == STATUS_BAD_INPUT || why == STATUS_TOO_BIG;
    const bool is_slow_node = peer->kind == PEER_NODE && why == STATUS_BUSY;
    char who[NODE_NAME_BYTES_MAX + sizeof peer->conn.label + 8];

    name_peer(peer, who, sizeof who);
    if (peer->endpoint->uses_tls && !peer->is_told &&
        (is_bad || (is_unknown && why != STATUS_CLOSED && why != STATUS_OK)))
        log_limited(peer->server, who, "was refused", text);
    else
        log_line(is_bad || is_slow_node ? LOG_WARNING : LOG_DEBUG, about,
                 "connection %s closed: %s", peer->conn.label, text);
}

void peer_called(const struct peer *peer, char out[ADDRESS_BYTES_MAX])
{
    struct sockaddr_storage own = {0};
    int byte_count = sizeof own;
    char text[ADDRESS_BYTES_MAX + 8];
    in_port_t port;

    out[0] = '\0';
    if (peer->endpoint == &peer->server->endpoints[0] ||
        uv_tcp_getsockname(&peer->conn.handle.tcp, (struct sockaddr *)&own, &byte_count) != 0)
        return;
    address_unmap(&own);
    address_format_tcp(&own, text, sizeof text);
    (void)address_split_tcp(text, out, ADDRESS_BYTES_MAX, &port);
}
