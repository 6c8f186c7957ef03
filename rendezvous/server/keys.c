/* Keys: the table in memory, its rows in the store, and endpoints that wait for the first key. An
 * admin makes, rotates and removes keys. Removing one ends its connections at once; an expired old
 * secret only refuses new handshakes. The store is written before the answer leaves, so a key that
 * was shown is never lost.
 *
 * A state that went back has the keys of then. A key that was removed since is valid again, and nobody here can know
 * it. But a key that was made since is not known, so an unknown key is no reason for a node to give up, until an
 * administrator has checked the keys, or has made the key of that name again. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/address_reach.h"
#include "common/log.h"
#include "rendezvous/server/internal.h"

#define EXPIRE_CHECK_MAX_MS 3600000 /* the wall clock may be set */

/* Logs an event for people; the caller commits. */
static void note(struct server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct server *server, const char *format, ...)
{
    char text[REASON_BYTES_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    store_begin(server->store);
    (void)store_write_event(server->store, clock_wall_ms(), 0, 0, text);
    log_line(LOG_INFO, LOG_ABOUT_NONE, "%s", text);
}

/* -- reading and expiry ------------------------------------------------------------------------ */

static void on_key_timer(uv_timer_t *timer);

static void arm(struct server *server)
{
    int64_t next_ms = principals_next_end(&server->principals), now_ms = clock_wall_ms();
    int64_t in_ms = next_ms > now_ms ? next_ms - now_ms : 0;

    if (next_ms == INT64_MAX || server->is_stopping) {
        (void)uv_timer_stop(&server->key_timer);
        return;
    }
    uv_update_time(server->loop);
    (void)uv_timer_start(&server->key_timer, on_key_timer,
                         (uint64_t)(in_ms < EXPIRE_CHECK_MAX_MS ? in_ms : EXPIRE_CHECK_MAX_MS), 0);
}

static void drop_expired(struct server *server)
{
    int64_t now_ms = clock_wall_ms();

    for (uint32_t i = 0; i < server->principals.count; i++) {
        struct principal *principal = &server->principals.items[i];

        if (!principal_expire(principal, now_ms))
            continue;
        store_begin(server->store);
        store_write_principal(server->store, &principal->stored);
        log_line(LOG_INFO, LOG_ABOUT_NONE, "the old key of %s has run out", principal->stored.name);
    }
    server_flush_soon(server);
    arm(server);
}

static void on_key_timer(uv_timer_t *timer)
{
    drop_expired(timer->data);
}

static bool find_secret(void *user, const char *identity, size_t byte_count,
                        uint8_t secret[KEY_SECRET_BYTES])
{
    const struct server *server = user;

    return principals_secret(&server->principals, identity, byte_count, clock_wall_ms(), secret);
}

/* Only the leader knows all keys: one may have been made since a standby read them. */
static bool are_all(void *user, const char *identity)
{
    const struct server *server = user;
    char name[NODE_NAME_BYTES_MAX], id[KEY_ID_CHARS + 1];
    const struct principal *found;

    if (server->stands_by || server->principals.is_partial)
        return false;
    if (server->keys_lost_ms == 0)
        return true;
    if (key_identity_split(identity, strlen(identity), name, id, NULL) != STATUS_OK)
        return true;
    found = principals_find(&server->principals, name);
    return found != NULL && (found->stored.created_ms >= server->keys_lost_ms ||
                             found->stored.rotated_ms >= server->keys_lost_ms);
}

#define CHECK_KEYS                                                                                 \
    "a key removed or rotated since is valid again; one made since is not known, and its node "    \
    "tries again. Check ddpctl node list and user list, remove or make keys, then: ddpctl server " \
    "--keys-checked"

void keys_lost(struct server *server)
{
    server->keys_lost_ms = clock_wall_ms();
    store_begin(server->store);
    store_write_keys_lost(server->store, server->keys_lost_ms);
    note(server, "the keys are of the past, too: " CHECK_KEYS);
}

void keys_checked(struct server *server, const char *who)
{
    if (server->keys_lost_ms == 0)
        return;
    server->keys_lost_ms = 0;
    store_begin(server->store);
    store_write_keys_lost(server->store, 0);
    note(server, "%s has checked the keys: a key that is not known is not accepted", who);
    server_flush(server);
}

static void restore(const struct store_principal *stored, struct principals *principals)
{
    struct err err;

    if (principals_restore(principals, stored, &err) == STATUS_OK)
        return;
    principals->is_partial = true;
    log_line(LOG_ERROR, LOG_ABOUT_NONE, "the key of %s is not used: %s", stored->name, err.text);
}

static void on_stored(const struct store_principal *stored, void *context)
{
    struct server *server = context;

    restore(stored, &server->principals);
}

void keys_open(struct server *server)
{
    if (!server->stands_by) {
        if (!store_principals(server->store, on_stored, server))
            server->principals.is_partial = true;
        server->keys_lost_ms = store_keys_lost_ms(server->store);
        if (server->keys_lost_ms != 0 && server->principals.count > 0)
            log_line(LOG_WARNING, LOG_ABOUT_NONE,
                     "the state went back to an earlier one, and its keys with it: " CHECK_KEYS);
        drop_expired(server);
    }
}

void server_keys_begin(struct server *server)
{
    assert(server->stands_by); /* on a standby no peer has a principal */
    principals_free(&server->new_principals);
}

void server_keys_add(const struct store_principal *principal, void *context)
{
    struct server *server = context;

    restore(principal, &server->new_principals);
}

void server_keys_end(struct server *server, bool are_read)
{
    struct err err;

    if (are_read) {
        principals_free(&server->principals);
        server->principals = server->new_principals;
        server->new_principals = (struct principals){0};
    } else {
        principals_free(&server->new_principals);
    }
    for (uint32_t i = 0; i < server->endpoint_count; i++) {
        struct endpoint *endpoint = &server->endpoints[i];

        if (!endpoint->is_started && keys_start_endpoint(server, endpoint, &err) != STATUS_OK)
            log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
    }
}

void keys_close(struct server *server)
{
    principals_free(&server->principals);
    principals_free(&server->new_principals);
    tls_context_free(&server->tls);
}

/* -- endpoints --------------------------------------------------------------------------------- */

enum status keys_start_endpoint(struct server *server, struct endpoint *endpoint, struct err *err)
{
    const struct tls_keys keys = {.find = find_secret, .are_all = are_all, .user = server};
    enum status status = STATUS_OK;

    if (endpoint->uses_tls && server->tls == NULL)
        status = tls_server_new(&server->tls, &keys, err);
    if (status != STATUS_OK)
        return status;
    if (endpoint->uses_tls && server->principals.count == 0 && server->stands_by)
        return STATUS_OK;
    if (endpoint->uses_tls && server->principals.count == 0) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s stays closed until there is a key; make the first one on this machine: "
                 "ddpctl --server %s node add NAME",
                 endpoint->listener.bound, server->endpoints[0].listener.bound);
        return STATUS_OK;
    }
    status = listener_start(&endpoint->listener, err);
    endpoint->is_started = status == STATUS_OK;
    return status;
}

