#include "rendezvous/core/orders.h"

#include <signal.h>
#include <string.h>

#include "rendezvous/core/reach.h"
#include "rendezvous/core/state.h"

static const struct gang *gang_of(const struct job *job, enum order order)
{
    return order == ORDER_FORGET ? &job->last : &job->gang;
}

void orders_owe(struct rdzv *rdzv, struct job *job, uint32_t part, enum order order)
{
    assert(part < (order == ORDER_FORGET ? job->last.part_count : job->record.part_count));
    gang_owed(gang_of(job, order), order)[part / 64] |= 1ull << part % 64;
    if (job->is_owing)
        return;
    job->is_owing = true;
    rdzv->owing[rdzv->owing_count++] = (uint32_t)(job - rdzv->jobs);
}

void orders_cancel(struct job *job, enum order first, enum order last)
{
    for (uint32_t order = first; order <= (uint32_t)last; order++) {
        const struct gang *gang = gang_of(job, (enum order)order);

        if (gang->part_count > 0)
            memset(gang_owed(gang, (enum order)order), 0, gang->word_count * sizeof(uint64_t));
    }
}

/* The part's node; NULL: it cannot be reached. */
static const struct node *node_of(const struct rdzv *rdzv, const struct job *job, uint32_t part,
                                  enum order order)
{
    const struct node *node = NULL;

    if (order == ORDER_FORGET)
        node = roster_find(rdzv, job->last.places[part].node);
    else if (!job->gang.parts[part].is_lost && !job->gang.parts[part].is_away &&
             job->gang.parts[part].node != NODE_NONE)
        node = &rdzv->nodes[job->gang.parts[part].node];
    return node != NULL && node->conn != 0 ? node : NULL;
}

static struct rdzv_action *add(struct rdzv *rdzv, const struct job *job, const struct node *node,
                               enum rdzv_action_type type)
{
    struct rdzv_action *action = action_add(&rdzv->out, type);

    action->conn = node->conn;
    action->job_id = job->record.job_id;
    action->generation = type == RDZV_SEND_FORGET ? job->ended_generation : job->record.generation;
    return action;
}

/* Node rank 0 has reserved the master port. Its address is the master address for the others. */
static void send_go(struct rdzv *rdzv, const struct job *job, const struct node *node)
{
    const struct part_state *master = &job->gang.parts[0];
    struct rdzv_action *action;

    if (master->master_port == 0 || master->node == NODE_NONE)
        return;
    action = add(rdzv, job, node, RDZV_SEND_GO);
    action->text = reach_address(rdzv, job, 0);
    action->master_port = master->master_port;
}

/* Sends a stop. If the generation is not being stopped, this one goes to a shim that only keeps the
 * store. */
static void send_stop(struct rdzv *rdzv, const struct job *job, const struct node *node)
{
    struct rdzv_action *action = add(rdzv, job, node, RDZV_SEND_STOP);
    const bool is_over = job->record.stopping == STOP_NONE;

    action->signal = is_over ? SIGTERM : job->record.stop_signal;
    action->grace_us = is_over ? job->record.grace_us : job->record.stop_grace_us;
    action_text(&rdzv->out, action, "%s", is_over ? "every rank has ended" : job->record.reason);
}

static void send(struct rdzv *rdzv, const struct job *job, uint32_t part, enum order order)
{
    const struct node *node = node_of(rdzv, job, part, order);

    if (node == NULL)
        return;
    switch (order) {
    case ORDER_FORGET:
        (void)add(rdzv, job, node, RDZV_SEND_FORGET);
        break;
    case ORDER_STOP:
        send_stop(rdzv, job, node);
        break;
    case ORDER_START:
        add(rdzv, job, node, RDZV_SEND_START)->part = part;
        break;
    case ORDER_GO:
        send_go(rdzv, job, node);
        break;
    case ORDER_WORLD:
        add(rdzv, job, node, RDZV_SEND_WORLD)->blob =
            (struct msg_bytes){.items = job->blob, .count = job->blob_byte_count};
        break;
    case ORDER_COUNT:
        assert(false);
    }
}

/* False: no room was left. */
static bool send_all(struct rdzv *rdzv, struct job *job, enum order order)
{
    const struct gang *gang = gang_of(job, order);
    uint64_t *owed;

    if (gang->part_count == 0)
        return true;
    owed = gang_owed(gang, order);
    for (uint32_t word = 0; word < gang->word_count; word++)
        for (; owed[word] != 0; owed[word] &= owed[word] - 1) {
            if (!actions_have_room(&rdzv->out, 1))
                return false;
            send(rdzv, job, word * 64 + (uint32_t)__builtin_ctzll(owed[word]), order);
        }
    return true;
}

void orders_send(struct rdzv *rdzv)
{
    assert(rdzv->out.reserved == 0); /* their changes have been published */
    for (uint32_t order = 0; order < ORDER_COUNT; order++)
        for (uint32_t i = 0; i < rdzv->owing_count; i++)
            if (!send_all(rdzv, &rdzv->jobs[rdzv->owing[i]], (enum order)order)) {
                actions_continue(&rdzv->out);
                return;
            }
    for (uint32_t i = 0; i < rdzv->owing_count; i++)
        rdzv->jobs[rdzv->owing[i]].is_owing = false;
    rdzv->owing_count = 0;
}
