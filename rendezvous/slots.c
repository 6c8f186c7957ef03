/* Which slots may be given out: what their nodes say of them, and what operators want. A node
 * closes a slot by listing it in its beats (a GPU that is not proved free, or has a fault); an
 * operator drains a slot, or a node, until it is resumed. */
#include "rendezvous/rdzv_state.h"

#include <stdio.h>
#include <string.h>

uint64_t slots_closed_mask(const struct node *node)
{
    uint64_t mask = node->is_drained ? UINT64_MAX : node->drain_mask;

    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++)
        if (node->slot_states[i].state != SLOT_FREE)
            mask |= 1ull << i;
    return mask;
}

void slots_left(struct rdzv *rdzv, struct node *node, uint64_t mask)
{
    for (; mask != 0; mask &= mask - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(mask);

        if (slot >= node->gpus || node->slot_states[slot].state != SLOT_FREE)
            continue;
        node->slot_states[slot].state = SLOT_CHECKING;
        node->slot_states[slot].since_ms = rdzv->wall_ms;
        node->slot_states[slot].reason[0] = '\0';
    }
}

const char *slots_why(struct rdzv *rdzv, const struct node *node, uint32_t slot)
{
    const struct rdzv_drain *drain = slots_drain_of(rdzv, node->name, slot);
    const struct node_slot *state = &node->slot_states[slot];

    if (node->is_drained) {
        drain = slots_drain_of(rdzv, node->name, RDZV_WHOLE_NODE);
        return rdzv_text(rdzv, "node %s was drained by %s: %s", node->name, drain->user,
                         drain->reason);
    }
    if (drain != NULL)
        return rdzv_text(rdzv, "slot %u of %s was drained by %s: %s", slot, node->name, drain->user,
                         drain->reason);
    if (state->state == SLOT_CHECKING)
        return rdzv_text(rdzv, "slot %u of %s is being proved free after its last job", slot,
                         node->name);
    return rdzv_text(rdzv, "slot %u of %s is %s: %s", slot, node->name,
                     slot_state_word(state->state), state->reason);
}

/* -- what a node says -------------------------------------------------------------------------- */

static void send_resume(struct rdzv *rdzv, const struct node *node, uint32_t slot)
{
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_SEND_SLOT_RESUME);

    action->conn = node->conn;
    action->slot = slot;
    action->incident = node->slot_states[slot].incident;
}

static void take_one(struct rdzv *rdzv, struct node *node, uint32_t index,
                     const struct part_slot_closed *said)
{
    struct node_slot *slot = &node->slot_states[index];
    bool is_noteworthy = said->state != SLOT_CHECKING;

    if (slot->state != said->state || slot->incident != said->incident) {
        slot->since_ms = rdzv->wall_ms;
        slot->state = said->state;
        slot->incident = said->incident;
        (void)snprintf(slot->reason, sizeof slot->reason, "%s", said->reason);
        if (is_noteworthy)
            rdzv_note(rdzv, NULL,
                      rdzv_text(rdzv, "node %s: slot %u is %s: %s", node->name, index,
                                slot_state_word(slot->state), slot->reason));
        slot->noted = slot->noted || is_noteworthy;
    }
    (void)snprintf(slot->reason, sizeof slot->reason, "%s", said->reason);
    if (said->state == SLOT_DRAINED && said->incident == slot->resume_incident &&
        slot->resume_incident != 0)
        send_resume(rdzv, node, index); /* the order was lost */
}

static void open_one(struct rdzv *rdzv, const struct node *node, uint32_t index,
                     struct node_slot *slot)
{
    if (slot->noted)
        rdzv_note(rdzv, NULL, rdzv_text(rdzv, "node %s: slot %u is open again", node->name, index));
    memset(slot, 0, sizeof *slot);
}

void slots_take(struct rdzv *rdzv, struct node *node, const struct part_slot_closed *closed,
                uint32_t count)
{
    uint64_t listed = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (closed[i].slot >= node->slots || closed[i].state == SLOT_FREE ||
            closed[i].state == SLOT_BUSY)
            continue;
        listed |= 1ull << closed[i].slot;
        take_one(rdzv, node, closed[i].slot, &closed[i]);
    }
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++)
        if ((listed >> i & 1) == 0 && node->slot_states[i].state != SLOT_FREE)
            open_one(rdzv, node, i, &node->slot_states[i]);
}

/* The job on that slot hears of it, too. */
void slots_on_event(struct rdzv *rdzv, const struct node *node, const struct msg_node_event *said)
{
    const struct job *on_it = NULL;

    for (uint32_t i = 0; i < rdzv->job_count && on_it == NULL; i++) {
        const struct job *job = &rdzv->jobs[rdzv->order[i]];
        uint32_t part = job->ended ? UINT32_MAX : job_part_on(job, node->name);

        if (part != UINT32_MAX && (job->record.parts[part].slot_mask >> said->slot & 1) != 0)
            on_it = job;
    }
    rdzv_note(rdzv, on_it, rdzv_text(rdzv, "node %s: %s", node->name, said->text));
}

/* -- what operators want ----------------------------------------------------------------------- */

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

void slots_on_restore(struct rdzv *rdzv, const struct rdzv_drain *drain)
{
    struct node *node = roster_find(rdzv, drain->node);

    if (rdzv->drain_count == DRAINS_MAX)
        return; /* the limit was lowered */
    rdzv->drains[rdzv->drain_count++] = *drain;
    if (node != NULL)
        slots_apply_drains(rdzv, node);
}

