#include "rendezvous/core/failure_note.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/failure_alike.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/history.h"
#include "rendezvous/core/state.h"

static uint32_t low_ms(uint64_t at_us)
{
    uint32_t at_ms = (uint32_t)(at_us / 1000);

    return at_ms == 0 ? 1 : at_ms;
}

void failure_note_rank(const struct rdzv *rdzv, struct job *job, uint32_t rank, uint64_t age_us)
{
    uint64_t now_us = rdzv->out.now_us;

    job->gang.ranks[rank].failed_ms = low_ms(now_us > age_us ? now_us - age_us : 0);
}

static const char *keep(char *to, size_t byte_count, const char *text)
{
    (void)snprintf(to, byte_count, "%s", text);
    return to;
}

/* The part that the rank belongs to; NULL: none. */
static const struct rdzv_part *part_of(const struct rdzv_record *record, int32_t rank)
{
    for (uint32_t i = 0; rank >= 0 && i < record->part_count; i++)
        if ((uint32_t)rank - record->parts[i].rank_base < record->parts[i].local_count)
            return &record->parts[i];
    return NULL;
}

static void take_rank(const struct job *job, struct part_failure *failure)
{
    const struct rdzv_part *part = part_of(&job->record, failure->rank);
    const struct rdzv_rank *rank;

    if (part == NULL)
        return;
    rank = &job->gang.ranks[failure->rank];
    failure->local_rank = (uint32_t)failure->rank - part->rank_base;
    failure->pid = rank->pid;
    failure->exit_code = rank->exit_code;
    failure->signal = rank->signal;
}

/* How long all ranks had run when the failure came; -1: they never all ran. */
static int64_t ran_us(const struct job *job)
{
    if (job->running_at_us == UINT64_MAX)
        return -1;
    return job->failed_at_us > job->running_at_us
               ? (int64_t)(job->failed_at_us - job->running_at_us)
               : 0;
}

void failure_note_cause(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report)
{
    const struct rdzv_record *record = &job->record;
    struct failure_note *note = &job->note;
    uint64_t age_us = rdzv->out.now_us - job->failed_at_us;

    note->failure = (struct part_failure){
        .generation = record->generation,
        .failed_ms = rdzv->out.wall_ms - (int64_t)(age_us / 1000),
        .ran_us = ran_us(job),
        .alone_us = -1,
        .left_rank = -1,
        .class = (enum failure_class)record->failed_class,
        .rank = record->failed_rank,
        .exit_code = record->failed_exit,
        .node = keep(note->node, sizeof note->node, record->failed_node),
        .cause = keep(note->cause, sizeof note->cause, record->reason),
        .oom = report != NULL && report->failed_oom,
        .core = keep(note->core, sizeof note->core, report != NULL ? report->failed_core : ""),
        .decision = keep(note->decision, sizeof note->decision, ""),
        .tail = record->tail,
        .error = report != NULL ? report->error : "",
        .stacks = "",
        .step = record->step,
        .resumed_step = record->resumed_step,
        .checkpoint_step = record->checkpoint_step,
        .world = job_world(job),
    };
    if (note->failure.failed_ms < 0)
        note->failure.failed_ms = 0;
    job->exception_mark = job->failed_by_peer ? 0 : failure_exception_mark(note->failure.error);
    take_rank(job, &note->failure);
    note->is_restored = false;
    note->is_dirty = true;
    job_set_dirty(rdzv, job);
}

/* Drops pointers into the report of an earlier step. Its content has been stored. */
static void drop_borrowed(struct failure_note *note)
{
    if (!note->is_dirty)
        note->failure.error = note->failure.stacks = NULL;
}

void failure_note_more(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report)
{
    struct failure_note *note = &job->note;

    if (note->failure.generation != job->record.generation ||
        report->failed_rank != note->failure.rank)
        return;
    drop_borrowed(note);
    take_rank(job, &note->failure);
    note->failure.oom = note->failure.oom || report->failed_oom;
    if (report->failed_core[0] != '\0')
        note->failure.core = keep(note->core, sizeof note->core, report->failed_core);
    if (report->error[0] != '\0') {
        note->failure.error = report->error;
        job->exception_mark = job->failed_by_peer ? 0 : failure_exception_mark(report->error);
    }
    note->is_dirty = true;
    job_set_dirty(rdzv, job);
}

