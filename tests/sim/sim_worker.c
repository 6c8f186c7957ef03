/* The workers of the simulation: they spawn, join, train, hang and exit. They die with their shim,
 * some of them late, and may leave children behind. */
#include "tests/sim/sim.h"

#include <signal.h>
#include <string.h>

#include "tests/sim/oracle.h"

#define BY_SIGNAL 1000u /* number: an exit code, or this plus a signal */

static struct sim_shim *shim_at(struct sim *sim, const struct sim_event *event)
{
    return &sim->nodes[event->node].shims[event->shim];
}

static struct sim_event worker_event(const struct sim *sim, uint32_t node, uint32_t shim,
                                     uint32_t worker,
                                     void (*run)(struct sim *, const struct sim_event *))
{
    return (struct sim_event){
        .run = run,
        .party = PARTY_WORKER,
        .node = node,
        .shim = shim,
        .worker = worker,
        .incarnation = sim->nodes[node].shims[shim].workers[worker].incarnation,
    };
}

/* The worker of an event; NULL: it is gone. */
static struct sim_worker *worker_of(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = &shim_at(sim, event)->workers[event->worker];

    return worker->alive && worker->incarnation == event->incarnation ? worker : NULL;
}

static bool is_of_shim(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = shim_at(sim, event);

    return shim->used && shim->alive &&
           shim->workers[event->worker].incarnation == event->incarnation;
}

/* The shim is told that a worker has ended. */
static void exited(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event);
    const bool is_signal = event->number >= BY_SIGNAL;

    if (!is_of_shim(sim, event))
        return;
    if (event->number != 0 && shim->facts.failed_us == 0 && shim->facts.stop_us == 0 &&
        !shim->facts.kill_now)
        shim->facts.failed_us = sim_node_us(sim, event->node);
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_EXITED,
                                   .local = event->worker,
                                   .signal = is_signal ? event->number - BY_SIGNAL : 0,
                                   .code = is_signal ? 0 : (int32_t)event->number});
}

static void die(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = worker_of(sim, event);
    struct sim_event told = *event;

    if (worker == NULL)
        return;
    if (sim->now_us < worker->unkillable_until_us) {
        sim_at(sim, worker->unkillable_until_us, *event);
        return;
    }
    worker->alive = false;
    gpu_left(sim, event->node, shim_slot(shim_at(sim, event), event->worker));
    told.run = exited;
    told.party = PARTY_SHIM;
    sim_at(sim, sim->now_us + 100 + sim_draw(sim, 500), told);
}

static void die_at(struct sim *sim, uint64_t at_us, struct sim_event event, uint32_t number)
{
    event.run = die;
    event.number = number;
    sim_at(sim, at_us, event);
}

void worker_end(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker, uint32_t number)
{
    struct sim_shim *of = &sim->nodes[node].shims[shim];
    struct sim_event event = worker_event(sim, node, shim, worker, die);

    if (of->workers[worker].is_dying)
        return;
    of->workers[worker].is_dying = true;
    if (number != 0)
        oracle_failed(sim, of, node, (int32_t)(of->rank_base + worker), number);
    of->has_orphans = of->has_orphans || fault_strikes(sim, FAULT_ORPHANS);
    event.number = number;
    die(sim, &event);
}

static void orphans_die(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event);

    if (shim->used && shim->serial == event->number)
        shim->has_orphans = false;
}

static uint64_t kill_delay_us(struct sim *sim)
{
    return fault_strikes(sim, FAULT_SLOW_KILL) ? sim_draw(sim, sim->faults.slow_kill_us)
                                               : sim_draw(sim, 500);
}

void worker_kill_all(struct sim *sim, uint32_t node, uint32_t index)
{
    const struct sim_shim *shim = &sim->nodes[node].shims[index];

    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].alive)
            die_at(sim, sim->now_us + kill_delay_us(sim), worker_event(sim, node, index, i, die),
                   BY_SIGNAL + SIGKILL);
    if (shim->has_orphans)
        sim_at(sim, sim->now_us + kill_delay_us(sim),
               (struct sim_event){.run = orphans_die,
                                  .party = PARTY_WORKER,
                                  .node = node,
                                  .shim = index,
                                  .number = shim->serial});
}

void worker_signal_all(struct sim *sim, uint32_t node, uint32_t index, uint32_t signal)
{
    const struct sim_shim *shim = &sim->nodes[node].shims[index];

    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].alive && sim->now_us >= shim->workers[i].hung_until_us &&
            !sim_chance(sim, 300))
            die_at(sim, sim->now_us + sim_draw(sim, sim_chance(sim, 500) ? 1000 : SECOND_US),
                   worker_event(sim, node, index, i, die), BY_SIGNAL + signal);
}

