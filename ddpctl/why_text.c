/* The text of `ddpctl why`: the head, failures, and what follows from them. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/escape.h"
#include "ddpctl/job_lines.h"
#include "ddpctl/units.h"
#include "ddpctl/why.h"
#include "ddpctl/why_advice.h"

#define LINES_SHOWN 16 /* of a traceback, or of the last output */
#define MESSAGE_LINES_SHOWN 5u
#define OTHERS_SHOWN 4u
#define EXIT_NOT_STARTED 125 /* the launcher's own, as in `ddpctl help` */

const struct part_failure *why_shown(const struct why *why)
{
    const struct msg_why_info *info = why->info;
    uint32_t count = info->failures.count;

    for (uint32_t i = 0; why->generation != 0 && i < count; i++)
        if (info->failures.items[i].generation == why->generation)
            return &info->failures.items[i];
    return why->generation == 0 && count > 0 ? &info->failures.items[count - 1] : NULL;
}

static void add_escaped(const char *text, struct buf *out)
{
    escape_text(text, strlen(text), out);
}

/* The offset of the last line that begins with `line`; SIZE_MAX: none does. */
static size_t find_line(const char *text, const char *line)
{
    const size_t bytes = strlen(line);
    size_t found = SIZE_MAX;

    for (size_t at = 0; bytes > 0 && text[at] != '\0'; at++)
        if ((at == 0 || text[at - 1] == '\n') && strncmp(text + at, line, bytes) == 0)
            found = at;
    return found;
}

/* Writes the first lines of an exception with a message of many lines. */
static void add_exception(const char *text, struct buf *out)
{
    uint32_t lines = 0;

    for (; *text != '\0'; text += *text == '\n') {
        const size_t length = strcspn(text, "\n");

        if (lines++ < MESSAGE_LINES_SHOWN) { /* deeper than our own lines, which it could imitate */
            buf_add_text(out, lines == 1 ? "  " : "      ");
            escape_text(text, length, out);
            buf_add_text(out, "\n");
        }
        if (strncmp(text, "... and ", 8) == 0)
            lines += (uint32_t)strtoul(text + 8, NULL, 10) - 1; /* the node has left out so many */
        text += length;
    }
    if (lines > MESSAGE_LINES_SHOWN)
        buf_printf(out, "  ... and %u more lines: ddpctl logs\n", lines - MESSAGE_LINES_SHOWN);
}

/* Writes the exception first, in full, since the cause may have cut it off; then the traceback that
 * led to it. */
static void add_error(const char *error, const char *more, struct buf *out)
{
    const size_t at = find_line(error, more);

    if (at != SIZE_MAX) {
        add_exception(error + at, out);
        escape_last_lines(error, at, LINES_SHOWN, out);
        return;
    }
    if (more[0] != '\0') {
        buf_add_text(out, "  ");
        add_escaped(more, out);
        buf_add_text(out, "\n");
    }
    escape_last_lines(error, strlen(error), LINES_SHOWN, out);
}

static void seconds_text(int64_t duration_us, char text[TEXT_BYTES])
{
    if (duration_us < 10000000)
        (void)snprintf(text, TEXT_BYTES, "%.1f s", (double)duration_us / 1e6);
    else
        duration_text((uint64_t)duration_us, text);
}

static void exit_text(int32_t exit_code, uint32_t signal, struct buf *out)
{
    char name[TEXT_BYTES];

    signal_text(signal, name);
    if (signal > 0)
        buf_printf(out, "was killed by %s", name);
    else
        buf_printf(out, "exited with code %d", exit_code);
}

/* Whether the node could not start the rank: then its exit code is the launcher's, not a program's. */
static bool was_not_started(const struct part_failure *failure)
{
    return failure->rank >= 0 && failure->class == FAILURE_NODE && failure->signal == 0 &&
           failure->exit_code == EXIT_NOT_STARTED && failure->pid == 0;
}

/* "rank 3 on gpu03 exited with code 1"; the cause, if no rank failed or none was started. */
static void how_text(const struct part_failure *failure, struct buf *out)
{
    bool has_exit = failure->rank >= 0 && (failure->exit_code != 0 || failure->signal != 0) &&
                    failure->class != FAILURE_NETWORK && failure->class != FAILURE_HANG;

    if (!has_exit || failure->exit_code == 126 || failure->exit_code == 127) {
        add_escaped(failure->cause, out);
        return;
    }
    buf_printf(out, "rank %d on %s ", failure->rank, failure->node);
    if (was_not_started(failure))
        buf_add_text(out, "was not started");
    else
        exit_text(failure->exit_code, failure->signal, out);
    if (failure->oom)
        buf_add_text(out, " by the kernel for want of memory");
}

