/* The shim's edge in the simulation, and its workers: they spawn, join, train, exit, and die with
 * it. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct sim_shim *shim_at(struct sim *sim, uint32_t node, uint32_t shim)
{
    return &sim->nodes[node].shims[shim];
}

static const struct sim_client *client_of(const struct sim *sim, uint64_t job_id)
{
    const struct sim_row *row = store_row(sim, job_id);

    for (uint32_t i = 0; i < sim->client_count; i++)
        if (row != NULL && strcmp(sim->clients[i].request_id, row->record.request_id) == 0)
            return &sim->clients[i];
    return &sim->clients[0];
}

static uint32_t slot_of(const struct sim_shim *shim, uint32_t worker)
{
    uint64_t mask = shim->slot_mask;

    while (worker-- > 0)
        mask &= mask - 1;
    return (uint32_t)__builtin_ctzll(mask);
}

static struct sim_event worker_event(const struct sim *sim, uint32_t node, uint32_t shim,
                                     uint32_t worker,
                                     void (*run)(struct sim *, const struct sim_event *))
{
    return (struct sim_event){
        .run = run,
        .node = node,
        .shim = shim,
        .worker = worker,
        .incarnation = sim->nodes[node].shims[shim].workers[worker].incarnation,
    };
}

/* NULL: that worker is gone. */
static struct sim_worker *worker_of(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = &shim_at(sim, event->node, event->shim)->workers[event->worker];

    return worker->alive && worker->incarnation == event->incarnation ? worker : NULL;
}

static void exited(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = shim_at(sim, event->node, event->shim);

    if (!shim->alive || shim->workers[event->worker].incarnation != event->incarnation)
        return;
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_EXITED,
                                   .local = event->worker,
                                   .signal = event->number >= 1000 ? event->number - 1000 : 0,
                                   .code = event->number >= 1000 ? 0 : (int32_t)event->number});
}

/* number: exit code, or 1000 + signal. */
static void worker_end(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker,
                       uint32_t number)
{
    struct sim_event event = worker_event(sim, node, shim, worker, exited);

    shim_at(sim, node, shim)->workers[worker].alive = false;
    gpu_left(sim, node, slot_of(shim_at(sim, node, shim), worker));
    event.number = number;
    sim_at(sim, sim->now_us + 100 + sim_draw(sim, 500), event);
}

void worker_kill(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker)
{
    sim_note(sim, "node%u: a worker of job %llu g%u is killed", node,
             (unsigned long long)shim_at(sim, node, shim)->job_id,
             shim_at(sim, node, shim)->generation);
    worker_end(sim, node, shim, worker, 1000 + SIGKILL);
}

static void say_progress(struct sim *sim, const struct sim_event *event, uint32_t step)
{
    const struct sim_shim *shim = shim_at(sim, event->node, event->shim);
    struct msg msg = {.type = MSG_TYPE_PROGRESS};

    msg.progress = (struct msg_progress){
        .job_id = shim->job_id,
        .generation = shim->generation,
        .rank = shim->rank_base + event->worker,
        .step = step,
        .checkpoint_step = event->worker == 0 && shim->rank_base == 0 && step % 4 == 0 ? step : 0,
    };
    shim_event(
        sim, event->node, event->shim,
        (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = event->worker, .msg = &msg});
}

static void train(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = worker_of(sim, event);
    const struct sim_shim *shim = shim_at(sim, event->node, event->shim);
    const struct sim_client *client = client_of(sim, shim->job_id);
    struct sim_generation *generation;

    if (worker == NULL)
        return;
    if (worker->steps_left > 0) {
        worker->steps_left--;
        say_progress(sim, event, client->steps - worker->steps_left);
        sim_at(sim, sim->now_us + 50000 + sim_draw(sim, 800000), *event);
        return;
    }
    if (client->fails && shim->rank_base + event->worker == 0) {
        worker_end(sim, event->node, event->shim, event->worker, 3);
        return;
    }
    generation = check_generation(sim, shim->job_id, shim->generation);
    if (generation != NULL)
        generation->exited_ok++;
    worker_end(sim, event->node, event->shim, event->worker, 0);
}