/* It is asked again and again, and each process gets a signal once. */
void worker_signal_left(struct sim *sim, uint32_t node, uint32_t index, uint32_t signal)
{
    struct sim_shim *shim = &sim->nodes[node].shims[index];

    if (shim->left_signal == signal)
        return;
    shim->left_signal = signal;
    if (shim->has_orphans && !sim_chance(sim, 300))
        sim_at(sim, sim->now_us + sim_draw(sim, SECOND_US),
               (struct sim_event){.run = orphans_die,
                                  .party = PARTY_WORKER,
                                  .node = node,
                                  .shim = index,
                                  .number = shim->serial});
}

/* A worker's message arrives when the shim reads it. number: 1 a join, 2 progress. */
static void said(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event);
    const uint32_t rank = shim->rank_base + event->worker;
    uint8_t blob = (uint8_t)event->asked_us;
    struct msg msg = {.type = event->number == 1 ? MSG_TYPE_WORKER_JOIN : MSG_TYPE_PROGRESS};

    if (!is_of_shim(sim, event))
        return;
    if (event->number == 1)
        msg.worker_join = (struct msg_worker_join){
            .rank = rank,
            .generation = shim->generation,
            .blob = {.items = &blob, .count = rank == 0},
        };
    else
        msg.progress = (struct msg_progress){
            .job_id = shim->job_id,
            .generation = shim->generation,
            .rank = rank,
            .step = event->step,
            .checkpoint_step = rank == 0 ? event->step / 4 * 4 : 0,
            .again_us = client_of(sim, shim->job_id)->again_us,
        };
    if (msg.type == MSG_TYPE_PROGRESS && msg.progress.again_us != 0) { /* one for each step */
        msg.progress.collectives = event->step + event->asked_us;
        msg.progress.in_collective = event->asked_us != 0;
    }
    shim_event(
        sim, event->node, event->shim,
        (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = event->worker, .msg = &msg});
}

static void say(struct sim *sim, const struct sim_event *event, uint32_t what, uint32_t step,
                uint8_t blob)
{
    struct sim_event message = *event;

    message.run = said;
    message.party = PARTY_SHIM;
    message.number = what;
    message.step = step;
    message.asked_us = blob;
    sim_at(sim, sim->now_us + 50, message);
}

/* A thread of the worker repeats the last message at intervals, except while the process is
 * stopped. */
static void tell_again(struct sim *sim, const struct sim_event *event)
{
    const struct sim_worker *worker = worker_of(sim, event);
    const struct sim_client *client = client_of(sim, shim_at(sim, event)->job_id);

    if (worker == NULL || worker->is_dying)
        return;
    if (sim->now_us >= worker->hung_until_us)
        say(sim, event, 2, client->steps - worker->steps_left, worker->is_waiting);
    sim_at(sim, sim->now_us + client->again_us, *event);
}

/* Whether the worker waits for an absent worker of its generation that has taken no more steps. */
static bool waits_for_absent(const struct sim *sim, const struct sim_shim *shim,
                             const struct sim_worker *worker)
{
    for (uint32_t n = 0; sim->has_absent && n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *other = &sim->nodes[n].shims[s];

            for (uint32_t w = 0; other->used && other->job_id == shim->job_id &&
                                 other->generation == shim->generation && w < other->local_count;
                 w++)
                if (other->workers[w].alive && sim->now_us < other->workers[w].absent_until_us &&
                    other->workers[w].steps_left >= worker->steps_left)
                    return true;
        }
    return false;
}

/* Whether the worker stays out of the next collective, or waits in it for another. */
static bool stands_still(struct sim *sim, const struct sim_event *event, struct sim_worker *worker)
{
    const struct sim_shim *shim = shim_at(sim, event);
    const bool was_waiting = worker->is_waiting;

    if (sim->now_us < worker->absent_until_us) {
        if (worker->absent_until_us != UINT64_MAX)
            sim_at(sim, worker->absent_until_us, *event);
        return true;
    }
    worker->is_waiting = waits_for_absent(sim, shim, worker);
    if (worker->is_waiting)
        sim_at(sim, sim->now_us + 200000, *event);
    if (worker->is_waiting && !was_waiting)
        say(sim, event, 2, client_of(sim, shim->job_id)->steps - worker->steps_left, 1);
    return worker->is_waiting;
}

