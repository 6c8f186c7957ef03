#include "rendezvous/core/pace.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/generation.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/state.h"

#define EVERY_US 500000u  /* jobs that are due within this time are judged together */
#define LOOK_US 15000000u /* the edge answers within 10 s; the answer may be lost */
#define LATE_BEATS 3u     /* a beat is late after this many intervals and LATE_MORE_US */
#define LATE_MORE_US 1000000u

static bool is_watched(const struct job *job)
{
    return !job->ended && job->record.state == JOB_RUNNING && job->record.part_count > 0 &&
           job->record.stopping == STOP_NONE && job->running_at_us != UINT64_MAX &&
           !parts_only_store_is_left(job);
}

/* -- what ranks report ----------------------------------------------------------------------------- */

static const struct rdzv_part *part_of(const struct rdzv_record *record, uint32_t rank)
{
    uint32_t low = 0, high = record->part_count;

    while (low + 1 < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (record->parts[middle].rank_base <= rank)
            low = middle;
        else
            high = middle;
    }
    return &record->parts[low];
}

bool straggler_find(const struct job *job, struct straggler *out)
{
    return is_watched(job) && straggler_worst(&job->pace, job->gang.paces, job_world(job), out);
}

/* "rank 3 on gpu02: 182.0 ms of its own for a step, the others 120.0 ms; data: 66.0 ms, the others 4.0 ms; since
 * 80 steps after the start of the generation" */
static void describe_slow(const struct job *job, const struct straggler *slow,
                          char text[REASON_BYTES_MAX])
{
    text_format(
        text,
        "rank %u on %s: %.1f ms of its own for a step, the others %.1f ms; %s: %.1f ms, the "
        "others %.1f ms; since %llu steps after the start of the generation",
        slow->rank, part_of(&job->record, slow->rank)->node, slow->own_us / 1e3,
        slow->median_us / 1e3, straggler_part_name(slow->part), slow->part_us / 1e3,
        slow->part_median_us / 1e3, (unsigned long long)slow->since_step);
}

static void tell_news(struct rdzv *rdzv, struct job *job, uint32_t rank, enum straggler_news news)
{
    struct straggler slow;
    char text[REASON_BYTES_MAX];

    if (news == STRAGGLER_BEGINS) {
        straggler_describe(&job->pace, job->gang.paces, rank, &slow);
        describe_slow(job, &slow, text);
        action_log(&rdzv->out, job->record.job_id, job->record.generation, "straggler: %s", text);
    } else if (news == STRAGGLER_ENDS) {
        action_log(&rdzv->out, job->record.job_id, job->record.generation,
                   "rank %u on %s is no straggler any more", rank,
                   part_of(&job->record, rank)->node);
    }
    job->slow[0] = '\0';
    if (straggler_find(job, &slow))
        describe_slow(job, &slow, job->slow);
}

/* Notes that the generation reports steps, so that a restarted server knows it even if no step
 * comes any more. */
static void note_told(struct rdzv *rdzv, struct job *job)
{
    if (!job->hang.has_step || job->record.told_generation == job->record.generation)
        return;
    job->record.told_generation = job->record.generation;
    job_set_dirty(rdzv, job);
}

bool pace_progress(struct rdzv *rdzv, struct job *job, uint32_t rank,
                   const struct msg_progress *progress)
{
    const struct straggler_totals totals = {
        .steps = progress->timed_steps,
        .step_us = progress->step_us,
        .data_us = progress->data_us,
        .compute_us = progress->compute_us,
        .update_us = progress->update_us,
        .wait_us = progress->wait_us,
    };
    const bool was_slow = job->pace.slow_count > 0;
    const bool moves = hang_told(&job->hang, &job->gang.told[rank], progress, rdzv->out.now_us);
    enum straggler_news news;

    note_told(rdzv, job);
    news = straggler_step(&job->pace, job->gang.paces, job_world(job), rank, &totals,
                          rdzv->out.now_us);
    if (news != STRAGGLER_NOTHING || was_slow)
        tell_news(rdzv, job, rank, news);
    if (job->hang.stage == HANG_WATCHED && rdzv->out.now_us + EVERY_US < rdzv->pace_at_us &&
        job->hang.due_us == UINT64_MAX) { /* its first report */
        job->hang.due_us = rdzv->out.now_us + EVERY_US;
        rdzv->pace_at_us = job->hang.due_us;
    }
    return moves;
}

