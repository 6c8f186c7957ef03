/* Faults of one node: it dies, is stopped, is told to leave, is cut off. */
#include "tests/sim/sim.h"

static void restart_node(struct sim *sim, const struct sim_event *event)
{
    if (!sim->nodes[event->node].alive)
        node_start(sim, event->node);
}

void machine_starts_at(struct sim *sim, uint32_t node, uint64_t at_us)
{
    sim_at(sim, at_us, (struct sim_event){.run = restart_node, .node = node});
}

void machine_kill(struct sim *sim, uint32_t node, bool with_machine)
{
    if (with_machine && !sim->nodes[node].is_down)
        node_power_off(sim, node, sim_chance(sim, 300));
    else if (!with_machine && sim->nodes[node].alive)
        node_kill(sim, node);
    else
        return;
    machine_starts_at(sim, node,
                      sim->now_us + fault_down_us(sim) + (with_machine ? 3 * SECOND_US : 0));
}

/* The node runs again: deadlines for overdue work count from now on. */
static void resumed(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];
    uint64_t now_us = sim_node_us(sim, event->node);

    if (node->paused_until_us <= sim->now_us && node->frozen_until_us <= sim->now_us)
        node->steady_us = now_us;
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++)
        if (node->shims[i].paused_until_us <= sim->now_us && event->number == 1)
            node->shims[i].facts.free_us = now_us;
}

void machine_pause(struct sim *sim, uint32_t index, bool with_machine)
{
    struct sim_node *node = &sim->nodes[index];
    uint64_t us = sim_draw(sim, sim_chance(sim, 300) ? 100 * SECOND_US : 20 * SECOND_US);

    if (!node->alive)
        return;
    sim_note(sim, "node%u: %s is stopped for %.1f s", index,
             with_machine ? "the machine" : "launcherd", (double)us / 1e6);
    fault_pause_until(with_machine ? &node->frozen_until_us : &node->paused_until_us,
                      sim->now_us + us);
    node->steady_us = UINT64_MAX;
    for (uint32_t i = 0; with_machine && i < SIM_SHIMS_MAX; i++)
        node->shims[i].facts.free_us = UINT64_MAX;
    sim_at(sim, sim->now_us + us,
           (struct sim_event){.run = resumed, .node = index, .number = with_machine});
}

static void leaves(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];

    if (node->incarnation != event->incarnation)
        return;
    sim_note(sim, "node%u: launcherd is told to drain its node and end", event->node);
    if (!node->is_leaving) /* a second order changes nothing: its time counts from the first */
        node->leave_at_us = sim_node_us(sim, event->node);
    node->is_leaving = true;
    node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_LEAVE});
}

/* A stopped launcherd learns of it when it runs again. */
void machine_leaves(struct sim *sim, uint32_t node)
{
    sim_at(sim, sim->now_us,
           (struct sim_event){.run = leaves,
                              .party = PARTY_NODE,
                              .node = node,
                              .incarnation = sim->nodes[node].incarnation});
}

static void rejoin(struct sim *sim, const struct sim_event *event)
{
    sim_note(sim, "node%u is reachable again", event->node);
    sim->nodes[event->node].cut_to_server = sim->nodes[event->node].cut_to_node = false;
}

void machine_isolate(struct sim *sim, uint32_t index, uint64_t us, uint32_t ways)
{
    struct sim_node *node = &sim->nodes[index];

    if (node->cut_to_server || node->cut_to_node)
        return;
    sim_note(sim, "node%u is cut off for %.1f s%s", index, (double)us / 1e6,
             ways == 1   ? ": what it sends"
             : ways == 2 ? ": what it is sent"
                         : "");
    node->cut_to_server = ways != 2;
    node->cut_to_node = ways != 1;
    sim_at(sim, sim->now_us + us, (struct sim_event){.run = rejoin, .node = index});
}
