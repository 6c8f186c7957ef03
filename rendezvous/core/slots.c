#include "rendezvous/core/slots.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/state.h"

/* All slots if the node is drained as a whole or is leaving; else none. */
static uint64_t whole_mask(const struct node *node)
{
    return node->is_drained || node->is_leaving ? UINT64_MAX : 0;
}

uint64_t slots_closed_mask(const struct node *node)
{
    return whole_mask(node) | node->drain_mask | node->closed_mask;
}

uint64_t slots_closed_long_mask(const struct node *node)
{
    return whole_mask(node) | node->drain_mask | (node->closed_mask & ~node->checking_mask);
}

/* Sets the reported state of a slot and updates the node's masks. */
static void set_state(struct node *node, uint32_t slot, enum slot_state state)
{
    uint64_t bit = 1ull << slot;

    node->slot_states[slot].state = state;
    node->closed_mask = (node->closed_mask & ~bit) | (state != SLOT_FREE ? bit : 0);
    node->checking_mask = (node->checking_mask & ~bit) | (state == SLOT_CHECKING ? bit : 0);
}

/* Writing an empty reason over an empty one would touch a page for nothing. */
static void set_reason(struct node *node, uint32_t slot, const char *reason)
{
    if (strcmp(node->reasons[slot], reason) != 0)
        (void)snprintf(node->reasons[slot], sizeof node->reasons[slot], "%s", reason);
}

void slots_left(struct rdzv *rdzv, struct node *node, uint64_t mask)
{
    for (; mask != 0; mask &= mask - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(mask);

        if (slot >= node->gpus || (node->closed_mask >> slot & 1) != 0)
            continue;
        set_state(node, slot, SLOT_CHECKING);
        node->slot_states[slot].since_ms = rdzv->out.wall_ms;
        set_reason(node, slot, "");
    }
}

void slots_why(const struct rdzv *rdzv, const struct node *node, uint32_t slot,
               char out[REASON_BYTES_MAX])
{
    const struct rdzv_drain *drain = slots_drain_of(rdzv, node->name, slot);
    const struct node_slot *state = &node->slot_states[slot];

    assert(slot < SLOTS_PER_NODE_MAX);
    if (node->is_drained) {
        drain = slots_drain_of(rdzv, node->name, RDZV_WHOLE_NODE);
        assert(drain != NULL);
        text_format(out, "node %s was drained by %s: %s", node->name, drain->user, drain->reason);
    } else if (node->is_leaving) {
        text_format(out, "node %s leaves: its launcherd was told to end", node->name);
    } else if (drain != NULL) {
        text_format(out, "slot %u of %s was drained by %s: %s", slot, node->name, drain->user,
                    drain->reason);
    } else if (state->state == SLOT_CHECKING) {
        text_format(out, "slot %u of %s is being proved free after its last job", slot, node->name);
    } else {
        text_format(out, "slot %u of %s is %s: %s", slot, node->name, slot_state_name(state->state),
                    node->reasons[slot]);
    }
}

void slots_send_resume(struct rdzv *rdzv, const struct node *node, uint32_t slot)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_SEND_SLOT_RESUME);

    assert(node->conn != 0);
    action->conn = node->conn;
    action->slot = slot;
    action->incident = node->slot_states[slot].incident;
}

/* Takes one entry of a node's list. A known incident is not logged again. A fault that was resumed
 * is resumed again if the order has not reached the node. */
static void take_one(struct rdzv *rdzv, struct node *node, uint32_t index,
                     const struct part_slot_closed *listed)
{
    struct node_slot *slot = &node->slot_states[index];
    bool is_log_worthy = listed->state != SLOT_CHECKING; /* that happens after every job on a GPU */

    if (slot->state != listed->state || slot->incident != listed->incident) {
        slot->since_ms = rdzv->out.wall_ms;
        set_state(node, index, listed->state);
        slot->incident = listed->incident;
        if (is_log_worthy)
            action_log(&rdzv->out, 0, 0, "node %s: slot %u is %s: %s", node->name, index,
                       slot_state_name(slot->state), listed->reason);
        slot->was_logged = slot->was_logged || is_log_worthy;
    }
    set_reason(node, index, listed->reason);
    if (listed->state == SLOT_DRAINED && listed->incident == slot->resume_incident &&
        slot->resume_incident != 0)
        slots_send_resume(rdzv, node, index); /* the node has not received the order */
}

static void open_one(struct rdzv *rdzv, struct node *node, uint32_t index)
{
    if (node->slot_states[index].was_logged)
        action_log(&rdzv->out, 0, 0, "node %s: slot %u is open again", node->name, index);
    set_state(node, index, SLOT_FREE);
    set_reason(node, index, "");
    memset(&node->slot_states[index], 0, sizeof *node->slot_states);
}

void slots_take(struct rdzv *rdzv, struct node *node, const struct part_slot_closed *closed,
                uint32_t count)
{
    uint64_t listed = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (closed[i].slot >= node->slots || closed[i].state == SLOT_FREE ||
            closed[i].state == SLOT_BUSY)
            continue;
        if ((listed >> closed[i].slot & 1) != 0)
            continue; /* a slot is listed twice: the first entry counts */
        listed |= 1ull << closed[i].slot;
        take_one(rdzv, node, closed[i].slot, &closed[i]);
    }
    for (uint64_t mask = node->closed_mask & ~listed; mask != 0; mask &= mask - 1)
        open_one(rdzv, node, (uint32_t)__builtin_ctzll(mask));
}

const struct rdzv_drain *slots_drain_of(const struct rdzv *rdzv, const char *node, uint32_t slot)
{
    for (uint32_t i = 0; i < rdzv->drain_count; i++)
        if (rdzv->drains[i].slot == slot && strcmp(rdzv->drains[i].node, node) == 0)
            return &rdzv->drains[i];
    return NULL;
}

void slots_apply_drains(const struct rdzv *rdzv, struct node *node)
{
    node->is_drained = slots_drain_of(rdzv, node->name, RDZV_WHOLE_NODE) != NULL;
    node->drain_mask = 0;
    for (uint32_t i = 0; i < rdzv->drain_count; i++)
        if (rdzv->drains[i].slot < SLOTS_PER_NODE_MAX &&
            strcmp(rdzv->drains[i].node, node->name) == 0)
            node->drain_mask |= 1ull << rdzv->drains[i].slot;
}