/* Rank 0 commits a checkpoint in every fourth step. */
static void train(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = worker_of(sim, event);
    const struct sim_shim *shim = shim_at(sim, event);
    const struct sim_client *client = client_of(sim, shim->job_id);
    const uint32_t rank = shim->rank_base + event->worker;

    if (worker == NULL || worker->is_dying)
        return;
    if (sim->now_us < worker->hung_until_us) {
        sim_at(sim, worker->hung_until_us, *event);
        return;
    }
    if (stands_still(sim, event, worker))
        return;
    if (worker->steps_left > 0) {
        uint32_t step = client->steps - --worker->steps_left;

        worker->has_stepped = true;
        if (rank == 0)
            oracle_said(sim, shim, step / 4 * 4);
        say(sim, event, 2, step, 0);
        sim_at(sim, sim->now_us + 50000 + sim_draw(sim, 800000), *event);
        return;
    }
    if (client->fails && rank == 0) {
        worker_end(sim, event->node, event->shim, event->worker, 3);
        return;
    }
    oracle_succeeded(sim, shim, event->worker);
    worker_end(sim, event->node, event->shim, event->worker, 0);
}

static void join(struct sim *sim, const struct sim_event *event)
{
    uint8_t blob = (uint8_t)(1 + sim_draw(sim, 255));
    const struct sim_worker *worker = worker_of(sim, event);

    if (worker == NULL || worker->is_dying)
        return;
    if (sim->now_us < worker->hung_until_us) {
        sim_at(sim, worker->hung_until_us, *event);
        return;
    }
    oracle_joined(sim, shim_at(sim, event), event->worker, blob);
    say(sim, event, 1, 0, blob);
}

void worker_world(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker)
{
    sim->nodes[node].shims[shim].workers[worker].has_world = true;
    sim_at(sim, sim->now_us + 1000, worker_event(sim, node, shim, worker, train));
}

static bool cannot_spawn(struct sim *sim, const struct sim_event *event)
{
    static const int32_t codes[] = {125, 125, 125, 126, 127};
    struct sim_shim *shim = shim_at(sim, event);
    int32_t code = codes[sim_draw(sim, 5)];

    if (!fault_strikes(sim, FAULT_SPAWN_FAILS))
        return false;
    sim_note(sim, "node%u: rank %u of job %llu g%u cannot be spawned, %d", event->node,
             shim->rank_base + event->worker, (unsigned long long)shim->job_id, shim->generation,
             code);
    oracle_failed(sim, shim, event->node, (int32_t)(shim->rank_base + event->worker),
                  (uint32_t)code);
    shim->facts.failed_us = sim_node_us(sim, event->node);
    shim->facts.kill_now = true; /* the other workers have only begun */
    shim_event(sim, event->node, event->shim,
               (struct shim_event){.type = SHIM_EVENT_SPAWN_FAILED,
                                   .local = event->worker,
                                   .code = code,
                                   .text = "fork: out of memory"});
    return true;
}

static bool none_is_coming(const struct sim_shim *shim)
{
    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].is_coming)
            return false;
    return true;
}

static void spawned(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = shim_at(sim, event);
    struct sim_worker *worker = &shim->workers[event->worker];
    const struct sim_client *client = client_of(sim, shim->job_id);

    if (!shim->used || !shim->alive || shim->incarnation != event->incarnation)
        return;
    worker->is_coming = false;
    if (cannot_spawn(sim, event))
        return;
    *worker = (struct sim_worker){.alive = true,
                                  .incarnation = ++sim->pid_next,
                                  .pid = sim->pid_next,
                                  .steps_left = client->steps};
    if (client->requeues) { /* it resumes from the checkpoint and reports it */
        const uint64_t checkpoint = oracle_checkpoint(sim, shim->job_id);

        worker->steps_left -= (uint32_t)checkpoint;
        oracle_said(sim, shim, checkpoint);
    }
    shim->facts.spawned_late =
        shim->facts.spawned_late || shim->facts.stop_us != 0 || shim->facts.failed_us != 0;
    if (none_is_coming(shim))
        shim->facts.running_us = sim_node_us(sim, event->node);
    oracle_spawned(sim, event->node, shim, event->worker);
    starts_moment(sim, event->node, shim);
    sim_at(
        sim, sim->now_us + 1000 + sim_draw(sim, 200000),
        worker_event(sim, event->node, event->shim, event->worker, client->joins ? join : train));
    if (client->again_us != 0)
        sim_at(sim, sim->now_us + client->again_us,
               worker_event(sim, event->node, event->shim, event->worker, tell_again));
    shim_event(sim, event->node, event->shim,
               (struct shim_event){
                   .type = SHIM_EVENT_SPAWNED, .local = event->worker, .pid = worker->pid});
}

void worker_spawn_all(struct sim *sim, uint32_t node, uint32_t index)
{
    struct sim_shim *shim = &sim->nodes[node].shims[index];

    for (uint32_t i = 0; i < shim->local_count; i++) {
        struct sim_event event = {.run = spawned,
                                  .party = PARTY_SHIM,
                                  .node = node,
                                  .shim = index,
                                  .worker = i,
                                  .incarnation = shim->incarnation};

        shim->workers[i].is_coming = true;
        sim_at(sim, sim->now_us + 500 + sim_draw(sim, 3000), event);
    }
}
