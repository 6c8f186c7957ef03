/* Connections: bytes between two parties, late, lost, repeated, overtaken; closes that one side
 * hears of first. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_US 200u

uint32_t net_open(struct sim *sim, bool is_server, uint32_t node, uint32_t shim)
{
    if (sim->conn_count == SIM_CONNS_MAX) {
        sim_fail(sim, "%u connections were made: that is a storm", SIM_CONNS_MAX);
        return 0;
    }
    sim->conns[sim->conn_count] = (struct sim_conn){
        .is_server = is_server, .node = node, .shim = shim, .near_open = true, .far_open = true};
    return sim->conn_count++;
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

static void deliver(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = &sim->conns[event->conn];
    struct link *link = event->to_far ? &conn->far_link : &conn->near_link;
    struct arena arena = {0};
    struct err err = {0};
    struct msg msg;

    if (!(event->to_far ? conn->far_open : conn->near_open) || is_blocked(sim, conn))
        return;
    if (msg_decode(event->bytes + 4, event->byte_count - 4, &arena, &msg, &err) != STATUS_OK)
        sim_fail(sim, "a message of our own is refused: %s", err.text);
    else if (link_take(link, msg.seq))
        hand_over(sim, event->conn, event->to_far, &msg);
    arena_reset(&arena);
}

static void post(struct sim *sim, uint32_t id, bool to_far, const struct buf *bytes)
{
    struct sim_conn *conn = &sim->conns[id];
    bool faulty = sim->now_us < sim->faults.until_us && conn->is_server;
    uint64_t at_us = sim->now_us + LATENCY_US + sim_draw(sim, LATENCY_US);
    uint64_t *clear_us = to_far ? &conn->far_clear_us : &conn->near_clear_us;
    struct sim_event event = {.run = deliver, .conn = id, .to_far = to_far};

    if (faulty && sim_chance(sim, sim->faults.late_pm))
        at_us += sim_draw(sim, sim->faults.late_max_us);
    else if (at_us < *clear_us && !(faulty && sim->faults.late_pm > 0))
        at_us = *clear_us; /* in order, when nothing disturbs it */
    if (at_us > *clear_us)
        *clear_us = at_us;
    event.byte_count = (uint32_t)bytes->byte_count;
    event.bytes = malloc(bytes->byte_count);
    if (event.bytes == NULL)
        abort();
    memcpy(event.bytes, bytes->bytes, bytes->byte_count);
    sim_at(sim, at_us, event);
}

void net_send(struct sim *sim, uint32_t id, bool from_near, struct msg *msg)
{
    struct sim_conn *conn = &sim->conns[id];
    bool faulty = sim->now_us < sim->faults.until_us && conn->is_server;
    struct buf bytes = {0};
    struct err err = {0};

    if (!(from_near ? conn->near_open : conn->far_open))
        return;
    msg->seq = link_stamp(from_near ? &conn->near_link : &conn->far_link);
    if (msg_encode(msg, &bytes, &err) != STATUS_OK) {
        sim_fail(sim, "a message of our own cannot be encoded: %s", err.text);
    } else if (!is_blocked(sim, conn)) {
        if (!(faulty && sim_chance(sim, sim->faults.loss_pm)))
            post(sim, id, from_near, &bytes);
        if (faulty && sim_chance(sim, sim->faults.repeat_pm))
            post(sim, id, from_near, &bytes);
    }
    buf_free(&bytes);
}

static void closed(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = &sim->conns[event->conn];
    struct sim_node *node = &sim->nodes[conn->node];
    struct sim_shim *shim = &node->shims[conn->shim];

    if (!(event->to_far ? conn->far_open : conn->near_open))
        return;
    if (is_blocked(sim, conn)) { /* it cannot know; it finds out by silence, or later */
        sim_at(sim, sim->now_us + 500000,
               (struct sim_event){.run = closed, .conn = event->conn, .to_far = event->to_far});
        return;
    }
    if (event->to_far)
        conn->far_open = false;
    else
        conn->near_open = false;
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

static void tell(struct sim *sim, uint32_t id, bool to_far, uint64_t at_us)
{
    sim_at(sim, at_us, (struct sim_event){.run = closed, .conn = id, .to_far = to_far});
}

void net_close(struct sim *sim, uint32_t id, bool by_near)
{
    struct sim_conn *conn = &sim->conns[id];

    tell(sim, id, !by_near, sim->now_us); /* who closes hears of it at once */
    tell(sim, id, by_near, (by_near ? conn->far_clear_us : conn->near_clear_us) + LATENCY_US);
}
