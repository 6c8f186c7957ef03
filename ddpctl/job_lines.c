#include "ddpctl/job_lines.h"

#include <stdio.h>
#include <string.h>

#define STATES (JOB_CANCELLED + 1)

static void add_text(char *out, size_t bytes, const char *text)
{
    const size_t used = strlen(out);

    (void)snprintf(out + used, bytes - used, "%s", text);
}

void job_line_id(const struct part_job *job, char out[JOB_LINE_ID_BYTES])
{
    if (job->array_job != 0)
        (void)snprintf(out, JOB_LINE_ID_BYTES, "%llu_%u", (unsigned long long)job->array_job,
                       job->array_index);
    else
        (void)snprintf(out, JOB_LINE_ID_BYTES, "%llu", (unsigned long long)job->job_id);
}

/* Writes "12_[0-2,7]"; a list that does not fit ends with "...]". */
static void format_ids(const struct part_job *jobs, uint32_t count, char out[JOB_LINE_ID_BYTES])
{
    char range[32];

    (void)snprintf(out, JOB_LINE_ID_BYTES, "%llu_[", (unsigned long long)jobs[0].array_job);
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1;
             next < count && jobs[next].array_index == jobs[next - 1].array_index + 1;)
            next++;
        if (next == i + 1)
            (void)snprintf(range, sizeof range, "%s%u", i > 0 ? "," : "", jobs[i].array_index);
        else
            (void)snprintf(range, sizeof range, "%s%u-%u", i > 0 ? "," : "", jobs[i].array_index,
                           jobs[next - 1].array_index);
        if (strlen(out) + strlen(range) + 6 > JOB_LINE_ID_BYTES) {
            add_text(out, JOB_LINE_ID_BYTES, ",...");
            break;
        }
        add_text(out, JOB_LINE_ID_BYTES, range);
    }
    add_text(out, JOB_LINE_ID_BYTES, "]");
}

/* "2 running, 8 queued: waits for ..."; the reason is that of the first queued job. */
static void format_note(const struct part_job *jobs, uint32_t count, struct job_line *line)
{
    static const enum job_state order[] = {JOB_RUNNING,   JOB_STARTING, JOB_RESTARTING, JOB_QUEUED,
                                           JOB_SUCCEEDED, JOB_FAILED,   JOB_CANCELLED};
    uint32_t counts[STATES] = {0};
    const char *reason = "";
    char text[64];

    for (uint32_t i = 0; i < count; i++) {
        if (jobs[i].state == JOB_QUEUED && counts[JOB_QUEUED] == 0)
            reason = jobs[i].reason;
        counts[jobs[i].state]++;
    }
    for (size_t i = sizeof order / sizeof order[0]; i-- > 0;)
        if (counts[order[i]] > 0)
            line->job.state = order[i]; /* ends with the first state of `order` that a job has */
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (counts[order[i]] == 0)
            continue;
        (void)snprintf(text, sizeof text, "%s%u %s", line->note[0] ? ", " : "", counts[order[i]],
                       job_state_name(order[i]));
        add_text(line->note, sizeof line->note, text);
    }
    if (reason[0] != '\0') {
        add_text(line->note, sizeof line->note, ": ");
        add_text(line->note, sizeof line->note, reason);
    }
}

static void fold(const struct part_job *jobs, uint32_t count, struct job_line *line)
{
    uint64_t ranks = 0, running = 0;

    for (uint32_t i = 0; i < count; i++) {
        ranks += (uint64_t)jobs[i].nodes * jobs[i].nproc_per_node;
        running += jobs[i].ranks_running;
        if (jobs[i].started_ms != 0 &&
            (line->job.started_ms == 0 || jobs[i].started_ms < line->job.started_ms))
            line->job.started_ms = jobs[i].started_ms;
    }
    format_ids(jobs, count, line->id);
    format_note(jobs, count, line);
    line->job.ended_ms = 0;
    line->job.nodes = (uint32_t)ranks;
    line->job.nproc_per_node = 1;
    line->job.ranks_running = (uint32_t)running;
    line->job.where = "";
    line->job.step = line->job.steps = 0;
    line->job.epoch = 0;
    line->job.samples_per_s = 0;
    line->job.reason = line->note;
}

uint32_t job_lines_make(const struct part_job *jobs, uint32_t count, bool is_folded,
                        struct job_line *lines)
{
    uint32_t line_count = 0, i = 0;

    while (i < count) {
        struct job_line *line = &lines[line_count++];
        uint32_t same = 1;

        while (is_folded && jobs[i].array_job != 0 && i + same < count &&
               jobs[i + same].array_job == jobs[i].array_job)
            same++;
        *line = (struct job_line){.job = jobs[i]};
        if (same > 1)
            fold(&jobs[i], same, line);
        else
            job_line_id(&jobs[i], line->id);
        i += same;
    }
    return line_count;
}
