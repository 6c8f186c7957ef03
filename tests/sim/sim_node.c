/* launcherd's edge in the simulation: run directories that survive it, connections, spawning. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/oracle.h"

struct sim_shim *node_find(struct sim *sim, uint32_t node, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        struct sim_shim *shim = &sim->nodes[node].shims[i];

        if (shim->used && !shim->is_orphan && shim->job_id == job_id &&
            shim->generation == generation)
            return shim;
    }
    return NULL;
}

static bool is_current(const struct sim *sim, const struct sim_event *event)
{
    return sim->nodes[event->node].alive &&
           sim->nodes[event->node].incarnation == event->incarnation;
}

/* Whether the run directory of an event still exists. */
static bool has_shim(const struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    return shim->used && shim->serial == event->number;
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    if (is_current(sim, event) && sim->nodes[event->node].timer_us == event->asked_us)
        node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_TICK});
}

static void connect_server(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];

    if (!is_current(sim, event))
        return;
    if (!sim->server.alive || node->cut_to_server || node->cut_to_node) {
        node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
        return;
    }
    node->conn = net_open(sim, true, event->node, 0);
    node->is_welcome = false;
    node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN});
}

/* The shim accepts the connection. A stopped shim does so later, or never. */
static void accepted(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    if (!has_shim(sim, event) || !shim->alive || !sim->conns[event->conn].to_far.open)
        return;
    if (shim->conn != 0)
        sim->conns[shim->conn].to_far.open = false; /* only the newest connection counts */
    shim->conn = event->conn;
    shim_send_hello(sim, shim);
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_LAUNCHER_OPEN});
}

static void connect_shim(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];
    struct sim_event accept = *event;

    if (!is_current(sim, event) || !has_shim(sim, event))
        return;
    if (!shim->alive) {
        node_step(sim, event->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_CLOSED,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation});
        return;
    }
    accept.run = accepted;
    accept.party = PARTY_SHIM;
    accept.conn = net_open(sim, false, event->node, event->shim);
    sim_at(sim, sim->now_us, accept);
}

/* The shim never starts: the fork fails, or the shim is killed in the same step of launcherd. */
static void fork_failed(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    if (!is_current(sim, event) || !has_shim(sim, event) || !shim->pending)
        return;
    shim->pending = false;
    sim_note(sim, "node%u: the shim of job %llu g%u cannot be started", event->node,
             (unsigned long long)shim->job_id, shim->generation);
    oracle_failed(sim, shim, event->node, -1, 0);
    node_step(sim, event->node,
              (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_FAILED,
                                      .job_id = shim->job_id,
                                      .generation = shim->generation,
                                      .text = "fork: out of processes"});
}

static void spawned(struct sim *sim, const struct sim_event *event)
{
    struct sim_event connect = *event;

    if (!is_current(sim, event) || !has_shim(sim, event) ||
        !sim->nodes[event->node].shims[event->shim].pending)
        return;
    if (fault_strikes(sim, FAULT_FORK_FAILS)) {
        fork_failed(sim, event);
        return;
    }
    shim_spawn(sim, event->node, event->shim);
    connect.run = connect_shim;
    sim_at(sim, sim->now_us + 500, connect);
}

static struct sim_event shim_event_at(const struct sim *sim, uint32_t node, uint32_t shim,
                                      void (*run)(struct sim *, const struct sim_event *))
{
    return (struct sim_event){.run = run,
                              .party = PARTY_NODE,
                              .node = node,
                              .shim = shim,
                              .number = sim->nodes[node].shims[shim].serial,
                              .incarnation = sim->nodes[node].incarnation};
}

static void spawn(struct sim *sim, uint32_t node, const struct msg_start *start)
{
    oracle_ordered(sim, node, start);
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        struct sim_shim *shim = &sim->nodes[node].shims[i];

        if (shim->used)
            continue;
        memset(shim, 0, sizeof *shim);
        shim->used = shim->pending = true;
        shim->serial = ++sim->pid_next;
        shim->boots = sim->nodes[node].boots;
        shim->job_id = start->job_id;
        shim->generation = start->generation;
        shim->rank_base = start->rank_base;
        shim->local_count = start->local_count;
        shim->world = start->world;
        shim->node_count = start->node_count;
        shim->slot_mask = start->slot_mask;
        shim->grace_us = start->grace_us;
        shim->warn_after_us = start->warn_after_us;
        shim->warn_signal = start->warn_signal;
        shim->submitted_ms = start->submitted_ms;
        (void)snprintf(shim->cluster, sizeof shim->cluster, "%s", start->cluster);
        warm_become_shim(sim, node, shim);
        starts_moment(sim, node, shim);
        sim_at(sim, sim->now_us + 1000 + sim_draw(sim, 3000), shim_event_at(sim, node, i, spawned));
        return;
    }
    sim_fail(sim, "outcome", "node%u has %u run directories: they leak", node, SIM_SHIMS_MAX);
}

