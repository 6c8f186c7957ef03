#include "rendezvous/core/elastic.h"

#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

uint32_t elastic_nodes(const struct rdzv_record *record, uint32_t fit, uint64_t slots)
{
    uint32_t count = fit < record->nodes_max ? fit : record->nodes_max;

    if (slots / record->nproc_per_node < count)
        count = (uint32_t)(slots / record->nproc_per_node);
    return count < record->nodes_min ? 0 : count;
}

/* How many slots the job's user may still have for this job, after reserving what the first job
 * that waits needs. */
static uint64_t quota(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    uint64_t used, most = rdzv->options.max_slots_per_user;

    if (most == 0 || job->user == USER_NONE)
        return UINT64_MAX;
    used = rdzv->users[job->user].slots - job->counted_slots;
    if (pass->is_blocked && job->user == pass->first_user &&
        job->record.job_id != pass->first.job_id)
        used += pass->first_slots;
    return used < most ? most - used : 0;
}

uint32_t elastic_choose(const struct rdzv *rdzv, const struct pass *pass,
                        const struct queued *entry, const struct pool *pool)
{
    const struct job *job = &rdzv->jobs[entry->job];
    uint32_t fit = pool->fit[entry->nproc], count;

    assert(pool_fits(pool, entry->nodes, entry->nproc));
    if (job->spare_count > 0 &&
        fit > job->record.nodes) /* spares replace lost nodes, they do not add nodes */
        fit =
            fit - job->spare_count > job->record.nodes ? fit - job->spare_count : job->record.nodes;
    count = elastic_nodes(&job->record, fit, quota(rdzv, pass, job));
    return count > 0
               ? count
               : entry->nodes; /* it restarts and has them already, whatever its user's quota */
}

bool elastic_waits(const struct rdzv *rdzv, const struct pass *pass, struct job *job)
{
    const struct rdzv_record *record = &job->record;
    uint32_t nproc = record->nproc_per_node;

    if (!elastic_is(record) || record->state != JOB_RESTARTING ||
        pool_fits(&pass->free, record->nodes_max, nproc) ||
        pass->soon.fit[nproc] <= pass->free.fit[nproc])
        return false;
    if (job->more_until_us == 0)
        job->more_until_us = rdzv->out.now_us + ELASTIC_WAIT_US;
    return rdzv->out.now_us < job->more_until_us;
}

void elastic_checkpoint(struct rdzv *rdzv, struct job *job)
{
    const bool may_grow = job->record.nodes < job->record.nodes_max;

    if ((!may_grow && !job->record.replace_stragglers) || job->record.stopping != STOP_NONE)
        return;
    job->has_new_checkpoint = true;
    rdzv->any_new_checkpoint = true;
    rdzv->sched_due = true;
}

/* -- planned ends -- */

/* How many nodes have room for a part of a running job, counting free slots and its own. If it is
 * to leave the node `left`, its spares count as well and that node does not; NULL: it leaves
 * none. */
static uint32_t count_nodes(const struct rdzv *rdzv, const struct pool *pool, const struct job *job,
                            const struct node *left)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        uint32_t node = rdzv->by_name[i];
        uint32_t part = roster_part_of(rdzv, &rdzv->nodes[node], job);
        uint64_t mask = pool->masks[node];

        if (failure_excludes(rdzv, job, node) || (left == &rdzv->nodes[node] && part != UINT32_MAX))
            continue;
        if (left != NULL)
            mask |= spare_table_ready(rdzv, node, job);
        if (part != UINT32_MAX && rdzv->nodes[node].conn != 0)
            mask |= job->record.parts[part].slot_mask & rdzv->views[node].able;
        count += bits_count(mask) >= job->record.nproc_per_node;
    }
    return count;
}

/* A node on which an operator has drained slots of this job; NULL: none. */
static const struct node *drained_node(const struct rdzv *rdzv, const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++) {
        const struct node *node;

        if (job->gang.parts[i].node == NODE_NONE)
            continue;
        node = &rdzv->nodes[job->gang.parts[i].node];
        if (node->is_drained || (node->drain_mask & job->record.parts[i].slot_mask) != 0)
            return node;
    }
    return NULL;
}

/* Whether the job, once stopped, would have to wait behind the first job of the queue. */
static bool is_behind(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    const struct queued entry = queue_entry(rdzv, job);

    return pass->is_settling || (pass->is_blocked && queue_is_before(&pass->first, &entry));
}

/* The job has run long enough since its nodes last changed, and would lose no steps. */
static bool may_change(const struct rdzv *rdzv, const struct job *job)
{
    return job->has_new_checkpoint && job->running_at_us != UINT64_MAX &&
           rdzv->out.now_us >= job->running_at_us &&
           rdzv->out.now_us - job->running_at_us >= rdzv->options.grow_us;
}

static bool may_grow(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    return job->record.nodes < job->record.nodes_max && may_change(rdzv, job) &&
           !is_behind(rdzv, pass, job);
}

/* The node of a straggler that a spare could replace (--replace-stragglers); NULL: none. */
static const struct node *slow_node(const struct rdzv *rdzv, const struct job *job)
{
    struct straggler slow;
    uint16_t node;

    if (!job->record.replace_stragglers || job->spare_count == 0 || !may_change(rdzv, job) ||
        !straggler_worst(&job->pace, job->gang.paces, job_world(job), &slow))
        return NULL;
    node = job->gang.parts[slow.rank / job->record.nproc_per_node].node;
    return node == NODE_NONE ? NULL : &rdzv->nodes[node];
}

