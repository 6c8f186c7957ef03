#include "tests/sim/sim_faults.h"

#include <signal.h>
#include <string.h>

#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

#define BY_SIGNAL 1000u

bool fault_strikes(struct sim *sim, enum sim_fault rate)
{
    return sim->now_us < sim->faults.until_us && sim->faults.amount[rate] > 0 &&
           sim_chance(sim, sim->faults.amount[rate]);
}

uint64_t fault_down_us(struct sim *sim)
{
    return sim_draw(sim, sim_chance(sim, 150) ? 90 * SECOND_US : 4 * SECOND_US);
}

static uint32_t any_node(struct sim *sim)
{
    return (uint32_t)sim_draw(sim, sim->node_count);
}

/* -- nodes -- */

static void isolate(struct sim *sim, uint32_t ways)
{
    uint64_t us = sim_chance(sim, 500) ? 14 * SECOND_US + sim_draw(sim, 30 * SECOND_US)
                                       : sim_draw(sim, 150 * SECOND_US);

    machine_isolate(sim, any_node(sim), us, ways);
}

static void isolate_most(struct sim *sim)
{
    uint64_t us = sim_draw(sim, sim_chance(sim, 300) ? 100 * SECOND_US : 30 * SECOND_US);

    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim_chance(sim, 800))
            machine_isolate(sim, i, us, 0);
}

static void cut(struct sim *sim, bool unnoticed)
{
    uint32_t conn = sim->nodes[any_node(sim)].conn;

    if (conn == 0)
        return;
    if (unnoticed)
        net_break(sim, conn, 100 * SECOND_US);
    else if (sim_chance(sim, 500))
        net_break(sim, conn, 8 * SECOND_US);
    else
        net_close(sim, conn, sim_chance(sim, 500));
}

static void lose_state(struct sim *sim)
{
    const uint32_t node = any_node(sim);

    if (!sim->nodes[node].alive || !twin_lose_state(sim, node))
        return;
    machine_starts_at(sim, node, sim->now_us + fault_down_us(sim));
}

/* -- shims and workers -- */

/* A running shim on some node; NULL: there is none. */
static struct sim_shim *any_shim(struct sim *sim, uint32_t *node, uint32_t *index)
{
    uint32_t first_node = any_node(sim), first = (uint32_t)sim_draw(sim, SIM_SHIMS_MAX);

    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
            *node = (first_node + n) % sim->node_count;
            *index = (first + i) % SIM_SHIMS_MAX;
            if (sim->nodes[*node].shims[*index].used && sim->nodes[*node].shims[*index].alive &&
                !sim->nodes[*node].shims[*index].is_orphan)
                return &sim->nodes[*node].shims[*index];
        }
    return NULL;
}

static void pause_shim(struct sim *sim)
{
    uint32_t node, index;
    struct sim_shim *shim = any_shim(sim, &node, &index);
    uint64_t us = sim_draw(sim, sim_chance(sim, 500) ? 200 * SECOND_US : 20 * SECOND_US);

    if (shim == NULL)
        return;
    sim_note(sim, "node%u: the shim of job %llu g%u is stopped for %.1f s", node,
             (unsigned long long)shim->job_id, shim->generation, (double)us / 1e6);
    shim_stop(sim, node, shim, us);
}

/* Only launcherd can end the ranks then, also one that starts again and finds the shim stopped. */
static void stick_shim(struct sim *sim)
{
    const uint64_t us = 60 * SECOND_US + sim_draw(sim, 90 * SECOND_US);
    uint32_t node, index;
    struct sim_shim *shim = any_shim(sim, &node, &index);

    for (int i = 0; i < 5 && shim != NULL && client_of(sim, shim->job_id)->joins; i++)
        shim = any_shim(sim, &node, &index); /* rather one that only its lease fences */
    if (shim == NULL)
        return;
    sim_note(sim, "node%u: the shim of job %llu g%u is stopped for %.1f s", node,
             (unsigned long long)shim->job_id, shim->generation, (double)us / 1e6);
    shim_stop(sim, node, shim, us);
    machine_isolate(sim, node, us, 0);
    if (!sim->nodes[node].alive || sim_chance(sim, 500))
        return;
    node_kill(sim, node);
    machine_starts_at(sim, node, sim->now_us + fault_down_us(sim));
}

/* launcherd lists the part no more, and says who it is. */
static void lose_part(struct sim *sim)
{
    uint32_t node, index;

    if (any_shim(sim, &node, &index) != NULL && sim->nodes[node].alive &&
        twin_lose_part(sim, node, index)) /* what it has left is dead by then */
        machine_starts_at(sim, node, sim->now_us + 5 * SECOND_US + fault_down_us(sim));
}

static void kill_shim(struct sim *sim)
{
    uint32_t node, index;

    if (any_shim(sim, &node, &index) != NULL)
        shim_kill(sim, node, index);
}

