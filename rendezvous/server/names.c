/* Looks up the names of local users. A user database may be on the network (LDAP, NIS) and may
 * hang. So threads look names up, and a connection is not read before the name of its user is
 * known. If a lookup takes long, the last known name is used, so that known users are let in. */
#include <assert.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/server/internal.h"

#define LATE_US 1000000u
#define LOOK_MS 250u
#define LATE_END_MS 1000u

/* Used by a thread of the pool. May outlive its connection. */
struct lookup {
    uv_work_t work;
    struct server *server;
    uint64_t since_us; /* its answer is for the connections that have waited since then */
    uid_t uid;
    int code; /* errno; 0: `name` is it */
    char name[USER_NAME_BYTES_MAX];
};

/* "Not found" has many error numbers (getpwuid_r(3)). With any other error (no free descriptor, for
 * example) the user is unknown. Using "uid0" instead would give root's jobs a user that exists
 * nowhere. */
static int find_name(uid_t uid, char name[USER_NAME_BYTES_MAX])
{
    struct passwd entry, *found = NULL;
    char buffer[4096];
    int code = getpwuid_r(uid, &entry, buffer, sizeof buffer, &found);

    if (code != 0 && code != ENOENT && code != ESRCH && code != EBADF && code != EPERM &&
        code != ERANGE)
        return code;
    if (found != NULL && strlen(entry.pw_name) < USER_NAME_BYTES_MAX)
        (void)snprintf(name, USER_NAME_BYTES_MAX, "%s", entry.pw_name);
    else
        (void)snprintf(name, USER_NAME_BYTES_MAX, "uid%u", (unsigned)uid);
    return 0;
}

static void on_work(uv_work_t *work)
{
    struct lookup *lookup = work->data;

    lookup->code = find_name(lookup->uid, lookup->name);
}

static struct known_name *find_known(struct server *server, uid_t uid)
{
    for (uint32_t i = 0; i < server->known_count; i++)
        if (server->known[i].uid == uid)
            return &server->known[i];
    return NULL;
}

/* If there are more users than the table holds, the first ones are kept. */
static void keep(struct server *server, uid_t uid, const char *name)
{
    struct known_name *known = find_known(server, uid);

    if (known == NULL && server->known_count < NAMES_KNOWN_MAX)
        known = &server->known[server->known_count++];
    if (known == NULL)
        return;
    known->uid = uid;
    (void)snprintf(known->name, sizeof known->name, "%s", name);
}

static void go_on(struct peer *peer, const char *name, int code)
{
    peer->names_since_us = 0;
    peer->user_code = code;
    peer->knows_user = code == 0;
    if (code == 0)
        (void)snprintf(peer->user, sizeof peer->user, "%s", name);
    conn_resume(&peer->conn);
}

static void on_worked(uv_work_t *work, int status);

static bool is_running(const struct server *server, uid_t uid)
{
    for (uint32_t i = 0; i < server->lookup_count; i++)
        if (server->lookup_uids[i] == uid)
            return true;
    return false;
}

/* Starts a lookup. If no thread is free, or one looks up the same user, the connection waits, unless its name is already
 * known. So a user has one thread at most, however many connections come. */
static void look_up(struct peer *peer)
{
    struct server *server = peer->server;
    struct lookup *lookup;

    if (server->lookup_count == NAMES_LOOKUPS_MAX || is_running(server, peer->uid))
        return;
    lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return;
    lookup->work.data = lookup;
    lookup->server = server;
    lookup->since_us = clock_boot_us();
    lookup->uid = peer->uid;
    server->lookup_uids[server->lookup_count++] = peer->uid;
    (void)uv_queue_work(server->loop, &lookup->work, on_work, on_worked);
}

/* Calls `what` for each connection that waits for a name; none of them has said hello. */
static void each_waiting(struct server *server, void (*what)(struct peer *peer, void *context),
                         void *context)
{
    for (uint32_t n = 0; n < 2 * server->endpoint_count; n++) {
        struct endpoint *endpoint = &server->endpoints[n / 2];
        const struct door *door = n % 2 == 0 ? &endpoint->strangers : &endpoint->known;
        struct peer *peers[DOOR_PLACES_MAX + 1];
        const uint32_t count = door->count;

        memcpy(peers, door->peers, count * sizeof(struct peer *));
        for (uint32_t i = 0; i < count; i++) /* none is freed within: conn.h */
            if (!peers[i]->is_closing && peers[i]->names_since_us != 0)
                what(peers[i], context);
    }
}