static void join(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = shim_at(sim, event->node, event->shim);
    struct msg msg = {.type = MSG_TYPE_WORKER_JOIN};
    uint8_t blob = (uint8_t)(1 + sim_draw(sim, 255));

    if (worker_of(sim, event) == NULL)
        return;
    msg.worker_join = (struct msg_worker_join){
        .rank = shim->rank_base + event->worker,
        .generation = shim->generation,
        .blob = {.items = &blob, .count = shim->rank_base + event->worker == 0},
    };
    shim_event(
        sim, event->node, event->shim,
        (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = event->worker, .msg = &msg});
}

static void worker_spawned(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event->node, event->shim);
    struct sim_worker *worker = &shim->workers[event->worker];
    const struct sim_client *client = client_of(sim, shim->job_id);

    if (!shim->alive || shim->incarnation != event->incarnation)
        return;
    *worker = (struct sim_worker){.alive = true,
                                  .incarnation = ++sim->pid_next,
                                  .pid = sim->pid_next,
                                  .steps_left = client->steps};
    check_spawn(sim, event->node, shim, event->worker);
    sim_at(
        sim, sim->now_us + 1000 + sim_draw(sim, 200000),
        worker_event(sim, event->node, event->shim, event->worker, client->joins ? join : train));
    shim_event(sim, event->node, event->shim,
               (struct shim_event){
                   .type = SHIM_EVENT_SPAWNED, .local = event->worker, .pid = worker->pid});
}

static void tree_empty(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event->node, event->shim);

    if (!shim->alive || shim->incarnation != event->incarnation)
        return;
    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].alive)
            return; /* one was spawned in the meantime: it is killed in its turn */
    shim_event(sim, event->node, event->shim, (struct shim_event){.type = SHIM_EVENT_TREE_EMPTY});
}

static void port(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = shim_at(sim, event->node, event->shim);

    if (shim->alive && shim->incarnation == event->incarnation)
        shim_event(sim, event->node, event->shim,
                   (struct shim_event){.type = SHIM_EVENT_PORT,
                                       .port = 20000 + (uint32_t)sim_draw(sim, 10000)});
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = shim_at(sim, event->node, event->shim);

    if (shim->alive && shim->incarnation == event->incarnation && shim->timer_us == event->at_us)
        shim_event(sim, event->node, event->shim, (struct shim_event){.type = SHIM_EVENT_TICK});
}

static void gone(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event->node, event->shim);
    struct msg end = {.type = MSG_TYPE_SHIM_REPORT, .shim_report = shim->end};

    if (!shim->used || shim->alive || shim->incarnation != event->incarnation)
        return;
    node_step(sim, event->node,
              (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_GONE,
                                      .job_id = shim->job_id,
                                      .generation = shim->generation,
                                      .text = "was killed (signal 9)",
                                      .msg = shim->has_end ? &end : NULL});
}

/* The process is gone; so are its workers, at once (parent-death signal and sweep). */
static void leave(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    shim->alive = false;
    for (uint32_t i = 0; i < shim->local_count; i++)
        shim->workers[i].alive = false;
    if (shim->conn != 0) {
        sim->conns[shim->conn].to_far.open = false;
        net_close(sim, shim->conn, false);
        shim->conn = 0;
    }
    sim_at(sim, sim->now_us + 1000,
           (struct sim_event){
               .run = gone, .node = node, .shim = index, .incarnation = shim->incarnation});
}

void shim_kill(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    sim_note(sim, "node%u: the shim of job %llu g%u is killed", node,
             (unsigned long long)shim->job_id, shim->generation);
    leave(sim, node, index);
}

static void send_report(struct sim *sim, struct sim_shim *shim)
{
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    shim_report(&shim->core, sim->now_us, ranks, &msg.shim_report);
    if (shim->conn != 0)
        net_send(sim, shim->conn, false, &msg);
}

