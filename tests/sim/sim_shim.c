/* The shim's edge in the simulation. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/oracle.h"

#define SWEEP_US 20000u

static struct sim_shim *shim_at(struct sim *sim, uint32_t node, uint32_t shim)
{
    return &sim->nodes[node].shims[shim];
}

uint32_t shim_slot(const struct sim_shim *shim, uint32_t worker)
{
    uint64_t mask = shim->slot_mask;

    while (worker-- > 0)
        mask &= mask - 1;
    return (uint32_t)__builtin_ctzll(mask);
}

bool shim_has_workers(const struct sim_shim *shim)
{
    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].alive)
            return true;
    return shim->has_orphans;
}

/* The shim of an event; NULL: that process is gone. */
static struct sim_shim *living(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event->node, event->shim);

    return shim->used && shim->alive && shim->incarnation == event->incarnation ? shim : NULL;
}

/* It runs again: deadlines for overdue work count from now on. */
static void resumed(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = living(sim, event);

    if (shim != NULL && shim->paused_until_us <= sim->now_us)
        shim->facts.free_us = sim_node_us(sim, event->node);
}

static struct sim_event own_event(struct sim *sim, uint32_t node, uint32_t shim,
                                  void (*run)(struct sim *, const struct sim_event *))
{
    return (struct sim_event){.run = run,
                              .party = PARTY_SHIM,
                              .node = node,
                              .shim = shim,
                              .incarnation = shim_at(sim, node, shim)->incarnation};
}

void shim_stop(struct sim *sim, uint32_t node, struct sim_shim *shim, uint64_t us)
{
    struct sim_event event =
        own_event(sim, node, (uint32_t)(shim - sim->nodes[node].shims), resumed);

    if (sim->now_us >= shim->paused_until_us)
        shim->facts.deaf_at_us = sim->now_us;
    if (shim->paused_until_us < sim->now_us + us)
        shim->paused_until_us = sim->now_us + us;
    shim->facts.free_us = UINT64_MAX;
    sim_at(sim, shim->paused_until_us, event);
}

/* number: 1 after KILL_TREE, which is repeated until no process is left. */
static void tree_empty(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = living(sim, event);

    if (shim == NULL)
        return;
    if (!shim_has_workers(shim))
        shim_event(sim, event->node, event->shim,
                   (struct shim_event){.type = SHIM_EVENT_TREE_EMPTY});
    else if (event->number == 1)
        sim_at(sim, sim->now_us + SWEEP_US, *event);
}

static void port(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = living(sim, event);
    uint32_t number = 20000 + (uint32_t)sim_draw(sim, 10000);

    if (shim == NULL)
        return;
    if (fault_strikes(sim, FAULT_PORT_FAILS)) {
        sim_note(sim, "node%u: no port for job %llu g%u", event->node,
                 (unsigned long long)shim->job_id, shim->generation);
        oracle_failed(sim, shim, event->node, -1, 0);
        number = 0;
    }
    if (number != 0)
        oracle_prepared(sim, shim, number);
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_PORT, .port = number});
}

/* number: 1 if nobody told the store to exit. */
static void store_exited(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = living(sim, event);

    if (shim == NULL || !shim->store_runs)
        return;
    shim->store_runs = false;
    if (event->number == 1 && shim->facts.failed_us == 0 && shim->facts.stop_us == 0 &&
        !shim->facts.kill_now)
        shim->facts.failed_us = sim_node_us(sim, event->node);
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_STORE_EXITED, .text = "killed"});
}

void shim_kill_store(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);
    struct sim_event event = own_event(sim, node, index, store_exited);

    sim_note(sim, "node%u: the store of job %llu g%u dies", node, (unsigned long long)shim->job_id,
             shim->generation);
    oracle_failed(sim, shim, node, -1, 0);
    event.number = 1;
    sim_at(sim, sim->now_us + 50, event);
}

/* Half of the jobs have a store. It starts before the first worker. */
static void spawn_store(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    if (shim->rank_base != 0 || shim->job_id % 2 == 0)
        return;
    shim->store_runs = true;
    shim_event(sim, node, index, (struct shim_event){.type = SHIM_EVENT_STORE_STARTED});
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = living(sim, event);

    if (shim != NULL && shim->timer_us == event->asked_us)
        shim_event(sim, event->node, event->shim, (struct shim_event){.type = SHIM_EVENT_TICK});
}