/* What the cause says beyond how the rank ended: "RuntimeError: ...". */
static const char *cause_more(const struct part_failure *failure)
{
    const char *colon = strstr(failure->cause, ": ");

    return failure->rank >= 0 && failure->class != FAILURE_HANG && colon != NULL ? colon + 2 : "";
}

void why_failure_line(const struct part_failure *failure, struct buf *out)
{
    char after[TEXT_BYTES];

    how_text(failure, out);
    if (failure->ran_us >= 0) {
        seconds_text(failure->ran_us, after);
        buf_printf(out, " after %s", after);
    }
    if (failure->step > 0)
        buf_printf(out, ", step %llu", (unsigned long long)failure->step);
}

void why_line(const struct msg_why_info *info, struct buf *out)
{
    const struct part_job *job = &info->jobs.items[0];
    const struct part_failure *failure;

    if (info->failures.count == 0)
        return;
    failure = &info->failures.items[info->failures.count - 1];
    if (job->state == JOB_FAILED ? failure->generation != job->generation
                                 : job->state != JOB_RESTARTING)
        return;
    why_failure_line(failure, out);
    if (cause_more(failure)[0] != '\0') {
        buf_add_text(out, ": ");
        add_escaped(cause_more(failure), out);
    }
    if (failure->decision[0] != '\0') {
        buf_add_text(out, "; ");
        add_escaped(failure->decision, out);
    }
}

/* Names ranks that ended early with code 0: the other ranks may have waited for them. */
static void left_line(const struct part_failure *failure, struct buf *out)
{
    if (failure->left == 1)
        buf_printf(out, "  rank %d had ended before, with code 0: did the others wait for it?\n",
                   failure->left_rank);
    else if (failure->left > 1)
        buf_printf(out, "  rank %d and %u more had ended before, with code 0\n", failure->left_rank,
                   failure->left - 1);
}

static void others_lines(const struct why *why, const struct part_failure *failure, struct buf *out)
{
    const struct msg_why_info *info = why->info;
    uint32_t shown = 0, all_stopped = failure->stopped;
    char after[TEXT_BYTES];

    for (uint32_t i = 0; info->ranks_of == failure->generation && i < info->ranks.count; i++) {
        const struct part_failed_rank *rank = &info->ranks.items[i];

        if ((int32_t)rank->rank == failure->rank || shown == OTHERS_SHOWN)
            continue;
        shown++;
        buf_printf(out, "  rank %u on %s ", rank->rank, rank->node);
        if (was_not_started(failure) && rank->exit_code == EXIT_NOT_STARTED && rank->signal == 0)
            buf_add_text(out, "was not started either");
        else
            exit_text(rank->exit_code, rank->signal, out);
        seconds_text(rank->after_us, after);
        if (rank->after_us >= 0)
            buf_printf(out, " %s later", after);
        buf_add_text(out, "\n");
    }
    if (failure->failed_too > shown)
        buf_printf(out, "  %u%s rank%s failed too\n", failure->failed_too - shown,
                   shown > 0 ? " more" : " other", failure->failed_too - shown == 1 ? "" : "s");
    if (failure->rank < 0 && failure->lost == 0 && all_stopped > 0) /* there are no others */
        buf_printf(out, "  its %u rank%s stopped because of it\n", all_stopped,
                   all_stopped == 1 ? " was" : "s were");
    else if (all_stopped == 1)
        buf_add_text(out, "  one other rank was stopped because of it\n");
    else if (all_stopped > 1)
        buf_printf(out, "  the other %u ranks were stopped because of it\n", all_stopped);
    if (failure->lost > 0)
        buf_printf(out, "  nobody saw the end of %u %srank%s\n", failure->lost,
                   failure->rank >= 0 ? "other " : "", failure->lost == 1 ? "" : "s");
}

static void step_line(const struct part_failure *failure, struct buf *out)
{
    unsigned long long step = failure->step, checkpoint = failure->checkpoint_step;

    if (step == 0 && checkpoint == 0 && failure->resumed_step == 0)
        return;
    buf_printf(out, "  at step %llu", step);
    if (checkpoint > 0)
        buf_printf(out, ", newest checkpoint at step %llu", checkpoint);
    if (failure->resumed_step > 0)
        buf_printf(out, "; it had resumed from step %llu",
                   (unsigned long long)failure->resumed_step);
    buf_add_text(out, "\n");
}

