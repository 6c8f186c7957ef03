/* Opening and closing of the server, and of its connections. */
#include "rendezvous/server/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/boot_id.h"
#include "common/io/dial.h"
#include "common/log.h"
#include "rendezvous/core/after_list.h"
#include "rendezvous/server/advertise.h"
#include "rendezvous/server/internal.h"

#define USER_HELLO_BYTES_MAX (16u * 1024u) /* of a local user: a client's hello has some hundred */

/* A place is free again. */
void listen_again(struct server *server)
{
    for (uint32_t i = 0; i < server->endpoint_count && !server->is_stopping; i++) {
        if (!server->endpoints[i].accept_waits)
            continue;
        server->endpoints[i].accept_waits = false;
        listen_on_connection(&server->endpoints[i].listener);
        if (i == 0)
            socket_keep_accept(server);
    }
}

static void on_first(struct peer *peer, const struct msg *msg)
{
    peer_hello(peer, msg);
    if (peer->kind == PEER_UNKNOWN)
        return;
    door_leave(peer);
    listen_again(peer->server);
}

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct peer *peer = conn->owner;
    struct rdzv_event event = {.type = RDZV_EVENT_NODE_MSG, .conn = peer->id, .msg = msg};

    peer->heard_us = clock_boot_us();
    if (peer->is_closing || peer->server->is_stopping || peer->kind == PEER_REFUSED)
        return;
    if (peer->server->stands_by) {
        standby_refer(peer, msg);
        return;
    }
    if (!peer_may_send(peer, msg))
        return;
    if (peer->kind == PEER_UNKNOWN)
        on_first(peer, msg);
    else if (peer->kind == PEER_CLIENT)
        client_request(peer, msg);
    else if (msg->type == MSG_TYPE_LOG_DATA)
        log_answer(peer, &msg->log_data);
    else if (msg->type == MSG_TYPE_NODE_DATA)
        relay_answer(peer, &msg->node_data);
    else if (msg->type == MSG_TYPE_LOOKED)
        look_answer(peer, &msg->looked);
    else if (msg->type == MSG_TYPE_INPUT_STATE)
        input_answer(peer, &msg->input_state);
    else if (msg->type == MSG_TYPE_STAGE_GET)
        stage_get(peer, &msg->stage_get, stage_lost);
    else
        server_step(peer->server, &event);
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct peer *peer = conn->owner;
    struct server *server = peer->server;
    struct rdzv_event event = {.type = RDZV_EVENT_NODE_CLOSED, .conn = peer->id};

    peer_log_closed(peer, why, text);
    peer->is_closing = true;
    server->peers[peer->id % PEERS_MAX] = NULL;
    server->peer_count--;
    door_leave(peer);
    backlog_gone(peer);
    keys_peer_gone(peer);
    server->client_count -= peer->kind == PEER_CLIENT;
    if (peer->kind == PEER_CLIENT || peer->kind == PEER_NODE)
        wait_peer_gone(server, peer);
    stage_drop(peer);
    if (peer->is_core_node && !server->is_stopping)
        server_step(server, &event);
    free(peer);
    listen_again(server);
}

static void on_moved(struct conn *conn)
{
    struct peer *peer = conn->owner;

    if (peer->kind == PEER_UNKNOWN)
        door_moved(peer);
    else
        backlog_on_moved(conn);
}

static const struct conn_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

/* NULL: there is no place. A few connections above conns_max are accepted, only to be told so. */
static struct peer *peer_new(struct endpoint *endpoint)
{
    struct server *server = endpoint->server;
    uint32_t most = server->conns_max < CONNS_MAX ? 3 * server->conns_max / 2 : PEERS_MAX;
    struct peer *peer = NULL;

    for (uint32_t i = 0; i < PEERS_MAX && server->peer_count < most; i++) {
        if (server->peers[i] != NULL)
            continue;
        peer = calloc(1, sizeof *peer);
        if (peer == NULL)
            return NULL;
        peer->server = server;
        peer->endpoint = endpoint;
        peer->id = ++server->peer_serial * PEERS_MAX + i;
        return peer;
    }
    return NULL;
}

/* Sets up a TCP connection: keepalive, TLS, and a place before the hello. */
static void admit_tcp(struct peer *peer)
{
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&peer->conn.handle.stream, &fd) == 0)
        dial_keep_alive(fd);
    if (peer->endpoint->uses_tls && conn_secure(&peer->conn, peer->server->tls, NULL) != STATUS_OK)
        peer->is_closing = true;
    if (!peer->is_closing && !peer->conn.closing)
        (void)door_enter(peer);
}