/* -- time in which nothing could be heard ----------------------------------------------------------- */

bool pace_is_late(const struct rdzv *rdzv, const struct node *node)
{
    return node->has_beat && rdzv->out.now_us > node->beat_at_us + LATE_MORE_US +
                                                    LATE_BEATS * rdzv->options.beat_interval_us;
}

void pace_heard_again(struct rdzv *rdzv, const struct node *node)
{
    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;

        hang_begin_anew(&roster_part(rdzv, node, i, &part)->hang, rdzv->out.now_us);
    }
}

void pace_paused(struct rdzv *rdzv)
{
    rdzv->heard_since_us = rdzv->out.now_us;
}

/* A launcherd that does not know the part passes on nothing of it (part_state.is_away). Nor does a shim that does not
 * answer its launcherd (is_silent): its ranks may work, and what they tell waits in it. */
static bool all_are_heard(const struct rdzv *rdzv, const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++) {
        const struct part_state *part = &job->gang.parts[i];
        const struct node *node =
            part->node == NODE_NONE || part->is_lost ? NULL : &rdzv->nodes[part->node];

        if (node == NULL || node->conn == 0 || node->state != NODE_UP || part->is_away ||
            part->is_silent || pace_is_late(rdzv, node))
            return false;
    }
    return true;
}

/* -- judging ----------------------------------------------------------------------------------- */

static struct hang_doubt judge(const struct rdzv *rdzv, struct job *job)
{
    const struct rdzv_options *options = &rdzv->options;
    const struct hang_limits limits = {
        .least_us = options->hang_least_us != 0 ? options->hang_least_us : HANG_LEAST_US,
        .first_us = options->hang_first_us != 0 ? options->hang_first_us : HANG_FIRST_US,
        .timeout_us = job->record.hang_timeout_us};
    const uint64_t now_us = rdzv->out.now_us;

    if (!all_are_heard(rdzv, job))
        hang_begin_anew(&job->hang, now_us);
    if (job->hang.floor_us < rdzv->heard_since_us)
        hang_begin_anew(&job->hang, rdzv->heard_since_us);
    if (job->hang.floor_us < job->running_at_us)
        job->hang.floor_us = job->running_at_us;
    if (job->record.told_generation == job->record.generation)
        job->hang.has_told = job->hang.has_step = true; /* also if an earlier server received it */
    return hang_judge(&job->hang, job->gang.told, job->gang.ranks, job_world(job), &limits, now_us);
}

static void ask(struct rdzv *rdzv, struct job *job, bool with_stacks)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_LOOK);

    action->job_id = job->record.job_id;
    action->generation = job->record.generation;
    action->with_stacks = with_stacks;
    job->hang.stage = with_stacks ? HANG_ASKED_STACKS : HANG_ASKED_IDLE;
    job->hang.due_us = rdzv->out.now_us + LOOK_US;
}

static void describe_why(const struct job *job, const struct hang_doubt *doubt, uint64_t now_us,
                         char text[REASON_BYTES_MAX])
{
    const unsigned long long seconds = (now_us - doubt->since_us) / 1000000;

    switch (doubt->why) {
    case HANG_NOT:
    case HANG_STEPS:
        text_format(text, "no step for %llu s after step %llu", seconds,
                    (unsigned long long)job->hang.step);
        return;
    case HANG_FIRST:
        text_format(text, "no first step for %llu s", seconds);
        return;
    case HANG_PHASE:
        text_format(text,
                    "no step for %llu s: a validation, a checkpoint or its end takes too long",
                    seconds);
        return;
    case HANG_SILENT:
        text_format(text, "rank %d has told nothing for %llu s", doubt->rank, seconds);
        return;
    case HANG_IDLE:
        text_format(text, "all ranks idle for %llu s (--hang-timeout)", seconds);
        return;
    }
}

