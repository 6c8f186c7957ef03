/* Opening and closing; connections and who they are. */
#include "rendezvous/rdzv_io.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/log.h"
#include "rendezvous/rdzv_io_internal.h"

/* The kernel says who is behind a unix socket. Loopback TCP has no such word: until listeners have
 * keys, whoever can open it counts as the server's own user (docs/protocol.md). */
static void identify(struct peer *peer)
{
    uid_t uid;
    pid_t pid;

    peer->uid = geteuid();
    if (conn_peer(&peer->conn, &uid, &pid, NULL) == STATUS_OK)
        peer->uid = uid;
}

static void on_connection(struct listener *listener);

/* A place is free again. */
static void accept_waiting(struct rdzv_io *io)
{
    for (uint32_t i = 0; i < io->listener_count && !io->is_stopping; i++) {
        if (!io->accept_waits[i])
            continue;
        io->accept_waits[i] = false;
        on_connection(&io->listeners[i]);
    }
}

static bool check_protocol(struct peer *peer, const char *who, uint32_t protocol)
{
    if (protocol == PROTOCOL_VERSION)
        return true;
    peer_error(peer, "refused", "install the same version on both sides",
               "%s speaks protocol %u, this server (" DDP_VERSION ") speaks %u", who, protocol,
               PROTOCOL_VERSION);
    peer_close(peer, STATUS_UNSUPPORTED, "another protocol version");
    return false;
}

static void become(struct peer *peer, enum peer_kind kind)
{
    assert(peer->kind == PEER_UNKNOWN);
    peer->io->unknown_count--;
    peer->io->client_count += kind == PEER_CLIENT;
    peer->kind = kind;
    conn_deadline(&peer->conn, 0, "");
    accept_waiting(peer->io);
}

static void on_client_hello(struct peer *peer, const struct msg_client_hello *hello)
{
    struct msg msg = {.type = MSG_TYPE_CLIENT_WELCOME};

    if (!check_protocol(peer, "this client", hello->protocol))
        return;
    if (peer->io->client_count >= CLIENTS_MAX) {
        peer_error(peer, "full", "try again later", "the server has its %u clients", CLIENTS_MAX);
        peer_close(peer, STATUS_BUSY, "too many clients");
        return;
    }
    become(peer, PEER_CLIENT);
    peer->conn.payload_max = FRAME_SUBMIT_BYTES_MAX;
    msg.client_welcome.version = DDP_VERSION;
    msg.client_welcome.cluster = store_cluster(peer->io->store);
    peer_send(peer, &msg);
}

static void node_event(struct peer *peer, const struct msg *msg)
{
    struct rdzv_event event = {
        .type = RDZV_EVENT_NODE_MSG, .conn = peer->id, .msg = msg, .uid = peer->uid};

    io_step(peer->io, &event);
}

static void on_node_hello(struct peer *peer, const struct msg *msg)
{
    const struct msg_node_hello *hello = &msg->node_hello;

    if (!check_protocol(peer, hello->name, hello->protocol))
        return;
    if (!peer_viewer(peer).sees_all) {
        peer_error(peer, "refused", "start launcherd as root or as the server's user",
                   "node %s comes from uid %u: nodes run jobs of every user", hello->name,
                   peer->uid);
        peer_close(peer, STATUS_REFUSED, "a node of another user");
        return;
    }
    become(peer, PEER_NODE);
    (void)snprintf(peer->name, sizeof peer->name, "%s", hello->name);
    peer->is_core_node = true;
    node_event(peer, msg);
}

