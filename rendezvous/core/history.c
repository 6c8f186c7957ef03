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
 * gap. Its length is drawn: the same state may be put back a second time. */
static void leave_gap(struct rdzv *rdzv, uint64_t job_id)
{
    const uint64_t span = rdzv->options.id_gap_span > 1 ? rdzv->options.id_gap_span : 1;
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_PERSIST_GAP);

    action->job_id = job_id + rdzv->options.id_gap * (1 + (rdzv->options.seed >> 32) % span);
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

/* The state may be of before something that is not known: on no node is anything of that which has ended with a lease. */
static void doubt(struct rdzv *rdzv)
{
    if (!rdzv->options.waits_for_lease || rdzv->next_job_id == 1)
        return;
    hold_jobs(rdzv, rdzv->next_job_id - 1);
    rdzv->is_unsure = true;
    if (rdzv->queue_count > 0)
        action_log(&rdzv->out, 0, 0,
                   "whether this state is the newest is not known: what waits in it starts in %llu "
                   "s, when all leases of before have ended; new jobs start at once",
                   (unsigned long long)(claim_longest_lease_us(rdzv) / 1000000));
}

void history_restored(struct rdzv *rdzv)
{
    rdzv->is_of_past = rdzv->options.is_of_past;
    if (rdzv->is_of_past)
        text_format(rdzv->past_why, "%s", rdzv->options.past_why);
    if (rdzv->options.may_be_past && !rdzv->is_of_past)
        doubt(rdzv);
    else if (rdzv->options.is_copy || rdzv->is_of_past)
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
    rdzv->is_unsure = false;
    leave_gap(rdzv, seen > newest ? seen : newest);
    if (seen > newest)
        text_format(rdzv->past_why,
                    "node %s has seen job %llu of this cluster, and the newest here is %llu",
                    node->name, (unsigned long long)seen, (unsigned long long)newest);
    else
        text_format(rdzv->past_why, "node %s has seen newer generations of %u jobs", node->name,
                    news->raised);
    action_log(&rdzv->out, 0, 0,
               RDZV_OF_PAST ": %s. What was done since is lost; the next job is %llu",
               rdzv->past_why, (unsigned long long)rdzv->next_job_id);
}

/* What an unheard node runs may have a longer lease than this state knows of, if it was given after it. A restored copy
 * has another cluster id than the server that gave it. */
static void take_lease(struct rdzv *rdzv, const struct msg_node_hello *hello)
{
    const struct rdzv_options *options = &rdzv->options;
    const uint64_t known_us = claim_longest_lease_us(rdzv) - LEASE_MARGIN_US;
    uint64_t longest_us = known_us;

    if (!options->may_be_past && !options->is_copy && !rdzv->is_of_past)
        return;
    for (uint32_t i = 0; i < hello->seen.count; i++) {
        const struct part_cluster_seen *seen = &hello->seen.items[i];

        if (seen->lease_us > longest_us && seen->lease_us <= LEASE_BELIEVED_MAX_US &&
            (options->is_copy || strcmp(seen->cluster, options->cluster) == 0))
            longest_us = seen->lease_us;
    }
    if (longest_us == known_us ||
        rdzv->out.now_us >= rdzv->restored_at_us + longest_us + LEASE_MARGIN_US)
        return; /* nothing of before this server's start can run any more */
    action_log(&rdzv->out, 0, 0,
               "node %s has a lease of %llu s: what this state does not know may run that long",
               hello->name, (unsigned long long)(longest_us / 1000000));
    rdzv->options.lease_before_us = longest_us;
    action_add(&rdzv->out, RDZV_PERSIST_LEASE)->lease_us = longest_us;
    if (rdzv->held_job_id != 0) /* also again, if the lease that was known is over */
        hold_jobs(rdzv, rdzv->held_job_id);
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
    take_lease(rdzv, hello);
}

void history_beat(struct rdzv *rdzv, const struct node *node)
{
    struct news news = {0};

    for (uint32_t i = 0; i < node->shim_count; i++)
        take(rdzv, &news, node->shims[i].job_id, node->shims[i].generation);
    judge(rdzv, node, &news);
}

bool history_may_run(const struct rdzv *rdzv, uint64_t job_id, uint64_t *until_us)
{
    *until_us = rdzv->held_until_us;
    return job_id <= rdzv->held_job_id && rdzv->out.now_us < rdzv->held_until_us;
}

bool history_holds(const struct rdzv *rdzv, const struct job *job, uint64_t *until_us)
{
    return history_may_run(rdzv, job->record.job_id, until_us);
}

bool history_holds_start(const struct rdzv *rdzv, const struct job *job)
{
    uint64_t until_us;

    return !job->is_ours && history_holds(rdzv, job, &until_us);
}