/* Opens the endpoints that waited for a key. True: there is an endpoint on which a key can be
 * used. */
static bool open_network(struct peer *peer)
{
    struct server *server = peer->server;
    bool has_network = false;
    struct err err;

    for (uint32_t i = 0; i < server->endpoint_count; i++) {
        struct endpoint *endpoint = &server->endpoints[i];

        has_network = has_network || endpoint->uses_tls;
        if (!endpoint->uses_tls || endpoint->is_started)
            continue;
        if (keys_start_endpoint(server, endpoint, &err) != STATUS_OK) {
            peer_error(peer, "internal", "stop what listens there, or start the server again", "%s",
                       err.text);
            return false;
        }
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%s is open: there is a key now",
                 endpoint->listener.bound);
    }
    if (!has_network)
        peer_error(peer, "refused",
                   "start it with --listen HOST:PORT on a network address, as 0.0.0.0:7400",
                   "this server does not listen on the network: a key would be of no use");
    return has_network;
}

/* -- connections ------------------------------------------------------------------------------- */

static bool name_of(const struct peer *peer, char name[NODE_NAME_BYTES_MAX])
{
    const char *identity = conn_identity(&peer->conn);
    char id[KEY_ID_CHARS + 1];

    return key_identity_split(identity, strlen(identity), name, id, NULL) == STATUS_OK;
}

const struct principal *keys_take_peer(struct peer *peer)
{
    struct server *server = peer->server;
    char name[NODE_NAME_BYTES_MAX];
    struct principal *found = conn_is_proved(&peer->conn) && name_of(peer, name)
                                  ? principals_find(&server->principals, name)
                                  : NULL;
    bool is_first = found != NULL && found->stored.seen_ms == 0;

    if (found == NULL)
        return NULL;
    found->connection_count++;
    peer->principal_serial = found->serial;
    found->stored.seen_ms = clock_wall_ms();
    store_begin(server->store);
    store_write_seen(server->store, name, found->stored.seen_ms);
    if (is_first)
        note(server, "%s %s has used its key for the first time, from %s",
             role_name(found->stored.role), name, peer->conn.label);
    server_flush_soon(server);
    return found;
}