/* The shim's process is gone; its workers are killed (parent-death signal and sweep). */
static void leave(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    shim->alive = false;
    shim->store_runs = false;
    shim->paused_until_us = 0;
    worker_kill_all(sim, node, index);
    if (shim->conn != 0) {
        sim->conns[shim->conn].to_far.open = false;
        net_close(sim, shim->conn, false);
        shim->conn = 0;
    }
    if (shim->is_orphan)
        twin_orphan_ends(sim, node, index);
    else
        shim_watch(sim, node, index, true);
    shim->facts.killed_us = sim_node_us(sim, node);
}

void shim_kill(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    sim_note(sim, "node%u: the shim of job %llu g%u dies", node, (unsigned long long)shim->job_id,
             shim->generation);
    oracle_failed(sim, shim, node, -1, 0);
    leave(sim, node, index);
}

static void add_last_line(const struct sim *sim, struct msg_shim_report *report)
{
    if (report->failed_rank >= 0 && client_of(sim, report->job_id)->says_why)
        report->tail = "ValueError: too many values to unpack";
}

static void send_report(struct sim *sim, uint32_t node, struct sim_shim *shim)
{
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    shim_report(&shim->core, sim_node_us(sim, node), ranks, &msg.shim_report);
    add_last_line(sim, &msg.shim_report);
    if (shim->conn != 0)
        net_send(sim, shim->conn, false, &msg);
}

void shim_send_hello(struct sim *sim, const struct sim_shim *shim)
{
    struct msg hello = {.type = MSG_TYPE_SHIM_HELLO};

    hello.shim_hello = (struct msg_shim_hello){
        .protocol = PROTOCOL_VERSION,
        .job_id = shim->job_id,
        .generation = shim->generation,
        .pid = 1,
        .phase = shim->core.phase,
        .lease_over = shim->core.lease_over,
    };
    if (shim->conn != 0)
        net_send(sim, shim->conn, false, &hello);
}

static void end_kept(struct sim *sim, const struct sim_event *event)
{
    if (living(sim, event) != NULL)
        shim_event(sim, event->node, event->shim, (struct shim_event){.type = SHIM_EVENT_END_KEPT});
}

/* The shim's end is written to disk before it is reported. */
static void record_end(struct sim *sim, uint32_t node, struct sim_shim *shim)
{
    oracle_ended(sim, node, shim);
    shim->has_end = true;
    shim_report(&shim->core, sim_node_us(sim, node), shim->end_ranks, &shim->end);
    add_last_line(sim, &shim->end);
    (void)snprintf(shim->end_cause, sizeof shim->end_cause, "%s", shim->end.cause);
    shim->end.cause = shim->end_cause;
    shim->end.blob.count = 0;
    if (shim->is_orphan) /* nobody will ever tell it to exit */
        leave(sim, node, (uint32_t)(shim - sim->nodes[node].shims));
}

static void send_signal(struct sim *sim, uint32_t node, uint32_t index,
                        const struct shim_action *action)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    if (action->type == SHIM_SIGNAL) {
        shim->facts.was_asked = true;
        worker_signal_all(sim, node, index, action->signal);
    } else if (action->type == SHIM_WARN) { /* the workers ignore the signal */
        oracle_warns(sim, node, shim, action->signal);
        shim->facts.was_warned = true;
    } else if (action->type == SHIM_SIGNAL_LEFT) {
        worker_signal_left(sim, node, index, action->signal);
    } /* late: nothing here has a program that keeps the signal to itself */
}

static void carry_out(struct sim *sim, uint32_t node, uint32_t index,
                      const struct shim_action *action)
{
    struct sim_shim *shim = shim_at(sim, node, index);
    struct sim_event event = own_event(sim, node, index, tree_empty);
    struct msg msg;

    switch (action->type) {
    case SHIM_RESERVE_PORT:
        event.run = port;
        sim_at(sim, sim->now_us + 50, event);
        break;
    case SHIM_KILL_ONE:
    case SHIM_SPAWN_ONE:
        sim_fail(sim, "warm", "a worker is started again, and nothing is warm here");
        break;
    case SHIM_SPAWN_ALL:
        oracle_goes(sim, shim, action->port);
        spawn_store(sim, node, index);
        worker_spawn_all(sim, node, index);
        starts_moment(sim, node, shim);
        break;
    case SHIM_SIGNAL:
    case SHIM_WARN:
    case SHIM_SIGNAL_LATE:
    case SHIM_SIGNAL_LEFT:
        send_signal(sim, node, index, action);
        break;
    case SHIM_KILL_TREE:
        oracle_kills(sim, node, shim);
        worker_kill_all(sim, node, index);
        event.number = 1;
        sim_at(sim, sim->now_us + 2000, event);
        break;
    case SHIM_CHECK_TREE:
        sim_at(sim, sim->now_us + 100, event);
        break;
    case SHIM_SEND_REPORT:
        send_report(sim, node, shim);
        break;
    case SHIM_SEND_PROGRESS:
        msg = (struct msg){.type = MSG_TYPE_PROGRESS, .progress = *action->progress};
        if (shim->conn != 0)
            net_send(sim, shim->conn, false, &msg);
        break;
    case SHIM_SEND_WORLD:
        oracle_world(sim, shim, shim->core.world_byte_count > 0 ? shim->core.world_bytes[0] : 0);
        worker_world(sim, node, index, action->local);
        break;
    case SHIM_END_STORE:
        oracle_ends_store(sim, node, shim);
        event.run = store_exited;
        sim_at(sim, sim->now_us + 100 + sim_draw(sim, 2000), event);
        break;
    case SHIM_SEND_HELLO:
        shim_send_hello(sim, shim);
        break;
    case SHIM_KEEP_END:
        record_end(sim, node, shim);
        event.run = end_kept;
        sim_at(sim, sim->now_us + 200, event);
        break;
    case SHIM_EXIT:
        leave(sim, node, index);
        break;
    }
}

