/* launcherd's edge in the simulation: run directories that survive it, connections, spawning. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct sim_shim *node_find(struct sim *sim, uint32_t node, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        struct sim_shim *shim = &sim->nodes[node].shims[i];

        if (shim->used && shim->job_id == job_id && shim->generation == generation)
            return shim;
    }
    return NULL;
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];

    if (node->alive && node->incarnation == event->incarnation && node->timer_us == event->at_us)
        node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_TICK});
}

static void connect_server(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];

    if (!node->alive || node->incarnation != event->incarnation)
        return;
    if (!sim->server.alive || node->cut_off) {
        node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
        return;
    }
    node->conn = net_open(sim, true, event->node, 0);
    node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN});
}

static void connect_shim(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];
    struct sim_shim *shim = &node->shims[event->shim];
    struct msg hello = {.type = MSG_TYPE_SHIM_HELLO};

    if (!node->alive || node->incarnation != event->incarnation || !shim->used)
        return;
    if (!shim->alive || shim->core.phase == SHIM_PREPARING) {
        node_step(sim, event->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_CLOSED,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation});
        return;
    }
    if (shim->conn != 0)
        sim->conns[shim->conn].to_far.open = false; /* the newest is the one that counts */
    shim->conn = net_open(sim, false, event->node, event->shim);
    hello.shim_hello = (struct msg_shim_hello){
        .protocol = PROTOCOL_VERSION,
        .job_id = shim->job_id,
        .generation = shim->generation,
        .pid = 1,
        .phase = shim->core.phase,
    };
    net_send(sim, shim->conn, false, &hello);
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_LAUNCHER_OPEN});
}

static void spawned(struct sim *sim, const struct sim_event *event)
{
    struct sim_event connect = *event;

    shim_spawn(sim, event->node, event->shim);
    connect.run = connect_shim;
    sim_at(sim, sim->now_us + 500, connect);
}

static void spawn(struct sim *sim, uint32_t node, const struct msg_start *start)
{
    check_order(sim, node, start->slot_mask);
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        struct sim_shim *shim = &sim->nodes[node].shims[i];

        if (shim->used)
            continue;
        memset(shim, 0, sizeof *shim);
        shim->used = true;
        shim->job_id = start->job_id;
        shim->generation = start->generation;
        shim->rank_base = start->rank_base;
        shim->local_count = start->local_count;
        shim->slot_mask = start->slot_mask;
        shim->grace_us = start->grace_us;
        (void)snprintf(shim->cluster, sizeof shim->cluster, "%s", start->cluster);
        sim_at(sim, sim->now_us + 1000 + sim_draw(sim, 3000),
               (struct sim_event){.run = spawned,
                                  .node = node,
                                  .shim = i,
                                  .incarnation = sim->nodes[node].incarnation});
        return;
    }
    sim_fail(sim, "node%u has %u run directories: they leak", node, SIM_SHIMS_MAX);
}

static void remove_directory(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    if (shim == NULL)
        return;
    if (shim->alive)
        sim_fail(sim, "node%u removes the run directory of a living shim", node);
    shim->used = false;
}