static void gone(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];
    struct msg end = {.type = MSG_TYPE_SHIM_REPORT, .shim_report = shim->end};

    if (!is_current(sim, event) || !has_shim(sim, event))
        return;
    if (shim_has_workers(shim)) { /* repeat the sweep until none is left */
        if (event->asked_us == 0)
            node_step(sim, event->node,
                      (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_EXITED,
                                              .job_id = shim->job_id,
                                              .generation = shim->generation});
        shim_watch(sim, event->node, event->shim, false);
        return;
    }
    node_step(sim, event->node,
              (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_GONE,
                                      .job_id = shim->job_id,
                                      .generation = shim->generation,
                                      .text = "was killed (signal 9)",
                                      .msg = shim->has_end ? &end : NULL});
}

void shim_watch(struct sim *sim, uint32_t node, uint32_t index, bool is_first)
{
    struct sim_event event = shim_event_at(sim, node, index, gone);

    event.asked_us = !is_first;
    sim_at(sim, sim->now_us + (is_first ? 1000 : 100000), event);
}

static void remove_directory(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    if (shim == NULL)
        return;
    if (shim->alive)
        sim_fail(sim, "outcome", "node%u removes the run directory of a living shim", node);
    for (uint32_t i = 0; i < shim->local_count; i++) {
        uint32_t slot = shim_slot(shim, i);

        if (shim->workers[i].alive && slot < SIM_WORKERS_MAX)
            sim->nodes[node].gpus[slot].zombie_until_us = shim->workers[i].unkillable_until_us;
    }
    shim->used = false;
}

static void kill_shim(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    sim_note(sim, "node%u: the shim of job %llu g%u is killed by launcherd: %s", node,
             (unsigned long long)action->job_id, action->generation, action->text);
    if (shim != NULL && shim->pending)
        sim_at(sim, sim->now_us,
               shim_event_at(sim, node, (uint32_t)(shim - sim->nodes[node].shims), fork_failed));
    if (shim == NULL || !shim->alive)
        return;
    oracle_kills_shim(sim, node, shim);
    shim_kill(sim, node, (uint32_t)(shim - sim->nodes[node].shims));
}

static void looked(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    if (is_current(sim, event) && has_shim(sim, event) && shim->alive)
        node_step(sim, event->node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_LOOKED,
                                          .job_id = shim->job_id,
                                          .generation = shim->generation,
                                          .text = "T (stopped)",
                                          .ranks_left = shim_has_workers(shim) ? 1 : 0});
}

static void look_at_shim(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    const struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    if (shim != NULL)
        sim_at(sim, sim->now_us + 100,
               shim_event_at(sim, node, (uint32_t)(shim - sim->nodes[node].shims), looked));
}

/* In the place of a shim that does not answer. */
static void signal_ranks(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    if (shim == NULL || !shim->alive)
        return;
    shim->facts.was_asked = true;
    worker_signal_all(sim, node, (uint32_t)(shim - sim->nodes[node].shims), action->signal);
}

static void connect_later(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    const struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    if (shim != NULL)
        sim_at(sim, sim->now_us + 100,
               shim_event_at(sim, node, (uint32_t)(shim - sim->nodes[node].shims), connect_shim));
}

static void send_shim(struct sim *sim, uint32_t node, struct launcher_action *action)
{
    struct sim_shim *shim = node_find(sim, node, action->job_id, action->generation);

    if (shim != NULL && action->msg.type == MSG_TYPE_LEASE)
        shim_write_page(shim, action->msg.lease.until_us);
    if (shim == NULL || shim->conn == 0)
        return;
    if (action->msg.type == MSG_TYPE_STOP)
        oracle_node_stops(sim, node, shim);
    net_send(sim, shim->conn, true, &action->msg);
    starts_message(sim, node, &action->msg);
}

