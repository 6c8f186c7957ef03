#include "rendezvous/core/preempt.h"

#include <string.h>

#include "rendezvous/core/elastic.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/state.h"

static bool is_candidate(const struct job *job, const struct job *first)
{
    return job->record.priority < first->record.priority && generation_may_stop(job);
}

/* The slots of a node that the first job that waits could have if nothing ran on them. */
static uint64_t usable_mask(const struct rdzv *rdzv, const struct pass *pass,
                            const struct job *first, uint32_t node)
{
    if (first->fault_count > 0 && failure_excludes(rdzv, first, node))
        return 0;
    return rdzv->views[node].able & ~pass->held[node];
}

/* Spares on a node that the first job that waits cannot have: those of jobs of the same or a higher
 * priority. */
static uint64_t kept_spares(const struct rdzv *rdzv, const struct job *first, uint32_t node)
{
    const struct node_spares *on = &rdzv->spares_on[node];
    uint64_t mask = 0;

    for (uint32_t i = 0; i < on->count; i++)
        if (rdzv->jobs[on->items[i].job].record.priority >= first->record.priority)
            mask |= on->items[i].slot_mask;
    return mask;
}

/* Fills the pool with slots that are free without any victim, now or soon. `with_spares`: also
 * those that other jobs would give up. */
static void find_room(const struct rdzv *rdzv, struct pass *pass, const struct job *first,
                      bool with_spares)
{
    memset(&pass->room, 0, sizeof pass->room);
    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const uint32_t node = rdzv->by_name[i];
        const uint64_t kept =
            with_spares ? kept_spares(rdzv, first, node) : spare_table_mask(rdzv, node);

        pool_put(&pass->room, node, usable_mask(rdzv, pass, first, node) & ~kept);
    }
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        const struct job *job = job_live(rdzv, i);

        if (job->ended || job->record.stopping != STOP_NONE)
            continue;
        for (uint32_t k = 0; k < job->record.part_count; k++)
            if (!job->gang.parts[k].is_lost && job->gang.parts[k].node != NODE_NONE)
                pool_take(&pass->room, job->gang.parts[k].node, job->record.parts[k].slot_mask);
    }
}

static void give(const struct rdzv *rdzv, struct pass *pass, const struct job *first,
                 const struct job *victim)
{
    for (uint32_t k = 0; k < victim->record.part_count; k++) {
        uint32_t node = victim->gang.parts[k].node;

        if (!victim->gang.parts[k].is_lost && node != NODE_NONE)
            pool_add(&pass->room, node,
                     victim->record.parts[k].slot_mask & usable_mask(rdzv, pass, first, node));
    }
}

static void take_back(struct pass *pass, const struct job *victim)
{
    for (uint32_t k = 0; k < victim->record.part_count; k++)
        if (!victim->gang.parts[k].is_lost && victim->gang.parts[k].node != NODE_NONE)
            pool_take(&pass->room, victim->gang.parts[k].node, victim->record.parts[k].slot_mask);
}

/* Whether stopping `a` loses less than stopping `b`. */
static bool is_cheaper(const struct job *a, const struct job *b)
{
    bool a_shrinks = a->record.nodes > a->record.nodes_min;
    bool b_shrinks = b->record.nodes > b->record.nodes_min;

    if (a->record.priority != b->record.priority)
        return a->record.priority < b->record.priority;
    if (a_shrinks != b_shrinks)
        return a_shrinks;
    if (a->running_at_us != b->running_at_us) /* UINT64_MAX: not running yet */
        return a->running_at_us > b->running_at_us;
    return a->record.job_id > b->record.job_id;
}

/* Collects the VICTIMS_MAX cheapest candidates, sorted with the cheapest first. */
static uint32_t find_candidates(const struct rdzv *rdzv, struct pass *pass, const struct job *first)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        const struct job *job = job_live(rdzv, i);
        uint32_t at;

        if (!is_candidate(job, first))
            continue;
        if (count == VICTIMS_MAX && !is_cheaper(job, &rdzv->jobs[pass->victims[count - 1]]))
            continue;
        at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at > 0 && is_cheaper(job, &rdzv->jobs[pass->victims[at - 1]]); at--)
            pass->victims[at] = pass->victims[at - 1];
        pass->victims[at] = (uint32_t)(job - rdzv->jobs);
    }
    return count;
}

/* Leaves the victims that are really needed in pass->victims. Returns their number; 0: no job is to
 * stop. */
