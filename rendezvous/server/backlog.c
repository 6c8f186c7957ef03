/* What clients make the server hold: answers that they do not read, and parts of requests. The core's backlog.h
 * says when a connection waits and which one is closed; here bytes are counted, and it is done. */
#include <stdio.h>

#include "rendezvous/core/backlog.h"
#include "rendezvous/server/internal.h"

static struct backlog_view look(const struct peer *peer)
{
    static struct backlog_conn conns[PEERS_MAX];
    const struct server *server = peer->server;

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        const struct peer *other = server->peers[i];

        conns[i] = (struct backlog_conn){0};
        if (other != NULL && other->held_bytes + other->closing_bytes > 0)
            conns[i] = (struct backlog_conn){.user = peer_user_key(other),
                                             .bytes = other->held_bytes + other->closing_bytes,
                                             .moved_us = other->moved_us,
                                             .is_closing = other->closing_bytes > 0};
    }
    return backlog_look(conns, PEERS_MAX, peer_user_key(peer), server->held_bytes);
}

static void drop(struct peer *peer, uint64_t user_bytes)
{
    struct server *server = peer->server;
    char text[200];

    (void)snprintf(text, sizeof text,
                   "the connections of its user hold %.1f MB of unread answers and unfinished "
                   "requests, and it "
                   "is the slowest of them: %.1f MB, for %.1f s",
                   (double)user_bytes / 1e6, (double)peer->held_bytes / 1e6,
                   (double)(clock_boot_us() - peer->moved_us) / 1e6);
    peer_log_dropped(peer, text);
    peer->is_closing = true;
    server->held_bytes -= peer->held_bytes;
    server->closing_bytes += peer->held_bytes;
    peer->closing_bytes = peer->held_bytes;
    peer->held_bytes = 0;
    conn_abort(&peer->conn, STATUS_BUSY, text);
}

/* No user can be over a limit while all together are within what one may hold. */
static bool may_be_over(const struct server *server)
{
    return server->held_bytes + server->closing_bytes > BACKLOG_USER_BYTES_MAX;
}

static void relieve(struct peer *peer)
{
    struct backlog_view view;

    while (may_be_over(peer->server)) {
        view = look(peer);
        if (view.slowest == BACKLOG_NONE)
            return;
        drop(peer->server->peers[view.slowest], view.user_bytes);
    }
}

void backlog_moved(struct peer *peer)
{
    const uint64_t before = peer->held_bytes;

    if (peer->kind != PEER_CLIENT || peer->is_closing)
        return;
    peer->held_bytes = conn_held_bytes(&peer->conn);
    peer->server->held_bytes += peer->held_bytes - before;
    if (peer->held_bytes <= before || before == 0)
        peer->moved_us = clock_boot_us();
    if (backlog_waits(peer->conn.queued_bytes) && !peer->is_held) {
        peer->is_held = true;
        conn_pause(&peer->conn);
    }
    if (peer->held_bytes > before)
        relieve(peer);
}

void backlog_gone(struct peer *peer)
{
    peer->server->held_bytes -= peer->held_bytes;
    peer->server->closing_bytes -= peer->closing_bytes;
    peer->held_bytes = peer->closing_bytes = 0;
}

void backlog_on_moved(struct conn *conn)
{
    struct peer *peer = conn->owner;

    backlog_moved(peer);
    if (!peer->is_held || peer->is_closing || backlog_waits(conn->queued_bytes))
        return;
    peer->is_held = false; /* it has read its answers, so its next request is handled */
    if (!peer->is_staging)
        conn_resume(conn);
    backlog_moved(peer);
}

bool backlog_takes(struct peer *peer)
{
    return !peer->is_held && (!may_be_over(peer->server) || !look(peer).is_full);
}

bool backlog_admits(struct peer *peer)
{
    if (!may_be_over(peer->server) || !look(peer).is_full)
        return true;
    peer_error(peer, "full", "read the answers of the other connections, or end them",
               "the connections of user %s hold too much that was not read", peer_user(peer));
    return false;
}
