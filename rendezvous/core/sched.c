#include "rendezvous/core/sched.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/after.h"
#include "rendezvous/core/elastic.h"
#include "rendezvous/core/explain.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/history.h"
#include "rendezvous/core/preempt.h"
#include "rendezvous/core/spares.h"
#include "rendezvous/core/state.h"

/* What a queued job was last told, so that it is not told again. */
enum told {
    TOLD_NOTHING,
    TOLD_QUOTA,
    TOLD_MANY,
    TOLD_SETTLING,
    TOLD_MEMORY,
    TOLD_AFTER,
    TOLD_LINGER,
    TOLD_ARRAY,
    TOLD_PREEMPTED,
    TOLD_HELD,
    TOLD_BEHIND /* plus the reservation's serial */
};

/* A job has a part on these slots. */
static void take_part(struct pass *pass, uint32_t node, uint64_t mask)
{
    pool_take(&pass->free, node, mask);
    pool_take(&pass->open, node, mask);
    pool_take(&pass->soon, node, mask);
}

static void count_slots(struct rdzv *rdzv, struct pass *pass)
{
    uint64_t(*slot_ends)[SLOTS_PER_NODE_MAX] = pass->slot_ends;

    memset(pass, 0, offsetof(struct pass, best));
    pass->slot_ends = slot_ends;
    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        uint32_t node = rdzv->by_name[i];

        pool_put(&pass->free, node, rdzv->views[node].offer);
        pool_put(&pass->able, node, rdzv->views[node].able);
        pool_put(&pass->soon, node, roster_soon_mask(rdzv, &rdzv->nodes[node]));
        if (rdzv->spares_on[node].count > 0)
            take_part(pass, node, spare_table_mask(rdzv, node));
    }
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        const struct job *job = job_live(rdzv, i);

        for (uint32_t k = 0; !job->ended && k < job->record.part_count; k++)
            if (job->gang.parts[k].node !=
                NODE_NONE) /* lost parts too: the job's record still lists their slots */
                take_part(pass, job->gang.parts[k].node, job->record.parts[k].slot_mask);
    }
}

/* While a restarting job waits for its next try, the slots of its last generation are held for
 * it. */
static void hold(struct rdzv *rdzv, struct pass *pass, const struct job *job, uint64_t until_us)
{
    for (uint32_t i = 0; i < job->last.part_count; i++) {
        const struct node *node = roster_find(rdzv, job->last.places[i].node);
        uint64_t mask = job->last.places[i].slot_mask;

        if (node == NULL || failure_excludes(rdzv, job, roster_index(rdzv, node)))
            continue;
        pass->held[roster_index(rdzv, node)] |= mask;
        take_part(pass, roster_index(rdzv, node), mask);
    }
    pass->has_held = true;
    if (until_us < rdzv->sched_at_us)
        rdzv->sched_at_us = until_us;
}

static void tell(struct rdzv *rdzv, struct pass *pass, struct queued *entry, uint32_t what)
{
    struct job *job = &rdzv->jobs[entry->job];

    if (what >= TOLD_BEHIND && pass->reasons++ >= REASONS_MAX)
        what = TOLD_MANY;
    if (entry->told == what)
        return;
    entry->told = what;
    if (what == TOLD_QUOTA)
        explain_quota(rdzv, job);
    else if (what == TOLD_MANY)
        explain_many(rdzv, job);
    else if (what == TOLD_SETTLING)
        explain_settling(rdzv, job);
    else if (what == TOLD_MEMORY)
        explain_memory(rdzv, job);
    else if (what == TOLD_AFTER)
        explain_after(rdzv, job);
    else if (what == TOLD_LINGER)
        explain_linger(rdzv, job);
    else if (what == TOLD_ARRAY)
        explain_array(rdzv, job);
    else if (what == TOLD_PREEMPTED)
        explain_preempted(rdzv, job);
    else if (what == TOLD_HELD)
        explain_held(rdzv, job);
    else
        explain_behind(rdzv, job);
}

/* True: the job has started. False: there is no memory for its ranks; its reason says so. */
static bool start(struct rdzv *rdzv, struct pass *pass, struct queued *entry,
                  const struct pool *pool)
{
    struct job *job = &rdzv->jobs[entry->job];
    uint32_t nodes = elastic_choose(rdzv, pass, entry, pool);
    struct gang gang;

    if (!job_gang_new(rdzv, &gang, nodes, nodes * job->record.nproc_per_node)) {
        tell(rdzv, pass, entry, TOLD_MEMORY);
        pass->is_out_of_memory = true;
        return false;
    }
    place_job(rdzv, pool, job, nodes, gang.places);
    generation_start(rdzv, job, &gang);
    spares_started(rdzv, job);
    pass->again = pass->again || pass->has_preempted; /* may have waited for this one */
    pass->array_active += pass->array_job != 0 && job->record.array_job == pass->array_job;
    for (uint32_t i = 0; i < gang.part_count; i++)
        take_part(pass, gang.parts[i].node, gang.places[i].slot_mask);
    return true;
}

