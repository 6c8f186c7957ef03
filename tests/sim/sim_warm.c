/* Processes that wait on spare nodes for their ranks: a minimal stand-in for the edge
 * launcherd/node/node_warm.h. They end with launcherd, when they are no longer wanted, or when the
 * server has been away for as long as the lease. */
#include "tests/sim/sim.h"

#include <string.h>

#include "tests/sim/oracle.h"

#define LOOK_US SECOND_US

static struct sim_warm *find(struct sim *sim, uint32_t node, uint64_t job_id)
{
    for (uint32_t i = 0; i < SIM_WARM_MAX; i++) {
        struct sim_warm *warm = &sim->nodes[node].warm[i];

        if (warm->used && warm->job_id == job_id)
            return warm;
    }
    return NULL;
}

/* Does not use the run's random sequence, which would change the runs of all seeds. */
static uint64_t draw(const struct sim *sim, const struct sim_warm *warm, uint64_t below)
{
    return ((sim->seed * 59 + warm->serial) * UINT64_C(0x9e3779b97f4a7c15) >> 24) % below;
}

static void later(struct sim *sim, uint32_t node, const struct sim_warm *warm, uint64_t us,
                  void (*run)(struct sim *, const struct sim_event *))
{
    sim_at(sim, sim->now_us + us,
           (struct sim_event){.run = run,
                              .party = PARTY_NODE,
                              .node = node,
                              .shim = (uint32_t)(warm - sim->nodes[node].warm),
                              .number = warm->serial});
}

/* The processes of an event; NULL: they are gone. */
static struct sim_warm *of_event(struct sim *sim, const struct sim_event *event)
{
    struct sim_warm *warm = &sim->nodes[event->node].warm[event->shim];

    return warm->used && warm->serial == event->number ? warm : NULL;
}

static bool any_holds_up(const struct sim_node *node)
{
    for (uint32_t i = 0; i < SIM_WARM_MAX; i++)
        if (node->warm[i].used && node->warm[i].holds_up_order)
            return true;
    return false;
}

static void gone(struct sim *sim, const struct sim_event *event)
{
    struct sim_warm *warm = of_event(sim, event);

    if (warm == NULL)
        return;
    warm->used = false;
    if (!warm->holds_up_order || any_holds_up(&sim->nodes[event->node]))
        return;
    node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_START_POSSIBLE});
}

static void end(struct sim *sim, uint32_t node, struct sim_warm *warm, const char *why)
{
    if (warm->state == WARM_ENDING)
        return;
    sim_note(sim, "node%u: what waits for job %llu ends: %s", node,
             (unsigned long long)warm->job_id, why);
    if (warm->state == WARM_FAILED)
        warm->used = false;
    warm->state = WARM_ENDING;
    later(sim, node, warm, draw(sim, warm, 2 * SECOND_US), gone);
}

static void is_loaded(struct sim *sim, const struct sim_event *event)
{
    struct sim_warm *warm = of_event(sim, event);

    if (warm != NULL && warm->state == WARM_STARTING)
        warm->state = draw(sim, warm, 10) == 0 ? WARM_FAILED : WARM_READY;
}

static void look(struct sim *sim, const struct sim_event *event)
{
    struct sim_warm *warm = of_event(sim, event);

    if (warm == NULL)
        return;
    if (sim->nodes[event->node].core.welcomed)
        warm->heard_us = sim->now_us;
    if (sim->now_us >= warm->heard_us + sim->nodes[event->node].core.lease_us)
        end(sim, event->node, warm, "the server was away for as long as the lease");
    else
        later(sim, event->node, warm, LOOK_US, look);
}

static void order(struct sim *sim, uint32_t node, const struct msg_warm *order)
{
    struct sim_warm *warm = sim->nodes[node].warm;

    if (!sim->nodes[node].core.welcomed || find(sim, node, order->job_id) != NULL)
        return;
    while (warm->used)
        if (++warm == sim->nodes[node].warm + SIM_WARM_MAX)
            return; /* the server's order is only a wish */
    *warm = (struct sim_warm){.used = true,
                              .serial = ++sim->pid_next,
                              .job_id = order->job_id,
                              .slot_mask = order->slot_mask,
                              .state = WARM_STARTING,
                              .heard_us = sim->now_us,
                              .wanted_us = sim->now_us};
    sim_note(sim, "node%u: processes wait for job %llu on slots %llx", node,
             (unsigned long long)warm->job_id, (unsigned long long)warm->slot_mask);
    later(sim, node, warm, 100000 + draw(sim, warm, 3 * SECOND_US), is_loaded);
    later(sim, node, warm, LOOK_US, look);
}

static bool fits(const struct sim_warm *warm, uint64_t job_id, uint64_t slot_mask)
{
    return warm->state == WARM_READY && warm->job_id == job_id && warm->slot_mask == slot_mask;
}

static bool blocks(struct sim *sim, uint32_t node, const struct msg_start *start)
{
    bool is_blocked = false;

    if (node_find(sim, node, start->job_id, start->generation) != NULL)
        return false;
    for (uint32_t i = 0; i < SIM_WARM_MAX; i++) {
        struct sim_warm *warm = &sim->nodes[node].warm[i];

        if (!warm->used || fits(warm, start->job_id, start->slot_mask) ||
            (warm->job_id != start->job_id && (warm->slot_mask & start->slot_mask) == 0))
            continue;
        is_blocked = is_blocked || warm->state != WARM_FAILED;
        warm->holds_up_order = warm->state != WARM_FAILED;
        end(sim, node, warm, "a start order for its slots does not fit");
    }
    return is_blocked;
}

bool warm_takes(struct sim *sim, uint32_t node, const struct msg *msg)
{
    struct sim_warm *warm;

    if (msg->type == MSG_TYPE_WARM) {
        order(sim, node, &msg->warm);
    } else if (msg->type == MSG_TYPE_COOL) {
        warm = find(sim, node, msg->cool.job_id);
        if (warm != NULL)
            end(sim, node, warm, "the node is no spare of the job any more");
    } else {
        return msg->type == MSG_TYPE_START && blocks(sim, node, &msg->start);
    }
    return true;
}

uint32_t warm_list(const struct sim *sim, uint32_t node, struct part_warm_job out[SIM_WARM_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < SIM_WARM_MAX; i++)
        if (sim->nodes[node].warm[i].used)
            out[count++] = (struct part_warm_job){sim->nodes[node].warm[i].job_id,
                                                  sim->nodes[node].warm[i].state};
    return count;
}

void warm_become_shim(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    struct sim_warm *warm = find(sim, node, shim->job_id);

    if (warm == NULL || !fits(warm, shim->job_id, shim->slot_mask))
        return;
    sim_note(sim, "node%u: what waited for job %llu is its shim", node,
             (unsigned long long)warm->job_id);
    warm->used = false;
}

void warm_end_all(struct sim *sim, uint32_t node)
{
    memset(sim->nodes[node].warm, 0, sizeof sim->nodes[node].warm);
}
