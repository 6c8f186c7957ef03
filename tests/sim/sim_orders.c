/* Orders that do not arrive although their node is up: one kind of message is lost, or large messages are lost on the
 * way and hold up what comes after them on their connection (a black hole for the path MTU). And shims that stop
 * while they prepare. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/sim.h"

#define LOST_MAX_US (280 * SECOND_US) /* the run goes on for longer after the last fault */

static uint64_t lost_for_us(struct sim *sim)
{
    return sim_chance(sim, 700) ? 60 * SECOND_US + sim_draw(sim, LOST_MAX_US - 60 * SECOND_US)
                                : sim_draw(sim, 60 * SECOND_US);
}

void orders_lose_kind(struct sim *sim, uint32_t index, enum msg_type type, uint64_t us)
{
    struct sim_node *node = &sim->nodes[index];

    if (sim->now_us < node->lost_until_us)
        return;
    node->lost_type = type;
    node->lost_until_us = sim->now_us + us;
    sim_note(sim, "node%u: no %s arrives for %.1f s", index, msg_type_name(type), (double)us / 1e6);
}

void orders_lose(struct sim *sim)
{
    static const enum msg_type kinds[] = {MSG_TYPE_START, MSG_TYPE_START, MSG_TYPE_GO,
                                          MSG_TYPE_WORLD, MSG_TYPE_STOP,  MSG_TYPE_FORGET};
    const uint32_t index = (uint32_t)sim_draw(sim, sim->node_count);
    const enum msg_type type = kinds[sim_draw(sim, sizeof kinds / sizeof kinds[0])];

    orders_lose_kind(sim, index, type, lost_for_us(sim));
}

void orders_stall(struct sim *sim)
{
    const uint32_t index = (uint32_t)sim_draw(sim, sim->node_count);
    struct sim_node *node = &sim->nodes[index];
    const uint64_t us = lost_for_us(sim);

    if (sim->now_us < node->stalls_until_us)
        return;
    node->stalls_to_server = sim_chance(sim, 300);
    node->stalls_until_us = sim->now_us + us;
    sim_note(sim, "node%u: large messages %s it are lost for %.1f s", index,
             node->stalls_to_server ? "from" : "to", (double)us / 1e6);
}

bool orders_is_lost(const struct sim *sim, uint32_t node, enum msg_type type)
{
    return sim->now_us < sim->nodes[node].lost_until_us && sim->nodes[node].lost_type == type;
}

/* By lot, which the time in microseconds is. */
bool orders_cuts(const struct sim *sim, uint32_t node)
{
    return sim->nodes[node].lost_until_us % 3 == 0;
}

/* Which messages are large in a real cluster: those with a command and an environment, and reports with a traceback
 * or many ranks. */
bool orders_is_stalled(const struct sim *sim, uint32_t node, bool to_server, const char *json)
{
    static const char *const to_node[] = {"{\"type\":\"start\"", "{\"type\":\"warm\""};
    static const char report[] = "{\"type\":\"shim_report\"";

    if (sim->now_us >= sim->nodes[node].stalls_until_us ||
        sim->nodes[node].stalls_to_server != to_server)
        return false;
    if (to_server)
        return strncmp(json, report, sizeof report - 1) == 0;
    for (uint32_t i = 0; i < sizeof to_node / sizeof to_node[0]; i++)
        if (strncmp(json, to_node[i], strlen(to_node[i])) == 0)
            return true;
    return false;
}

void orders_stop_shim(struct sim *sim, uint32_t node, struct sim_shim *shim)
{
    const uint64_t us = sim_draw(sim, LOST_MAX_US);

    sim_note(sim, "node%u: the shim of job %llu g%u stops while it prepares, for %.1f s", node,
             (unsigned long long)shim->job_id, shim->generation, (double)us / 1e6);
    shim_stop(sim, node, shim, us);
}