static void come_back(struct sim *sim, const struct sim_event *event)
{
    if (!sim->nodes[event->node].alive)
        node_start(sim, event->node);
}

static void leave(struct sim *sim, uint32_t node)
{
    oracle_left(sim, node);
    node_kill(sim, node);
    sim_at(sim, sim->now_us + sim_draw(sim, 20 * SECOND_US),
           (struct sim_event){.run = come_back, .node = node});
}

static void carry_out(struct sim *sim, uint32_t node, struct launcher_action *action)
{
    const uint32_t conn = sim->nodes[node].conn;
    struct part_warm_job warm[SIM_WARM_MAX];

    switch (action->type) {
    case LAUNCHER_CONNECT_SERVER:
        sim_at(sim, sim->now_us + 100,
               (struct sim_event){.run = connect_server,
                                  .party = PARTY_NODE,
                                  .node = node,
                                  .incarnation = sim->nodes[node].incarnation});
        break;
    case LAUNCHER_CLOSE_SERVER:
        sim_note(sim, "node%u closes: %s", node, action->text);
        if (conn != 0)
            net_close(sim, conn, true);
        break;
    case LAUNCHER_SEND_SERVER:
        if (conn == 0)
            break;
        if (action->msg.type == MSG_TYPE_BEAT) {
            action->msg.beat.warm.items = warm;
            action->msg.beat.warm.count = warm_list(sim, node, warm);
        }
        oracle_node_sends(sim, node, &action->msg);
        net_send(sim, conn, true, &action->msg);
        starts_message(sim, node, &action->msg);
        break;
    case LAUNCHER_SPAWN_SHIM:
        spawn(sim, node, &action->msg.start);
        break;
    case LAUNCHER_SPAWN_AGAIN:
        sim_fail(sim, "warm", "a shim is started again, and nothing is warm here");
        break;
    case LAUNCHER_CONNECT_SHIM:
        connect_later(sim, node, action);
        break;
    case LAUNCHER_SEND_SHIM:
        send_shim(sim, node, action);
        break;
    case LAUNCHER_KILL_SHIM:
        kill_shim(sim, node, action);
        break;
    case LAUNCHER_LOOK_SHIM:
        look_at_shim(sim, node, action);
        break;
    case LAUNCHER_SIGNAL_RANKS:
        signal_ranks(sim, node, action);
        break;
    case LAUNCHER_ASK_GPU:
    case LAUNCHER_SAVE_SLOTS:
        gpu_action(sim, node, action);
        break;
    case LAUNCHER_SAVE_SEEN:
        sim->nodes[node].seen = *action->seen;
        break;
    case LAUNCHER_REMOVE:
        remove_directory(sim, node, action);
        break;
    case LAUNCHER_END:
        sim_fail(sim, "outcome", "node%u ends: %s", node, action->text);
        break;
    case LAUNCHER_LEFT:
        leave(sim, node);
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

    if (!node->alive || sim->failed)
        return;
    event.now_us = sim_node_us(sim, index);
    launcher_step(&node->core, &event, actions);
    for (uint32_t i = 0; i < actions->count; i++)
        carry_out(sim, index, &actions->items[i]);
    if (actions->timer_at_us == UINT64_MAX)
        return;
    node->timer_us = actions->timer_at_us <= event.now_us ? event.now_us + 1 : actions->timer_at_us;
    sim_at(sim, sim_clock_at(sim, &node->clock, node->timer_us),
           (struct sim_event){.run = tick,
                              .party = PARTY_NODE,
                              .node = index,
                              .asked_us = node->timer_us,
                              .incarnation = node->incarnation});
}

/* A shim that died in this boot counts as alive until its processes are swept. */
static void adopt(struct sim *sim, uint32_t index, uint32_t shim_index)
{
    struct sim_shim *shim = &sim->nodes[index].shims[shim_index];
    struct launcher_shim known = {
        .job_id = shim->job_id,
        .generation = shim->generation,
        .phase = shim->has_end ? SHIM_ENDED : SHIM_PREPARING,
        .slot_mask = shim->slot_mask,
        .rank_base = shim->rank_base,
        .local_count = shim->local_count,
    };
    struct msg end = {.type = MSG_TYPE_SHIM_REPORT, .shim_report = shim->end};
    /* a pending shim was never started */
    const bool same_boot = shim->boots == sim->nodes[index].boots && !shim->pending;

    (void)snprintf(known.cluster, sizeof known.cluster, "%s", shim->cluster);
    known.grace_us = shim->grace_us;
    known.submitted_ms = shim->submitted_ms;
    known.lease_until_us = shim->page_us;
    shim->pending = false;
    node_step(sim, index,
              (struct launcher_event){.type = LAUNCHER_EVENT_ADOPT,
                                      .shim = &known,
                                      .alive = same_boot,
                                      .text = same_boot ? NULL : "ended with its machine",
                                      .msg = !same_boot && shim->has_end ? &end : NULL});
    if (same_boot && !shim->alive)
        shim_watch(sim, index, shim_index, true);
}

static void init_core(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    struct launcher_options options = {
        .address = "127.0.0.1",
        .version = "0",
        .protocol = PROTOCOL_VERSION,
        .instance = sim_draw(sim, UINT64_MAX),
        .pid = ++sim->pid_next,
        .slots = sim->slots,
        .gpus = node->gpu_count,
        .seed = sim_draw(sim, UINT64_MAX),
        .gpu_timeout_us = LAUNCHER_GPU_TIMEOUT_US,
    };

    node_name(options.name, index);
    (void)snprintf(options.boot_id, sizeof options.boot_id, "boot%u", node->boots);
    twin_identity(sim, index, options.machine_id, options.state_id);
    launcher_init(&node->core, &options);
}

void node_start(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];

    sim_note(sim, "node%u starts", index);
    node->alive = true;
    node->is_down = false;
    node->incarnation++;
    node->conn = 0;
    node->is_welcome = node->has_welcome = node->is_leaving = false;
    node->steady_us = sim_node_us(sim, index);
    init_core(sim, index);
    gpu_restore(sim, index);
    node_step(sim, index,
              (struct launcher_event){.type = LAUNCHER_EVENT_SEEN_LOADED, .seen = &node->seen});
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++)
        if (node->shims[i].used && !node->shims[i].is_orphan)
            adopt(sim, index, i);
    node_step(sim, index, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPTED});
}