static void carry_out(struct sim *sim, uint32_t node, struct launcher_action *action)
{
    struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);
    struct sim_event event = {.node = node, .incarnation = sim->nodes[node].incarnation};

    if (shim != NULL)
        event.shim = (uint32_t)(shim - sim->nodes[node].shims);
    switch (action->type) {
    case LAUNCHER_CONNECT_SERVER:
        event.run = connect_server;
        sim_at(sim, sim->now_us + 100, event);
        break;
    case LAUNCHER_CLOSE_SERVER:
        sim_note(sim, "node%u closes: %s", node, action->text);
        if (sim->nodes[node].conn != 0)
            net_close(sim, sim->nodes[node].conn, true);
        break;
    case LAUNCHER_SEND_SERVER:
        if (sim->nodes[node].conn != 0)
            net_send(sim, sim->nodes[node].conn, true, &action->msg);
        break;
    case LAUNCHER_SPAWN_SHIM:
        spawn(sim, node, &action->msg.start);
        break;
    case LAUNCHER_CONNECT_SHIM:
        event.run = connect_shim;
        if (shim != NULL)
            sim_at(sim, sim->now_us + 100, event);
        break;
    case LAUNCHER_SEND_SHIM:
        if (shim != NULL && shim->conn != 0)
            net_send(sim, shim->conn, true, &action->msg);
        break;
    case LAUNCHER_KILL_SHIM:
        sim_note(sim, "node%u: its shim is killed: %s", node, action->text);
        if (shim != NULL && shim->alive)
            shim_kill(sim, node, event.shim);
        break;
    case LAUNCHER_ASK_GPU:
    case LAUNCHER_SAVE_SLOTS:
        gpu_action(sim, node, action);
        break;
    case LAUNCHER_REMOVE:
        remove_directory(sim, node, action);
        break;
    case LAUNCHER_END:
        sim_fail(sim, "node%u ends: %s", node, action->text);
        break;
    case LAUNCHER_LOG:
        sim_note(sim, "node%u: %s", node, action->text);
        break;
    }
}

void node_step(struct sim *sim, uint32_t index, struct launcher_event event)
{
    struct sim_node *node = &sim->nodes[index];
    struct launcher_actions *actions = &sim->launcher_actions;

    if (!node->alive)
        return;
    event.now_us = sim->now_us;
    launcher_step(&node->core, &event, actions);
    for (uint32_t i = 0; i < actions->count; i++)
        carry_out(sim, index, &actions->items[i]);
    if (actions->timer_at_us == UINT64_MAX)
        return;
    node->timer_us = actions->timer_at_us <= sim->now_us ? sim->now_us + 1 : actions->timer_at_us;
    sim_at(sim, node->timer_us,
           (struct sim_event){.run = tick, .node = index, .incarnation = node->incarnation});
}

static void adopt(struct sim *sim, uint32_t index, const struct sim_shim *shim)
{
    struct launcher_shim known = {
        .job_id = shim->job_id,
        .generation = shim->generation,
        .phase = shim->alive ? shim->core.phase : SHIM_ENDED,
        .slot_mask = shim->slot_mask,
        .rank_base = shim->rank_base,
        .local_count = shim->local_count,
    };
    struct msg end = {.type = MSG_TYPE_SHIM_REPORT, .shim_report = shim->end};

    (void)snprintf(known.cluster, sizeof known.cluster, "%s", shim->cluster);
    node_step(sim, index,
              (struct launcher_event){.type = LAUNCHER_EVENT_ADOPT,
                                      .shim = &known,
                                      .alive = shim->alive,
                                      .text = "was killed",
                                      .msg = !shim->alive && shim->has_end ? &end : NULL});
}

void node_start(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    struct launcher_options options = {
        .boot_id = "boot",
        .address = "127.0.0.1",
        .version = "0",
        .instance = sim_draw(sim, UINT64_MAX),
        .pid = ++sim->pid_next,
        .slots = sim->slots,
        .gpus = sim->nodes[index].gpu_count,
        .seed = sim_draw(sim, UINT64_MAX),
        .gpu_timeout_us = LAUNCHER_GPU_TIMEOUT_US,
    };

    (void)snprintf(options.name, sizeof options.name, "node%u", index);
    sim_note(sim, "node%u starts", index);
    node->alive = true;
    node->incarnation++;
    node->conn = 0;
    launcher_init(&node->core, &options);
    gpu_restore(sim, index);
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++)
        if (node->shims[i].used)
            adopt(sim, index, &node->shims[i]);
    node_step(sim, index, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPTED});
}

void node_kill(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];

    sim_note(sim, "node%u: launcherd is killed", index);
    node->alive = false;
    for (uint32_t i = 1; i < sim->conn_count; i++) {
        struct sim_conn *conn = &sim->conns[i];

        if (conn->node != index || !conn->to_near.open)
            continue;
        conn->to_near.open = false;
        net_close(sim, i, true);
    }
    node->conn = 0;
}
