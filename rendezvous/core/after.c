#include "rendezvous/core/after.h"

#include "rendezvous/core/state.h"

/* One of those that it waits for has not ended. */
static bool any_left(const struct rdzv *rdzv, const struct rdzv_record *record)
{
    for (uint32_t i = job_index_from(rdzv, record->after_job); i < rdzv->job_count; i++) {
        const struct job *other = job_at(rdzv, i);

        if (other->record.job_id > record->after_last)
            break;
        if (!other->ended)
            return true;
    }
    return false;
}

static void set_never(struct rdzv *rdzv, struct job *job)
{
    const struct rdzv_record *record = &job->record;
    const char *state = "is not known any more";
    char text[REASON_BYTES_MAX];

    if (job->after.failed_state == JOB_FAILED)
        state = "has failed";
    else if (job->after.failed_state == JOB_CANCELLED)
        state = "was cancelled";
    text_format(text, "job %llu %s, and this one was to start after its success (--after %llu:ok)",
                (unsigned long long)job->after.failed_id, state,
                (unsigned long long)record->after_job);
    job_set_reason(rdzv, job, text);
}

enum after_answer after_ask(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    char text[REASON_BYTES_MAX];

    assert(job->is_queued);
    if (record->after_job == 0)
        return AFTER_READY;
    if (!record->after_any && job->after.failed_id != 0) {
        set_never(rdzv, job);
        return AFTER_NEVER;
    }
    if (any_left(rdzv, record))
        return AFTER_WAITS;
    text_format(text, "job %llu, which it was to start after, has ended",
                (unsigned long long)record->after_job);
    job_log(rdzv, job, text);
    record->after_job = record->after_last = 0;
    rdzv->after_count--;
    job_set_dirty(rdzv, job);
    return AFTER_READY;
}

void after_ended(struct rdzv *rdzv, const struct job *ended)
{
    const uint64_t id = ended->record.job_id;

    if (rdzv->after_count == 0 || ended->record.state == JOB_SUCCEEDED)
        return;
    for (uint32_t i = 0; i < rdzv->queue_count; i++) {
        struct job *job = rdzv->queue[i].has_conditions ? &rdzv->jobs[rdzv->queue[i].job] : NULL;

        if (job == NULL || id < job->record.after_job || id > job->record.after_last ||
            job->after.failed_id != 0)
            continue;
        job->after.failed_id = id;
        job->after.failed_state = ended->record.state;
    }
}

uint32_t after_array_active(const struct rdzv *rdzv, const struct job *job)
{
    const struct rdzv_record *record = &job->record;
    uint32_t count = 0;

    for (uint32_t i = job_index_from(rdzv, record->array_job); i < rdzv->job_count; i++) {
        const struct job *other = job_at(rdzv, i);

        if (other->record.array_job != record->array_job)
            break;
        count += !other->ended &&
                 (other->record.part_count > 0 || other->record.state == JOB_RESTARTING);
    }
    return count;
}