static void advice_line(const struct part_failure *failure, struct buf *out)
{
    const char *advice = why_advice(failure);

    if (advice != NULL)
        buf_printf(out, "  hint: %s\n", advice);
}

/* Where the ranks of a hung generation stood. */
static void stacks_lines(const char *stacks, struct buf *out)
{
    if (stacks[0] == '\0')
        return;
    buf_add_text(out, "  where the ranks stood:\n");
    while (*stacks != '\0') {
        const size_t length = strcspn(stacks, "\n");

        buf_add_text(out, "    ");
        escape_text(stacks, length, out);
        buf_add_text(out, "\n");
        stacks += length + (stacks[length] == '\n');
    }
}

static void more_commands(const struct why *why, const struct part_failure *failure,
                          struct buf *out)
{
    unsigned long long id = why->info->jobs.items[0].job_id;

    if (failure->rank >= 0 && !was_not_started(failure))
        buf_printf(out, "  full output: ddpctl logs %llu -g %u --rank %d\n", id,
                   failure->generation, failure->rank);
}

/* Everything about one failure, below its first line. */
static void failure_body(const struct why *why, const struct part_failure *failure, struct buf *out)
{
    const char *more = cause_more(failure);
    char after[TEXT_BYTES];

    if (failure->error[0] != '\0' || more[0] != '\0')
        add_error(failure->error, more, out);
    if (failure->error[0] == '\0' && failure->tail[0] != '\0') {
        buf_add_text(out, "  its last lines:\n");
        escape_last_lines(failure->tail, strlen(failure->tail), LINES_SHOWN, out);
    }
    if (failure->core[0] != '\0') {
        buf_add_text(out, "  core file: ");
        add_escaped(failure->core, out);
        buf_add_text(out, "\n");
    }
    seconds_text(failure->ran_us, after);
    if (failure->ran_us >= 0)
        buf_printf(out, "  %s after all ranks had started\n", after);
    step_line(failure, out);
    left_line(failure, out);
    if (failure->class == FAILURE_HANG)
        stacks_lines(failure->stacks, out);
    others_lines(why, failure, out);
    if (failure->decision[0] != '\0') {
        buf_add_text(out, "  ");
        add_escaped(failure->decision, out);
        buf_add_text(out, "\n");
    }
    advice_line(failure, out);
    more_commands(why, failure, out);
}

/* Whether failures before this one may have been dropped. A generation without a failure that is kept
 * may just as well have ended as planned, so nobody knows how many. */
static bool may_lack(const struct msg_why_info *info, uint32_t i)
{
    return info->failures.count == FAILURES_KEPT_MAX && i == FAILURES_FIRST_MAX &&
           info->failures.items[i].generation > info->failures.items[i - 1].generation + 1;
}

/* One line for each failure but the one that was shown. */
static void other_failures(const struct why *why, const struct part_failure *shown, struct buf *out)
{
    const struct msg_why_info *info = why->info;
    bool has_head = false;

    for (uint32_t i = 0; i < info->failures.count; i++) {
        const struct part_failure *failure = &info->failures.items[i];

        if (failure == shown)
            continue;
        if (!has_head)
            buf_add_text(out, shown != NULL ? "  other failures of this job:\n"
                                            : "  failures of this job:\n");
        has_head = true;
        if (may_lack(info, i))
            buf_printf(out, "    ... the first %u and the newest %u are kept\n", FAILURES_FIRST_MAX,
                       FAILURES_KEPT_MAX - FAILURES_FIRST_MAX);
        buf_printf(out, "    generation %u: ", failure->generation);
        why_failure_line(failure, out);
        if (cause_more(failure)[0] != '\0') {
            buf_add_text(out, ": ");
            add_escaped(cause_more(failure), out);
        }
        buf_add_text(out, "\n");
    }
}

static void head(const struct part_job *job, const struct output_style *style, struct buf *out)
{
    bool is_bad = job->state == JOB_FAILED || job->state == JOB_RESTARTING;
    char id[JOB_LINE_ID_BYTES];

    job_line_id(job, id);
    buf_printf(out, "%s (%s) %s%s%s", job->name, id, style->color && is_bad ? "\x1b[31m" : "",
               job_state_name(job->state), style->color && is_bad ? "\x1b[0m" : "");
}

