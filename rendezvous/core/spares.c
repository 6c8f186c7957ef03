#include "rendezvous/core/spares.h"

#include "rendezvous/core/failure.h"
#include "rendezvous/core/state.h"

void spares_review(struct rdzv *rdzv)
{
    for (uint32_t i = 0; rdzv->spare_jobs > 0 && i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const struct node_spares *on = &rdzv->spares_on[node];
        char text[REASON_BYTES_MAX];

        for (uint32_t k = on->count; k-- > 0;) { /* downwards: a dropped spare leaves the list */
            struct job *job = &rdzv->jobs[on->items[k].job];

            if ((on->items[k].slot_mask & ~rdzv->views[node].able) == 0)
                continue;
            if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
                return; /* no room for this one either: the next pass, which follows, continues */
            text_format(
                text, "node %s is no longer a spare of the job: it %s", rdzv->nodes[node].name,
                rdzv->nodes[node].state == NODE_LOST ? "was lost" : "was drained, or has a fault");
            job_log(rdzv, job, text);
            (void)spare_table_remove(rdzv, job, node);
        }
    }
}

void spares_lend(const struct rdzv *rdzv, struct pass *pass, const struct job *job)
{
    for (uint32_t i = 0; job->spare_count > 0 && i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const uint64_t mask = spare_table_ready(rdzv, node, job);

        pool_add(&pass->free, node, mask);
        pool_add(&pass->open, node, mask);
    }
}

void spares_take_back(const struct rdzv *rdzv, struct pass *pass, const struct job *job)
{
    for (uint32_t i = 0; job->spare_count > 0 && i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const uint64_t mask = spare_table_mask_of(rdzv, node, job);

        pool_take(&pass->free, node, mask);
        pool_take(&pass->open, node, mask);
    }
}

void spares_started(struct rdzv *rdzv, struct job *job)
{
    uint32_t parts[2] = {0}, count = 0; /* the first parts on spares */
    const char *names[2];
    char text[REASON_BYTES_MAX];

    for (uint32_t i = 0; job->spare_count > 0 && i < job->record.part_count; i++)
        if (spare_table_remove(rdzv, job, job->gang.parts[i].node)) {
            if (count < 2)
                parts[count] = i;
            count++;
        }
    for (uint32_t i = 0; i < 2; i++)
        names[i] = rdzv->nodes[job->gang.parts[parts[i]].node].name;
    if (count == 0)
        return;
    if (count == 1)
        text_format(text, "spare node %s takes over as node rank %u", names[0], parts[0]);
    else if (count == 2)
        text_format(text, "spare nodes %s (node rank %u) and %s (node rank %u) take over", names[0],
                    parts[0], names[1], parts[1]);
    else
        text_format(text, "spare nodes %s (node rank %u), %s (node rank %u) and %u more take over",
                    names[0], parts[0], names[1], parts[1], count - 2);
    job_log(rdzv, job, text);
}

static bool is_over_quota(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    const uint64_t most = rdzv->options.max_slots_per_user;
    uint64_t used;

    if (most == 0 || job->user == USER_NONE)
        return false;
    used = rdzv->users[job->user].slots + (uint64_t)job->record.nproc_per_node;
    if (pass->is_blocked && job->user == pass->first_user)
        used += pass->first_slots;
    return used > most;
}

/* The node with the fewest free slots that fit; among equals by name. NODE_NONE: none. */
static uint32_t find_node(const struct rdzv *rdzv, const struct pool *pool, const struct job *job)
{
    uint32_t best = NODE_NONE, least = UINT32_MAX;

    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const uint32_t count = bits_count(pool->masks[node]);

        if (count < job->record.nproc_per_node || count >= least ||
            roster_part_of(rdzv, &rdzv->nodes[node], job) != UINT32_MAX ||
            spare_table_mask_of(rdzv, node, job) != 0 || failure_excludes(rdzv, job, node))
            continue;
        best = node;
        least = count;
    }
    return best;
}

/* Schedules a pass for when the job's first exclusion ends. */
static void look_again(struct rdzv *rdzv, const struct job *job)
{
    const uint64_t until_us = failure_excluded_until(rdzv, job);

    if (until_us < rdzv->sched_at_us)
        rdzv->sched_at_us = until_us;
}

/* Seeks spares for one job. False: no room was left for actions. */
static bool seek(struct rdzv *rdzv, struct pass *pass, struct job *job)
{
    struct pool *pool = pass->is_blocked ? &pass->open : &pass->free;
    char text[REASON_BYTES_MAX];

    while (job->spare_count < job->record.spares && !is_over_quota(rdzv, pass, job)) {
        const uint32_t node = find_node(rdzv, pool, job);
        uint64_t mask;

        if (node == NODE_NONE) {
            look_again(rdzv, job);
            return true;
        }
        if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            return false;
        mask = lowest_bits(pool->masks[node], job->record.nproc_per_node);
        text_format(text, "node %s is held as a spare of the job", rdzv->nodes[node].name);
        job_log(rdzv, job, text);
        spare_table_add(rdzv, job, node, mask);
        /* It may leave a drained node now; and a job may be over quota by it that another waits for. */
        pass->again = pass->again || rdzv->drain_count > 0 || pass->has_preempted;
        pool_take(&pass->free, node, mask);
        pool_take(&pass->open, node, mask);
        pool_take(&pass->soon, node, mask);
    }
    return true;
}

/* Whether the first job that waits has a higher priority. It may need any slot. */
static bool is_outranked(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    return pass->is_blocked && rdzv->jobs[pass->first.job].record.priority > job->record.priority;
}

bool spares_seek(struct rdzv *rdzv, struct pass *pass)
{
    if (rdzv->spare_jobs == 0 || pass->is_settling)
        return true;
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        struct job *job = job_live(rdzv, i);

        if (!job->wants_spares || job->record.part_count == 0 ||
            job->record.stopping != STOP_NONE || is_outranked(rdzv, pass, job))
            continue;
        if (!seek(rdzv, pass, job))
            return false;
    }
    return true;
}
