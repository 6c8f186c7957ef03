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
    uint64_t peer_id;
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

/* Starts a lookup. If no thread is free, the connection waits, unless its name is already known. */
static void look_up(struct peer *peer)
{
    struct server *server = peer->server;
    struct lookup *lookup =
        server->lookup_count < NAMES_LOOKUPS_MAX ? calloc(1, sizeof *lookup) : NULL;

    if (lookup == NULL)
        return;
    lookup->work.data = lookup;
    lookup->server = server;
    lookup->peer_id = peer->id;
    lookup->uid = peer->uid;
    peer->is_looked_up = true;
    server->lookup_count++;
    (void)uv_queue_work(server->loop, &lookup->work, on_work, on_worked);
}

/* Starts the lookup for the connection that has waited longest. */
static void look_up_next(struct server *server)
{
    struct peer *next = NULL;

    for (uint32_t i = 0; i < PEERS_MAX && !server->is_stopping; i++) {
        struct peer *peer = server->peers[i];

        if (peer != NULL && !peer->is_closing && peer->names_since_us != 0 && !peer->is_looked_up &&
            (next == NULL || peer->names_since_us < next->names_since_us))
            next = peer;
    }
    if (next != NULL)
        look_up(next);
}

static void on_worked(uv_work_t *work, int status)
{
    struct lookup *lookup = work->data;
    struct server *server = lookup->server;
    struct peer *peer = peer_find(server, lookup->peer_id);

    assert(server->lookup_count > 0);
    if (--server->lookup_count == 0 && server->is_stopping)
        uv_close((uv_handle_t *)&server->names_timer, NULL);
    if (status == 0 && lookup->code == 0)
        keep(server, lookup->uid, lookup->name);
    if (peer != NULL && peer->names_since_us != 0)
        go_on(peer, lookup->name, status == 0 ? lookup->code : ECANCELED);
    free(lookup);
    look_up_next(server);
}

/* Lets in connections that have waited too long, by the last known name. */
static void on_timer(uv_timer_t *timer)
{
    struct server *server = timer->data;
    const uint64_t now_us = clock_boot_us();
    bool is_waited = false;

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = server->peers[i];
        const struct known_name *known;

        if (peer == NULL || peer->is_closing || peer->names_since_us == 0)
            continue;
        known = now_us - peer->names_since_us >= LATE_US ? find_known(server, peer->uid) : NULL;
        if (known != NULL)
            go_on(peer, known->name, 0);
        is_waited = is_waited || known == NULL;
    }
    if (!is_waited)
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
