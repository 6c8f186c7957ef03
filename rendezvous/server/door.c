/* TCP connections that have said no hello. Strangers, who have not shown that they have a key, have few places; whoever
 * offers the key of a node or user, in its first message, has one of those that strangers cannot take. The core's
 * crowd.h says who makes room for a newcomer; here that one is closed.
 *
 *   connects         door_enter   a stranger
 *   offers a key     door_moved   known: TLS has checked the key, the peer has not yet checked ours. (The offer of another
 *                                 may have been recorded and sent again, so it proves nothing.)
 *   says hello       door_leave */
#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/fnv.h"
#include "rendezvous/core/crowd.h"
#include "rendezvous/server/internal.h"

#define YOUNG_US 100000u /* a few round trips, also between continents */
#define PLACES_MIN 16u

static void on_timer(uv_timer_t *timer);

void door_open(struct server *server)
{
    (void)uv_timer_init(server->loop, &server->door_timer);
    server->door_timer.data = server;
}

static struct crowd_limits limits_of(const struct endpoint *endpoint, const struct door *door)
{
    const uint32_t part = endpoint->server->conns_max / 16;
    const uint32_t most = part > PLACES_MIN ? part : PLACES_MIN;
    const uint32_t places_max = most < DOOR_PLACES_MAX ? most : DOOR_PLACES_MAX;

    return (struct crowd_limits){.places_max = places_max,
                                 .group_max = endpoint->uses_tls ? places_max / 4 : places_max,
                                 .young_us = door == &endpoint->strangers ? YOUNG_US : 0};
}

static uint32_t find(const struct door *door, const struct peer *peer)
{
    uint32_t i = 0;

    while (i < door->count && door->peers[i] != peer)
        i++;
    return i;
}

static void take_out(struct door *door, uint32_t i)
{
    const uint32_t behind = door->count - i - 1;

    memmove(&door->peers[i], &door->peers[i + 1], behind * sizeof(struct peer *));
    memmove(&door->places[i], &door->places[i + 1], behind * sizeof door->places[0]);
    door->count--;
}

/* Whether its kernel has something for us, which may be what we wait for. */
static bool is_unread(const struct peer *peer)
{
    uv_os_fd_t fd;
    int byte_count = 0;

    return uv_fileno((const uv_handle_t *)&peer->conn.handle.stream, &fd) == 0 &&
           ioctl(fd, FIONREAD, &byte_count) == 0 && byte_count > 0;
}

static void push_out(struct door *door, uint32_t i)
{
    struct peer *peer = door->peers[i];

    take_out(door, i);
    peer->kind = PEER_REFUSED;
    peer->is_closing = true;
    conn_abort(&peer->conn, STATUS_BUSY,
               "it has not said hello, and its place was needed for another connection");
}

/* Closes who has to make room. False: not yet possible. */
static bool make_room(struct endpoint *endpoint, struct door *door)
{
    const struct crowd_limits limits = limits_of(endpoint, door);
    struct server *server = endpoint->server;
    uint64_t again_us, now_us;
    uint32_t i;

    do {
        now_us = clock_boot_us();
        i = crowd_choose(door->places, door->count, &limits, now_us, &again_us);
        if (i != CROWD_NONE && door == &endpoint->strangers && is_unread(door->peers[i]))
            door->places[i].is_unread = true;
        else if (i != CROWD_NONE)
            push_out(door, i);
    } while (i != CROWD_NONE);
    if (again_us == 0)
        return true;
    uv_update_time(server->loop);
    (void)uv_timer_start(&server->door_timer, on_timer, (again_us - now_us + 999) / 1000, 0);
    return false;
}

static void add(struct endpoint *endpoint, struct door *door, struct peer *peer, uint64_t first,
                uint64_t second)
{
    assert(door->count < sizeof door->peers / sizeof door->peers[0]);
    door->places[door->count] =
        (struct crowd_place){.group = {first, second}, .since_us = clock_boot_us()};
    door->peers[door->count++] = peer;
    door->is_over = !make_room(endpoint, door);
}

static void find_source(struct peer *peer)
{
    struct sockaddr_storage from = {0};
    int byte_count = sizeof from;

    if (uv_tcp_getpeername(&peer->conn.handle.tcp, (struct sockaddr *)&from, &byte_count) != 0)
        return; /* it is gone already */
    if (from.ss_family == AF_INET6) {
        memcpy(peer->source, &((struct sockaddr_in6 *)&from)->sin6_addr, sizeof peer->source);
    } else {
        peer->source[10] = peer->source[11] = 0xff; /* ::ffff:a.b.c.d, RFC 4291 */
        memcpy(peer->source + 12, &((struct sockaddr_in *)&from)->sin_addr, 4);
    }
}

void door_enter(struct peer *peer)
{
    uint64_t group[2];

    find_source(peer);
    crowd_group_of(peer->source, group);
    add(peer->endpoint, &peer->endpoint->strangers, peer, group[0], group[1]);
}

bool door_is_open(const struct endpoint *endpoint)
{
    return !endpoint->strangers.is_over;
}

/* Of the node or user whose key it offers. False: it has offered none yet. */
static bool find_group(const struct peer *peer, uint64_t *group)
{
    const char *identity = conn_offered(&peer->conn);
    char name[NODE_NAME_BYTES_MAX], id[KEY_ID_CHARS + 1];

    if (key_identity_split(identity, strlen(identity), name, id, NULL) != STATUS_OK)
        return false;
    *group = fnv_add(FNV_START, name, strlen(name));
    return true;
}

/* The last one may have a place now; then the next ones are accepted. */
static void look_again(struct server *server)
{
    for (uint32_t i = 0; i < server->endpoint_count; i++) {
        struct endpoint *endpoint = &server->endpoints[i];

        endpoint->strangers.is_over = !make_room(endpoint, &endpoint->strangers);
    }
    listen_again(server);
}

void door_moved(struct peer *peer)
{
    struct endpoint *endpoint = peer->endpoint;
    struct door *strangers = &endpoint->strangers, *known = &endpoint->known;
    const uint32_t i = find(strangers, peer), k = find(known, peer);
    uint64_t group;

    if (k < known->count)
        known->places[k].has_sent = conn_is_proved(&peer->conn);
    if (i == strangers->count)
        return;
    strangers->places[i].has_sent = true;
    strangers->places[i].is_unread = false;
    if (!find_group(peer, &group))
        return;
    take_out(strangers, i);
    add(endpoint, known, peer, group, 0);
    if (strangers->is_over)
        look_again(peer->server);
}

static void on_timer(uv_timer_t *timer)
{
    look_again(timer->data);
}

void door_leave(struct peer *peer)
{
    struct door *doors[] = {&peer->endpoint->strangers, &peer->endpoint->known};

    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t i = find(doors[n], peer);

        if (i < doors[n]->count)
            take_out(doors[n], i);
    }
    if (peer->endpoint->strangers.is_over && !peer->server->is_stopping)
        peer->endpoint->strangers.is_over = !make_room(peer->endpoint, &peer->endpoint->strangers);
}