static void choose_next(struct peer *peer, void *context)
{
    struct peer **next = context;

    if (!is_running(peer->server, peer->uid) &&
        (*next == NULL || peer->names_since_us < (*next)->names_since_us))
        *next = peer;
}

/* Starts lookups for the connections that have waited longest. */
static void look_up_next(struct server *server)
{
    uint32_t before;
    struct peer *next;

    do {
        before = server->lookup_count;
        next = NULL;
        if (before < NAMES_LOOKUPS_MAX && !server->is_stopping)
            each_waiting(server, choose_next, &next);
        if (next != NULL)
            look_up(next);
    } while (server->lookup_count > before);
}

static void take_answer(struct peer *peer, void *context)
{
    const struct lookup *lookup = context;

    if (peer->uid == lookup->uid && peer->names_since_us <= lookup->since_us)
        go_on(peer, lookup->name, lookup->code);
}

static void end_lookup(struct server *server, uid_t uid)
{
    uint32_t i = 0;

    while (server->lookup_uids[i] != uid)
        i++;
    assert(i < server->lookup_count);
    server->lookup_uids[i] = server->lookup_uids[--server->lookup_count];
}

static void on_worked(uv_work_t *work, int status)
{
    struct lookup *lookup = work->data;
    struct server *server = lookup->server;

    assert(server->lookup_count > 0);
    end_lookup(server, lookup->uid);
    if (server->lookup_count == 0 && server->is_stopping)
        uv_close((uv_handle_t *)&server->names_timer, NULL);
    if (status != 0)
        lookup->code = ECANCELED;
    if (lookup->code == 0)
        keep(server, lookup->uid, lookup->name);
    each_waiting(server, take_answer, lookup);
    free(lookup);
    look_up_next(server);
}

struct late_look {
    uint64_t now_us;
    bool is_waited;
};

static void let_in(struct peer *peer, void *context)
{
    struct late_look *look = context;
    const struct known_name *known =
        look->now_us - peer->names_since_us >= LATE_US ? find_known(peer->server, peer->uid) : NULL;

    if (known != NULL)
        go_on(peer, known->name, 0);
    look->is_waited = look->is_waited || known == NULL;
}

/* Lets in connections that have waited too long, by the last known name. */
static void on_timer(uv_timer_t *timer)
{
    struct late_look look = {.now_us = clock_boot_us()};

    each_waiting(timer->data, let_in, &look);
    if (!look.is_waited)
        (void)uv_timer_stop(timer);
}

void names_uid(struct peer *peer)
{
    uid_t uid;
    pid_t pid;

    peer->uid = geteuid(); /* on loopback TCP the kernel does not tell the user */
    if (conn_peer(&peer->conn, &uid, &pid, NULL) == STATUS_OK)
        peer->uid = uid;
}

void names_find(struct peer *peer)
{
    struct server *server = peer->server;

    peer->names_since_us = clock_boot_us();
    conn_pause(&peer->conn);
    if (!uv_is_active((uv_handle_t *)&server->names_timer))
        (void)uv_timer_start(&server->names_timer, on_timer, LOOK_MS, LOOK_MS);
    look_up(peer);
}

static void on_late_end(uv_timer_t *timer)
{
    (void)timer;
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "the user database does not answer: ending without it");
    _exit(EXIT_SUCCESS);
}

/* A lookup that hangs would keep the process for ever, so a timer ends it. Everything is stored by then. */
void names_stop(struct server *server)
{
    if (server->lookup_count > 0)
        (void)uv_timer_start(&server->names_timer, on_late_end, LATE_END_MS, 0);
    else
        uv_close((uv_handle_t *)&server->names_timer, NULL);
}

void names_open(struct server *server)
{
    const uid_t ours[] = {0, geteuid()};
    char name[USER_NAME_BYTES_MAX];

    for (uint32_t i = 0; i < 2; i++)
        if (find_name(ours[i], name) == 0)
            keep(server, ours[i], name);
}
