/* One connection: found, told, closed; whose it is. */
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/rdzv_io_internal.h"

struct peer *peer_find(const struct rdzv_io *io, uint64_t peer_id)
{
    struct peer *peer = io->peers[peer_id % PEERS_MAX];

    return peer != NULL && peer->id == peer_id && !peer->is_closing ? peer : NULL;
}

void peer_close(struct peer *peer, enum status why, const char *text)
{
    if (peer->is_closing)
        return;
    peer->is_closing = true;
    conn_close(&peer->conn, why, text);
}

void peer_send(struct peer *peer, struct msg *msg)
{
    struct err err;
    enum status status;

    if (peer->is_closing)
        return;
    status = conn_send(&peer->conn, msg, &err);
    if (status != STATUS_OK && status != STATUS_CLOSED)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%s to %s was not sent: %s", msg_type_word(msg->type),
                 peer->kind == PEER_NODE ? peer->name : peer->conn.label, err.text);
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

struct store_viewer peer_viewer(const struct peer *peer)
{
    return (struct store_viewer){.uid = peer->uid,
                                 .sees_all = peer->uid == 0 || peer->uid == geteuid()};
}

const char *peer_user(struct peer *peer)
{
    struct passwd entry, *found = NULL;
    char buffer[4096];

    if (peer->knows_user)
        return peer->user;
    if (getpwuid_r(peer->uid, &entry, buffer, sizeof buffer, &found) == 0 && found != NULL &&
        strlen(entry.pw_name) < sizeof peer->user)
        (void)snprintf(peer->user, sizeof peer->user, "%s", entry.pw_name);
    else
        (void)snprintf(peer->user, sizeof peer->user, "uid%u", peer->uid);
    peer->knows_user = true;
    return peer->user;
}