/* A living worker on some node; NULL: there is none. */
static struct sim_worker *any_worker(struct sim *sim, uint32_t *node, uint32_t *index,
                                     uint32_t *worker)
{
    struct sim_shim *shim = any_shim(sim, node, index);
    uint32_t first = (uint32_t)sim_draw(sim, SIM_WORKERS_MAX);

    for (uint32_t i = 0; shim != NULL && i < SIM_WORKERS_MAX; i++) {
        *worker = (first + i) % SIM_WORKERS_MAX;
        if (shim->workers[*worker].alive)
            return &shim->workers[*worker];
    }
    return NULL;
}

static void kill_worker(struct sim *sim)
{
    uint32_t node, index, worker;

    if (any_worker(sim, &node, &index, &worker) == NULL)
        return;
    if (sim->nodes[node].shims[index].store_runs && sim_chance(sim, 300)) {
        shim_kill_store(sim, node, index);
        return;
    }
    sim_note(sim, "node%u: worker %u of job %llu g%u dies", node, worker,
             (unsigned long long)sim->nodes[node].shims[index].job_id,
             sim->nodes[node].shims[index].generation);
    worker_end(sim, node, index, worker, BY_SIGNAL + SIGSEGV);
}

/* number: exit code */
static void worker_fails(struct sim *sim, const struct sim_event *event)
{
    const struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    if (!shim->used || !shim->workers[event->worker].alive ||
        shim->workers[event->worker].incarnation != event->incarnation)
        return;
    sim_note(sim, "node%u: worker %u of job %llu g%u exits %u", event->node, event->worker,
             (unsigned long long)shim->job_id, shim->generation, event->number);
    worker_end(sim, event->node, event->shim, event->worker, event->number);
}

/* Kills the workers of one job on all of its nodes, one after the other, within a second. */
static void kill_workers(struct sim *sim)
{
    uint32_t node, index;
    const struct sim_shim *one = any_shim(sim, &node, &index);

    for (uint32_t n = 0; one != NULL && n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *shim = &sim->nodes[n].shims[s];

            for (uint32_t w = 0; shim->used && shim->job_id == one->job_id && w < shim->local_count;
                 w++)
                sim_at(sim, sim->now_us + sim_draw(sim, SECOND_US),
                       (struct sim_event){.run = worker_fails,
                                          .node = n,
                                          .shim = s,
                                          .worker = w,
                                          .incarnation = shim->workers[w].incarnation,
                                          .number = 10 + w});
        }
}

/* What has begun is not made shorter: its end is scheduled. */
static void lengthen(uint64_t *until_us, uint64_t us)
{
    if (us > *until_us)
        *until_us = us;
}

static void hang_worker(struct sim *sim)
{
    uint32_t node, index, worker_index;
    struct sim_worker *worker = any_worker(sim, &node, &index, &worker_index);

    if (worker == NULL)
        return;
    sim_note(sim, "node%u: worker %u of job %llu g%u hangs", node, worker_index,
             (unsigned long long)sim->nodes[node].shims[index].job_id,
             sim->nodes[node].shims[index].generation);
    if (worker->hung_until_us == 0)
        worker->hung_at_us = sim->now_us;
    lengthen(&worker->hung_until_us, sim->faults.until_us + sim_draw(sim, 60 * SECOND_US));
}

/* Picks a worker that has reported a step to the server. A worker that repeats its reports may stay
 * absent for ever. */
static void keep_worker_away(struct sim *sim)
{
    uint32_t node, index, worker_index;
    struct sim_worker *worker = NULL;
    const struct sim_shim *shim;

    for (int i = 0; i < 5 && (worker == NULL || !worker->has_stepped); i++)
        worker = any_worker(sim, &node, &index, &worker_index);
    if (worker == NULL || !worker->has_stepped || worker->is_waiting)
        return;
    shim = &sim->nodes[node].shims[index];
    sim_note(sim, "node%u: worker %u of job %llu g%u lives, and comes to no collective", node,
             worker_index, (unsigned long long)shim->job_id, shim->generation);
    sim->has_absent = true;
    worker->spins = client_of(sim, shim->job_id)->again_us != 0 && sim_chance(sim, 500);
    lengthen(&worker->absent_until_us,
             client_of(sim, shim->job_id)->again_us != 0 && sim_chance(sim, 500)
                 ? UINT64_MAX
                 : sim->faults.until_us + sim_draw(sim, 60 * SECOND_US));
}

static void operator_comes(struct sim *sim, const struct sim_event *event)
{
    gpu_resume_later(sim, event->node);
}

