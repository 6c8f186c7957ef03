/* Faults that strike a start: just after one of its moments, the node of that part is cut off in one direction or both,
 * orders or the answer to them are lost, or the shim, launcherd or the server is stopped or dies. Often two of these
 * happen one after the other. */
#include <string.h>

#include "tests/sim/oracle.h"
#include "tests/sim/sim.h"

#define LOST_MAX_US (280 * SECOND_US)

static uint64_t some_us(struct sim *sim)
{
    const uint64_t kind = sim_draw(sim, 10);

    return sim_draw(sim, kind < 4 ? 6 * SECOND_US : kind < 8 ? 45 * SECOND_US : 180 * SECOND_US);
}

static struct sim_shim *shim_of(struct sim *sim, const struct sim_event *event)
{
    struct sim_shim *shim = &sim->nodes[event->node].shims[event->shim];

    return event->incarnation != 0 && shim->used && shim->serial == event->incarnation &&
                   shim->alive
               ? shim
               : NULL;
}

static void strike_shim(struct sim *sim, const struct sim_event *event, bool dies)
{
    struct sim_shim *shim = shim_of(sim, event);
    const uint64_t us = some_us(sim);

    if (shim == NULL)
        return;
    if (dies) {
        shim_kill(sim, event->node, event->shim);
        return;
    }
    sim_note(sim, "node%u: the shim of job %llu g%u is stopped for %.1f s", event->node,
             (unsigned long long)shim->job_id, shim->generation, (double)us / 1e6);
    shim_stop(sim, event->node, shim, us);
}

static void lose_orders(struct sim *sim, uint32_t node)
{
    static const enum msg_type kinds[] = {MSG_TYPE_START, MSG_TYPE_GO, MSG_TYPE_GO, MSG_TYPE_WORLD,
                                          MSG_TYPE_STOP};
    const enum msg_type type = kinds[sim_draw(sim, sizeof kinds / sizeof kinds[0])];

    orders_lose_kind(sim, node, type,
                     sim_chance(sim, 500) ? some_us(sim) : sim_draw(sim, LOST_MAX_US));
}

static void break_off(struct sim *sim, uint32_t node)
{
    if (sim->nodes[node].conn != 0)
        net_break(sim, sim->nodes[node].conn, sim_chance(sim, 300) ? 60 * SECOND_US : SECOND_US);
}

static void strike_one(struct sim *sim, const struct sim_event *event)
{
    const uint64_t kind = sim_draw(sim, 16);

    if (kind < 3)
        machine_isolate(sim, event->node, some_us(sim), 1 + (uint32_t)sim_draw(sim, 2));
    else if (kind < 4)
        machine_isolate(sim, event->node, some_us(sim), 0);
    else if (kind < 7)
        strike_shim(sim, event, false);
    else if (kind < 8)
        strike_shim(sim, event, true);
    else if (kind < 9)
        machine_pause(sim, event->node, false);
    else if (kind < 11)
        machine_kill(sim, event->node, false);
    else if (kind < 12)
        outage_pause(sim);
    else if (kind < 13)
        outage_kill(sim, FAULT_SERVER_KILL);
    else if (kind < 14)
        lose_orders(sim, event->node);
    else
        break_off(sim, event->node);
}

/* asked_us: its random sequence. number: how many more follow. */
static void strike(struct sim *sim, const struct sim_event *event)
{
    const uint64_t random = sim->random;
    struct sim_event next = *event;

    sim->random = event->asked_us;
    strike_one(sim, event);
    next.number--;
    next.asked_us = sim_draw(sim, UINT64_MAX);
    if (event->number > 1)
        sim_at(sim, sim->now_us + some_us(sim) / 4, next);
    sim->random = random;
}

void starts_moment(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    static const uint64_t after_us[] = {0, 0, 1000, 6000, 3 * SECOND_US};
    struct sim_event event = {.run = strike, .node = node};
    const uint64_t random = sim->random;

    if (sim->faults.amount[FAULT_START] == 0)
        return;
    sim->random = sim->faults.start_random;
    if (fault_strikes(sim, FAULT_START)) {
        if (shim != NULL) {
            event.shim = (uint32_t)(shim - sim->nodes[node].shims);
            event.incarnation = shim->serial;
        }
        event.number = 1 + (uint32_t)sim_draw(sim, 3);
        event.asked_us = sim_draw(sim, UINT64_MAX);
        sim_at(sim, sim->now_us + sim_draw(sim, after_us[sim_draw(sim, 5)]), event);
    }
    sim->faults.start_random = sim->random;
    sim->random = random;
}

void starts_message(struct sim *sim, uint32_t node, const struct msg *msg)
{
    const struct sim_shim *shim = NULL;

    if (msg->type == MSG_TYPE_GO)
        shim = node_find(sim, node, msg->go.job_id, msg->go.generation);
    else if (msg->type == MSG_TYPE_WORLD)
        shim = node_find(sim, node, msg->world.job_id, msg->world.generation);
    else if (msg->type == MSG_TYPE_SHIM_REPORT &&
             (msg->shim_report.phase == SHIM_READY || msg->shim_report.phase == SHIM_RUNNING))
        shim = node_find(sim, node, msg->shim_report.job_id, msg->shim_report.generation);
    else if (msg->type != MSG_TYPE_START)
        return;
    starts_moment(sim, node, shim);
}
