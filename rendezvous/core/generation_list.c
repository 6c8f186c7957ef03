/* What a node lists of a generation, or does not. */
#include <stdio.h>

#include "rendezvous/core/generation.h"
#include "rendezvous/core/history.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/state.h"
#include "rendezvous/core/steps.h"

/* The node lists the part: repeats the orders that it has not carried out yet. */
void generation_listed(struct rdzv *rdzv, struct job *job, uint32_t part, enum shim_phase phase)
{
    steps_back(rdzv, job, part);
    steps_note(rdzv, job, part);
    if (phase == SHIM_ENDED)
        return; /* its report follows */
    if (job->record.stopping != STOP_NONE)
        orders_owe(rdzv, job, part, ORDER_STOP);
    else if (phase == SHIM_READY && job->go_sent)
        orders_owe(rdzv, job, part, ORDER_GO);
    else if (phase == SHIM_RUNNING && !job->gang.parts[part].has_world && parts_all_joined(job))
        orders_owe(rdzv, job, part, ORDER_WORLD);
    else if (part == 0 && parts_only_store_is_left(job))
        orders_owe(rdzv, job, 0, ORDER_STOP);
}

/* Nothing was heard of the start. */
static bool may_not_have_begun(const struct job *job, uint32_t part)
{
    return job->record.state == JOB_STARTING && !job->gang.parts[part].is_reported &&
           !parts_any_runs(job);
}

/* The lease of a part that the node could not see is over. If another server ordered the start and nothing was heard
 * of it, the end is no fault of the node. */
static void away_is_over(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    const char *node = job->record.parts[part].node;
    const bool is_unknown = !job->is_ours && may_not_have_begun(job, part);
    char cause[REASON_BYTES_MAX];

    if (is_unknown)
        text_format(cause,
                    "whether its ranks began on node %s is not known: the server was started "
                    "again then, the node does not list them, and that lease is over",
                    node);
    else
        text_format(cause,
                    "node %s does not say that its part still runs, and the lease of that is over",
                    node);
    if (is_unknown && job->record.max_restarts > 0)
        (void)generation_stop_planned(rdzv, job, cause);
    generation_part_lost(rdzv, job, part, FAILURE_NETWORK, cause);
}

/* The node does not list its part: the start order never arrived, or the shim is gone without a
 * trace. While the generation is being stopped, another stop settles it: launcherd answers a stop
 * for an unknown shim with an ended report. If an older shim is on the part's slots, it is stopped
 * before the part is started there. (Another machine may have had the node's name when the slots
 * were given out.) */
void generation_unlisted(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    const struct part_state *state = &job->gang.parts[part];
    char cause[REASON_BYTES_MAX];

    if (parts_is_over(state))
        return;
    if (state->is_away && rdzv->out.now_us < rdzv->nodes[state->node].away_until_us)
        return;
    if (state->is_away) {
        away_is_over(rdzv, job, part);
        return;
    }
    if (job->record.stopping != STOP_NONE && !state->is_reported) {
        orders_owe(rdzv, job, part, ORDER_STOP);
    } else if (rdzv->is_of_past && !job->is_ours) {
        (void)generation_stop_planned(rdzv, job, "it went on after the state that was put back");
        generation_part_lost(rdzv, job, part, FAILURE_NODE,
                             "its end is not in the state that was put back");
    } else if (may_not_have_begun(job, part)) {
        if (history_holds_start(rdzv, job))
            steps_again(rdzv, job, part);
        else if (state->node == NODE_NONE || (roster_shims_mask(&rdzv->nodes[state->node]) &
                                              job->record.parts[part].slot_mask) == 0)
            orders_owe(rdzv, job, part, ORDER_START);
    } else {
        text_format(cause, "node %s no longer knows its part of the job",
                    job->record.parts[part].node);
        generation_part_lost(rdzv, job, part, FAILURE_NODE, cause);
    }
}

void generation_away(struct job *job, uint32_t part)
{
    if (!parts_is_over(&job->gang.parts[part]))
        job->gang.parts[part].is_away = true;
}