void node_kill(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];

    sim_note(sim, "node%u: launcherd is killed", index);
    node->alive = false;
    node->paused_until_us = 0;
    warm_end_all(sim, index);
    for (uint32_t i = 1; i < sim->conn_count; i++) {
        struct sim_conn *conn = &sim->conns[i];

        if (conn->node != index || conn->is_impostor || !conn->to_near.open)
            continue;
        conn->to_near.open = false;
        net_close(sim, i, true);
    }
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        struct sim_shim *shim = &node->shims[i];

        shim->facts.order_us = 0; /* the next launcherd orders it anew */
        if (shim->used && shim->pending && !shim->is_orphan)
            oracle_failed(sim, shim, index, -1, 0);
    }
    node->conn = 0;
    node->is_welcome = false;
}

void node_power_off(struct sim *sim, uint32_t index, bool new_disk)
{
    struct sim_node *node = &sim->nodes[index];

    oracle_node_failed(sim, index);
    if (node->conn != 0) { /* the connection is not closed in order */
        sim->conns[node->conn].to_near.open = false;
        net_break(sim, node->conn, 30 * SECOND_US);
    }
    if (node->alive)
        node_kill(sim, index);
    sim_note(sim, "node%u restarts: everything on it is gone%s", index,
             new_disk ? ", and its files" : "");
    node->is_down = true;
    node->boots++;
    node->installs += new_disk;
    node->states += new_disk;
    node->frozen_until_us = 0;
    node->lease_end_us = 0;
    node->clock.offset_us = 1000 - sim->now_us; /* a boot clock starts anew */
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        struct sim_shim *shim = &node->shims[i];

        for (uint32_t w = 0; w < SIM_WORKERS_MAX; w++)
            shim->workers[w].alive = shim->workers[w].is_coming = false;
        shim->alive = shim->has_orphans = false;
        shim->used = shim->used && !new_disk && !shim->is_orphan;
        shim->paused_until_us = 0;
        shim->facts = (struct sim_shim_facts){.end_was_sent = shim->facts.end_was_sent};
        shim->conn = 0;
    }
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        node->gpus[i] = (struct sim_gpu){.ecc = node->gpus[i].ecc};
}
