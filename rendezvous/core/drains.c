#include "rendezvous/core/drains.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

void drains_on_restore(struct rdzv *rdzv, const struct rdzv_drain *drain)
{
    struct node *node = roster_find(rdzv, drain->node);

    if (rdzv->drain_count == DRAINS_MAX) {
        action_log(&rdzv->out, 0, 0,
                   "the drain of node %s by %s does not fit: %u are stored already", drain->node,
                   drain->user, DRAINS_MAX);
        return;
    }
    rdzv->drains[rdzv->drain_count++] = *drain;
    if (node == NULL)
        return;
    slots_apply_drains(rdzv, node);
    roster_refresh(rdzv, node);
}

static bool add_drain(struct rdzv *rdzv, const struct rdzv_event *event, uint32_t slot)
{
    const struct msg_node_drain *request = &event->msg->node_drain;
    struct rdzv_drain *drain;

    if (slots_drain_of(rdzv, request->name, slot) != NULL)
        return true; /* already drained: the first reason is kept */
    if (rdzv->drain_count == DRAINS_MAX)
        return false;
    drain = &rdzv->drains[rdzv->drain_count++];
    *drain = (struct rdzv_drain){.slot = slot, .at_ms = event->wall_ms};
    (void)snprintf(drain->node, sizeof drain->node, "%s", request->name);
    (void)snprintf(drain->user, sizeof drain->user, "%s", event->user);
    (void)snprintf(drain->reason, sizeof drain->reason, "%s", request->reason);
    if (slot == RDZV_WHOLE_NODE)
        action_log(&rdzv->out, 0, 0, "node %s was drained by %s: %s", drain->node, drain->user,
                   drain->reason);
    else
        action_log(&rdzv->out, 0, 0, "node %s: slot %u was drained by %s: %s", drain->node, slot,
                   drain->user, drain->reason);
    return true;
}

static void reply_node(struct rdzv *rdzv, uint64_t client, const char *name)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_REPLY_NODE);

    action->client = client;
    action->text = name;
}

/* The node of a request. It must have all slots of the mask. NULL: an error was answered. */
static struct node *find_node(struct rdzv *rdzv, uint64_t client, const char *name, uint64_t mask)
{
    struct node *node = roster_find(rdzv, name);

    if (node == NULL) {
        action_reply_error(&rdzv->out, client, STATUS_NOT_FOUND, "there is no node %s", name);
        return NULL;
    }
    if (node->slots < SLOTS_PER_NODE_MAX && mask >> node->slots != 0) {
        action_reply_error(&rdzv->out, client, STATUS_BAD_INPUT, "node %s has %u slots, 0 to %u",
                           name, node->slots, node->slots > 0 ? node->slots - 1 : 0);
        return NULL;
    }
    return node;
}

void drains_on_drain(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_node_drain *request = &event->msg->node_drain;
    struct node *node = find_node(rdzv, event->client, request->name, request->slot_mask);
    bool has_room = true;

    if (node == NULL)
        return;
    if (request->slot_mask == 0)
        has_room = add_drain(rdzv, event, RDZV_WHOLE_NODE);
    for (uint64_t mask = request->slot_mask; mask != 0; mask &= mask - 1)
        has_room = add_drain(rdzv, event, (uint32_t)__builtin_ctzll(mask)) && has_room;
    slots_apply_drains(rdzv, node);
    roster_refresh(rdzv, node);
    (void)action_add(&rdzv->out, RDZV_PERSIST_DRAINS);
    if (has_room)
        reply_node(rdzv, event->client, node->name);
    else
        action_reply_error(&rdzv->out, event->client, STATUS_TOO_BIG,
                           "%u drains are there already: resume some, or drain whole nodes",
                           DRAINS_MAX);
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
    (void)action_add(&rdzv->out, RDZV_PERSIST_DRAINS);
}

/* Resumes a slot that the node itself drained for a fault. The order names the fault, because a
 * newer one may have come. The slot stays drained until the node no longer lists it. */
static void resume_fault(struct rdzv *rdzv, struct node *node, uint32_t index)
{
    struct node_slot *slot = &node->slot_states[index];

    if (slot->state != SLOT_DRAINED)
        return;
    slot->resume_incident = slot->incident;
    if (node->conn != 0)
        slots_send_resume(rdzv, node, index);
}

void drains_on_resume(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_node_resume *request = &event->msg->node_resume;
    const bool is_away = rdzv_is_away(rdzv, request->name);
    struct node *node =
        is_away ? NULL : find_node(rdzv, event->client, request->name, request->slot_mask);

    if (node == NULL && !is_away)
        return;
    action_log(&rdzv->out, 0, 0, "node %s%s was resumed by %s", request->name,
               request->slot_mask == 0 ? "" : " (some slots)", event->user);
    drop_drains(rdzv, event, request->slot_mask);
    failure_pardon(rdzv, request->name);
    reply_node(rdzv, event->client, request->name);
    if (node == NULL)
        return;
    slots_apply_drains(rdzv, node);
    roster_refresh(rdzv, node);
    for (uint32_t i = 0; i < node->slots && i < SLOTS_PER_NODE_MAX; i++)
        if (request->slot_mask == 0 || (request->slot_mask >> i & 1) != 0)
            resume_fault(rdzv, node, i);
}
