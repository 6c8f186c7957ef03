/* Which plans are timed in a start, and for how long: those whose runs take the most time of a step first, so that the
 * first seconds bring the most. What has been timed is in the cache at once: a process that is killed loses one plan's
 * times, and the next start goes on with the next plan. */
#include <stdlib.h>

#include "common/io/mono.h"
#include "worker/backend/cuda/plans/internal.h"

struct cost {
    uint32_t plan;
    double us;
};

/* The costliest first; equal ones in the order of the layers, so that every process agrees. */
static int compare(const void *a, const void *b)
{
    const struct cost *first = a, *second = b;

    if (first->us != second->us)
        return first->us > second->us ? -1 : 1;
    return first->plan < second->plan ? -1 : first->plan > second->plan;
}

static bool lacks_time(const struct plan *plan)
{
    return plan->info.status == STATUS_OK && plan->candidate_count > 0 && plan->info.time_us <= 0;
}

/* The plans without a time. Returns how many. */
static uint32_t list_untimed(const struct plan_set *set, struct cost *costs)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < set->order_count; i++) {
        const struct plan *plan = &set->plans[set->order[i]];

        if (lacks_time(plan))
            costs[count++] =
                (struct cost){set->order[i], plan_cost_us(&plan->request) * plan->uses};
    }
    qsort(costs, count, sizeof *costs, compare);
    return count;
}

static void report(const struct plan_set *set, uint32_t done, uint32_t total)
{
    if (set->progress != NULL)
        set->progress(set->note_user, PLAN_TIMING, done, total);
}

/* Without memory for its operands the plan keeps its first engine; a later start may have the memory. */
static enum status time_plan(struct plan_set *set, struct plan_watch *watch, struct plan *plan,
                             struct err *err)
{
    enum status status = plan_watch_fit(watch, set, plan, err);

    if (status == STATUS_OK)
        plan_propose(set, plan, set->candidates);
    if (status == STATUS_OK)
        status = plan_watch_fit(watch, set, plan, err); /* with the candidates' workspaces */
    if (status == STATUS_OK)
        status = plan_time(watch, set, plan, err);
    if (status == STATUS_OK) {
        set->counts.tuned++;
        set->counts.timed += plan->candidate_count;
        plan_keep(set, plan);
    }
    plan_drop_others(set, plan);
    return status == STATUS_MEMORY ? STATUS_OK : status;
}

static enum status time_some(struct plan_set *set, const struct cost *costs, uint32_t count,
                             struct err *err)
{
    const uint64_t begun_us = mono_us();
    struct plan_watch *watch = NULL;
    enum status status = plan_watch_open(&watch, err);

    for (uint32_t i = 0; i < count && status == STATUS_OK; i++) {
        report(set, i, count);
        status = time_plan(set, watch, &set->plans[costs[i].plan], err);
        if (mono_us() - begun_us >= set->tune_us && set->tune_us != PLAN_TUNE_ALL)
            break;
    }
    plan_watch_close(&watch, set);
    set->counts.tune_us = mono_us() - begun_us;
    report(set, set->counts.tuned, count);
    return status;
}

enum status plan_choose(struct plan_set *set, struct err *err)
{
    const bool is_cold = set->counts.built > 0;
    struct cost *costs;
    enum status status = STATUS_OK;

    if (!plan_set_times(set))
        return STATUS_OK;
    costs = calloc((size_t)set->order_count + 1, sizeof *costs);
    if (costs == NULL)
        return err_set(err, STATUS_MEMORY, 0, "plans: out of memory");
    set->counts.untimed = list_untimed(set, costs);
    set->counts.may_time = set->may_tune && set->tune_us > 0 && (!is_cold || set->tunes_cold);
    if (set->counts.may_time && set->counts.untimed > 0)
        status = time_some(set, costs, set->counts.untimed, err);
    set->counts.untimed = list_untimed(set, costs);
    free(costs);
    return status;
}
