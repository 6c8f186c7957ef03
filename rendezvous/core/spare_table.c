#include "rendezvous/core/spare_table.h"

#include "rendezvous/core/state.h"

void spare_table_begin(struct rdzv *rdzv, struct job *job)
{
    if (job->record.spares == 0 || job->wants_spares)
        return;
    job->wants_spares = true;
    rdzv->spare_jobs++;
}

void spare_table_end(struct rdzv *rdzv, struct job *job)
{
    if (!job->wants_spares)
        return;
    spare_table_remove_all(rdzv, job);
    job->wants_spares = false;
    assert(rdzv->spare_jobs > 0);
    rdzv->spare_jobs--;
}

static struct node_spare *find(const struct rdzv *rdzv, uint32_t node, const struct job *job)
{
    struct node_spares *on = &rdzv->spares_on[node];

    for (uint32_t i = 0; job->spare_count > 0 && i < on->count; i++)
        if (&rdzv->jobs[on->items[i].job] == job)
            return &on->items[i];
    return NULL;
}

void spare_table_add(struct rdzv *rdzv, struct job *job, uint32_t node, uint64_t slot_mask)
{
    struct node_spares *on = &rdzv->spares_on[node];

    assert(job->wants_spares && find(rdzv, node, job) == NULL);
    assert(on->count < SLOTS_PER_NODE_MAX && (spare_table_mask(rdzv, node) & slot_mask) == 0);
    on->items[on->count++] =
        (struct node_spare){.job = (uint32_t)(job - rdzv->jobs) & 0xffffff, .slot_mask = slot_mask};
    job->spare_count++;
    users_count(rdzv, job);
    job_set_changed(rdzv, job);
}

void spare_table_count_warm(struct job *job, bool is_warm)
{
    assert(is_warm || job->warm_count > 0);
    job->warm_count = is_warm ? job->warm_count + 1 : job->warm_count - 1;
}

bool spare_table_remove(struct rdzv *rdzv, struct job *job, uint32_t node)
{
    struct node_spares *on = &rdzv->spares_on[node];
    struct node_spare *spare = find(rdzv, node, job);

    if (spare == NULL)
        return false;
    if (spare->state == WARM_READY)
        spare_table_count_warm(job, false);
    *spare = on->items[--on->count];
    job->spare_count--;
    rdzv->sched_due = true;
    users_count(rdzv, job);
    job_set_changed(rdzv, job);
    return true;
}

void spare_table_remove_all(struct rdzv *rdzv, struct job *job)
{
    for (uint32_t i = 0; job->spare_count > 0 && i < rdzv->node_count; i++)
        (void)spare_table_remove(rdzv, job, rdzv->by_name[i]);
    assert(job->spare_count == 0);
}

uint64_t spare_table_mask(const struct rdzv *rdzv, uint32_t node)
{
    const struct node_spares *on = &rdzv->spares_on[node];
    uint64_t mask = 0;

    for (uint32_t i = 0; i < on->count; i++)
        mask |= on->items[i].slot_mask;
    return mask;
}

uint64_t spare_table_mask_of(const struct rdzv *rdzv, uint32_t node, const struct job *job)
{
    const struct node_spare *spare = find(rdzv, node, job);

    return spare == NULL ? 0 : spare->slot_mask;
}

uint64_t spare_table_ready(const struct rdzv *rdzv, uint32_t node, const struct job *job)
{
    const uint64_t mask = spare_table_mask_of(rdzv, node, job);

    return (mask & ~rdzv->views[node].offer) == 0 ? mask : 0;
}