/* Whether a job with this time limit, started now, ends before the reservation's time. */
static bool is_over_before(const struct rdzv *rdzv, const struct job *job)
{
    const struct rdzv_record *record = &job->record;

    return record->time_limit_us != 0 && rdzv->reservation.start_us != UINT64_MAX &&
           rdzv->out.now_us + START_ALLOWANCE_US + record->time_limit_us + record->grace_us <=
               rdzv->reservation.start_us;
}

/* True: the job has started on slots that the first job that waits does not need. */
static bool try_behind(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    struct job *job = &rdzv->jobs[entry->job];

    if (pool_fits(&pass->open, entry->nodes, entry->nproc))
        return start(rdzv, pass, entry, &pass->open);
    if (!pool_fits(&pass->free, entry->nodes, entry->nproc) || !is_over_before(rdzv, job))
        return false;
    if (!start(rdzv, pass, entry, &pass->free))
        return false;
    generation_limit(rdzv, job, rdzv->out.now_us + START_ALLOWANCE_US + job->record.time_limit_us);
    return true;
}

/* Whether the job would exceed its user's quota. The first job that waits has its share of that
 * quota reserved. */
static bool is_over_quota(const struct rdzv *rdzv, const struct pass *pass,
                          const struct queued *entry)
{
    uint64_t wanted = (uint64_t)entry->nodes * entry->nproc;

    if (pass->is_blocked && entry->user == pass->first_user && entry->job_id != pass->first.job_id)
        wanted += pass->first_slots;
    return rdzv->options.max_slots_per_user != 0 && entry->user != USER_NONE &&
           !entry->is_restarting &&
           rdzv->users[entry->user].slots + wanted > rdzv->options.max_slots_per_user;
}

static void wait_settled(struct rdzv *rdzv, struct pass *pass)
{
    pass->is_settling = true;
    if (rdzv->settled_at_us < rdzv->sched_at_us)
        rdzv->sched_at_us = rdzv->settled_at_us;
}

/* The job cannot start: it becomes the first that waits, or it is one that holds nobody up. */
static void block(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    struct job *job = &rdzv->jobs[entry->job];

    entry->told = TOLD_NOTHING;
    pass->reasons++;
    if (reserve(rdzv, job)) {
        if (preempt_for(rdzv, pass, job))
            (void)reserve(rdzv, job); /* the other jobs' slots are free soon */
        pass->is_blocked = true;
        pass->first = *entry;
        pass->first_user = entry->user;
        pass->first_slots = entry->is_restarting ? 0 : (uint32_t)entry->nodes * entry->nproc;
        pass->open = pass->free;
        for (uint32_t i = 0; i < rdzv->reservation.part_count; i++)
            pool_take(&pass->open, rdzv->reservation.parts[i].node,
                      rdzv->reservation.parts[i].mask);
    } else if (rdzv->out.now_us < rdzv->settled_at_us) {
        wait_settled(rdzv, pass);
    }
    if (!preempt_explain(rdzv, job))
        explain_blocked(rdzv, pass, job);
}

/* If a job cannot start on free slots and its spares together, it gives up its spares so that they
 * hold up nobody: the next pass gives them out in the order of the queue. */
static void give_up_spares(struct rdzv *rdzv, struct pass *pass, struct job *job)
{
    if (job->spare_count == 0)
        return;
    spares_take_back(rdzv, pass, job);
    spare_table_remove_all(rdzv, job);
    pass->again = true;
}

/* True: the job has started. Called in its turn, when neither a retry time nor a limit holds it
 * back. */
static bool try_start(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    if (pass->is_blocked) {
        bool has_started = try_behind(rdzv, pass, entry);

        if (!has_started && !pass->is_out_of_memory) {
            give_up_spares(rdzv, pass, &rdzv->jobs[entry->job]);
            tell(rdzv, pass, entry, TOLD_BEHIND + rdzv->reservation.serial);
        }
        return has_started;
    }
    if (!pool_fits(&pass->free, entry->nodes, entry->nproc)) {
        give_up_spares(rdzv, pass, &rdzv->jobs[entry->job]);
        block(rdzv, pass, entry);
        return false;
    }
    if (!start(rdzv, pass, entry, &pass->free))
        return false;
    reserve_nothing(rdzv); /* it may have taken slots reserved for a later job */
    return true;
}

