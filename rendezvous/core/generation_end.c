#include "rendezvous/core/generation_end.h"

#include <stdio.h>

#include "rendezvous/core/after.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/failure_alike.h"
#include "rendezvous/core/failure_note.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/linger.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/restart.h"
#include "rendezvous/core/state.h"

#define EXIT_TIME_LIMIT 124
#define EXIT_OURS 125

/* Keeps the ended generation in `last`. FORGETs of an older generation that have not left are
 * dropped: its nodes go on listing its shims, and are answered then (reconcile.c). */
static void keep_ended(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_PERSIST_RANKS);

    gang_free(&rdzv->blocks, &job->last);
    job->ended_generation = job->record.generation;
    job->last = job->gang;
    job->gang = (struct gang){0};
    job->record.part_count = 0;
    job->record.parts = NULL;
    action->job_id = job->record.job_id;
    action->generation = job->record.generation;
}

/* No process of the generation is left on any node that can be reached: its shims may be forgotten,
 * and its slots are free. */
static void close_generation(struct rdzv *rdzv, struct job *job)
{
    assert(parts_all_over(job));
    keep_ended(rdzv, job);
    for (uint32_t i = 0; i < job->last.part_count; i++) {
        const struct part_state *part = &job->last.parts[i];

        if (part->is_lost)
            continue;
        assert(part->phase == SHIM_ENDED);
        roster_part_remove(rdzv, part->node, job);
        roster_phase(rdzv, &rdzv->nodes[part->node], job->record.job_id, job->record.generation,
                     SHIM_ENDED);
        orders_owe(rdzv, job, i, ORDER_FORGET);
    }
    job->record.stopping = STOP_NONE;
    job->limit_at_us = UINT64_MAX;
    job->record.limit_at_ms = 0;
    rdzv->sched_due = true;
}

void job_end(struct rdzv *rdzv, struct job *job, enum job_state state, int32_t exit_code,
             uint32_t signal, bool is_ours)
{
    assert(!job->ended && rdzv_state_is_final(state));
    fence_drop(rdzv, job);
    linger_end(rdzv, job);
    queue_remove(rdzv, job);
    spare_table_end(rdzv, job);
    if (job->record.part_count > 0)
        close_generation(rdzv, job);
    job->record.exit_code = signal != 0 ? (int32_t)(128 + signal) : exit_code;
    job->record.signal = signal;
    job->record.exit_is_ours = is_ours;
    job->record.ended_ms = rdzv->out.wall_ms;
    job->ended = true;
    rdzv->ended_count++;
    job_set_state(rdzv, job, state);
    users_count(rdzv, job);
    after_ended(rdzv, job);
}

/* The job waits for its next generation. `is_queued`: in the queue without slots, like jobs that
 * have not run yet. */
static void start_again(struct rdzv *rdzv, struct job *job, uint64_t delay_us, bool is_queued)
{
    job->retry_at_us = rdzv->out.now_us + delay_us;
    if (fence_wait(rdzv, job))
        is_queued = false;
    if (is_queued)
        spare_table_remove_all(rdzv, job);
    job->record.retry_at_ms =
        rdzv->out.wall_ms + (int64_t)((job->retry_at_us - rdzv->out.now_us) / 1000);
    job_set_state(rdzv, job, is_queued ? JOB_QUEUED : JOB_RESTARTING);
    queue_add(rdzv, job);
}

/* The next restart waits longer than usual, or again and again: the reason says when it comes. */
static void explain_restart(const struct rdzv *rdzv, struct job *job, bool is_alike,
                            const struct restart_answer *answer)
{
    struct rdzv_record *record = &job->record;
    const unsigned long long delay_s = (answer->delay_us + 999999) / 1000000;
    char text[REASON_BYTES_MAX];

    if (is_alike)
        text_format(text,
                    "three times in a row the same: restart %u of --max-restarts %u follows after "
                    "%llu s, since they are spread over a minute",
                    record->restarts_without_progress + 1, record->max_restarts, delay_s);
    else if (failure_is_alone(rdzv, job) && answer->delay_us > 0)
        text_format(text, "no other node can run it: it is tried again after %llu s", delay_s);
    else
        return;
    failure_explain(record, text);
}

/* How long ago the first of the equal failures came. The wall clock may have been set since. */
static uint64_t alike_us(const struct rdzv *rdzv, const struct rdzv_record *record)
{
    const int64_t ms = rdzv->out.wall_ms - record->alike_ms;

    return ms <= 0 ? 0 : (uint64_t)ms * 1000;
}

/* After a failure: restarts the job or ends it. The job's exit code is that of the rank that failed
 * first, or 125 if no rank failed (a lost node, a start order that cannot be made). */