static void failed_text(const struct why *why, const struct part_failure *failure, struct buf *out)
{
    const struct part_job *job = &why->info->jobs.items[0];
    char alone[TEXT_BYTES];

    if (failure == NULL || (why->generation == 0 && failure->generation != job->generation)) {
        buf_add_text(out, ": ");
        add_escaped(job->reason, out);
        buf_add_text(out, "\n");
        other_failures(why, NULL, out);
        return;
    }
    buf_add_text(out, ": ");
    how_text(failure, out);
    seconds_text(failure->alone_us, alone);
    if (failure->alone_us >= 0)
        buf_printf(out, ", %s before any other rank", alone);
    buf_add_text(out, "\n");
    failure_body(why, failure, out);
    other_failures(why, failure, out);
}

static void asked_text(const struct why *why, const struct part_failure *failure, struct buf *out)
{
    buf_printf(out, ", generation %u", why->generation);
    if (failure != NULL) {
        buf_add_text(out, ": ");
        how_text(failure, out);
        buf_add_text(out, "\n");
        failure_body(why, failure, out);
        return;
    }
    buf_add_text(out, ": no failure of it is kept\n");
    other_failures(why, NULL, out);
}

/* For a job that has failed, and whose ranks have not all ended yet. */
static void stopping_text(const struct why *why, const struct part_failure *failure,
                          struct buf *out)
{
    buf_printf(out, ", generation %u is being stopped: ", failure->generation);
    how_text(failure, out);
    buf_add_text(out, "\n");
    failure_body(why, failure, out);
    other_failures(why, failure, out);
}

static void restarting_text(const struct why *why, const struct part_failure *failure,
                            struct buf *out)
{
    const struct part_job *job = &why->info->jobs.items[0];

    if (job->reason[0] != '\0') {
        buf_add_text(out, ": ");
        add_escaped(job->reason, out);
    }
    buf_add_text(out, "\n");
    if (failure != NULL) {
        buf_printf(out, "  generation %u failed: ", failure->generation);
        how_text(failure, out);
        buf_add_text(out, "\n");
        failure_body(why, failure, out);
    }
    why_waits_text(why, out);
    other_failures(why, failure, out);
}

static void ended_well_text(const struct why *why, struct buf *out)
{
    const struct part_job *job = &why->info->jobs.items[0];
    char took[TEXT_BYTES], at[TEXT_BYTES];

    if (job->state == JOB_CANCELLED) {
        time_text(job->ended_ms, at);
        if (why->cancel != NULL) {
            time_text(why->cancel->at_ms, at);
            buf_add_text(out, ": ");
            add_escaped(why->cancel->text, out);
            if (strncmp(job->reason, "cancelled; ", 11) == 0) /* and what may still run */
                add_escaped(job->reason + 9, out);
        } else if (job->reason[0] != '\0' && strcmp(job->reason, "cancelled") != 0) {
            buf_add_text(out, ": "); /* nobody asked: another job has failed */
            add_escaped(job->reason, out);
        }
        buf_printf(out, ", %s", at);
    } else if (job->started_ms > 0) {
        duration_text((uint64_t)(job->ended_ms - job->started_ms) * 1000, took);
        buf_printf(out, " after %s, %u restart%s", took, job->restarts,
                   job->restarts == 1 ? "" : "s");
    }
    buf_add_text(out, "\n");
    other_failures(why, NULL, out);
}

void why_text(const struct why *why, const struct output_style *style, struct buf *out)
{
    const struct part_failure *failure = why_shown(why);
    const struct part_job *job = &why->info->jobs.items[0];

    assert(why->info->jobs.count == 1);
    head(job, style, out);
    if (why->generation != 0)
        asked_text(why, failure, out);
    else if (job->state == JOB_FAILED)
        failed_text(why, failure, out);
    else if (job->state == JOB_RESTARTING)
        restarting_text(why, failure, out);
    else if (!job->ended && failure != NULL && failure->generation == job->generation)
        stopping_text(why, failure, out);
    else if (job->ended)
        ended_well_text(why, out);
    else {
        why_live_text(why, out);
        other_failures(why, NULL, out);
    }
    if (why->unkept != NULL) {
        buf_add_text(out, "  ");
        add_escaped(why->unkept->text, out);
        buf_add_text(out, "\n");
    }
    for (uint32_t i = 0; i < why->unknown_count; i++) {
        buf_add_text(out, "  not known: ");
        add_escaped(why->unknown[i], out);
        buf_add_text(out, "\n");
    }
}