static void stick_worker(struct sim *sim)
{
    uint32_t node, index, worker_index;
    struct sim_worker *worker = any_worker(sim, &node, &index, &worker_index);

    if (worker == NULL)
        return;
    sim_note(sim, "node%u: worker %u of job %llu g%u does not die of signals", node, worker_index,
             (unsigned long long)sim->nodes[node].shims[index].job_id,
             sim->nodes[node].shims[index].generation);
    fault_pause_until(&worker->unkillable_until_us, sim->now_us + sim_draw(sim, 300 * SECOND_US));
    sim_at(sim, worker->unkillable_until_us + SECOND_US,
           (struct sim_event){.run = operator_comes, .node = node});
}

/* The node is cut off, or its launcherd is away, and meanwhile another machine has its name. */
static void strike_twin(struct sim *sim)
{
    const uint64_t us = sim_draw(sim, 100 * SECOND_US);
    uint32_t node, index;

    if (any_shim(sim, &node, &index) == NULL)
        node = any_node(sim);
    if (sim_chance(sim, 500)) {
        machine_isolate(sim, node, us, 0);
    } else if (sim->nodes[node].alive) {
        node_kill(sim, node);
        machine_starts_at(sim, node, sim->now_us + us);
    }
    twin_comes(sim, node);
    outage_kill_later(sim);
}

/* The server starts again with another --lease. Meanwhile a node is cut off, whose ranks have the one of before. */
static void change_lease(struct sim *sim)
{
    uint32_t node, index;

    outage_kill(sim, FAULT_LEASE);
    if (any_shim(sim, &node, &index) != NULL && sim_chance(sim, 700))
        machine_isolate(sim, node, 20 * SECOND_US + sim_draw(sim, 70 * SECOND_US), 0);
}

/* -- the plan -- */

static void strike_server(struct sim *sim, enum sim_fault kind)
{
    switch (kind) {
    case FAULT_SERVER_KILL:
    case FAULT_SERVER_OLD:
        outage_kill(sim, kind);
        break;
    case FAULT_LEASE:
        change_lease(sim);
        break;
    case FAULT_WAL_LOST:
        history_lose(sim);
        break;
    case FAULT_SERVER_PAUSE:
        outage_pause(sim);
        break;
    case FAULT_WALL_JUMP:
        outage_set_clock(sim);
        break;
    case FAULT_CUT:
        cut(sim, false);
        break;
    case FAULT_HALF_OPEN:
        cut(sim, true);
        break;
    case FAULT_ORDER_LOST:
        orders_lose(sim);
        break;
    case FAULT_LARGE_LOST:
        orders_stall(sim);
        break;
    case FAULT_ISOLATION:
        isolate(sim, 0);
        break;
    case FAULT_PARTITION:
        isolate_most(sim);
        break;
    case FAULT_ONE_WAY:
        isolate(sim, 1 + (uint32_t)sim_draw(sim, 2));
        break;
    case FAULT_IMPOSTOR:
        twin_impersonate(sim);
        break;
    case FAULT_TWIN:
        strike_twin(sim);
        break;
    default:
        break; /* handled by another strike function */
    }
}

static void strike_machine(struct sim *sim, enum sim_fault kind)
{
    switch (kind) {
    case FAULT_LAUNCHER_KILL:
        machine_kill(sim, any_node(sim), false);
        break;
    case FAULT_LAUNCHER_PAUSE:
        machine_pause(sim, any_node(sim), false);
        break;
    case FAULT_LEAVE:
        machine_leaves(sim, any_node(sim));
        break;
    case FAULT_SUSPEND:
        machine_pause(sim, any_node(sim), true);
        break;
    case FAULT_REBOOT:
        machine_kill(sim, any_node(sim), true);
        break;
    case FAULT_STRANGER:
        gpu_hold(sim);
        break;
    case FAULT_NVML_HANG:
        gpu_hang(sim);
        break;
    case FAULT_GPU_FAULT:
        gpu_fault(sim);
        break;
    case FAULT_DRAIN:
        gpu_drain(sim);
        break;
    case FAULT_STATE_LOST:
        lose_state(sim);
        break;
    default:
        break; /* handled by another strike function */
    }
}

static void strike_process(struct sim *sim, enum sim_fault kind)
{
    switch (kind) {
    case FAULT_SHIM_KILL:
        kill_shim(sim);
        break;
    case FAULT_SHIM_PAUSE:
        pause_shim(sim);
        break;
    case FAULT_STUCK:
        stick_shim(sim);
        break;
    case FAULT_PART_LOST:
        lose_part(sim);
        break;
    case FAULT_WORKER_KILL:
        kill_worker(sim);
        break;
    case FAULT_WORKERS_KILL:
        kill_workers(sim);
        break;
    case FAULT_WORKER_HANG:
        hang_worker(sim);
        break;
    case FAULT_WORKER_ABSENT:
        keep_worker_away(sim);
        break;
    case FAULT_UNKILLABLE:
        stick_worker(sim);
        break;
    default:
        break; /* handled by another strike function */
    }
}

