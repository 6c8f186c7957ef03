#include "rendezvous/core/claim.h"

#include <stdio.h>

#include "rendezvous/core/state.h"

/* How long people are shown that another launcherd wanted a name. */
#define NOTICE_US 600000000u

struct rdzv_action *claim_close(struct rdzv *rdzv, uint64_t conn, enum status why)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_CLOSE_NODE);

    assert(conn != 0);
    action->conn = conn;
    action->status = why;
    return action;
}

uint64_t claim_longest_lease_us(const struct rdzv *rdzv)
{
    const uint64_t own_us = rdzv->options.lease_us, before_us = rdzv->options.lease_before_us;

    return (before_us > own_us ? before_us : own_us) + LEASE_MARGIN_US;
}

uint64_t claim_lease_end_us(const struct rdzv *rdzv, const struct node *node)
{
    const uint64_t end_us = node->beat_at_us + rdzv->options.lease_us;
    const uint64_t before_us = rdzv->options.lease_before_us == 0
                                   ? 0
                                   : rdzv->restored_at_us + rdzv->options.lease_before_us;

    return (end_us > before_us ? end_us : before_us) + LEASE_MARGIN_US;
}

/* Until when what an earlier launcherd of the node has started may run; 0: nothing of it may. The
 * end of a lease counts from the last beat. */
static uint64_t held_until_us(const struct rdzv *rdzv, const struct node *node)
{
    if (roster_part_count(rdzv, node) > 0 || node->fenced > 0 || roster_shims_mask(node) != 0)
        return claim_lease_end_us(rdzv, node);
    return node->held_mask != 0 ? node->held_until_us : 0;
}

/* Shows people who wants the name of the node, and logs it once in a series. */
static void note_twin(struct rdzv *rdzv, struct node *node, const struct msg_node_hello *hello,
                      const char *what)
{
    const struct rdzv_identity identity = identity_of(hello);
    const bool is_near = identity.machine != 0 && identity.machine == node->identity.machine;

    if (rdzv->out.now_us >= node->notice_until_us)
        action_log(&rdzv->out, 0, 0,
                   "node %s: another launcherd, pid %u at %s, wants this name: %s", node->name,
                   hello->pid, hello->address, what);
    node->notice_until_us = rdzv->out.now_us + NOTICE_US;
    node->twin = identity;
    text_format(node->notice, NOTICE_OF_TWIN "pid %u at %s, on %s; %s", hello->pid, hello->address,
                is_near                                                ? "the same machine"
                : identity.machine != 0 && node->identity.machine != 0 ? "another machine"
                                                                       : "some machine",
                what);
}

/* The name belongs to a launcherd that beats. */
static void refuse_twin(struct rdzv *rdzv, struct node *node, uint64_t conn,
                        const struct msg_node_hello *hello)
{
    const struct rdzv_identity identity = identity_of(hello);
    const bool is_far = identity.machine != 0 && node->identity.machine != 0 &&
                        identity.machine != node->identity.machine;

    action_text(&rdzv->out, claim_close(rdzv, conn, STATUS_CONFLICT),
                "a node named %s is connected already: pid %u at %s%s; make a key for this machine "
                "(ddpctl node add NAME), or without a key choose another --name",
                node->name, node->pid, node->address, is_far ? ", on another machine" : "");
    note_twin(rdzv, node, hello, "it is refused");
}

/* Another launcherd than the last one of this name, which may be cut off and have ranks that run. */
static void refuse_heir(struct rdzv *rdzv, struct node *node, uint64_t conn,
                        const struct msg_node_hello *hello, uint64_t until_us)
{
    char who[ADDRESS_BYTES_MAX + 64] = "its pid and address are not known since the server "
                                       "started again";

    if (node->pid != 0)
        (void)snprintf(who, sizeof who, "pid %u at %s", node->pid, node->address);
    action_text(
        &rdzv->out, claim_close(rdzv, conn, STATUS_PEER_LOST),
        "the name %s was that of another launcherd (%s; on another machine or with another state "
        "directory), whose ranks may run for %llu s more: it is free then",
        node->name, who, (unsigned long long)((until_us - rdzv->out.now_us + 999999) / 1000000));
    note_twin(rdzv, node, hello, "it waits for the lease of the last one to end");
}

