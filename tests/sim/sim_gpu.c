/* The GPUs of the simulation: their true state, NVML's answers (late ones too), faults, other
 * processes on them, and operators. Every fault is repaired within minutes, so that every job can
 * end. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "launcherd/core/fault.h"
#include "tests/sim/oracle.h"

#define MIB (1ull << 20)
#define IDLE_BYTES (400 * MIB)

#define SAW_MEMORY 0x100u /* bits in an event's number, above the slot: what NVML saw */
#define SAW_GONE 0x200u
#define SAW_STRANGER 0x400u

static void deliver(struct sim *sim, const struct sim_event *event)
{
    const struct sim_node *node = &sim->nodes[event->node];
    struct gpu_facts facts = {.slot = event->number & 0xffu,
                              .asked_us = event->asked_us,
                              .used_bytes = IDLE_BYTES + sim_draw(sim, 8 * MIB),
                              .has_ecc = true,
                              .ecc_uncorrected = event->worker};

    if (!node->alive || node->incarnation != event->incarnation)
        return;
    if ((event->number & SAW_MEMORY) != 0)
        facts.used_bytes += 5000 * MIB;
    if ((event->number & SAW_GONE) != 0)
        facts.processes[facts.process_count++] =
            (struct gpu_process){.pid = 9, .bytes = 5000 * MIB, .is_gone = true};
    if ((event->number & SAW_STRANGER) != 0)
        facts.processes[facts.process_count++] = (struct gpu_process){
            .pid = 77, .bytes = 300 * MIB, .program = "stranger", .user = "eve"};
    node_step(sim, event->node, (struct launcher_event){.type = LAUNCHER_EVENT_GPU, .gpu = &facts});
}

/* A process on this slot that launcherd does not know: its shim is gone, perhaps because the process does not die, or
 * was started from a state directory that is lost. */
static bool has_left(const struct sim_node *node, uint32_t slot)
{
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        const struct sim_shim *shim = &node->shims[i];

        for (uint32_t w = 0;
             shim->used && (!shim->alive || shim->is_orphan) && w < shim->local_count; w++)
            if (shim->workers[w].alive && shim_slot(shim, w) == slot)
                return true;
    }
    return false;
}

/* NVML looks now; its answer may be delivered much later. */
static void look(struct sim *sim, const struct sim_event *event)
{
    const struct sim_node *node = &sim->nodes[event->node];
    const struct sim_gpu *gpu = &node->gpus[event->number];
    struct sim_event later = *event;

    if (!node->alive || node->incarnation != event->incarnation)
        return;
    if (sim->now_us < node->nvml_hangs_until_us) { /* NVML began to hang after it was asked */
        sim_at(sim, node->nvml_hangs_until_us, later);
        return;
    }
    later.run = deliver;
    later.party = PARTY_NODE;
    later.worker = (uint32_t)gpu->ecc;
    if (sim->now_us < gpu->leaked_until_us || sim->now_us < gpu->zombie_until_us ||
        has_left(node, event->number))
        later.number |= sim_chance(sim, 500) ? SAW_MEMORY : SAW_GONE;
    if (sim->now_us < gpu->held_until_us)
        later.number |= SAW_STRANGER;
    sim_at(sim,
           sim->now_us +
               sim_draw(sim, sim_chance(sim, sim->faults.amount[FAULT_LEAK] > 0 ? 600 : 100)
                                 ? 4 * SECOND_US
                                 : 30000),
           later);
}

void gpu_action(struct sim *sim, uint32_t node, const struct launcher_action *action)
{
    if (action->type == LAUNCHER_SAVE_SLOTS) {
        sim->nodes[node].slots = *action->slots;
        return;
    }
    sim_at(sim, sim->now_us + 1000 + sim_draw(sim, 20000),
           (struct sim_event){.run = look,
                              .node = node,
                              .number = action->slot,
                              .asked_us = action->asked_us,
                              .incarnation = sim->nodes[node].incarnation});
}

void gpu_restore(struct sim *sim, uint32_t node)
{
    const struct slots_record *slots = &sim->nodes[node].slots;

    if (slots->count > 0)
        node_step(sim, node,
                  (struct launcher_event){.type = LAUNCHER_EVENT_SLOTS_LOADED, .slots = slots});
}

void gpu_left(struct sim *sim, uint32_t node, uint32_t slot)
{
    uint64_t for_us = sim_draw(sim, sim_chance(sim, 700) ? 2 * SECOND_US : 60 * SECOND_US);

    if (slot < sim->nodes[node].gpu_count && fault_strikes(sim, FAULT_LEAK))
        sim->nodes[node].gpus[slot].leaked_until_us = sim->now_us + for_us;
}