void shim_write_page(struct sim_shim *shim, uint64_t until_us)
{
    if (until_us > shim->page_us)
        shim->page_us = until_us;
    if (until_us > shim->facts.lease_us)
        shim->facts.lease_us = until_us;
}

void shim_event(struct sim *sim, uint32_t node, uint32_t index, struct shim_event event)
{
    struct sim_shim *shim = shim_at(sim, node, index);
    struct sim_event later = own_event(sim, node, index, tick);
    struct shim_actions actions; /* one step may cause another */

    if (!shim->used || !shim->alive || sim->failed)
        return;
    event.now_us = sim_node_us(sim, node);
    event.lease_until_us = shim->page_us;
    shim_step(&shim->core, &event, &actions);
    shim_write_page(shim, shim->core.lease_until_us);
    for (uint32_t i = 0; i < actions.count && shim->alive; i++)
        carry_out(sim, node, index, &actions.items[i]);
    if (!shim->alive || actions.timer_at_us == UINT64_MAX)
        return;
    shim->timer_us = actions.timer_at_us <= event.now_us ? event.now_us + 1 : actions.timer_at_us;
    later.asked_us = shim->timer_us;
    sim_at(sim, sim_clock_at(sim, &sim->nodes[node].clock, shim->timer_us), later);
}

/* The check that the job can run here is over. */
static void prepared(struct sim *sim, const struct sim_event *event)
{
    static const int32_t codes[] = {125, 125, 126, 127};
    struct sim_shim *shim = living(sim, event);
    int32_t code = codes[sim_draw(sim, 4)];

    if (shim == NULL)
        return;
    if (fault_strikes(sim, FAULT_CANNOT_START)) {
        sim_note(sim, "node%u: job %llu g%u cannot run here, %d", event->node,
                 (unsigned long long)shim->job_id, shim->generation, code);
        oracle_failed(sim, shim, event->node, -1, (uint32_t)code);
        shim_event(sim, event->node, event->shim,
                   (struct shim_event){
                       .type = SHIM_EVENT_CANNOT_START, .code = code, .text = "no such program"});
        return;
    }
    if (shim->rank_base != 0)
        oracle_prepared(sim, shim, 0);
    shim_event(sim, event->node, event->shim, (struct shim_event){.type = SHIM_EVENT_START});
}

void shim_spawn(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);
    const struct launcher *launcher = &sim->nodes[node].core;
    struct shim_options options = {
        .job_id = shim->job_id,
        .generation = shim->generation,
        .rank_base = shim->rank_base,
        .local_count = shim->local_count,
        .world = shim->world,
        .node_count = shim->node_count,
        .grace_us = shim->grace_us,
        .warn_after_us = shim->warn_after_us,
        .warn_signal = shim->warn_signal,
        .lease_until_us = launcher->lease_until_us,
        .lease_us = launcher->lease_us,
        .pid = ++sim->pid_next,
    };
    uint64_t slow_us = fault_strikes(sim, FAULT_SLOW_PREPARE) ? sim_draw(sim, 40 * SECOND_US) : 0;

    shim->pending = false;
    shim->alive = true;
    shim->incarnation = sim->pid_next;
    shim->facts.free_us = sim_node_us(sim, node);
    shim->facts.lease_us = shim->page_us = options.lease_until_us;
    shim_init(&shim->core, &options);
    if (fault_strikes(sim, FAULT_PREPARE_STOPS))
        orders_stop_shim(sim, node, shim);
    sim_at(sim, sim->now_us + slow_us, own_event(sim, node, index, prepared));
    shim_event(sim, node, index, (struct shim_event){.type = SHIM_EVENT_TICK});
    starts_moment(sim, node, shim);
}