static uint32_t choose(const struct rdzv *rdzv, struct pass *pass, const struct job *first)
{
    const struct queued entry = queue_entry(rdzv, first);
    uint32_t found = find_candidates(rdzv, pass, first), count = 0, kept = 0;

    if (found == 0)
        return 0;
    find_room(rdzv, pass, first, true);
    while (count < found && !pool_fits(&pass->room, entry.nodes, entry.nproc))
        give(rdzv, pass, first, &rdzv->jobs[pass->victims[count++]]);
    if (!pool_fits(&pass->room, entry.nodes, entry.nproc))
        return 0;
    for (uint32_t i = count; i-- > 0;) { /* the costliest first: it may not be needed */
        take_back(pass, &rdzv->jobs[pass->victims[i]]);
        if (pool_fits(&pass->room, entry.nodes, entry.nproc))
            pass->victims[i] = VICTIM_NONE;
        else
            give(rdzv, pass, first, &rdzv->jobs[pass->victims[i]]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (pass->victims[i] != VICTIM_NONE)
            pass->victims[kept++] = pass->victims[i];
    return kept;
}

static void stop(struct rdzv *rdzv, struct job *victim, const struct job *first)
{
    char why[REASON_BYTES_MAX], title[JOB_TITLE_BYTES];

    text_format(why, "preempted by %s for its priority, %d against %d",
                job_title(first, victim, title), first->record.priority, victim->record.priority);
    victim->record.preempted_by = first->record.job_id;
    victim->record.preempted_at = first->record.generation;
    (void)generation_stop_planned(rdzv, victim, why);
}

/* If spares of jobs with a lower priority are all that is missing, they are given up. */
static bool drop_spares(struct rdzv *rdzv, struct pass *pass, const struct job *first)
{
    const struct queued entry = queue_entry(rdzv, first);
    uint32_t count = 0;

    if (rdzv->spare_jobs == 0)
        return false;
    find_room(rdzv, pass, first, false);
    if (pool_fits(&pass->room, entry.nodes, entry.nproc))
        return false; /* it only has to wait for a moment */
    find_room(rdzv, pass, first, true);
    if (!pool_fits(&pass->room, entry.nodes, entry.nproc))
        return false;
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        struct job *job = job_live(rdzv, i);

        if (job->spare_count == 0 || job->record.priority >= first->record.priority)
            continue;
        if (!actions_have_room(&rdzv->out, 2 * JOB_ACTIONS_MAX))
            break; /* the next pass continues */
        count += job->spare_count;
        job_log(rdzv, job, "its spares are given to a job of a higher priority");
        spare_table_remove_all(rdzv, job);
    }
    return count > 0;
}

bool preempt_for(struct rdzv *rdzv, struct pass *pass, struct job *job)
{
    uint32_t count;

    if (!rdzv->options.preempts || pass->again) /* the next pass determines the first job */
        return false;
    if (rdzv->out.now_us < rdzv->settled_at_us) { /* nodes with room may still come back */
        if (rdzv->settled_at_us < rdzv->sched_at_us)
            rdzv->sched_at_us = rdzv->settled_at_us;
        return false;
    }
    if (drop_spares(rdzv, pass, job)) {
        pass->again = true;
        return false;
    }
    count = choose(rdzv, pass, job);
    for (uint32_t i = 0; i < count; i++) {
        if (!actions_have_room(&rdzv->out, 2 * JOB_ACTIONS_MAX)) { /* one is for `job` itself */
            actions_continue(&rdzv->out);
            pass->again = true;
            break;
        }
        stop(rdzv, &rdzv->jobs[pass->victims[i]], job);
    }
    return count > 0;
}

/* Whether the job fits on the nodes there are, those apart that it does not use because they have
 * failed it. */
static bool could_fit(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    const struct queued entry = queue_entry(rdzv, job);
    uint32_t nodes = entry.nodes;

    for (uint32_t i = 0; i < job->fault_count; i++) {
        const uint16_t node = failure_excluded(rdzv, job, i);

        nodes += node != NODE_NONE && bits_count(pass->able.masks[node]) >= entry.nproc;
    }
    return pool_fits(&pass->able, nodes, entry.nproc);
}

const struct job *preempt_holder(const struct rdzv *rdzv, const struct pass *pass,
                                 const struct job *job)
{
    const struct rdzv_record *record = &job->record;
    const struct job *first =
        record->preempted_by != 0 ? job_find(rdzv, record->preempted_by) : NULL;

    if (first == NULL || !first->is_queued || first->record.generation != record->preempted_at)
        return NULL;
    return could_fit(rdzv, pass, first) ? first : NULL;
}

bool preempt_explain(struct rdzv *rdzv, struct job *job)
{
    const struct job *victim = NULL;
    uint32_t count = 0;
    char text[REASON_BYTES_MAX], title[JOB_TITLE_BYTES];

    for (uint32_t i = 0; rdzv->options.preempts && i < rdzv->live_count; i++) {
        const struct job *other = job_live(rdzv, i);

        if (other->ended || other->record.stopping == STOP_NONE ||
            other->record.preempted_by != job->record.job_id)
            continue;
        count++;
        if (victim == NULL || other->record.job_id < victim->record.job_id)
            victim = other;
    }
    if (victim == NULL)
        return false;
    if (count == 1)
        text_format(text, "takes the slots of %s, whose priority is lower: it is stopping",
                    job_title(victim, job, title));
    else
        text_format(text, "takes the slots of %u jobs whose priority is lower: they are stopping",
                    count);
    job_set_reason(rdzv, job, text);
    return true;
}