static void on_first(struct peer *peer, const struct msg *msg)
{
    identify(peer);
    if (msg->type == MSG_TYPE_CLIENT_HELLO) {
        on_client_hello(peer, &msg->client_hello);
    } else if (msg->type == MSG_TYPE_NODE_HELLO) {
        on_node_hello(peer, msg);
    } else {
        peer_error(peer, "bad_request", "",
                   "the first message was %s; node_hello or client_hello "
                   "is expected",
                   msg_type_word(msg->type));
        peer_close(peer, STATUS_BAD_INPUT, "no hello");
    }
}

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct peer *peer = conn->owner;

    if (peer->is_closing || peer->io->is_stopping)
        return;
    switch (peer->kind) {
    case PEER_UNKNOWN:
        on_first(peer, msg);
        break;
    case PEER_CLIENT:
        client_request(peer, msg);
        break;
    case PEER_NODE:
        if (msg->type == MSG_TYPE_LOG_DATA)
            log_answer(peer, &msg->log_data);
        else
            node_event(peer, msg);
        break;
    case PEER_REFUSED:
        break;
    }
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct peer *peer = conn->owner;
    struct rdzv_io *io = peer->io;
    struct rdzv_event event = {.type = RDZV_EVENT_NODE_CLOSED, .conn = peer->id};

    log_line(why == STATUS_BAD_INPUT || why == STATUS_TOO_BIG ? LOG_WARNING : LOG_DEBUG,
             (struct log_about){.node = peer->kind == PEER_NODE ? peer->name : NULL, .rank = -1},
             "connection %s closed: %s", conn->label, text);
    peer->is_closing = true;
    io->peers[peer->id % PEERS_MAX] = NULL;
    io->peer_count--;
    io->unknown_count -= peer->kind == PEER_UNKNOWN;
    io->client_count -= peer->kind == PEER_CLIENT;
    wait_peer_gone(io, peer);
    if (peer->is_core_node && !io->is_stopping)
        io_step(io, &event);
    free(peer);
    accept_waiting(io);
}

static const struct conn_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

static struct peer *peer_new(struct rdzv_io *io)
{
    struct peer *peer = NULL;

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        if (io->peers[i] != NULL)
            continue;
        peer = calloc(1, sizeof *peer);
        if (peer == NULL)
            return NULL;
        peer->io = io;
        peer->id = ++io->peer_serial * PEERS_MAX + i;
        return peer;
    }
    return NULL;
}

/* While too many have not said who they are, further ones stay in the kernel's backlog: a burst of
 * clients is served in turn, and who says nothing makes room within HELLO_TIMEOUT_US. */
static void on_connection(struct listener *listener)
{
    struct rdzv_io *io = listener->owner;
    struct peer *peer = io->unknown_count < PEERS_UNKNOWN_MAX ? peer_new(io) : NULL;
    struct err err;

    if (peer == NULL) {
        io->accept_waits[listener - io->listeners] = true;
        return;
    }
    if (conn_open_accept(&peer->conn, &listener->handle.stream, FRAME_BYTES_MAX, &handlers, &err) !=
        STATUS_OK) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "a connection to %s was not accepted: %s",
                 listener->bound, err.text);
        free(peer);
        return;
    }
    peer->conn.owner = peer;
    io->peers[peer->id % PEERS_MAX] = peer;
    io->peer_count++;
    if (io->peer_count > CONNS_MAX) {
        peer->kind = PEER_REFUSED;
        peer_error(peer, "full", "try again later", "the server has its %u connections", CONNS_MAX);
        peer_close(peer, STATUS_BUSY, "too many connections");
        return;
    }
    io->unknown_count++;
    conn_deadline(&peer->conn, HELLO_TIMEOUT_US, "hello");
}

static enum status listen_on(struct rdzv_io *io, const char *address, struct err *err)
{
    struct listener *listener = &io->listeners[io->listener_count];
    enum status status;
    size_t used = strlen(io->addresses);

    listener->owner = io;
    listener->on_connection = on_connection;
    status = listener_open(listener, io->loop, address, 0600, err);
    if (status != STATUS_OK)
        return status;
    io->listener_count++;
    (void)snprintf(io->addresses + used, sizeof io->addresses - used, "%s%s", used > 0 ? " " : "",
                   listener->bound);
    return STATUS_OK;
}

