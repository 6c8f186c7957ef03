#include "rendezvous/core/history.h"

#include <string.h>

#include "rendezvous/core/claim.h"
#include "rendezvous/core/state.h"

/* What a node has seen and this server does not know. */
struct news {
    uint64_t job_id; /* the newest job of this cluster that it has seen */
    uint32_t raised; /* active jobs of which it has seen newer generations */
};

static void take(struct rdzv *rdzv, struct news *news, uint64_t job_id, uint32_t generation)
{
    struct job *job = job_find(rdzv, job_id);

    if (job_id > news->job_id)
        news->job_id = job_id;
    if (job == NULL || job->ended || generation <= job->record.generation ||
        generation > GENERATION_MAX / 2)
        return;
    news->raised++;
    if (generation > job->seen_generation)
        job->seen_generation = generation;
}

/* Numbers that were given and that no node has seen, of jobs that had not started, are below the
 * gap. */
static void leave_gap(struct rdzv *rdzv, uint64_t job_id)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_PERSIST_GAP);

    action->job_id = job_id + rdzv->options.id_gap;
    rdzv->next_job_id = action->job_id + 1;
}

/* Jobs that this state knows of wait for the leases of whatever runs of them. */
static void hold_jobs(struct rdzv *rdzv, uint64_t newest)
{
    if (!rdzv->options.waits_for_lease)
        return;
    rdzv->held_job_id = newest;
    rdzv->held_until_us = rdzv->restored_at_us + claim_longest_lease_us(rdzv);
    rdzv->sched_due = true;
}

void history_restored(struct rdzv *rdzv)
{
    if (rdzv->options.is_copy)
        hold_jobs(rdzv, rdzv->next_job_id - 1);
}

static void judge(struct rdzv *rdzv, const struct node *node, const struct news *news)
{
    const uint64_t newest = rdzv->next_job_id - 1, seen = news->job_id;

    if (seen > newest && (seen - newest > HISTORY_AHEAD_MAX || seen > JOB_ID_MAX / 2)) {
        action_log(&rdzv->out, 0, 0,
                   "node %s has seen job %llu of this cluster, whose newest is %llu: that is not "
                   "believed",
                   node->name, (unsigned long long)seen, (unsigned long long)newest);
        return;
    }
    if (seen <= newest && (news->raised == 0 || rdzv->is_of_past))
        return;
    if (!rdzv->is_of_past)
        hold_jobs(rdzv, newest);
    rdzv->is_of_past = true;
    leave_gap(rdzv, seen > newest ? seen : newest);
    if (seen > newest)
        action_log(&rdzv->out, 0, 0,
                   RDZV_OF_PAST ": node %s has seen job %llu of this cluster, and the newest here "
                                "is %llu. What was done since is lost; the next job is %llu",
                   node->name, (unsigned long long)seen, (unsigned long long)newest,
                   (unsigned long long)rdzv->next_job_id);
    else
        action_log(&rdzv->out, 0, 0,
                   RDZV_OF_PAST ": node %s has seen newer generations of %u jobs. What was done "
                                "since is lost; the next job is %llu",
                   node->name, news->raised, (unsigned long long)rdzv->next_job_id);
}

void history_hello(struct rdzv *rdzv, const struct node *node, const struct msg_node_hello *hello)
{
    struct news news = {0}, unsure = {0};

    for (uint32_t i = 0; i < hello->seen.count; i++)
        if (strcmp(hello->seen.items[i].cluster, rdzv->options.cluster) == 0)
            take(rdzv, &news, hello->seen.items[i].job_id, hello->seen.items[i].generation);
    for (uint32_t i = 0; i < node->shim_count; i++)
        take(rdzv, &unsure, node->shims[i].job_id, node->shims[i].generation);
    judge(rdzv, node, &news);
}

void history_beat(struct rdzv *rdzv, const struct node *node)
{
    struct news news = {0};

    for (uint32_t i = 0; i < node->shim_count; i++)
        take(rdzv, &news, node->shims[i].job_id, node->shims[i].generation);
    judge(rdzv, node, &news);
}

bool history_holds(const struct rdzv *rdzv, const struct job *job, uint64_t *until_us)
{
    *until_us = rdzv->held_until_us;
    return job->record.job_id <= rdzv->held_job_id && rdzv->out.now_us < rdzv->held_until_us;
}