/* On a unix socket its peer gets the reason, whatever it has sent, although nobody waits for it to read that. */
static void refuse(struct peer *peer, const char *hint, const char *text)
{
    peer->kind = PEER_REFUSED;
    peer_error(peer, "full", hint, "%s", text);
    if (!address_is_unix(peer->endpoint->listener.bound)) {
        peer_close(peer, STATUS_BUSY, text);
    } else if (!peer->is_closing) {
        peer->is_closing = true;
        conn_abort(&peer->conn, STATUS_BUSY, text);
    }
}

static void refuse_of_user(struct peer *peer)
{
    char text[160];

    (void)snprintf(text, sizeof text,
                   "uid %u, or all users, have as many connections without a hello as they may",
                   peer->uid);
    refuse(peer, "end some of them, or try again later", text);
}

static void refuse_over_limit(struct peer *peer)
{
    char text[80];

    (void)snprintf(text, sizeof text, "the server has its %u connections", peer->server->conns_max);
    if (!peer->endpoint->uses_tls) {
        refuse(peer, "try again later", text);
        return;
    }
    peer->kind = PEER_REFUSED; /* it cannot read why */
    peer->is_closing = true;
    conn_abort(&peer->conn, STATUS_BUSY, "too many connections");
}

/* It may say hello. A hello of a node, which only root and the server's own user are, may be long. */
static void greet(struct peer *peer)
{
    if (!peer->endpoint->uses_tls && peer->uid != 0 && peer->uid != geteuid())
        peer->conn.payload_max = USER_HELLO_BYTES_MAX;
    conn_deadline(&peer->conn, HELLO_TIMEOUT_US, "hello");
    if (!peer->endpoint->uses_tls)
        names_find(peer);
}

/* On the network, while the newest connection without a hello has no place, further ones stay in the kernel's
 * backlog. */
void listen_on_connection(struct listener *listener)
{
    struct endpoint *endpoint = listener->owner;
    struct server *server = endpoint->server;
    const bool is_local = endpoint == &server->endpoints[0];
    struct peer *peer = is_local || door_is_open(endpoint) ? peer_new(endpoint) : NULL;

    if (peer == NULL) {
        endpoint->accept_waits = true;
        return;
    }
    (void)conn_open_accept(&peer->conn, &listener->handle.stream, FRAME_BYTES_MAX, &handlers,
                           NULL); /* a failure is reported by on_closed */
    peer->conn.owner = peer;
    peer->conn.on_moved = on_moved;
    server->peers[peer->id % PEERS_MAX] = peer;
    server->peer_count++;
    if (!endpoint->uses_tls)
        names_uid(peer);
    if (!is_local)
        admit_tcp(peer);
    if (peer->is_closing)
        return;
    if (server->peer_count > server->conns_max)
        refuse_over_limit(peer);
    else if (is_local && !door_enter(peer))
        refuse_of_user(peer);
    else
        greet(peer);
}

/* `fd`: it listens there already; 0: none. */
static enum status listen_on(struct server *server, const char *address, int fd, int mode,
                             bool requires_key, struct err *err)
{
    struct endpoint *endpoint = &server->endpoints[server->endpoint_count];
    struct listener *listener = &endpoint->listener;
    enum status status;
    size_t used = strlen(server->addresses);

    endpoint->server = server;
    listener->owner = endpoint;
    listener->on_connection = listen_on_connection;
    status = fd > 0 ? listener_adopt(listener, server->loop, address, fd, err)
                    : listener_bind(listener, server->loop, address, mode, err);
    if (status != STATUS_OK)
        return status;
    server->endpoint_count++;
    endpoint->uses_tls = listener->is_network || requires_key;
    (void)snprintf(server->addresses + used, sizeof server->addresses - used, "%s%s",
                   used > 0 ? " " : "", listener->bound);
    return keys_start_endpoint(server, endpoint, err);
}

/* Where the kernel has none, what is read instead is not what nodes say. */
static void read_boot_id(char out[64])
{
    char id[BOOT_ID_BYTES];
    bool is_kernels;

    boot_id_read(id, &is_kernels);
    (void)snprintf(out, 64, "%s", is_kernels ? id : "");
}