void keys_peer_gone(struct peer *peer)
{
    struct principal *found =
        peer->principal_serial != 0 ? principals_find(&peer->server->principals, peer->user) : NULL;

    if (found != NULL && found->serial == peer->principal_serial)
        found->connection_count--;
}

/* Closes the principal's connections, including those that have proved the key but not said hello
 * yet. */
static void cut_connections(struct server *server, const char *name, uint64_t serial)
{
    char proved[NODE_NAME_BYTES_MAX];

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = server->peers[i];

        if (peer == NULL || peer->is_closing ||
            (peer->principal_serial != serial &&
             (peer->kind != PEER_UNKNOWN || !conn_is_proved(&peer->conn) ||
              !name_of(peer, proved) || strcmp(proved, name) != 0)))
            continue;
        peer_error(peer, "refused", "ask an admin of the server for a new key",
                   "the key of %s was removed", name);
        peer_close(peer, STATUS_REFUSED, "its key was removed");
    }
}

/* -- requests ---------------------------------------------------------------------------------- */

static const char *word_of(enum role role)
{
    return role == ROLE_NODE ? "node" : "user";
}

/* An address at which this admin has come from another machine is known to work, and an interface may have come since the
 * start. */
static void own_addresses(const struct peer *peer, char out[KEY_SERVERS_BYTES_MAX])
{
    const struct server *server = peer->server;
    char reached[ADDRESS_BYTES_MAX];

    static_assert(ADVERTISE_BYTES <= KEY_SERVERS_BYTES_MAX, "one address fits");
    if (server->election != NULL || !server->advertise_is_guess) {
        standby_addresses(server, out);
        return;
    }
    peer_called(peer, reached);
    advertise_address(
        server->endpoints[1].listener.bound, NULL,
        reached[0] != '\0' && address_reach_of(reached) == ADDRESS_FOR_OTHERS ? reached : NULL,
        out);
}

static void answer_key(struct peer *peer, const struct store_principal *stored)
{
    struct msg msg = {.type = MSG_TYPE_PRINCIPAL_KEY};
    char url[KEY_URL_BYTES_MAX];
    struct key key = {.server = ""};

    own_addresses(peer, key.server);
    (void)snprintf(key.name, sizeof key.name, "%s", stored->name);
    memcpy(key.secret, stored->secrets[0].bytes, KEY_SECRET_BYTES);
    key_format(&key, url);
    msg.principal_key.url = url;
    msg.principal_key.role = stored->role;
    msg.principal_key.old_until_ms = stored->secret_count > 1 ? stored->secrets[1].until_ms : 0;
    peer_send(peer, &msg);
    key_forget(&key);
    explicit_bzero(url, sizeof url);
}

static void refuse_name(struct peer *peer, const struct principal *found)
{
    const struct store_principal *stored = &found->stored;
    char hint[200];

    (void)snprintf(hint, sizeof hint, "a new key in its place: ddpctl %s rotate %s",
                   word_of(stored->role), stored->name);
    peer_error(peer, "refused", hint, "there is a %s named %s already", role_name(stored->role),
               stored->name);
}

static void on_add(struct peer *peer, const struct msg_principal_add *request)
{
    struct server *server = peer->server;
    struct principal *found = principals_find(&server->principals, request->name);
    enum status status;
    struct err err;

    if (found != NULL) {
        refuse_name(peer, found);
        return;
    }
    status = principals_add(&server->principals, request->name, request->role, clock_wall_ms(),
                            &found, &err);
    if (status != STATUS_OK) {
        peer_error(peer, status == STATUS_TOO_BIG ? "full" : "internal", "", "%s", err.text);
        return;
    }
    if (!open_network(peer)) {
        principals_remove(&server->principals, found);
        return;
    }
    store_begin(server->store);
    store_write_principal(server->store, &found->stored);
    note(server, "%s made a key for %s %s", peer_user(peer), role_name(request->role),
         request->name);
    server_flush(server);
    answer_key(peer, &found->stored);
}

/* The principal of that name and kind. NULL: there is none, and that was answered. */
static struct principal *find(struct peer *peer, const char *name, bool is_node)
{
    struct principal *found = principals_find(&peer->server->principals, name);
    const char *wanted = is_node ? "node" : "user";
    char hint[200];

