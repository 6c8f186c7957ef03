#include "rendezvous/core/after.h"

#include "rendezvous/core/after_list.h"
#include "rendezvous/core/history.h"
#include "rendezvous/core/linger.h"
#include "rendezvous/core/state.h"

/* A job of this entry that has not ended yet; `lingers`: one that has, and whose ranks may still run. */
static const struct job *find_left(const struct rdzv *rdzv, const struct rdzv_after_item *item,
                                   bool lingers)
{
    for (uint32_t i = job_index_from(rdzv, item->first); i < rdzv->job_count; i++) {
        const struct job *other = job_at(rdzv, i);

        if (other->record.job_id > item->last)
            break;
        if (lingers ? linger_has(other) : !other->ended)
            return other;
    }
    return NULL;
}

static bool has(const struct rdzv_after_item *item, uint64_t id)
{
    return id >= item->first && id <= item->last;
}

static void set_never(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_after after;
    const char *state = "is not known any more";
    char text[REASON_BYTES_MAX];
    uint32_t i = 0;

    (void)after_list_read(&job->record, &after);
    while (i + 1 < after.count &&
           (after.items[i].any || !has(&after.items[i], job->after_failed_id)))
        i++;
    if (job->after_failed_state == JOB_FAILED)
        state = "has failed";
    else if (job->after_failed_state == JOB_CANCELLED)
        state = "was cancelled";
    text_format(text, "job %llu %s, and this one was to start after its success (--after %llu:ok)",
                (unsigned long long)job->after_failed_id, state,
                (unsigned long long)after.items[i].first);
    job_set_reason(rdzv, job, text);
}

uint32_t after_left(const struct rdzv *rdzv, const struct job *job, struct rdzv_after_item *first)
{
    struct rdzv_after after;
    uint32_t count = 0;

    (void)after_list_read(&job->record, &after);
    for (uint32_t i = after.count; i-- > 0;) {
        if (find_left(rdzv, &after.items[i], false) == NULL)
            continue;
        *first = after.items[i];
        count++;
    }
    return count;
}

const struct job *after_lingering(const struct rdzv *rdzv, const struct job *job)
{
    struct rdzv_after_item array = {.first = job->record.array_job,
                                    .last = job->record.array_job + job->record.array_count - 1};
    const struct job *other = NULL;
    struct rdzv_after after;

    if (rdzv->linger_count == 0)
        return NULL;
    (void)after_list_read(&job->record, &after);
    for (uint32_t i = 0; i < after.count && other == NULL; i++)
        other = find_left(rdzv, &after.items[i], true);
    return other == NULL && array.first != 0 && after.count == 0 ? find_left(rdzv, &array, true)
                                                                 : other;
}

/* True: one that it waits for is of a state that may be old. It looks again when nothing of that can run any more. */
static bool is_after_past(struct rdzv *rdzv, const struct job *job)
{
    struct rdzv_after after;
    uint64_t until_us;
    bool is_any = false;

    (void)after_list_read(&job->record, &after);
    for (uint32_t i = 0; i < after.count; i++)
        is_any = is_any || history_may_run(rdzv, after.items[i].first, &until_us);
    if (is_any && until_us < rdzv->sched_at_us)
        rdzv->sched_at_us = until_us;
    return is_any;
}

enum after_answer after_ask(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    const bool is_list = record->tail[0] != '\0';
    char text[REASON_BYTES_MAX];
    struct rdzv_after_item first;

    assert(job->is_queued);
    if (record->after_job == 0)
        return AFTER_READY;
    if (job->after_failed_id != 0) {
        set_never(rdzv, job);
        return AFTER_NEVER;
    }
    if (after_left(rdzv, job, &first) > 0)
        return AFTER_WAITS;
    if (after_lingering(rdzv, job) != NULL || linger_of_before(rdzv) != NULL ||
        is_after_past(rdzv, job))
        return AFTER_LINGERS;
    text_format(text, "job %llu%s, which it was to start after, %s ended",
                (unsigned long long)record->after_job, is_list ? " and the others" : "",
                is_list ? "have" : "has");
    job_log(rdzv, job, text);
    after_list_clear(record);
    rdzv->after_count--;
    job_set_dirty(rdzv, job);
    return AFTER_READY;
}

static bool needs_success_of(const struct job *job, uint64_t id)
{
    struct rdzv_after after;

    (void)after_list_read(&job->record, &after);
    for (uint32_t i = 0; i < after.count; i++)
        if (!after.items[i].any && has(&after.items[i], id))
            return true;
    return false;
}

void after_ended(struct rdzv *rdzv, const struct job *ended)
{
    const uint64_t id = ended->record.job_id;

    if (rdzv->after_count == 0 || ended->record.state == JOB_SUCCEEDED)
        return;
    for (uint32_t i = 0; i < rdzv->queue_count; i++) {
        struct job *job = rdzv->queue[i].has_conditions ? &rdzv->jobs[rdzv->queue[i].job] : NULL;

        if (job == NULL || job->after_failed_id != 0 || !needs_success_of(job, id))
            continue;
        job->after_failed_id = id;
        job->after_failed_state = ended->record.state;
    }
}

void rdzv_mark_awaited(const struct rdzv *rdzv, struct rdzv_ids *ids, uint32_t count)
{
    struct rdzv_after after;

    for (uint32_t i = 0; count > 0 && rdzv->after_count > 0 && i < rdzv->queue_count; i++) {
        if (!rdzv->queue[i].has_conditions)
            continue;
        (void)after_list_read(&rdzv->jobs[rdzv->queue[i].job].record, &after);
        for (uint32_t k = 0; k < after.count; k++)
            for (uint32_t n = 0; n < count && !after.items[k].any; n++)
                ids[n].is_awaited |=
                    ids[n].first <= after.items[k].last && ids[n].last >= after.items[k].first;
    }
}

uint32_t after_array_active(const struct rdzv *rdzv, const struct job *job, uint32_t *lingering)
{
    const struct rdzv_record *record = &job->record;
    uint32_t count = 0, known = 0;

    *lingering = 0;
    for (uint32_t i = job_index_from(rdzv, record->array_job); i < rdzv->job_count; i++) {
        const struct job *other = job_at(rdzv, i);

        if (other->record.array_job != record->array_job)
            break;
        count += !other->ended &&
                 (other->record.part_count > 0 || other->record.state == JOB_RESTARTING);
        *lingering += linger_has(other);
        known++;
    }
    if (known < record->array_count && linger_of_before(rdzv) != NULL)
        *lingering += record->array_count - known; /* those that ended before */
    return count;
}
