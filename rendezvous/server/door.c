/* Connections that have said no hello. On TCP strangers, who have not shown that they have a key, have few places; whoever
 * offers the key of a node or user, in its first message, has one of those that strangers cannot take. The core's
 * crowd.h says who makes room for a newcomer; here that one is closed.
 *
 *   connects         door_enter   a stranger
 *   offers a key     door_moved   known: TLS has checked the key, the peer has not yet checked ours. (The offer of another
 *                                 may have been recorded and sent again, so it proves nothing.)
 *   says hello       door_leave
 *
 * On the unix socket the kernel names the user of each. Users other than root and the server's own are the strangers
 * there, root and the server's own are known, and the connections of one user are a group. A newcomer never waits in the
 * kernel's backlog, which all users share: one that has said nothing makes room at once, or, if the kernel has a message
 * of each (the user database hangs), the newcomer is refused. */
#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/fnv.h"
#include "rendezvous/core/crowd.h"
#include "rendezvous/server/internal.h"

#define YOUNG_US 100000u /* a few round trips, also between continents */
#define TCP_PLACES_MIN 16u
#define TCP_PLACES_MAX 256u
#define LOCAL_PLACES_MIN 64u
#define LOCAL_PLACES_MAX DOOR_PLACES_MAX

static void on_timer(uv_timer_t *timer);

void door_open(struct server *server)
{
    (void)uv_timer_init(server->loop, &server->door_timer);
    server->door_timer.data = server;
}

static bool is_local(const struct endpoint *endpoint)
{
    return endpoint == &endpoint->server->endpoints[0];
}

static uint32_t part_of_conns(const struct endpoint *endpoint, uint32_t least, uint32_t most)
{
    const uint32_t part = endpoint->server->conns_max / 16;

    return part < least ? least : part > most ? most : part;
}

static struct crowd_limits limits_of(const struct endpoint *endpoint, const struct door *door)
{
    uint32_t places_max;

    if (is_local(endpoint)) {
        places_max = part_of_conns(endpoint, LOCAL_PLACES_MIN, LOCAL_PLACES_MAX);
        return (struct crowd_limits){.places_max = places_max, .group_max = places_max / 2};
    }
    places_max = part_of_conns(endpoint, TCP_PLACES_MIN, TCP_PLACES_MAX);
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
    const bool looks = door == &endpoint->strangers || is_local(endpoint);
    struct server *server = endpoint->server;
    uint64_t again_us, now_us;
    uint32_t i;

    do {
        now_us = clock_boot_us();
        i = crowd_choose(door->places, door->count, &limits, now_us, &again_us);
        if (i != CROWD_NONE && looks && is_unread(door->peers[i]))
            door->places[i].is_unread = true;
        else if (i != CROWD_NONE)
            push_out(door, i);
    } while (i != CROWD_NONE);
    if (again_us == 0)
        return true;
    if (is_local(endpoint))
        return false;
    uv_update_time(server->loop);
    (void)uv_timer_start(&server->door_timer, on_timer, (again_us - now_us + 999) / 1000, 0);
    return false;
}

static void put_in(struct door *door, struct peer *peer, uint64_t first, uint64_t second)
{
    assert(door->count < sizeof door->peers / sizeof door->peers[0]);
    door->places[door->count] =
        (struct crowd_place){.group = {first, second}, .since_us = clock_boot_us()};
    door->peers[door->count++] = peer;
}

static void add(struct endpoint *endpoint, struct door *door, struct peer *peer, uint64_t first,
                uint64_t second)
{
    put_in(door, peer, first, second);
    door->is_over = !make_room(endpoint, door);
}

static bool enter_local(struct peer *peer)
{
    const bool is_ours = peer->uid == 0 || peer->uid == geteuid();
    struct door *door = is_ours ? &peer->endpoint->known : &peer->endpoint->strangers;

    put_in(door, peer, peer->uid, 0);
    if (make_room(peer->endpoint, door))
        return true;
    take_out(door, door->count - 1);
    return false;
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

bool door_enter(struct peer *peer)
{
    uint64_t group[2];

    if (is_local(peer->endpoint))
        return enter_local(peer);
    find_source(peer);
    crowd_group_of(peer->source, group);
    add(peer->endpoint, &peer->endpoint->strangers, peer, group[0], group[1]);
    return true;
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

/* Call when its bytes were read. */
static void note_sent(struct door *door, uint32_t i, bool is_enough)
{
    if (i == door->count)
        return;
    door->places[i].has_sent = is_enough;
    door->places[i].is_unread = false;
}

void door_moved(struct peer *peer)
{
    struct endpoint *endpoint = peer->endpoint;
    struct door *strangers = &endpoint->strangers, *known = &endpoint->known;
    const uint32_t i = find(strangers, peer), k = find(known, peer);
    uint64_t group;

    note_sent(known, k, is_local(endpoint) || conn_is_proved(&peer->conn));
    note_sent(strangers, i, true);
    if (i == strangers->count || is_local(endpoint) || !find_group(peer, &group))
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
