/* Limits on clients. Nodes always find room, since clients may only have a part of all connections.
 * One user may have a quarter of that part, so that nobody locks out others. Admins have a few
 * places of their own, so that one can always look. A client that has asked for nothing for some
 * time and waits for nothing is closed; ddpctl connects again when it needs to. */
#include "rendezvous/server/internal.h"

#define PER_USER_MIN 16u
#define FOR_ADMINS_MAX 16u
#define SWEEP_MIN_MS 50u
#define SWEEP_MAX_MS 5000u

static uint32_t clients_max(const struct server *server)
{
    return server->conns_max < CONNS_MAX ? server->conns_max / 2 : CLIENTS_MAX;
}

static uint32_t per_user_max(const struct server *server)
{
    uint32_t quarter = clients_max(server) / 4;

    return quarter > PER_USER_MIN ? quarter : PER_USER_MIN;
}

static uint32_t count_of_user(const struct peer *peer)
{
    const struct server *server = peer->server;
    uint32_t count = 0;

    for (uint32_t i = 0; i < PEERS_MAX; i++)
        count += server->peers[i] != NULL && server->peers[i]->kind == PEER_CLIENT &&
                 peer_user_key(server->peers[i]) == peer_user_key(peer);
    return count;
}

bool clients_take(struct peer *peer)
{
    const struct server *server = peer->server;
    const uint32_t most = clients_max(server);
    const uint32_t for_admins = most / 16 < FOR_ADMINS_MAX ? most / 16 : FOR_ADMINS_MAX;
    const bool is_admin = peer_is_admin(peer);

    if (server->client_count >= (is_admin ? most : most - for_admins)) {
        peer_error(peer, "full", "try again later", "the server has its %u clients", most);
        peer_close(peer, STATUS_BUSY, "too many clients");
        return false;
    }
    if (!is_admin && count_of_user(peer) >= per_user_max(server)) {
        peer_error(peer, "full", "end some of them, or try again later",
                   "user %s has %u connections, as many as one user may", peer_user(peer),
                   per_user_max(server));
        peer_close(peer, STATUS_BUSY, "too many clients of its user");
        return false;
    }
    return true;
}

static void on_sweep(uv_timer_t *timer)
{
    struct server *server = timer->data;
    uint64_t now_us = clock_boot_us();

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = server->peers[i];

        if (peer == NULL || peer->kind != PEER_CLIENT || peer->is_closing)
            continue;
        if (peer->waiter_count > 0 || peer->is_submitting || peer->is_staging)
            peer->heard_us = now_us;
        else if (now_us - peer->heard_us >= server->client_idle_us)
            peer_close(peer, STATUS_TIMEOUT, "it has asked for nothing for too long");
    }
}

void clients_begin(struct server *server, uint64_t client_idle_us)
{
    uint64_t interval_ms = client_idle_us / 4000;

    server->client_idle_us = client_idle_us;
    interval_ms = interval_ms < SWEEP_MIN_MS   ? SWEEP_MIN_MS
                  : interval_ms > SWEEP_MAX_MS ? SWEEP_MAX_MS
                                               : interval_ms;
    if (client_idle_us > 0)
        (void)uv_timer_start(&server->clients_timer, on_sweep, interval_ms, interval_ms);
}
