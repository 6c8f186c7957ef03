/* Connections as streams: messages arrive in order and may be late; one side may close a
 * connection, or it may break with messages in flight. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/oracle.h"

#define LATENCY_US 200u
#define BLOCKED_RETRY_US 500000u

/* One encoded message in flight. */
struct sim_bytes {
    struct sim_bytes *next;
    size_t byte_count;
    char bytes[];
};

uint32_t net_open(struct sim *sim, bool is_server, uint32_t node, uint32_t shim)
{
    if (sim->conn_count == sim->size.conns) {
        sim_fail(sim, "storm", "%u connections were made: that is a storm", sim->size.conns);
        return 0;
    }
    sim->conns[sim->conn_count] =
        (struct sim_conn){.is_server = is_server,
                          .node = node,
                          .owner = sim->nodes[node].incarnation,
                          .shim = shim,
                          .shim_serial = sim->nodes[node].shims[shim].serial,
                          .to_near = {.open = true},
                          .to_far = {.open = true}};
    return sim->conn_count++;
}

static struct sim_stream *stream_of(struct sim *sim, uint32_t conn, bool to_far)
{
    return to_far ? &sim->conns[conn].to_far : &sim->conns[conn].to_near;
}

static struct sim_bytes *pop(struct sim_stream *stream)
{
    struct sim_bytes *first = stream->first;

    assert(first != NULL);
    stream->first = first->next;
    if (stream->first == NULL)
        stream->last = NULL;
    return first;
}

static void push(struct sim_stream *stream, const struct buf *frame)
{
    struct sim_bytes *one = malloc(sizeof *one + frame->byte_count);

    if (one == NULL)
        abort();
    one->next = NULL;
    one->byte_count = frame->byte_count;
    memcpy(one->bytes, frame->bytes, frame->byte_count);
    if (stream->last == NULL)
        stream->first = one;
    else
        stream->last->next = one;
    stream->last = one;
}

void net_free(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->conn_count; i++)
        for (uint32_t side = 0; side < 2; side++)
            while (stream_of(sim, i, side != 0)->first != NULL)
                free(pop(stream_of(sim, i, side != 0)));
}

void node_name(char out[NODE_NAME_BYTES_MAX], uint32_t node)
{
    (void)snprintf(out, NODE_NAME_BYTES_MAX, "node%u", node);
}

uint32_t node_of_name(const char *name)
{
    return (uint32_t)strtoul(name + strlen("node"), NULL, 10);
}

static bool is_blocked(const struct sim *sim, const struct sim_conn *conn, bool to_far)
{
    const struct sim_node *node = &sim->nodes[conn->node];

    return conn->is_server && !conn->is_impostor &&
           (to_far ? node->cut_to_server : node->cut_to_node);
}

static bool is_stalled(const struct sim *sim, const struct sim_conn *conn, bool to_far)
{
    const struct sim_bytes *first = to_far ? conn->to_far.first : conn->to_near.first;

    return conn->is_server && !conn->is_impostor &&
           orders_is_stalled(sim, conn->node, to_far, first->bytes + 4);
}

/* Whose process receives messages in that direction. */
static enum sim_party party_of(const struct sim_conn *conn, bool to_far)
{
    if (conn->is_impostor && !to_far)
        return PARTY_NONE;
    if (!to_far)
        return PARTY_NODE;
    return conn->is_server ? PARTY_SERVER : PARTY_SHIM;
}

static struct sim_event event_of(const struct sim *sim, uint32_t id, bool to_far,
                                 void (*run)(struct sim *, const struct sim_event *))
{
    const struct sim_conn *conn = &sim->conns[id];

    return (struct sim_event){.run = run,
                              .party = party_of(conn, to_far),
                              .conn = id,
                              .node = conn->node,
                              .shim = conn->shim,
                              .to_far = to_far};
}

/* The shim of a connection; NULL: its run directory is gone. */
static struct sim_shim *shim_of(struct sim *sim, const struct sim_conn *conn)
{
    struct sim_shim *shim = &sim->nodes[conn->node].shims[conn->shim];

    return shim->used && shim->serial == conn->shim_serial ? shim : NULL;
}

static void to_node(struct sim *sim, uint32_t id, const struct msg *msg)
{
    const struct sim_conn *conn = &sim->conns[id];
    const struct sim_shim *shim = shim_of(sim, conn);
    const struct launcher_shim *known;

    if (conn->is_server && sim->nodes[conn->node].conn == id) {
        if (orders_is_lost(sim, conn->node, msg->type)) {
            if (orders_cuts(sim, conn->node))
                net_close(sim, id, true);
            return;
        }
        if (warm_takes(sim, conn->node, msg))
            return;
        oracle_node_hears(sim, conn->node, msg);
        node_step(sim, conn->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = msg});
    } else if (!conn->is_server && shim != NULL) {
        known = launcher_find(&sim->nodes[conn->node].core, shim->job_id, shim->generation);
        node_step(sim, conn->node,
                  (struct launcher_event){.type = known == NULL || !known->connected
                                                      ? LAUNCHER_EVENT_SHIM_OPEN
                                                      : LAUNCHER_EVENT_SHIM_MSG,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation,
                                          .msg = msg});
    }
}