static void consider(struct rdzv *rdzv, const struct pass *pass, struct job *job)
{
    const struct node *drained = drained_node(rdzv, job);
    const struct node *slow = drained == NULL ? slow_node(rdzv, job) : NULL;
    const struct node *left = drained != NULL ? drained : slow;
    uint32_t nodes;
    char why[REASON_BYTES_MAX];

    if (left == NULL && !may_grow(rdzv, pass, job))
        return;
    nodes = elastic_nodes(
        &job->record, count_nodes(rdzv, pass->is_blocked ? &pass->open : &pass->free, job, left),
        quota(rdzv, pass, job));
    if (nodes == 0 || (drained == NULL && nodes < job->record.nodes + (slow == NULL)))
        return;
    if (slow != NULL && generation_may_stop(job))
        failure_exclude(rdzv, job, slow->name);
    if (slow != NULL)
        text_format(why, "it leaves node %s, whose rank is a straggler, for a spare", slow->name);
    else if (drained != NULL)
        text_format(why, "it leaves node %s, which was drained: it goes on with %u node%s",
                    drained->name, nodes, nodes == 1 ? "" : "s");
    else
        text_format(why, "it grows after checkpoint %llu: from %u to %u nodes",
                    (unsigned long long)job->record.checkpoint_step, job->record.nodes, nodes);
    (void)generation_stop_planned(rdzv, job, why);
}

/* Whether the job may move to other nodes while it runs. */
static bool may_move(const struct job *job)
{
    return elastic_is(&job->record) || job->spare_count > 0;
}

bool elastic_is_idle(const struct rdzv *rdzv)
{
    return !rdzv->any_new_checkpoint && rdzv->drain_count == 0;
}

bool elastic_stop(struct rdzv *rdzv, const struct pass *pass)
{
    if (elastic_is_idle(rdzv))
        return true;
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        struct job *job = job_live(rdzv, i);

        if (job->ended || !may_move(job) || job->record.part_count == 0 ||
            job->record.stopping != STOP_NONE)
            continue;
        if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            return false;
        consider(rdzv, pass, job);
        job->has_new_checkpoint = false;
    }
    rdzv->any_new_checkpoint = false;
    return true;
}

/* -- gone nodes -- */

/* Whether the end of the generation need not wait for parts on nodes that closed their
 * connection. */
static bool may_leave(const struct rdzv *rdzv, const struct job *job)
{
    return may_move(job) && (fence_is_own(job) || !rdzv->options.waits_for_lease) &&
           (job->record.stopping == STOP_FAILURE || job->record.stopping == STOP_PLANNED);
}

/* A rank on another node has failed, probably because its peers on this node are gone. */
static bool is_missed(const struct job *job, const struct node *node)
{
    const struct rdzv_record *record = &job->record;

    return record->stopping == STOP_FAILURE && failure_may_be_for_want(record) &&
           strcmp(record->failed_node, node->name) != 0 &&
           node->closed_at_us <= job->failed_at_us + FAILURE_BEFORE_US;
}

/* Gives up the parts on a gone node that nobody need wait for. Returns when to look again;
 * UINT64_MAX: never. */
static uint64_t leave(struct rdzv *rdzv, const struct node *node)
{
    uint64_t at_us = UINT64_MAX;
    char cause[REASON_BYTES_MAX];

    text_format(cause, "node %s is gone: its connection closed", node->name);
    for (uint32_t i = roster_part_count(rdzv, node); i-- > 0;) { /* a lost part leaves the list */
        struct job *job;
        uint64_t gone_at_us;
        uint32_t part;

        if (i >= roster_part_count(rdzv, node))
            continue;
        job = roster_part(rdzv, node, i, &part);
        if (!may_leave(rdzv, job))
            continue;
        gone_at_us =
            node->closed_at_us + (is_missed(job, node) ? ELASTIC_MISSED_US : ELASTIC_GONE_US);
        if (rdzv->out.now_us < gone_at_us) {
            at_us = gone_at_us < at_us ? gone_at_us : at_us;
        } else if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX)) {
            at_us = rdzv->out.now_us;
        } else {
            job_log(rdzv, job, cause);
            fence_note(rdzv, job, node);
            generation_part_lost(rdzv, job, part, FAILURE_NETWORK, cause);
        }
    }
    return at_us;
}

void elastic_tick(struct rdzv *rdzv)
{
    bool is_due = rdzv->out.now_us >= rdzv->gone_at_us;

    rdzv->gone_at_us = is_due ? UINT64_MAX : rdzv->gone_at_us;
    for (uint32_t i = 0; is_due && i < rdzv->node_count; i++) {
        const struct node *node = &rdzv->nodes[rdzv->by_name[i]];
        uint64_t at_us;

        if (node->conn != 0 || node->closed_at_us == 0 || node->state == NODE_LOST)
            continue;
        at_us = leave(rdzv, node);
        if (at_us < rdzv->gone_at_us)
            rdzv->gone_at_us = at_us;
    }
}