/* This server was started after the failure: fills the note from the record. The store has the rest
 * of the cause. */
static void restore(struct rdzv *rdzv, struct job *job)
{
    job->failed_at_us = rdzv->out.now_us;
    failure_note_cause(rdzv, job, NULL);
    job->note.failure.error = job->note.failure.stacks = job->note.failure.core = NULL;
    job->note.is_restored = true;
}

static void count_ranks(const struct job *job, struct part_failure *failure)
{
    uint32_t first_ms = low_ms(job->failed_at_us);

    failure->failed_too = failure->stopped = failure->lost = failure->left = 0;
    failure->left_rank = -1;
    failure->alone_us = -1;
    for (uint32_t i = 0; i < job_world(job); i++) {
        const struct rdzv_rank *rank = &job->gang.ranks[i];
        int64_t after_us = (int64_t)(int32_t)(rank->failed_ms - first_ms) * 1000;

        failure->stopped += rank->state == RANK_STOPPED;
        failure->lost += rank->state == RANK_LOST && !fence_has_no_worker(job);
        if ((int32_t)i == failure->rank || rank->state != RANK_EXITED)
            continue;
        if (rank->exit_code == 0 && rank->signal == 0) {
            failure->left_rank = failure->left++ == 0 ? (int32_t)i : failure->left_rank;
            continue;
        }
        failure->failed_too++;
        if (rank->failed_ms != 0 && after_us >= 0 &&
            (failure->alone_us < 0 || after_us < failure->alone_us))
            failure->alone_us = after_us;
    }
}

/* "restarted at once (restart 1 of 3)", "not restarted: ..." */
static void write_decision(const struct rdzv *rdzv, const struct job *job,
                           const struct restart_answer *answer, char text[REASON_BYTES_MAX])
{
    const struct rdzv_record *record = &job->record;
    char when[64] = "at once", more[REASON_BYTES_MAX] = "";
    uint64_t until_us = 0;

    if (!answer->restart) {
        text_format(text, "not restarted: %s", answer->why_not);
        return;
    }
    if (history_holds(rdzv, job, &until_us) && until_us > rdzv->out.now_us + answer->delay_us)
        (void)snprintf(when, sizeof when, "when earlier leases are over: %llu s at most",
                       (unsigned long long)((until_us - rdzv->out.now_us + 999999) / 1000000));
    else if (answer->delay_us > 0)
        (void)snprintf(when, sizeof when, "after %llu.%llu s",
                       (unsigned long long)(answer->delay_us / 1000000),
                       (unsigned long long)(answer->delay_us / 100000 % 10));
    if (failure_is_program(record->failed_class))
        text_format(more, " (restart %u of %u)", record->restarts_without_progress + 1,
                    record->max_restarts);
    else if (record->failed_class == FAILURE_NODE && job->fault_count > 0 &&
             job->faults[job->fault_count - 1].failures >= EXCLUDE_FAILURES)
        text_format(more, "; the job does not use node %s for %llu minutes",
                    job->faults[job->fault_count - 1].node,
                    (unsigned long long)(EXCLUDE_US / 60000000));
    else
        text_format(more, " (--max-restarts does not count it)");
    text_format(text, "restarted %s%s", when, more);
}

void failure_note_end(struct rdzv *rdzv, struct job *job, const struct restart_answer *answer)
{
    struct failure_note *note = &job->note;

    if (note->failure.generation != job->record.generation)
        restore(rdzv, job);
    drop_borrowed(note);
    note->failure.class = (enum failure_class)job->record.failed_class;
    write_decision(rdzv, job, answer, note->decision);
    count_ranks(job, &note->failure);
    note->is_dirty = true;
    job_set_dirty(rdzv, job);
}

void failure_note_fence(struct rdzv *rdzv, struct job *job, uint64_t delay_us)
{
    if (!job->is_fenced && job->retry_at_us <= rdzv->out.now_us + delay_us)
        return;
    text_format(job->note.decision,
                "restarted once the lost node's lease is over, as its ranks may run until then: "
                "%llu s at most",
                (unsigned long long)((job->retry_at_us - rdzv->out.now_us + 999999) / 1000000));
}
