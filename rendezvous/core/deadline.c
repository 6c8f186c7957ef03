#include "rendezvous/core/deadline.h"

#include <stdio.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/state.h"
#include "rendezvous/core/steps.h"

#define LATE_WORDS (NODES_PER_JOB_MAX / 64u)
#define EVERY_US 500000u /* parts that are due within this time are looked at together */

/* A node that has not been heard for longer than suspect_us is silent or away: whether it is lost is for the roster to say.
 * One that has just lost its connection is neither: it may call and lose it again for ever, and carry out nothing. */
static bool is_heard(const struct rdzv *rdzv, const struct part_state *state)
{
    const struct node *node = state->node == NODE_NONE ? NULL : &rdzv->nodes[state->node];

    return node != NULL && node->has_beat && node->state != NODE_LOST &&
           rdzv->out.now_us < node->beat_at_us + rdzv->options.suspect_us;
}

/* A launcherd that does not know the part gets no orders for it, so it lets none pass, and its word about the ranks is
 * worth nothing: the part waits for the lease of the one that got it (generation_unlisted), unless no rank can have
 * begun, or all have ended. */
static bool must_wait(const struct job *job, const struct part_state *state)
{
    return state->is_away && !fence_has_no_worker(job) && state->step != STEP_STORE;
}

static bool is_due(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const struct part_state *state = &job->gang.parts[part];

    return steps_due_us(job, part) <= rdzv->out.now_us && is_heard(rdzv, state) &&
           !must_wait(job, state);
}

/* What the node has not done. */
static const char *describe_step(enum part_step step)
{
    switch (step) {
    case STEP_TAKE:
        return "did not take its start order";
    case STEP_PREPARE:
        return "did not prepare its part";
    case STEP_RUN:
        return "did not start its ranks after the go";
    case STEP_WORLD:
        return "did not pass on to its ranks where rank 0 is";
    case STEP_STORE:
    case STEP_STOP:
        return "did not carry out a stop";
    case STEP_WAIT:
    case STEP_WORK:
    case STEP_OVER:
        break;
    }
    assert(false);
    return "";
}

/* "node n2 did not prepare its part within 45 s" */
static void describe(const struct rdzv *rdzv, const struct job *job, uint32_t part, uint32_t count,
                     char text[REASON_BYTES_MAX])
{
    const struct part_state *state = &job->gang.parts[part];
    const struct node *node = &rdzv->nodes[state->node];
    char others[32] = "", hint[128] = "";

    if (count > 1)
        (void)snprintf(others, sizeof others, ", and %u more nodes,", count - 1);
    if (node->trouble.reconnects > 0)
        (void)snprintf(hint, sizeof hint,
                       ", and has connected again %u times: small messages arrive, large ones may "
                       "be lost on the way",
                       node->trouble.reconnects);
    text_format(text, "node %.60s%s %s within %llu s, although it %s up%s", node->name, others,
                describe_step((enum part_step)state->step),
                (unsigned long long)(rdzv->out.now_us / 1000000 - state->step_at_s),
                node->conn != 0 || node->trouble.reconnects > 0 ? "is" : "was", hint);
}

/* What the node has not done is shown with it: "did not take its start order of job 7 within 30 s" */
static void note_trouble(struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const struct part_state *state = &job->gang.parts[part];
    struct node *node = &rdzv->nodes[state->node];
    char text[REASON_BYTES_MAX];

    text_format(text, "job %llu: it %s within %llu s%s", (unsigned long long)job->record.job_id,
                describe_step((enum part_step)state->step),
                (unsigned long long)(rdzv->out.now_us / 1000000 - state->step_at_s),
                node->trouble.reconnects > 0 ? ", and its connection does not hold" : "");
    trouble_overdue(&node->trouble, text);
}

/* Before the go no rank can run, so the part is over at once; a shim that comes yet is stopped. An order that is
 * still in flight must not arrive after one for the next generation, so it goes with its connection. */
static void give_up(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause)
{
    struct node *node = &rdzv->nodes[job->gang.parts[part].node];
    const bool lists = roster_lists(node, job->record.job_id, job->record.generation);

    fence_note(rdzv, job, node);
    generation_part_lost(rdzv, job, part, FAILURE_NODE, cause);
    if (!lists && node->conn != 0 &&
        actions_have_room(&rdzv->out, NODE_ACTIONS_MAX + JOB_ACTIONS_MAX))
        roster_drop(rdzv, node, "an order of this connection was not carried out in time");
}