static bool add_drain(struct rdzv *rdzv, const struct rdzv_event *event, uint32_t slot)
{
    const struct msg_node_drain *wish = &event->msg->node_drain;
    struct rdzv_drain *drain;

    if (slots_drain_of(rdzv, wish->name, slot) != NULL)
        return true; /* the first reason stands */
    if (rdzv->drain_count == DRAINS_MAX)
        return false;
    drain = &rdzv->drains[rdzv->drain_count++];
    *drain = (struct rdzv_drain){.slot = slot, .at_ms = event->wall_ms};
    (void)snprintf(drain->node, sizeof drain->node, "%s", wish->name);
    (void)snprintf(drain->user, sizeof drain->user, "%s", event->user);
    (void)snprintf(drain->reason, sizeof drain->reason, "%s", wish->reason);
    if (slot == RDZV_WHOLE_NODE)
        rdzv_note(rdzv, NULL,
                  rdzv_text(rdzv, "node %s was drained by %s: %s", drain->node, drain->user,
                            drain->reason));
    else
        rdzv_note(rdzv, NULL,
                  rdzv_text(rdzv, "node %s: slot %u was drained by %s: %s", drain->node, slot,
                            drain->user, drain->reason));
    return true;
}

static void reply_node(struct rdzv *rdzv, uint64_t client, const struct node *node)
{
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_REPLY_NODE);

    action->client = client;
    action->text = node->name;
}

/* The node that is meant, with all these slots; NULL: an error was answered. */
static struct node *meant(struct rdzv *rdzv, uint64_t client, const char *name, uint64_t mask)
{
    struct node *node = roster_find(rdzv, name);

    if (node == NULL) {
        rdzv_reply_error(rdzv, client, STATUS_NOT_FOUND,
                         rdzv_text(rdzv, "there is no node %s", name));
        return NULL;
    }
    if (node->slots < SLOTS_PER_NODE_MAX && mask >> node->slots != 0) {
        rdzv_reply_error(rdzv, client, STATUS_BAD_INPUT,
                         rdzv_text(rdzv, "node %s has %u slots, 0 to %u", name, node->slots,
                                   node->slots > 0 ? node->slots - 1 : 0));
        return NULL;
    }
    return node;
}

void slots_on_drain(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_node_drain *wish = &event->msg->node_drain;
    struct node *node = meant(rdzv, event->client, wish->name, wish->slot_mask);
    bool has_room = true;

    if (node == NULL)
        return;
    if (wish->slot_mask == 0)
        has_room = add_drain(rdzv, event, RDZV_WHOLE_NODE);
    for (uint64_t mask = wish->slot_mask; mask != 0; mask &= mask - 1)
        has_room = add_drain(rdzv, event, (uint32_t)__builtin_ctzll(mask)) && has_room;
    slots_apply_drains(rdzv, node);
    rdzv_act(rdzv, RDZV_PERSIST_DRAINS);
    if (has_room)
        reply_node(rdzv, event->client, node);
    else
        rdzv_reply_error(rdzv, event->client, STATUS_TOO_BIG,
                         rdzv_text(rdzv,
                                   "%u drains are there already: resume some, or drain "
                                   "whole nodes",
                                   DRAINS_MAX));
}

static void drop_drains(struct rdzv *rdzv, const struct rdzv_event *event, uint64_t mask)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < rdzv->drain_count; i++) {
        const struct rdzv_drain *drain = &rdzv->drains[i];
        bool is_meant =
            mask == 0 || (drain->slot < SLOTS_PER_NODE_MAX && (mask >> drain->slot & 1) != 0);

        if (is_meant && strcmp(drain->node, event->msg->node_resume.name) == 0)
            continue;
        if (kept != i)
            rdzv->drains[kept] = *drain;
        kept++;
    }
    rdzv->drain_count = kept;
    rdzv_act(rdzv, RDZV_PERSIST_DRAINS);
}

/* A fault that the node itself drained for: it is told which one is meant, in case there is another
 * by then. The slot stays drained until the node says otherwise. */
static void resume_fault(struct rdzv *rdzv, struct node *node, uint32_t index)
{
    struct node_slot *slot = &node->slot_states[index];

    if (slot->state != SLOT_DRAINED)
        return;
    slot->resume_incident = slot->incident;
    if (node->conn != 0)
        send_resume(rdzv, node, index);
}

void slots_on_resume(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_node_resume *wish = &event->msg->node_resume;
    struct node *node = meant(rdzv, event->client, wish->name, wish->slot_mask);

    if (node == NULL)
        return;
    rdzv_note(rdzv, NULL,
              rdzv_text(rdzv, "node %s%s was resumed by %s", node->name,
                        wish->slot_mask == 0 ? "" : " (some slots)", event->user));
    drop_drains(rdzv, event, wish->slot_mask);
    slots_apply_drains(rdzv, node);
    for (uint32_t i = 0; i < node->slots && i < SLOTS_PER_NODE_MAX; i++)
        if (wish->slot_mask == 0 || (wish->slot_mask >> i & 1) != 0)
            resume_fault(rdzv, node, i);
    reply_node(rdzv, event->client, node);
}