static void conclude_failure(struct rdzv *rdzv, struct job *job)
{
    struct restart_case failed;
    struct restart_answer answer;
    char alike[REASON_BYTES_MAX], not_again[REASON_BYTES_MAX];
    bool is_alike, goes_elsewhere;

    failure_count(rdzv, job);
    goes_elsewhere = failure_goes_elsewhere(rdzv, job);
    is_alike = failure_early(rdzv, job, alike) || failure_same(rdzv, job, alike);
    if (is_alike)
        text_format(not_again, "%s: not tried again (--max-restarts %u)", alike,
                    job->record.max_restarts);
    failed = (struct restart_case){
        .class = job->record.failed_class,
        .max_restarts = job->record.max_restarts,
        .node_failures = job->record.node_failures,
        .no_node_left = job->record.running_ms == 0 &&
                        (rdzv->options.is_one_machine || !job->record.waits_for_nodes) &&
                        !failure_leaves_nodes(rdzv, job),
        .restarts_without_progress = job->record.restarts_without_progress,
        .errno_exit = job->record.errno_exit,
        .no_program = failure_is_for_want_of_program(&job->record),
        .goes_elsewhere = goes_elsewhere,
        .cannot_start = job->record.cannot_start,
        .alike = is_alike ? not_again : NULL,
        .alike_us = alike_us(rdzv, &job->record),
        .is_given = job->record.restarts_given,
    };
    answer = restart_decide(&failed, &rdzv->random);
    if (answer.restart)
        explain_restart(rdzv, job, is_alike, &answer);
    else if (answer.why_not == not_again)
        failure_explain(&job->record, not_again);
    failure_note_end(rdzv, job, &answer);
    if (!answer.restart) {
        action_log(&rdzv->out, job->record.job_id, job->record.generation, "not restarted: %s",
                   answer.why_not);
        job_end(rdzv, job, JOB_FAILED, job->record.failed_exit, job->record.failed_signal,
                job->record.errno_exit != 0 || job->record.failed_rank < 0 ||
                    job->record.failed_class == FAILURE_HANG ||
                    (job->record.failed_class == FAILURE_NODE &&
                     job->record.failed_exit == EXIT_OURS)); /* a rank that was not started */
        return;
    }
    close_generation(rdzv, job);
    start_again(rdzv, job, answer.delay_us, false);
    failure_note_fence(rdzv, job, answer.delay_us);
}

/* Whether the job is done although it was being stopped. Ranks that ended on the signal do not
 * count, whatever their exit code: a program may exit 0 once it has written its checkpoint. */
static bool is_done(const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (!parts_all_succeeded(job, i))
            return false;
    return true;
}

static void conclude_planned(struct rdzv *rdzv, struct job *job)
{
    if (is_done(job)) {
        job_end(rdzv, job, JOB_SUCCEEDED, 0, 0, false);
        return;
    }
    close_generation(rdzv, job);
    job->record.planned = true;
    start_again(rdzv, job, 0, job->record.preempted_by != 0);
}

/* Puts the job back into the queue, behind those that wait already: with its old place no other job
 * would get a turn. */
static void requeue(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    char text[REASON_BYTES_MAX];

    text_format(text,
                "the time limit of %llu s is over: it is queued again, and goes on from the "
                "checkpoint of step %llu",
                (unsigned long long)(record->time_limit_us / 1000000),
                (unsigned long long)record->checkpoint_step);
    job_log(rdzv, job, text);
    (void)snprintf(record->reason, sizeof record->reason, "%s", text);
    close_generation(rdzv, job);
    record->limited_step = record->checkpoint_step;
    record->requeued_ms = rdzv->out.wall_ms;
    record->planned = true;
    record->preempted_by = 0;
    start_again(rdzv, job, 0, true);
}

static void conclude_time(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;

    if (record->requeue_at_limit && is_done(job)) {
        job_end(rdzv, job, JOB_SUCCEEDED, 0, 0, false);
        return;
    }
    if (record->requeue_at_limit && record->checkpoint_step > record->limited_step) {
        requeue(rdzv, job);
        return;
    }
    if (record->requeue_at_limit && record->limited_step > 0)
        text_format(record->reason,
                    "the time limit of %llu s is over, and no checkpoint is newer than when it was "
                    "over before (step %llu): not queued again",
                    (unsigned long long)(record->time_limit_us / 1000000),
                    (unsigned long long)record->limited_step);
    else if (record->requeue_at_limit)
        text_format(record->reason,
                    "the time limit of %llu s is over without a checkpoint: not queued again",
                    (unsigned long long)(record->time_limit_us / 1000000));
    job_end(rdzv, job, JOB_FAILED, EXIT_TIME_LIMIT, 0, true);
}

void generation_conclude(struct rdzv *rdzv, struct job *job)
{
    if (job->record.cancel_wanted) {
        if (job->note.failure.generation == job->record.generation)
            failure_note_end(rdzv, job,
                             &(struct restart_answer){.why_not = "the job was cancelled"});
        job_end(rdzv, job, JOB_CANCELLED, EXIT_OURS, 0, true);
        return;
    }
    switch ((enum stop_cause)job->record.stopping) {
    case STOP_NONE:
        job_end(rdzv, job, JOB_SUCCEEDED, 0, 0, false);
        break;
    case STOP_FAILURE:
        conclude_failure(rdzv, job);
        break;
    case STOP_CANCEL:
        job_end(rdzv, job, JOB_CANCELLED, EXIT_OURS, 0, true);
        break;
    case STOP_TIME:
        conclude_time(rdzv, job);
        break;
    case STOP_PLANNED:
        conclude_planned(rdzv, job);
        break;
    }
}