bool claim_is_refused(struct rdzv *rdzv, struct node *node, uint64_t conn,
                      const struct msg_node_hello *hello, enum kinship kin)
{
    uint64_t until_us = held_until_us(rdzv, node);

    if (node->instance == hello->instance && conn < node->newest_conn) {
        claim_close(rdzv, conn, STATUS_PEER_LOST)->text =
            "an older connection of the same process: it has called again since";
        return true;
    }
    if (node->conn == conn)
        return false;
    if (node->conn != 0 && node->instance != hello->instance &&
        rdzv->out.now_us < node->beat_at_us + rdzv->options.suspect_us) {
        refuse_twin(rdzv, node, conn, hello);
        return true;
    }
    if (node->conn != 0 && until_us < node->lost_at_us)
        until_us = node->lost_at_us; /* it has nothing, and may come back until it counts as lost */
    if (kin == KIN_OTHER && rdzv->out.now_us < until_us) {
        refuse_heir(rdzv, node, conn, hello, until_us);
        return true;
    }
    if (node->conn != 0)
        claim_close(rdzv, node->conn, STATUS_PEER_LOST)->text =
            "replaced by a newer connection of the same node";
    return false;
}

void claim_drop_hold(struct rdzv *rdzv, struct node *node)
{
    if (node->held_mask == 0)
        return;
    node->held_mask = 0;
    rdzv->restored_holds -= node->held_is_restored;
    node->held_is_restored = false;
    rdzv->sched_due = true; /* see linger_of_before */
    action_add(&rdzv->out, RDZV_PERSIST_HOLD)->text = node->name;
}

/* See KERNEL_LATER. A server that was restarted does not know when the node was last heard, and clocks that can be set
 * prove nothing. */
static enum kernel_age age_of_kernel(const struct rdzv *rdzv, const struct node *node,
                                     const struct msg_node_hello *hello)
{
    if (hello->up_us == 0 || !node->has_beat)
        return KERNEL_AGE_UNKNOWN;
    return hello->up_us < rdzv->out.now_us - node->beat_at_us ? KERNEL_LATER : KERNEL_NOT_LATER;
}

enum kinship claim_kinship(const struct rdzv *rdzv, const struct node *node,
                           const struct msg_node_hello *hello)
{
    const struct rdzv_identity identity = identity_of(hello);

    if (node->newest_conn != 0 && node->instance == hello->instance)
        return KIN_SAME;
    return identity_kinship(&node->identity, &identity, age_of_kernel(rdzv, node, hello));
}

/* Whether it lists what is held, or nothing of that can be left. It may be another one than the last of this name, and
 * call a second time. */
static bool knows_held(const struct rdzv *rdzv, const struct node *node,
                       const struct msg_node_hello *hello)
{
    const struct rdzv_identity identity = identity_of(hello);
    const enum kinship kin =
        identity_kinship(&node->held_by, &identity, age_of_kernel(rdzv, node, hello));

    return rdzv->out.now_us >= node->held_until_us || kin == KIN_SAME || kin == KIN_REBOOTED ||
           (node->held_instance != 0 && node->held_instance == hello->instance);
}

void claim_take(struct rdzv *rdzv, struct node *node, enum kinship kin,
                const struct msg_node_hello *hello)
{
    const uint64_t until_us = claim_lease_end_us(rdzv, node);
    const struct rdzv_identity identity = identity_of(hello);
    /* what is shown of the other one is only shown, so its next boot needs no proof */
    const enum kinship to_twin = identity_kinship(&node->twin, &identity, KERNEL_LATER);

    node->list_is_proof = knows_held(rdzv, node, hello);
    if (node->list_is_proof && !node->lingers) /* else linger_heard does, once its list allows it */
        claim_drop_hold(rdzv, node);
    if (kin == KIN_UNKNOWN && until_us > node->away_until_us)
        node->away_until_us = until_us;
    node->identity = identity;
    if (kin == KIN_OTHER || kin == KIN_UNKNOWN || to_twin == KIN_SAME || to_twin == KIN_REBOOTED)
        node->notice_until_us = 0; /* whoever wanted the name is, or may be, this one */
}
