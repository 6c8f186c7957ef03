#include "ddpctl/wait_note.h"

#include <stdio.h>
#include <string.h>

#include "ddpctl/job_lines.h"

void wait_note_take(struct wait_note *note, const struct part_job *job, uint64_t now_us)
{
    char text[sizeof note->text] = "", id[JOB_LINE_ID_BYTES];

    job_line_id(job, id);
    if (job->state == JOB_QUEUED && strncmp(job->reason, "waits ", 6) == 0)
        (void)snprintf(text, sizeof text, "%.60s (%s) %s", job->name, id, job->reason);
    else if (job->state == JOB_QUEUED)
        (void)snprintf(text, sizeof text, "%.60s (%s) waits: %s", job->name, id,
                       job->reason[0] ? job->reason : "it has just been queued");
    else if (job->state == JOB_RESTARTING)
        (void)snprintf(text, sizeof text, "%.60s (%s) waits to start again: %s", job->name, id,
                       job->reason[0] ? job->reason : "it has just failed");
    if (strcmp(text, note->text) == 0)
        return;
    (void)snprintf(note->text, sizeof note->text, "%s", text);
    note->since_us = now_us;
    note->shown = false;
}

const char *wait_note_due(struct wait_note *note, uint64_t now_us, uint64_t after_us)
{
    if (note->text[0] == '\0' || note->shown || now_us - note->since_us < after_us)
        return NULL;
    note->shown = true;
    return note->text;
}