void gpu_hold(struct sim *sim)
{
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);
    uint32_t slot = (uint32_t)sim_draw(sim, sim->slots);

    sim_note(sim, "node%u: a stranger takes GPU %u", node, slot);
    sim->nodes[node].gpus[slot].held_until_us = sim->now_us + sim_draw(sim, 60 * SECOND_US);
}

void gpu_hang(struct sim *sim)
{
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);

    sim_note(sim, "node%u: NVML hangs", node);
    sim->nodes[node].nvml_hangs_until_us = sim->now_us + sim_draw(sim, 90 * SECOND_US);
}

/* An operator who repeats the request until no slot is drained, since the server or node may be
 * away, or a message lost. */
static void resume(struct sim *sim, const struct sim_event *event)
{
    const struct sim_node *node = &sim->nodes[event->node];
    char name[NODE_NAME_BYTES_MAX];
    struct msg msg = {.type = MSG_TYPE_NODE_RESUME};
    bool is_drained = !node->alive || !server_is_ready(sim);

    node_name(name, event->node);
    for (uint32_t i = 0; i < node->gpu_count; i++)
        is_drained = is_drained || node->core.slots[i].state == SLOT_DRAINED;
    for (uint32_t i = 0; i < sim->disk.drain_count; i++)
        is_drained = is_drained || strcmp(sim->disk.drains[i].node, name) == 0;
    if (!is_drained)
        return;
    for (uint32_t i = 0; i < SIM_WORKERS_MAX; i++)
        sim->nodes[event->node].gpus[i].is_faulty = false; /* repaired */
    msg.node_resume = (struct msg_node_resume){.name = name};
    oracle_resumed(sim, name);
    (void)server_operate(sim, RDZV_EVENT_NODE_RESUME, &msg);
    sim_at(sim, sim->now_us + 2 * SECOND_US,
           (struct sim_event){.run = resume, .node = event->node});
}

void gpu_resume_later(struct sim *sim, uint32_t node)
{
    sim_at(sim, sim->now_us + SECOND_US + sim_draw(sim, 60 * SECOND_US),
           (struct sim_event){.run = resume, .node = node});
}

/* The driver reports an Xid. A launcherd that does not run misses it. */
static void xid(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];

    if (!node->alive || node->incarnation != event->incarnation)
        return;
    if (fault_drains(fault_of_xid(event->number)->action))
        node->gpus[event->worker].is_faulty = true;
    node_step(sim, event->node,
              (struct launcher_event){
                  .type = LAUNCHER_EVENT_XID, .slot = event->worker, .xid = event->number});
}

void gpu_fault(struct sim *sim)
{
    static const uint32_t xids[] = {13, 31, 43, 48, 63, 74, 79, 94, 95, 109, 119, 999};
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);
    uint32_t slot = (uint32_t)sim_draw(sim, sim->slots);
    uint32_t number = xids[sim_draw(sim, sizeof xids / sizeof xids[0])];

    if (slot >= sim->nodes[node].gpu_count)
        return;
    sim_note(sim, "node%u: GPU %u has a fault, Xid %u", node, slot, number);
    if (sim_chance(sim, 300))
        sim->nodes[node].gpus[slot].ecc++;
    else
        sim_at(sim, sim->now_us,
               (struct sim_event){.run = xid,
                                  .party = PARTY_NODE,
                                  .node = node,
                                  .worker = slot,
                                  .number = number,
                                  .incarnation = sim->nodes[node].incarnation});
    gpu_resume_later(sim, node);
    sim_at(sim, sim->faults.until_us + 100 * SECOND_US, /* ECC is read when NVML answers */
           (struct sim_event){.run = resume, .node = node});
}

void gpu_drain(struct sim *sim)
{
    uint32_t node = (uint32_t)sim_draw(sim, sim->node_count);
    bool is_whole = sim_chance(sim, 500);
    uint64_t slot_mask = is_whole ? 0 : 1ull << sim_draw(sim, sim->slots);
    char name[NODE_NAME_BYTES_MAX];
    struct msg msg = {.type = MSG_TYPE_NODE_DRAIN};

    node_name(name, node);
    msg.node_drain = (struct msg_node_drain){name, slot_mask, "maintenance"};
    sim_note(sim, "an operator drains node%u, slots %llx", node, (unsigned long long)slot_mask);
    if (server_operate(sim, RDZV_EVENT_NODE_DRAIN, &msg))
        oracle_drained(sim, name, slot_mask);
    gpu_resume_later(sim, node);
}