/* Maps the core's tables at their largest size. Pages that are never touched take no memory. */
static enum status core_open(struct server *server, const struct server_options *options,
                             struct err *err)
{
    server->core_options = (struct rdzv_options){
        .jobs_max = JOBS_ACTIVE_MAX,
        .nodes_max = NODES_MAX,
        .lease_us = options->lease_us,
        .lease_before_us = store_lease_us(server->store),
        .is_copy = store_is_copy(server->store),
        .is_of_past = store_is_of_past(server->store),
        .past_why = store_past_why(server->store),
        .may_be_past = !store_is_newest(server->store),
        .beat_interval_us = options->beat_interval_us,
        .suspect_us = options->suspect_us,
        .lost_us = options->lost_us,
        .grow_us = options->grow_us,
        .preempts = options->preempts,
        .is_one_machine = options->is_one_machine,
        .id_gap = STORE_ID_GAP,
        .id_gap_span = STORE_ID_GAP_SPAN,
        .hang_least_us = options->hang_us,
        .hang_first_us = options->hang_first_us,
        .waits_for_lease = options->waits_for_lease,
        .max_slots_per_user = options->max_slots_per_user,
        .max_queued_per_user = options->max_queued_per_user,
        .max_stored_per_user = options->max_stored_per_user,
    };
    if (getrandom(&server->core_options.seed, sizeof server->core_options.seed, 0) < 0)
        return err_set(err, STATUS_SYSTEM, errno, "no random bytes: %s", strerror(errno));
    read_boot_id(server->core_options.boot_id);
    (void)snprintf(server->core_options.cluster, sizeof server->core_options.cluster, "%s",
                   store_cluster(server->store));
    server->core_bytes = rdzv_bytes(&server->core_options);
    server->core_memory = mmap(NULL, server->core_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    server->actions = calloc(1, sizeof *server->actions);
    server->waiters = calloc(WAITERS_MAX, sizeof *server->waiters);
    if (server->core_memory == MAP_FAILED || server->actions == NULL || server->waiters == NULL)
        return err_set(err, STATUS_MEMORY, errno, "no memory for the server's tables");
    server->core = rdzv_init(server->core_memory, &server->core_options);
    return STATUS_OK;
}

static void restore_job(struct server *server, uint64_t job_id)
{
    struct rdzv_event event = {.type = RDZV_EVENT_RESTORE, .job_id = job_id};
    struct rdzv_record record;

    arena_reset(&server->arena);
    if (!store_get_job(server->store, job_id, &server->arena,
                       &record)) { /* the index and the table disagree */
        log_line(LOG_ERROR, (struct log_about){.job_id = job_id, .rank = -1},
                 "this job is listed as active in the store, but its row is not there");
        return;
    }
    event.record = &record;
    if (record.after_job != 0 && after_list_read(&record, &event.after))
        store_find_failed(server->store, &event.after);
    server_step(server, &event); /* it answers nobody, so the arena stays as it is */
    arena_reset(&server->arena);
}

/* By ascending id. A job that the core cannot take ends as failed. */
static void restore_jobs(struct server *server)
{
    struct rdzv_event event = {.type = RDZV_EVENT_RESTORED};
    uint64_t ids[64], last_id = 0;
    uint32_t count, total = 0;

    while ((count = store_active_ids(server->store, last_id, ids, 64)) > 0) {
        for (uint32_t i = 0; i < count; i++)
            restore_job(server, ids[i]);
        last_id = ids[count - 1];
        total += count;
    }
    event.next_job_id = store_next_job_id(server->store);
    server_step(server, &event);
    if (total > 0)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%u jobs had not ended; %u of them go on", total,
                 rdzv_job_count(server->core));
}

static void timers_init(struct server *server)
{
    (void)uv_timer_init(server->loop, &server->tick_timer);
    (void)uv_timer_init(server->loop, &server->flush_timer);
    (void)uv_timer_init(server->loop, &server->wait_timer);
    (void)uv_timer_init(server->loop, &server->key_timer);
    (void)uv_timer_init(server->loop, &server->expire_timer);
    (void)uv_timer_init(server->loop, &server->clients_timer);
    (void)uv_timer_init(server->loop, &server->names_timer);
    (void)uv_timer_init(server->loop, &server->lease_timer);
    alive_begin(server);
    door_open(server);
    server->lease_timer.data = server;
    server->expire_timer.data = server->clients_timer.data = server->names_timer.data = server;
    server->tick_timer.data = server;
    server->flush_timer.data = server;
    server->wait_timer.data = server;
    server->key_timer.data = server;
}

static enum status advertise(struct server *server, const char *wanted, struct err *err)
{
    const struct endpoint *network = &server->endpoints[1];
    char name[KEY_HOST_BYTES_MAX];
    bool has_name = false;

    if (wanted != NULL && advertise_check(wanted, err) != STATUS_OK)
        return err->status;
    if (wanted == NULL && advertise_is_open(network->listener.bound)) {
        has_name = advertise_name(name, sizeof name);
        server->advertise_is_guess = !has_name;
    }
    if (wanted != NULL)
        (void)snprintf(server->advertise, sizeof server->advertise, "%s", wanted);
    else
        advertise_address(network->listener.bound, has_name ? name : NULL, NULL, server->advertise);
    if (network->uses_tls)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "keys name this server %s (--advertise)",
                 server->advertise);
    return STATUS_OK;
}