/* The same for a job with excluded nodes: their slots are out of the pools meanwhile. */
static bool try_start_elsewhere(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    const struct job *job = &rdzv->jobs[entry->job];
    uint64_t until_us = failure_excluded_until(rdzv, job);
    uint64_t free[NODE_FAULTS_MAX], open[NODE_FAULTS_MAX];
    uint16_t nodes[NODE_FAULTS_MAX];
    uint32_t count = 0;
    bool was_blocked = pass->is_blocked, has_started;

    for (uint32_t i = 0; i < job->fault_count; i++) {
        nodes[count] = failure_excluded(rdzv, job, i);
        if (nodes[count] == NODE_NONE)
            continue;
        free[count] = pass->free.masks[nodes[count]];
        open[count] = pass->open.masks[nodes[count]];
        pool_take(&pass->free, nodes[count], free[count]);
        pool_take(&pass->open, nodes[count], open[count]);
        count++;
    }
    has_started = try_start(rdzv, pass, entry);
    for (uint32_t i = 0; i < count; i++) {
        pool_put(&pass->free, nodes[i], free[i]);
        pool_put(&pass->open, nodes[i], pass->is_blocked && !was_blocked ? free[i] : open[i]);
    }
    if (!has_started && until_us < rdzv->sched_at_us)
        rdzv->sched_at_us = until_us;
    return has_started;
}

/* Whether the array has as many active jobs as it may. Jobs of an array are adjacent in the queue,
 * so each array is counted once in a pass. */
static bool is_array_full(const struct rdzv *rdzv, struct pass *pass, const struct job *job)
{
    if (job->record.array_at_most == 0 || job->record.state == JOB_RESTARTING)
        return false;
    if (pass->array_job != job->record.array_job) {
        pass->array_job = job->record.array_job;
        pass->array_active = after_array_active(rdzv, job, &pass->array_lingering);
        pass->array_active += pass->array_lingering;
    }
    return pass->array_active >= job->record.array_at_most;
}

/* Whether a job that was preempted must wait for the one that has preempted it: not while that one is
 * passed over for another reason than slots. */
static bool is_held(struct rdzv *rdzv, struct pass *pass, const struct job *job)
{
    const struct job *holder = preempt_holder(rdzv, pass, job);
    struct queued entry;

    if (holder == NULL)
        return false;
    entry = queue_entry(rdzv, holder);
    return !is_over_quota(rdzv, pass, &entry) && !is_array_full(rdzv, pass, holder);
}

/* True: it waits for other jobs, or has ended because of one of them. */
static bool has_to_wait(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    struct job *job = &rdzv->jobs[entry->job];

    switch (after_ask(rdzv, job)) {
    case AFTER_WAITS:
        if (job->record.tail[0] != '\0')
            entry->told = TOLD_NOTHING; /* reset the reason: they end one by one */
        tell(rdzv, pass, entry, TOLD_AFTER);
        return true;
    case AFTER_LINGERS:
        entry->told = TOLD_NOTHING; /* reset the reason: the time may be another one */
        tell(rdzv, pass, entry, TOLD_LINGER);
        return true;
    case AFTER_NEVER:
        job_end(rdzv, job, JOB_CANCELLED, 125, 0, true);
        pass->again = true;
        return true;
    case AFTER_READY:
        break;
    }
    if (is_held(rdzv, pass, job)) {
        tell(rdzv, pass, entry, TOLD_PREEMPTED);
        pass->has_preempted = true;
        return true;
    }
    if (!is_array_full(rdzv, pass, job))
        return false;
    tell(rdzv, pass, entry,
         pass->array_active - pass->array_lingering < job->record.array_at_most ? TOLD_LINGER
                                                                                : TOLD_ARRAY);
    return true;
}

/* True: it may run on a node that has not called yet, and holds nobody up meanwhile. */
static bool is_of_past(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    uint64_t until_us;

    if (!history_holds(rdzv, &rdzv->jobs[entry->job], &until_us))
        return false;
    tell(rdzv, pass, entry, TOLD_HELD);
    if (until_us < rdzv->sched_at_us)
        rdzv->sched_at_us = until_us;
    return true;
}