/* Runs a planned fault with its own random sequence. */
static void run_planned(struct sim *sim, const struct sim_event *event)
{
    const struct sim_planned *planned = &sim->faults.planned[event->number];
    uint64_t random = sim->random;

    sim->random = planned->seed;
    strike_server(sim, planned->kind);
    strike_machine(sim, planned->kind);
    strike_process(sim, planned->kind);
    sim->random = random;
}

static void plan(struct sim *sim, enum sim_fault kind, uint32_t count, const struct sim_mask *mask)
{
    struct sim_faults *faults = &sim->faults;

    for (uint32_t i = 0; i < count && faults->planned_count < SIM_PLANNED_MAX; i++) {
        uint32_t number = faults->planned_count++;

        faults->planned[number] = (struct sim_planned){
            .kind = kind,
            .at_us = sim->now_us + sim_draw(sim, faults->until_us - sim->now_us),
            .seed = sim_draw(sim, UINT64_MAX),
        };
        if (!mask->kinds[kind] && !mask->planned[number])
            sim_at(sim, faults->planned[number].at_us,
                   (struct sim_event){.run = run_planned, .number = number});
    }
}

/* These use a random sequence of their own, so that they do not change the rest of the seed. */
static bool is_apart(enum sim_fault kind)
{
    return kind == FAULT_WORKER_ABSENT || kind == FAULT_ORDER_LOST || kind == FAULT_LARGE_LOST ||
           kind == FAULT_PREPARE_STOPS || kind == FAULT_TWIN || kind == FAULT_STATE_LOST ||
           kind == FAULT_LEASE || kind == FAULT_STUCK || kind == FAULT_PART_LOST ||
           kind == FAULT_WAL_LOST || kind == FAULT_START;
}

static void choose(struct sim *sim, enum sim_fault kind, uint32_t amount,
                   const struct sim_mask *mask)
{
    if (kind < FAULT_RATES)
        plan(sim, kind, amount, mask);
    if (!mask->kinds[kind])
        sim->faults.amount[kind] = amount;
}

static void choose_apart(struct sim *sim, enum sim_fault kind, uint32_t chance_pm, uint32_t most,
                         const struct sim_mask *mask)
{
    const uint64_t random = sim->random;
    /* as before there were STUCK and those after it */
    const uint64_t number = (uint64_t)kind - (kind >= FAULT_RATES ? FAULT_RATES - FAULT_STUCK : 0);
    const uint64_t factor = kind == FAULT_WORKER_ABSENT ? 53
                            : kind == FAULT_STUCK       ? 57
                            : kind == FAULT_PART_LOST   ? 51
                            : kind == FAULT_WAL_LOST    ? 49
                                                        : 59 + 2 * number;

    sim->random = (sim->seed * factor + 17) * UINT64_C(0x9e3779b97f4a7c15);
    if (sim_chance(sim, kind == FAULT_START && mask->is_starts ? 1000 : chance_pm))
        choose(sim, kind, 1 + (uint32_t)sim_draw(sim, most), mask);
    if (kind == FAULT_START)
        sim->faults.start_random = sim->random;
    sim->random = random;
}

void faults_choose(struct sim *sim, const struct sim_mask *mask)
{
    static const struct {
        uint32_t chance_pm, most;
    } kinds[] = {
#define LIMITS(name, chance, most, text) [FAULT_##name] = {chance, most},
        SIM_PLANNED_TABLE(LIMITS) SIM_RATE_TABLE(LIMITS)
#undef LIMITS
    };
    struct sim_faults *faults = &sim->faults;

    faults->until_us = sim->now_us + (30 + sim_draw(sim, 150)) * SECOND_US;
    faults->late_max_us = 1 + sim_draw(sim, 4 * SECOND_US);
    faults->slow_kill_us = 1 + sim_draw(sim, 3 * SECOND_US);
    for (uint32_t kind = 0; kind < FAULT_COUNT; kind++) {
        if (is_apart((enum sim_fault)kind))
            continue;
        uint32_t amount = 1 + (uint32_t)sim_draw(sim, kinds[kind].most);

        if (sim_chance(sim, kinds[kind].chance_pm / (mask->is_starts ? 4 : 1)))
            choose(sim, (enum sim_fault)kind, amount, mask);
    }
    for (uint32_t kind = 0; kind < FAULT_COUNT; kind++)
        if (is_apart((enum sim_fault)kind))
            choose_apart(sim, (enum sim_fault)kind, kinds[kind].chance_pm, kinds[kind].most, mask);
    for (uint32_t i = 0; i < sim->node_count && faults->amount[FAULT_UNKILLABLE] > 0; i++)
        sim_at(sim, faults->until_us + 420 * SECOND_US, /* resumes slots drained meanwhile */
               (struct sim_event){.run = operator_comes, .node = i});
}