static enum status restore(struct server *server, const struct server_options *options,
                           struct err *err)
{
    enum status status = options->lead != NULL ? store_open_etcd(&server->store, options->lead, err)
                                               : store_open(&server->store, options->state_dir,
                                                            options->survives_power, err);

    if (status == STATUS_OK)
        status = stage_open(server, options->state_dir, options->lead == NULL, err);
    if (status == STATUS_OK)
        status = core_open(server, options, err);
    if (status == STATUS_OK)
        status = server_restore_drains(server, err);
    if (status == STATUS_OK) {
        server_restore_holds(server);
        restore_jobs(server);
        server_keep_lease(server);
    }
    return status;
}

enum status server_open(struct server **out, uv_loop_t *loop, const struct server_options *options,
                        struct err *err)
{
    char address[4200];
    struct server *server = calloc(1, sizeof *server);
    enum status status = STATUS_OK;

    if (server == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the server");
    server->loop = loop;
    server->core_memory = MAP_FAILED;
    server->conns_max = options->conns_max;
    server->opened_at_us = clock_boot_us();
    server->version_base = (uint64_t)clock_wall_ms() << 20;
    timers_init(server);
    names_open(server);
    server->survives_power = options->survives_power;
    server->election = options->election;
    server->stands_by = options->stands_by;
    if (!server->stands_by)
        status = restore(server, options, err);
    (void)snprintf(address, sizeof address, "unix:%s", options->socket_path);
    if (status == STATUS_OK)
        keys_open(server);
    if (status == STATUS_OK)
        status = listen_on(server, address, options->socket_fd, options->is_for_all ? 0666 : 0600,
                           false, err);
    if (status == STATUS_OK && options->listen != NULL)
        status = listen_on(server, options->listen, 0, 0600, options->requires_key, err);
    if (status == STATUS_OK && options->listen != NULL)
        status = advertise(server, options->advertise, err);
    if (status == STATUS_OK && !server->stands_by)
        expire_begin(server, options->keep_jobs_us);
    if (status == STATUS_OK && !server->stands_by)
        clients_begin(server, options->client_idle_us);
    if (status == STATUS_OK)
        socket_keep_begin(server, options);
    *out = server;
    return status;
}

const char *server_addresses(const struct server *server)
{
    return server->addresses;
}

const char *server_bound(const struct server *server)
{
    return server->endpoint_count > 1 ? server->endpoints[1].listener.bound : "";
}

const char *server_own_address(const struct server *server)
{
    if (server->endpoint_count < 2)
        return server->endpoints[0].listener.bound;
    return server->endpoints[1].uses_tls ? server->advertise : server->endpoints[1].listener.bound;
}

bool server_stands_by(const struct server *server)
{
    return server->stands_by;
}

void server_set_election(struct server *server, struct election *election)
{
    server->election = election;
}

void server_set_lost(struct server *server, const char *why)
{
    server->lost = why;
}

void server_stop(struct server *server)
{
    if (server->is_stopping)
        return;
    if (server->submitted_count > 0)
        server_flush(server);
    server->is_stopping = true;
    for (uint32_t i = 0; i < server->endpoint_count; i++)
        listener_close(&server->endpoints[i].listener);
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (server->peers[i] != NULL)
            peer_close(server->peers[i], STATUS_CLOSED, "the server stops");
    look_stop(server);
    stage_stop(server);
    uv_close((uv_handle_t *)&server->tick_timer, NULL);
    uv_close((uv_handle_t *)&server->flush_timer, NULL);
    uv_close((uv_handle_t *)&server->wait_timer, NULL);
    uv_close((uv_handle_t *)&server->key_timer, NULL);
    uv_close((uv_handle_t *)&server->expire_timer, NULL);
    uv_close((uv_handle_t *)&server->clients_timer, NULL);
    uv_close((uv_handle_t *)&server->lease_timer, NULL);
    uv_close((uv_handle_t *)&server->alive_timer, NULL);
    uv_close((uv_handle_t *)&server->door_timer, NULL);
    socket_keep_stop(server);
    names_stop(server);
}

void server_free(struct server **out)
{
    struct server *server = *out;

    if (server == NULL)
        return;
    assert(server->peer_count == 0);
    keys_close(server);
    socket_keep_free(server);
    file_works_free(&server->files);
    stage_uses_free(&server->stage_uses);
    store_close(&server->store);
    if (server->core_memory != MAP_FAILED)
        (void)munmap(server->core_memory, server->core_bytes);
    arena_reset(&server->arena);
    arena_reset(&server->spec_arena);
    free(server->actions);
    free(server->waiters);
    free(server);
    *out = NULL;
}