static void hand_over(struct sim *sim, uint32_t id, bool to_far, const struct msg *msg)
{
    const struct sim_conn *conn = &sim->conns[id];
    struct sim_shim *shim = conn->is_server ? NULL : shim_of(sim, conn);

    if (conn->is_server && to_far) {
        if (sim->server.alive)
            server_step(sim,
                        (struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = id, .msg = msg});
    } else if (conn->is_impostor) {
        twin_hears(sim, id, msg);
    } else if (!to_far) {
        to_node(sim, id, msg);
    } else if (shim != NULL) {
        oracle_shim_hears(sim, conn->node, shim, msg);
        shim_event(sim, conn->node, conn->shim,
                   (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = msg});
    }
}

static void receive(struct sim *sim, uint32_t conn, bool to_far, const struct sim_bytes *frame)
{
    struct arena arena = {0};
    struct err err = {0};
    struct msg msg;

    if (msg_decode(frame->bytes + 4, frame->byte_count - 4, &arena, &msg, &err) != STATUS_OK)
        sim_fail(sim, "codec", "a message of our own is refused: %s", err.text);
    else
        hand_over(sim, conn, to_far, &msg);
    arena_reset(&arena);
}

/* Each message in flight has one such event. The event takes the first message of the stream. */
static void deliver(struct sim *sim, const struct sim_event *event)
{
    struct sim_stream *stream = stream_of(sim, event->conn, event->to_far);
    struct sim_bytes *frame;

    if (stream->open && (is_blocked(sim, &sim->conns[event->conn], event->to_far) ||
                         is_stalled(sim, &sim->conns[event->conn], event->to_far))) {
        /* TCP retransmits it */
        sim_at(sim, sim->now_us + BLOCKED_RETRY_US, *event);
        return;
    }
    frame = pop(stream);
    if (stream->open && !stream->broken)
        receive(sim, event->conn, event->to_far, frame);
    free(frame);
}

static void post(struct sim *sim, uint32_t id, bool to_far, const struct buf *bytes)
{
    struct sim_stream *stream = stream_of(sim, id, to_far);
    uint64_t at_us = sim->now_us + LATENCY_US + sim_draw(sim, LATENCY_US);

    if (sim->conns[id].is_server && fault_strikes(sim, FAULT_LATE))
        at_us += sim_draw(sim, sim->faults.late_max_us);
    if (at_us < stream->clear_us)
        at_us = stream->clear_us; /* messages arrive in the order in which they were sent */
    stream->clear_us = at_us;
    push(stream, bytes);
    sim_at(sim, at_us, event_of(sim, id, to_far, deliver));
}

void net_send(struct sim *sim, uint32_t id, bool from_near, struct msg *msg)
{
    struct buf bytes = {0};
    struct err err = {0};

    if (!stream_of(sim, id, !from_near)->open)
        return; /* the sender has closed this direction */
    if (msg_encode(msg, &bytes, &err) != STATUS_OK)
        sim_fail(sim, "codec", "a message of our own cannot be encoded: %s", err.text);
    else
        post(sim, id, from_near, &bytes);
    buf_free(&bytes);
    if (sim->conns[id].is_server && fault_strikes(sim, FAULT_BREAK))
        net_break(sim, id, 8 * SECOND_US);
}

static void near_closed(struct sim *sim, uint32_t id)
{
    const struct sim_conn *conn = &sim->conns[id];
    struct sim_node *node = &sim->nodes[conn->node];
    const struct sim_shim *shim = shim_of(sim, conn);

    if (conn->is_server && node->conn == id) {
        node->conn = 0;
        node->is_welcome = false;
        node_step(sim, conn->node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
    } else if (!conn->is_server && shim != NULL) {
        node_step(sim, conn->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_CLOSED,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation});
    }
}

static void far_closed(struct sim *sim, uint32_t id)
{
    const struct sim_conn *conn = &sim->conns[id];
    struct sim_shim *shim = shim_of(sim, conn);

    if (conn->is_server) {
        if (sim->server.alive)
            server_step(sim, (struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = id});
    } else if (shim != NULL && shim->conn == id) {
        shim->conn = 0;
        shim_event(sim, conn->node, conn->shim,
                   (struct shim_event){.type = SHIM_EVENT_LAUNCHER_CLOSED});
    }
}

static void closed(struct sim *sim, const struct sim_event *event)
{
    struct sim_stream *stream = stream_of(sim, event->conn, event->to_far);

    if (!stream->open)
        return;
    /* A side that is cut off cannot know of the close. It notices the silence, or learns of it
     * later. */
    if (event->number == 0 && is_blocked(sim, &sim->conns[event->conn], event->to_far)) {
        sim_at(sim, sim->now_us + BLOCKED_RETRY_US, *event);
        return;
    }
    stream->open = false;
    if (event->to_far)
        far_closed(sim, event->conn);
    else
        near_closed(sim, event->conn);
}

static void learn_at(struct sim *sim, uint32_t id, bool to_far, uint64_t at_us)
{
    sim_at(sim, at_us, event_of(sim, id, to_far, closed));
}

void net_close(struct sim *sim, uint32_t id, bool by_near)
{
    struct sim_event own = event_of(sim, id, !by_near, closed);

    own.number = 1; /* the side that closes knows of it at once */
    sim_at(sim, sim->now_us, own);
    learn_at(sim, id, by_near, stream_of(sim, id, by_near)->clear_us + LATENCY_US);
}

void net_break(struct sim *sim, uint32_t id, uint64_t unknown_us)
{
    if (sim->conns[id].to_far.broken)
        return;
    sim_note(sim, "the connection of node%u breaks", sim->conns[id].node);
    for (uint32_t side = 0; side < 2; side++) {
        stream_of(sim, id, side != 0)->broken = true;
        learn_at(sim, id, side != 0, sim->now_us + sim_draw(sim, unknown_us));
    }
}