/* If nothing else singles out a rank, blames the one that the rule names. */
static void blame_doubted(const struct job *job, const struct hang_doubt *doubt,
                          struct hang_blame *blame)
{
    if (blame->count > 0 || doubt->rank < 0)
        return;
    *blame = (struct hang_blame){.reason = doubt->why == HANG_SILENT ? HANG_QUIET : HANG_STEP,
                                 .rank = doubt->rank,
                                 .count = 1,
                                 .its = job->gang.told[doubt->rank].step,
                                 .others = job->hang.step,
                                 .where = job->gang.told[doubt->rank].doing};
}

static void end_hung(struct rdzv *rdzv, struct job *job, const struct hang_doubt *doubt,
                     const struct rdzv_event *event)
{
    struct hang_blame blame;
    char why[REASON_BYTES_MAX], whom[REASON_BYTES_MAX], cause[REASON_BYTES_MAX];
    uint32_t look_count = event != NULL ? event->look_count : 0;

    hang_blame(job->gang.told, job->gang.ranks, job_world(job), event != NULL ? event->looks : NULL,
               look_count, rdzv->out.now_us, &blame);
    if (blame.rank >= (int32_t)job_world(job))
        blame = (struct hang_blame){.rank = -1, .where = ""};
    blame_doubted(job, doubt, &blame);
    describe_why(job, doubt, rdzv->out.now_us, why);
    hang_describe(&blame, blame.rank < 0 ? "" : part_of(&job->record, (uint32_t)blame.rank)->node,
                  job_world(job), whom);
    text_format(cause, "hang: %.100s; %.150s", why, whom);
    generation_hang(rdzv, job, blame.rank, cause,
                    event != NULL && event->text != NULL ? event->text : "");
}

/* Handles the answers of the nodes. `event` NULL: they did not come in time. */
static void take_answer(struct rdzv *rdzv, struct job *job, const struct rdzv_event *event)
{
    const enum hang_stage stage = job->hang.stage;
    const bool idles = event != NULL && event->all_answered && !event->is_busy;
    struct hang_doubt doubt;

    job->hang.stage = HANG_WATCHED;
    if (event != NULL && event->is_deaf)
        hang_begin_anew(&job->hang, rdzv->out.now_us);
    doubt = judge(rdzv, job);
    job->hang.due_us = doubt.next_us;
    if (doubt.why == HANG_NOT)
        return;
    if (stage == HANG_ASKED_STACKS && doubt.is_over) {
        end_hung(rdzv, job, &doubt, event);
        return;
    }
    if (stage == HANG_ASKED_IDLE)
        hang_heard_idle(&job->hang, &doubt, idles, rdzv->out.now_us);
}

void pace_looked(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct job *job = job_find(rdzv, event->job_id);

    if (job == NULL || !is_watched(job) || job->record.generation != event->generation ||
        job->hang.stage == HANG_WATCHED)
        return;
    take_answer(rdzv, job, event);
    if (job->hang.due_us < rdzv->pace_at_us)
        rdzv->pace_at_us = job->hang.due_us;
}

static void judge_due(struct rdzv *rdzv, struct job *job)
{
    struct hang_doubt doubt;

    if (job->hang.stage != HANG_WATCHED) {
        take_answer(rdzv, job, NULL);
        return;
    }
    doubt = judge(rdzv, job);
    if (doubt.why == HANG_NOT)
        job->hang.due_us = doubt.next_us;
    else
        ask(rdzv, job, doubt.is_over);
}

void pace_tick(struct rdzv *rdzv)
{
    const uint64_t now_us = rdzv->out.now_us;
    uint64_t at_us = UINT64_MAX;

    for (uint32_t i = 0; now_us >= rdzv->pace_at_us && i < rdzv->live_count; i++) {
        struct job *job = job_live(rdzv, i);

        if (!is_watched(job))
            continue;
        if (job->hang.due_us <= now_us && actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            judge_due(rdzv, job);
        if (is_watched(job) && job->hang.due_us < at_us)
            at_us = job->hang.due_us;
    }
    if (now_us >= rdzv->pace_at_us)
        rdzv->pace_at_us = at_us < now_us + EVERY_US ? now_us + EVERY_US : at_us;
    if (rdzv->pace_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->pace_at_us);
}
