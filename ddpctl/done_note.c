#include "ddpctl/done_note.h"

#include <string.h>

#include "common/buf.h"

#define RANGES_MAX 6u

/* Writes "rank 0" or "ranks 0, 2-7" of those in that state. Returns how many. */
static uint32_t write_ranks(const struct msg_job_info *info, enum rank_state state, struct buf *out)
{
    struct buf list = {0};
    const struct part_job_rank *ranks = info->ranks.items;
    const uint32_t rank_count = info->ranks.count;
    uint32_t count = 0, ranges = 0;

    for (uint32_t i = 0, next; i < rank_count; i = next) {
        next = i + 1;
        if (ranks[i].state != state)
            continue;
        while (next < rank_count && ranks[next].state == state &&
               ranks[next].rank == ranks[next - 1].rank + 1)
            next++;
        count += next - i;
        if (ranges++ < RANGES_MAX)
            buf_printf(&list, "%s%u", ranges > 1 ? ", " : "", ranks[i].rank);
        if (ranges <= RANGES_MAX && next > i + 1)
            buf_printf(&list, "-%u", ranks[next - 1].rank);
    }
    buf_add(&list, "", 1);
    buf_printf(out, "rank%s %s%s", count == 1 ? "" : "s", list.failed ? "" : list.bytes,
               ranges > RANGES_MAX ? " and others" : "");
    buf_free(&list);
    return count;
}

static bool write_note(const struct msg_job_info *info, struct buf *out)
{
    uint32_t ended, running;

    for (uint32_t i = 0; i < info->ranks.count; i++)
        if (info->ranks.items[i].state == RANK_EXITED &&
            (info->ranks.items[i].exit_code != 0 || info->ranks.items[i].signal != 0))
            return false; /* the job ends, and its end says why */
    ended = write_ranks(info, RANK_EXITED, out);
    buf_add_text(out, ended == 1 ? " has ended, " : " have ended, ");
    running = write_ranks(info, RANK_RUNNING, out);
    buf_add_text(out, running == 1 ? " still runs" : " still run");
    return ended > 0 && running > 0;
}

void done_note_take(struct done_note *note, const struct msg_job_info *info, uint64_t now_us)
{
    const struct part_job *job = &info->jobs.items[0];
    struct buf text = {0};
    bool is_so;

    if (note->generation != job->generation)
        *note = (struct done_note){.generation = job->generation};
    is_so = job->state == JOB_RUNNING && write_note(info, &text);
    buf_add(&text, "", 1);
    is_so = is_so && !text.failed && text.byte_count <= sizeof note->text;
    if (is_so && note->text[0] == '\0')
        note->since_us = now_us;
    note->text[0] = '\0';
    if (is_so)
        memcpy(note->text, text.bytes, text.byte_count);
    buf_free(&text);
}

const char *done_note_due(struct done_note *note, uint64_t now_us, uint64_t after_us)
{
    if (note->text[0] == '\0' || note->shown || now_us - note->since_us < after_us)
        return NULL;
    note->shown = true;
    return note->text;
}