/* The end is on the disk before it is reported. */
static void record_end(struct sim *sim, struct sim_shim *shim)
{
    if (shim->core.phase != SHIM_ENDED || shim->has_end)
        return;
    shim->has_end = true;
    shim_report(&shim->core, sim->now_us, shim->end_ranks, &shim->end);
    (void)snprintf(shim->end_cause, sizeof shim->end_cause, "%s", shim->end.cause);
    shim->end.cause = shim->end_cause;
    shim->end.blob.count = 0;
}

static void spawn_all(struct sim *sim, uint32_t node, uint32_t index, struct sim_event event)
{
    for (uint32_t i = 0; i < shim_at(sim, node, index)->local_count; i++) {
        event.run = worker_spawned;
        event.worker = i;
        sim_at(sim, sim->now_us + 500 + sim_draw(sim, 3000), event);
    }
}

static void signal_all(struct sim *sim, uint32_t node, uint32_t index, uint32_t signal,
                       bool must_die)
{
    struct sim_shim *shim = shim_at(sim, node, index);

    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].alive && (must_die || !sim_chance(sim, 300)))
            worker_end(sim, node, index, i, 1000 + signal);
}

static void carry_out(struct sim *sim, uint32_t node, uint32_t index,
                      const struct shim_action *action)
{
    struct sim_shim *shim = shim_at(sim, node, index);
    struct sim_event event = {.node = node, .shim = index, .incarnation = shim->incarnation};
    struct msg msg;

    switch (action->type) {
    case SHIM_RESERVE_PORT:
        event.run = port;
        sim_at(sim, sim->now_us + 50, event);
        break;
    case SHIM_SPAWN_ALL:
        spawn_all(sim, node, index, event);
        break;
    case SHIM_SIGNAL:
        signal_all(sim, node, index, action->signal, false);
        break;
    case SHIM_KILL_TREE:
        signal_all(sim, node, index, SIGKILL, true);
        event.run = tree_empty;
        sim_at(sim, sim->now_us + 2000, event);
        break;
    case SHIM_CHECK_TREE:
        event.run = tree_empty;
        sim_at(sim, sim->now_us + 100, event);
        break;
    case SHIM_SEND_REPORT:
        send_report(sim, shim);
        break;
    case SHIM_SEND_PROGRESS:
        msg = (struct msg){.type = MSG_TYPE_PROGRESS, .progress = *action->progress};
        if (shim->conn != 0)
            net_send(sim, shim->conn, false, &msg);
        break;
    case SHIM_SEND_WORLD:
        check_world(sim, shim, shim->core.world_byte_count > 0 ? shim->core.world_bytes[0] : 0);
        shim->workers[action->local].has_world = true;
        sim_at(sim, sim->now_us + 1000, worker_event(sim, node, index, action->local, train));
        break;
    case SHIM_EXIT:
        leave(sim, node, index);
        break;
    }
}

void shim_event(struct sim *sim, uint32_t node, uint32_t index, struct shim_event event)
{
    struct sim_shim *shim = shim_at(sim, node, index);
    struct shim_actions actions; /* a step may lead to another one */

    if (!shim->used || !shim->alive)
        return;
    event.now_us = sim->now_us;
    shim_step(&shim->core, &event, &actions);
    check_ready(sim, shim);
    record_end(sim, shim);
    for (uint32_t i = 0; i < actions.count && shim->alive; i++)
        carry_out(sim, node, index, &actions.items[i]);
    if (!shim->alive || actions.timer_at_us == UINT64_MAX)
        return;
    shim->timer_us = actions.timer_at_us <= sim->now_us ? sim->now_us + 1 : actions.timer_at_us;
    sim_at(sim, shim->timer_us,
           (struct sim_event){
               .run = tick, .node = node, .shim = index, .incarnation = shim->incarnation});
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
        .world = SIM_JOB_RANKS_MAX,
        .grace_us = shim->grace_us,
        .lease_until_us = launcher->lease_until_us,
        .lease_us = sim->size.lease_us,
        .pid = ++sim->pid_next,
    };

    if (!shim->used)
        return;
    shim->alive = true;
    shim->incarnation = sim->pid_next;
    shim_init(&shim->core, &options);
    shim_event(sim, node, index, (struct shim_event){.type = SHIM_EVENT_START});
}