/* Marks the parts that are overdue, and keeps the job away from their nodes. Returns how many. */
static uint32_t mark_late(struct rdzv *rdzv, struct job *job, uint64_t late[LATE_WORDS])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->record.part_count; i++) {
        if (!is_due(rdzv, job, i) || job->gang.parts[i].is_away)
            continue;
        late[i / 64] |= 1ull << i % 64;
        count++;
        note_trouble(rdzv, job, i);
        failure_late(rdzv, job, job->record.parts[i].node);
    }
    return count;
}

/* `first`: the first part that is overdue. */
static void fail_start(struct rdzv *rdzv, struct job *job, uint32_t first)
{
    const enum part_step step = (enum part_step)job->gang.parts[first].step;
    uint64_t late[LATE_WORDS] = {0};
    char cause[REASON_BYTES_MAX];

    describe(rdzv, job, first, mark_late(rdzv, job, late), cause);
    if (step != STEP_TAKE && (step != STEP_PREPARE || !fence_has_no_worker(job))) {
        generation_part_failed(rdzv, job, first, FAILURE_NODE, cause);
        return;
    }
    for (uint32_t i = first; i < job->record.part_count; i++) /* the last one may end it */
        if ((late[i / 64] >> i % 64 & 1) != 0)
            give_up(rdzv, job, i, cause);
}

static void stop_is_late(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    char text[REASON_BYTES_MAX];

    describe(rdzv, job, part, 1, text);
    note_trouble(rdzv, job, part);
    if (job->record.stopping == STOP_NONE) {
        job_log(rdzv, job, text);
        generation_store_left(rdzv, job);
        return;
    }
    if (fence_has_no_worker(job)) {
        job_log(rdzv, job, text);
        give_up(rdzv, job, part, text);
        return;
    }
    job->gang.parts[part].is_late = true;
    text_format(job->silent,
                "%.170s: the job waits, as ranks may run there; ending its launcherd lets the "
                "node count as lost",
                text);
    job_log(rdzv, job, job->silent);
    job_set_changed(rdzv, job);
}

/* Nobody is to blame: who got the orders has no connection, and who has one got none. */
static void away_is_late(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    char cause[REASON_BYTES_MAX];

    text_format(cause,
                "node %s does not know its part of the job, and does not say whether it is the "
                "launcherd that got it",
                job->record.parts[part].node);
    if (job->gang.parts[part].step == STEP_STORE) {
        job_log(rdzv, job, cause);
        generation_store_left(rdzv, job);
        return;
    }
    if (job->record.stopping != STOP_NONE)
        job_log(rdzv, job, cause);
    generation_part_lost(rdzv, job, part, FAILURE_NETWORK, cause);
}

/* Deals with what is overdue in one job. Returns when to look again; UINT64_MAX: never. */
static uint64_t check_job(struct rdzv *rdzv, struct job *job)
{
    uint64_t at_us = UINT64_MAX;

    for (uint32_t i = 0; i < job->record.part_count; i++) {
        const uint64_t due_us = steps_due_us(job, i);

        if (!is_due(rdzv, job, i)) {
            at_us = due_us < at_us ? due_us : at_us;
            continue;
        }
        if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            return rdzv->out.now_us;
        if (job->gang.parts[i].is_away)
            away_is_late(rdzv, job, i);
        else if (job->record.stopping == STOP_NONE && job->gang.parts[i].step != STEP_STORE)
            fail_start(rdzv, job, i);
        else
            stop_is_late(rdzv, job, i);
        return rdzv->out.now_us; /* others of it may be overdue, and jobs have moved in the list */
    }
    return at_us;
}

void deadline_tick(struct rdzv *rdzv)
{
    const uint64_t now_us = rdzv->out.now_us;
    uint64_t at_us = UINT64_MAX;

    for (uint32_t i = 0; now_us >= rdzv->step_at_us && i < rdzv->live_count; i++) {
        const uint64_t job_at_us = check_job(rdzv, job_live(rdzv, i));

        at_us = job_at_us < at_us ? job_at_us : at_us;
    }
    if (now_us >= rdzv->step_at_us)
        rdzv->step_at_us = at_us < now_us + EVERY_US ? now_us + EVERY_US : at_us;
    if (rdzv->step_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->step_at_us);
}