/* The core's tables are for the greatest numbers; mapped, so that only what is used is there. */
static enum status core_open(struct rdzv_io *io, const struct rdzv_io_options *options,
                             struct err *err)
{
    io->core_options = (struct rdzv_options){
        .jobs_max = JOBS_ACTIVE_MAX,
        .nodes_max = NODES_MAX,
        .lease_us = options->lease_us,
        .beat_interval_us = options->beat_interval_us,
        .suspect_us = options->suspect_us,
        .lost_us = options->lost_us,
    };
    if (getrandom(&io->core_options.seed, sizeof io->core_options.seed, 0) < 0)
        return err_set(err, STATUS_SYSTEM, errno, "no random bytes: %s", strerror(errno));
    (void)snprintf(io->core_options.cluster, sizeof io->core_options.cluster, "%s",
                   store_cluster(io->store));
    io->core_bytes = rdzv_bytes(&io->core_options);
    io->core_memory = mmap(NULL, io->core_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    io->actions = calloc(1, sizeof *io->actions);
    io->waiters = calloc(WAITERS_MAX, sizeof *io->waiters);
    if (io->core_memory == MAP_FAILED || io->actions == NULL || io->waiters == NULL)
        return err_set(err, STATUS_MEMORY, errno, "no memory for the server's tables");
    io->core = rdzv_init(io->core_memory, &io->core_options);
    return STATUS_OK;
}

static void restore_drains(struct rdzv_io *io)
{
    struct rdzv_drain *drains = calloc(DRAINS_MAX, sizeof *drains);
    uint32_t count = drains != NULL ? store_drains(io->store, drains, DRAINS_MAX) : 0;

    for (uint32_t i = 0; i < count; i++) {
        struct rdzv_event event = {.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &drains[i]};

        io_step(io, &event);
    }
    free(drains);
}

/* Every job that has not ended goes back into the core, oldest first. */
static void restore(struct rdzv_io *io)
{
    uint64_t ids[JOBS_ACTIVE_MAX];
    uint32_t count = store_active_ids(io->store, ids, JOBS_ACTIVE_MAX);
    struct rdzv_event event = {.type = RDZV_EVENT_RESTORED};
    struct store_job job;

    restore_drains(io);
    for (uint32_t i = 0; i < count; i++) {
        struct rdzv_event one = {.type = RDZV_EVENT_RESTORE, .job_id = ids[i]};

        if (!store_get_job(io->store, ids[i], &job))
            continue;
        one.record = &job.record;
        io_step(io, &one);
    }
    event.next_job_id = store_next_job_id(io->store);
    io_step(io, &event);
    if (count > 0)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%u jobs that had not ended are back", count);
}

static void timers_init(struct rdzv_io *io)
{
    (void)uv_timer_init(io->loop, &io->tick_timer);
    (void)uv_timer_init(io->loop, &io->flush_timer);
    (void)uv_timer_init(io->loop, &io->wait_timer);
    io->tick_timer.data = io;
    io->flush_timer.data = io;
    io->wait_timer.data = io;
}

enum status rdzv_io_open(struct rdzv_io **out, uv_loop_t *loop,
                         const struct rdzv_io_options *options, struct err *err)
{
    char address[4200];
    struct rdzv_io *io;
    enum status status;

    io = calloc(1, sizeof *io);
    if (io == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the server");
    io->loop = loop;
    io->core_memory = MAP_FAILED;
    io->version_base = (uint64_t)clock_wall_ms() << 20;
    timers_init(io);
    status = store_open(&io->store, options->state_dir, options->survives_power, err);
    if (status == STATUS_OK)
        status = core_open(io, options, err);
    if (status == STATUS_OK)
        restore(io);
    (void)snprintf(address, sizeof address, "unix:%s", options->socket_path);
    if (status == STATUS_OK)
        status = listen_on(io, address, err);
    if (status == STATUS_OK && options->listen != NULL)
        status = listen_on(io, options->listen, err);
    *out = io;
    return status;
}

const char *rdzv_io_addresses(const struct rdzv_io *io)
{
    return io->addresses;
}

void rdzv_io_stop(struct rdzv_io *io)
{
    if (io->is_stopping)
        return;
    io->is_stopping = true;
    for (uint32_t i = 0; i < io->listener_count; i++)
        listener_close(&io->listeners[i]);
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (io->peers[i] != NULL)
            peer_close(io->peers[i], STATUS_CLOSED, "the server stops");
    uv_close((uv_handle_t *)&io->tick_timer, NULL);
    uv_close((uv_handle_t *)&io->flush_timer, NULL);
    uv_close((uv_handle_t *)&io->wait_timer, NULL);
}

void rdzv_io_free(struct rdzv_io **out)
{
    struct rdzv_io *io = *out;

    if (io == NULL)
        return;
    assert(io->peer_count == 0);
    store_close(&io->store);
    if (io->core_memory != MAP_FAILED)
        (void)munmap(io->core_memory, io->core_bytes);
    arena_reset(&io->arena);
    arena_reset(&io->spec_arena);
    free(io->actions);
    free(io->waiters);
    free(io);
    *out = NULL;
}