/* True: it has started, or ended, and is no longer in the queue. */
static bool consider(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    struct job *job = &rdzv->jobs[entry->job];

    pass->is_out_of_memory = false;
    if (entry->has_conditions && has_to_wait(rdzv, pass, entry))
        return !job->is_queued;
    if (is_of_past(rdzv, pass, entry))
        return false;
    if (entry->is_restarting && rdzv->out.now_us < job->retry_at_us) {
        hold(rdzv, pass, job, job->retry_at_us);
        return false;
    }
    if (elastic_waits(rdzv, pass, job)) {
        hold(rdzv, pass, job, job->more_until_us);
        return false;
    }
    if (is_over_quota(rdzv, pass, entry)) {
        tell(rdzv, pass, entry, TOLD_QUOTA);
        return false;
    }
    if (elastic_is(&job->record) && rdzv->out.now_us < rdzv->settled_at_us &&
        !pool_fits(&pass->free, job->record.nodes_max, entry->nproc))
        wait_settled(rdzv, pass);
    if (pass->is_settling) {
        tell(rdzv, pass, entry, TOLD_SETTLING);
        return false;
    }
    return job->fault_count > 0 ? try_start_elsewhere(rdzv, pass, entry)
                                : try_start(rdzv, pass, entry);
}

/* The same, with the job's spares added to the free slots. */
static bool consider_with_spares(struct rdzv *rdzv, struct pass *pass, struct queued *entry)
{
    const struct job *job = &rdzv->jobs[entry->job];
    bool has_left;

    spares_lend(rdzv, pass, job);
    has_left = consider(rdzv, pass, entry);
    spares_take_back(rdzv, pass, job);
    return has_left;
}

void sched_newcomer(struct rdzv *rdzv, const struct job *job)
{
    if (rdzv->sched_new != NEWCOMER_NONE)
        rdzv->sched_due = true;
    rdzv->sched_new = (uint32_t)(job - rdzv->jobs);
}

/* Whether the last pass's results decide about this job without looking at any other. */
static bool is_alone(const struct pass *pass, const struct queued *entry)
{
    return pass->is_complete && !pass->has_held && !pass->is_settling &&
           (!pass->is_blocked || queue_is_before(&pass->first, entry));
}

/* False: no room was left. */
static bool run_pass(struct rdzv *rdzv)
{
    uint32_t i = 0;

    rdzv->sched_at_us = UINT64_MAX;
    spares_review(rdzv);
    count_slots(rdzv, rdzv->pass);
    while (i < rdzv->queue_count) {
        if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            return false;
        i += !consider_with_spares(rdzv, rdzv->pass, &rdzv->queue[i]);
    }
    if (!rdzv->pass->is_blocked)
        reserve_nothing(rdzv);
    rdzv->pass->is_complete = true;
    return elastic_stop(rdzv, rdzv->pass) && spares_seek(rdzv, rdzv->pass) && !rdzv->pass->again;
}

/* False: no room was left. */
static bool run_newcomer(struct rdzv *rdzv)
{
    const struct job *job = &rdzv->jobs[rdzv->sched_new];
    struct queued *entry = job->is_queued ? queue_find(rdzv, job) : NULL;

    if (entry == NULL || !is_alone(rdzv->pass, entry))
        return run_pass(rdzv);
    if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
        return false;
    rdzv->pass->array_job = 0;
    rdzv->pass->again = false;
    (void)consider_with_spares(rdzv, rdzv->pass, entry);
    return spares_seek(rdzv, rdzv->pass) && !rdzv->pass->again;
}

/* True: no job could use what has changed. The slots are counted only when a job asks: every node
 * of a large job that starts or ends changes them, and each count looks at all nodes. */
static bool is_idle(const struct rdzv *rdzv)
{
    return rdzv->queue_count == 0 && rdzv->sched_new == NEWCOMER_NONE && elastic_is_idle(rdzv) &&
           rdzv->spare_jobs == 0;
}

void sched_run(struct rdzv *rdzv)
{
    bool is_due = rdzv->sched_due || rdzv->out.now_us >= rdzv->sched_at_us;

    if (is_due && is_idle(rdzv)) {
        rdzv->pass->is_complete = false;
        reserve_nothing(rdzv);
        rdzv->sched_due = is_due = false;
        rdzv->sched_at_us = UINT64_MAX;
    }
    if (is_due || rdzv->sched_new != NEWCOMER_NONE) {
        if (!(is_due ? run_pass(rdzv) : run_newcomer(rdzv))) {
            rdzv->sched_due = true;
            actions_continue(&rdzv->out);
            return;
        }
        rdzv->sched_due = false;
        rdzv->sched_new = NEWCOMER_NONE;
    }
    if (rdzv->sched_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->sched_at_us);
}