    if (found != NULL && (found->stored.role == ROLE_NODE) == is_node)
        return found;
    (void)snprintf(hint, sizeof hint, "list them: ddpctl %s list", wanted);
    if (found == NULL)
        peer_error(peer, "not_found", hint, "no %s named %s has a key", wanted, name);
    else
        peer_error(peer, "not_found", hint, "%s is a %s, not a %s", name,
                   role_name(found->stored.role), wanted);
    return NULL;
}

static void on_rotate(struct peer *peer, const struct msg_principal_rotate *request)
{
    struct server *server = peer->server;
    struct principal *found = find(peer, request->name, request->is_node);
    int64_t now_ms = clock_wall_ms();
    struct err err;

    if (found == NULL)
        return;
    if (principal_rotate(found, now_ms + (int64_t)(request->overlap_us / 1000), now_ms, &err) !=
        STATUS_OK) {
        peer_error(peer, "internal", "", "%s", err.text);
        return;
    }
    store_begin(server->store);
    store_write_principal(server->store, &found->stored);
    note(server, "%s made a new key for %s %s; the old one is valid for %llu s", peer_user(peer),
         role_name(found->stored.role), request->name,
         (unsigned long long)(request->overlap_us / 1000000));
    server_flush(server);
    arm(server);
    answer_key(peer, &found->stored);
}

static struct part_principal part_of(const struct principal *principal, int64_t now_ms)
{
    const struct store_principal *stored = &principal->stored;
    uint32_t secrets = principal_secrets(principal, now_ms);

    return (struct part_principal){.name = stored->name,
                                   .role = stored->role,
                                   .secrets = secrets > 0 ? secrets : 1,
                                   .is_connected = principal->connection_count > 0,
                                   .created_ms = stored->created_ms,
                                   .rotated_ms = stored->rotated_ms,
                                   .seen_ms = stored->seen_ms};
}

static void on_remove(struct peer *peer, const struct msg_principal_remove *request)
{
    struct server *server = peer->server;
    struct principal *found = find(peer, request->name, request->is_node);
    struct msg msg = {.type = MSG_TYPE_PRINCIPALS};
    char name[NODE_NAME_BYTES_MAX];
    struct part_principal part;
    uint64_t serial;

    if (found == NULL)
        return;
    serial = found->serial;
    (void)snprintf(name, sizeof name, "%s", found->stored.name);
    part = part_of(found, clock_wall_ms());
    part.name = name;
    store_begin(server->store);
    store_drop_principal(server->store, name);
    note(server, "%s removed the key of %s %s", peer_user(peer), role_name(part.role), name);
    principals_remove(&server->principals, found);
    server_flush(server);
    msg.principals.principals.items = &part;
    msg.principals.principals.count = 1;
    peer_send(peer, &msg);
    cut_connections(server, name, serial);
    arm(server);
}

static void on_list(struct peer *peer, const struct msg_principal_list *request)
{
    struct server *server = peer->server;
    const struct principals *all = &server->principals;
    struct msg msg = {.type = MSG_TYPE_PRINCIPALS};
    int64_t now_ms = clock_wall_ms();
    struct part_principal *parts;
    uint32_t count = 0;

    arena_reset(&server->arena);
    parts = arena_alloc(&server->arena, sizeof *parts * request->limit);
    if (parts == NULL) {
        peer_error(peer, "later", "", "the server has no memory for a list of keys");
        return;
    }
    for (uint32_t i = principals_after(all, request->after); i < all->count; i++) {
        if ((all->items[i].stored.role == ROLE_NODE) != request->nodes)
            continue;
        if (count == request->limit) {
            msg.principals.more = true;
            break;
        }
        parts[count++] = part_of(&all->items[i], now_ms);
    }
    msg.principals.principals.items = parts;
    msg.principals.principals.count = count;
    peer_send(peer, &msg);
    arena_reset(&server->arena);
}

void keys_request(struct peer *peer, const struct msg *msg)
{
    if (msg->type == MSG_TYPE_PRINCIPAL_ADD)
        on_add(peer, &msg->principal_add);
    else if (msg->type == MSG_TYPE_PRINCIPAL_ROTATE)
        on_rotate(peer, &msg->principal_rotate);
    else if (msg->type == MSG_TYPE_PRINCIPAL_REMOVE)
        on_remove(peer, &msg->principal_remove);
    else
        on_list(peer, &msg->principal_list);
}
