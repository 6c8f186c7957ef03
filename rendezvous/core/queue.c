#include "rendezvous/core/queue.h"

#include <string.h>

#include "rendezvous/core/state.h"

bool queue_is_before(const struct queued *a, const struct queued *b)
{
    if (a->place_ms != b->place_ms)
        return a->place_ms < b->place_ms;
    return a->job_id < b->job_id;
}

struct queued queue_entry(const struct rdzv *rdzv, const struct job *job)
{
    const struct rdzv_record *record = &job->record;

    return (struct queued){
        .place_ms = (record->requeued_ms != 0 ? record->requeued_ms : record->submitted_ms) -
                    (int64_t)record->priority * POINT_MS,
        .job_id = record->job_id,
        .job = (uint32_t)(job - rdzv->jobs),
        .user = job->user,
        .nodes = (uint16_t)record->nodes_min,
        .nproc = (uint8_t)record->nproc_per_node,
        .is_restarting = record->state == JOB_RESTARTING,
        .has_conditions =
            record->after_job != 0 || record->array_at_most != 0 || record->preempted_by != 0,
    };
}

/* The index at which the entry belongs: that of the first entry that does not come before it. */
static uint32_t find_place(const struct rdzv *rdzv, const struct queued *entry)
{
    uint32_t low = 0, high = rdzv->queue_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (queue_is_before(&rdzv->queue[middle], entry))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void queue_add(struct rdzv *rdzv, struct job *job)
{
    struct queued entry = queue_entry(rdzv, job);
    uint32_t at = find_place(rdzv, &entry);

    assert(!job->is_queued && !job->ended && job->record.part_count == 0);
    assert(rdzv->queue_count <= rdzv->options.jobs_max);
    memmove(&rdzv->queue[at + 1], &rdzv->queue[at], (rdzv->queue_count - at) * sizeof *rdzv->queue);
    rdzv->queue[at] = entry;
    rdzv->queue_count++;
    rdzv->after_count += job->record.after_job != 0;
    job_live_remove(rdzv, job);
    job->is_queued = true;
}

struct queued *queue_find(const struct rdzv *rdzv, const struct job *job)
{
    struct queued entry = queue_entry(rdzv, job);
    uint32_t at = find_place(rdzv, &entry);

    return at < rdzv->queue_count && rdzv->queue[at].job_id == entry.job_id ? &rdzv->queue[at]
                                                                            : NULL;
}

bool queue_has(const struct rdzv *rdzv, const struct job *job)
{
    struct queued entry = queue_entry(rdzv, job);
    uint32_t at = find_place(rdzv, &entry);

    return at < rdzv->queue_count && rdzv->queue[at].job == entry.job &&
           rdzv->queue[at].job_id == entry.job_id;
}

void queue_remove(struct rdzv *rdzv, struct job *job)
{
    struct queued entry = queue_entry(rdzv, job);
    uint32_t at = find_place(rdzv, &entry);

    if (!job->is_queued)
        return;
    assert(at < rdzv->queue_count && rdzv->queue[at].job_id == entry.job_id);
    rdzv->queue_count--;
    rdzv->after_count -= job->record.after_job != 0;
    memmove(&rdzv->queue[at], &rdzv->queue[at + 1], (rdzv->queue_count - at) * sizeof *rdzv->queue);
    job->is_queued = false;
    job_live_add(rdzv, job);
    rdzv->sched_due = true;
}
