/* Connections as streams: in order and late, closed by one side, broken with messages under way. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_US 200u
#define BLOCKED_RETRY_US 500000u
#define BREAK_UNKNOWN_US 8000000u /* a broken connection is noticed within this time */

/* One encoded message under way. */
struct sim_bytes {
    struct sim_bytes *next;
    size_t byte_count;
    char bytes[];
};

uint32_t net_open(struct sim *sim, bool is_server, uint32_t node, uint32_t shim)
{
    if (sim->conn_count == sim->size.conns) {
        sim_fail(sim, "%u connections were made: that is a storm", sim->size.conns);
        return 0;
    }
    sim->conns[sim->conn_count] = (struct sim_conn){.is_server = is_server,
                                                    .node = node,
                                                    .shim = shim,
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

static bool is_blocked(const struct sim *sim, const struct sim_conn *conn)
{
    return conn->is_server && sim->nodes[conn->node].cut_off;
}

static void hand_over(struct sim *sim, uint32_t id, bool to_far, const struct msg *msg)
{
    struct sim_conn *conn = &sim->conns[id];
    struct sim_shim *shim = &sim->nodes[conn->node].shims[conn->shim];

    if (conn->is_server && to_far) {
        server_message(sim, id, msg);
    } else if (conn->is_server) {
        node_step(sim, conn->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = msg});
    } else if (to_far) {
        shim_event(sim, conn->node, conn->shim,
                   (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = msg});
    } else {
        node_step(sim, conn->node,
                  (struct launcher_event){.type = msg->type == MSG_TYPE_SHIM_HELLO
                                                      ? LAUNCHER_EVENT_SHIM_OPEN
                                                      : LAUNCHER_EVENT_SHIM_MSG,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation,
                                          .msg = msg});
    }
}

static void receive(struct sim *sim, uint32_t conn, bool to_far, const struct sim_bytes *frame)
{
    struct arena arena = {0};
    struct err err = {0};
    struct msg msg;

    if (msg_decode(frame->bytes + 4, frame->byte_count - 4, &arena, &msg, &err) != STATUS_OK)
        sim_fail(sim, "a message of our own is refused: %s", err.text);
    else
        hand_over(sim, conn, to_far, &msg);
    arena_reset(&arena);
}

/* There is one such event for each message under way; it takes the first of the stream. */
static void deliver(struct sim *sim, const struct sim_event *event)
{
    struct sim_stream *stream = stream_of(sim, event->conn, event->to_far);
    struct sim_bytes *frame;

    if (stream->open && is_blocked(sim, &sim->conns[event->conn])) { /* sent again and again */
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
    bool faulty = sim->now_us < sim->faults.until_us && sim->conns[id].is_server;
    uint64_t at_us = sim->now_us + LATENCY_US + sim_draw(sim, LATENCY_US);

    if (faulty && sim_chance(sim, sim->faults.late_pm))
        at_us += sim_draw(sim, sim->faults.late_max_us);
    if (at_us < stream->clear_us)
        at_us = stream->clear_us; /* what was sent before arrives before */
    stream->clear_us = at_us;
    push(stream, bytes);
    sim_at(sim, at_us, (struct sim_event){.run = deliver, .conn = id, .to_far = to_far});
}

void net_send(struct sim *sim, uint32_t id, bool from_near, struct msg *msg)
{
    bool faulty = sim->now_us < sim->faults.until_us && sim->conns[id].is_server;
    struct buf bytes = {0};
    struct err err = {0};

    if (!stream_of(sim, id, !from_near)->open)
        return; /* the sender has closed it */
    if (msg_encode(msg, &bytes, &err) != STATUS_OK)
        sim_fail(sim, "a message of our own cannot be encoded: %s", err.text);
    else
        post(sim, id, from_near, &bytes);
    buf_free(&bytes);
    if (faulty && sim_chance(sim, sim->faults.break_pm))
        net_break(sim, id);
}

static void closed(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = &sim->conns[event->conn];
    struct sim_node *node = &sim->nodes[conn->node];
    struct sim_shim *shim = &node->shims[conn->shim];

    if (!stream_of(sim, event->conn, event->to_far)->open)
        return;
    if (is_blocked(sim, conn)) { /* it cannot know; it finds out by silence, or later */
        sim_at(sim, sim->now_us + BLOCKED_RETRY_US, *event);
        return;
    }
    stream_of(sim, event->conn, event->to_far)->open = false;
    if (conn->is_server && event->to_far) {
        server_closed(sim, event->conn);
    } else if (conn->is_server && node->conn == event->conn) {
        node->conn = 0;
        node_step(sim, conn->node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
    } else if (!conn->is_server && event->to_far && shim->conn == event->conn) {
        shim->conn = 0;
        shim_event(sim, conn->node, conn->shim,
                   (struct shim_event){.type = SHIM_EVENT_LAUNCHER_CLOSED});
    } else if (!conn->is_server && !event->to_far) {
        node_step(sim, conn->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_CLOSED,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation});
    }
}

static void learn_at(struct sim *sim, uint32_t id, bool to_far, uint64_t at_us)
{
    sim_at(sim, at_us, (struct sim_event){.run = closed, .conn = id, .to_far = to_far});
}

void net_close(struct sim *sim, uint32_t id, bool by_near)
{
    learn_at(sim, id, !by_near, sim->now_us); /* the side that closes knows at once */
    learn_at(sim, id, by_near, stream_of(sim, id, by_near)->clear_us + LATENCY_US);
}

void net_break(struct sim *sim, uint32_t id)
{
    if (sim->conns[id].to_far.broken)
        return;
    sim_note(sim, "the connection of node%u breaks", sim->conns[id].node);
    for (uint32_t side = 0; side < 2; side++) {
        stream_of(sim, id, side != 0)->broken = true;
        learn_at(sim, id, side != 0, sim->now_us + sim_draw(sim, BREAK_UNKNOWN_US));
    }
}
