#include "rendezvous/core/fence.h"

#include "rendezvous/core/claim.h"
#include "rendezvous/core/linger.h"
#include "rendezvous/core/state.h"

/* A rank that has not joined has promised nothing: not all programs of a job need be the same. */
bool fence_is_own(const struct job *job)
{
    for (uint32_t i = 0; i < job_world(job); i++)
        if (!job->gang.ranks[i].joined)
            return false;
    return true;
}

/* The go leaves when all shims are ready. */
bool fence_has_no_worker(const struct job *job)
{
    return job->is_ours && !job->go_sent;
}

void fence_note(struct rdzv *rdzv, struct job *job, const struct node *node)
{
    const uint16_t index = node == NULL ? NODE_NONE : (uint16_t)roster_index(rdzv, node);
    const uint64_t until_us = node == NULL ? rdzv->out.now_us + claim_longest_lease_us(rdzv)
                                           : claim_lease_end_us(rdzv, node);

    if (fence_has_no_worker(job))
        return;
    linger_note(rdzv, job, node, until_us);
    if (fence_is_own(job))
        return;
    job->has_unseen = true; /* also with --no-fence, which the next server may not have */
    if (!rdzv->options.waits_for_lease)
        return;
    job->fence_node = job->fence_until_us == 0 || job->fence_node == index ? index : NODE_NONE;
    if (until_us > job->fence_until_us)
        job->fence_until_us = until_us;
}

bool fence_wait(struct rdzv *rdzv, struct job *job)
{
    char text[REASON_BYTES_MAX];

    if (!job->has_unseen)
        job->record.over_generation = job->record.generation;
    if (job->fence_until_us <= job->retry_at_us)
        return false;
    text_format(
        text, "waits %llu s for the lease of the lost node to end: its workers may still run there",
        (unsigned long long)((job->fence_until_us - rdzv->out.now_us + 999999) / 1000000));
    job_log(rdzv, job, text);
    job->unfenced_at_us = job->retry_at_us;
    job->retry_at_us = job->fence_until_us;
    if (job->fence_node != NODE_NONE) {
        rdzv->nodes[job->fence_node].fenced++;
        job->is_fenced = true;
    }
    return true;
}

/* A part of the job's newest generation may still run without a fence, or this server does not know that none does. */
static bool may_run(const struct job *job)
{
    return job->record.state == JOB_RESTARTING &&
           job->record.over_generation != job->record.generation;
}

/* The stored end of a wait is a time of the wall clock, which may have been set since, or be that of
 * another machine. So it is not looked at. */
void fence_restored(struct rdzv *rdzv)
{
    const uint64_t until_us = rdzv->out.now_us + claim_longest_lease_us(rdzv);

    for (uint32_t i = 0; rdzv->options.waits_for_lease && i < rdzv->queue_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->queue[i].job];

        if (!may_run(job))
            continue;
        linger_restored(rdzv, job, until_us);
        if (job->retry_at_us < until_us)
            job->retry_at_us = until_us;
    }
}

void fence_drop(struct rdzv *rdzv, struct job *job)
{
    if (job->is_fenced) {
        assert(rdzv->nodes[job->fence_node].fenced > 0);
        rdzv->nodes[job->fence_node].fenced--;
    }
    job->is_fenced = job->has_unseen = false;
    job->fence_until_us = 0;
}

void fence_keep(struct rdzv *rdzv, struct node *node)
{
    const uint32_t index = roster_index(rdzv, node);

    for (uint32_t i = 0; node->fenced > 0 && i < rdzv->queue_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->queue[i].job];

        if (!job->is_fenced || job->fence_node != index)
            continue;
        job->is_fenced = false;
        node->fenced--;
    }
}

static bool has_living(const struct node *node, const struct job *job)
{
    for (uint32_t i = 0; i < node->shim_count; i++)
        if (node->shims[i].job_id == job->record.job_id && node->shims[i].phase != SHIM_ENDED)
            return true;
    return false;
}

/* The node has a lease again, and with it what it lists: a shim that was stopped cannot carry out a stop. */
static void wait_on(struct rdzv *rdzv, const struct node *node)
{
    const uint64_t until_us = claim_lease_end_us(rdzv, node);

    for (uint32_t i = 0; rdzv->options.waits_for_lease && i < node->shim_count; i++) {
        const struct part_beat_shim *shim = &node->shims[i];
        struct job *job = job_find(rdzv, shim->job_id);

        if (job != NULL && shim->phase != SHIM_ENDED && !shim->unseen && may_run(job) &&
            until_us > job->retry_at_us)
            job->retry_at_us = until_us;
    }
}

void fence_heard(struct rdzv *rdzv, struct node *node)
{
    const uint32_t index = roster_index(rdzv, node);

    wait_on(rdzv, node);
    for (uint32_t i = 0; node->fenced > 0 && i < rdzv->queue_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->queue[i].job];

        if (!job->is_fenced || job->fence_node != index || has_living(node, job))
            continue;
        job->retry_at_us = job->unfenced_at_us;
        fence_drop(rdzv, job);
        job->record.over_generation = job->record.generation;
        job->record.retry_at_ms =
            rdzv->out.wall_ms + ((int64_t)job->retry_at_us - (int64_t)rdzv->out.now_us) / 1000;
        job_set_dirty(rdzv, job);
        rdzv->sched_due = true;
    }
}
