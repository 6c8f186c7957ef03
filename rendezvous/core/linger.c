#include "rendezvous/core/linger.h"

#include <stdio.h>

#include "rendezvous/core/claim.h"
#include "rendezvous/core/state.h"

static void expect_at(struct rdzv *rdzv, uint64_t at_us)
{
    if (at_us < rdzv->linger_at_us)
        rdzv->linger_at_us = at_us;
}

void linger_note(struct rdzv *rdzv, struct job *job, const struct node *node, uint64_t until_us)
{
    const uint16_t index = node == NULL ? NODE_NONE : (uint16_t)roster_index(rdzv, node);

    if (!rdzv->options.waits_for_lease)
        return;
    job->linger_node = job->linger_until_us == 0 || job->linger_node == index ? index : NODE_NONE;
    if (until_us > job->linger_until_us)
        job->linger_until_us = until_us;
    if (index != NODE_NONE)
        rdzv->nodes[index].lingers = true;
    expect_at(rdzv, until_us);
}

void linger_restored(struct rdzv *rdzv, struct job *job, uint64_t until_us)
{
    linger_note(rdzv, job, NULL, until_us);
}

void linger_where(const struct rdzv *rdzv, uint16_t node, char text[REASON_BYTES_MAX])
{
    text_format(text, "%s%s", node == NODE_NONE ? "lost nodes" : "node ",
                node == NODE_NONE ? "" : rdzv->nodes[node].name);
}

void linger_until(const struct rdzv *rdzv, uint64_t until_us, uint16_t node,
                  char text[REASON_BYTES_MAX])
{
    const uint64_t left_us = until_us > rdzv->out.now_us ? until_us - rdzv->out.now_us : 0;
    const uint64_t wall_s = ((uint64_t)rdzv->out.wall_ms + left_us / 1000 + 999) / 1000;

    text_format(text, "until %02u:%02u:%02u UTC%s%s%s", (uint32_t)(wall_s / 3600 % 24),
                (uint32_t)(wall_s / 60 % 60), (uint32_t)(wall_s % 60),
                node == NODE_NONE ? "" : ", or until ",
                node == NODE_NONE ? "" : rdzv->nodes[node].name,
                node == NODE_NONE ? "" : " is back");
}

/* "its ranks on node n1 may still run for up to 45 s, until 12:34:56 UTC, or until n1 is back" */
static void describe(const struct rdzv *rdzv, const struct job *job, char text[REASON_BYTES_MAX])
{
    const uint64_t left_us = job->linger_until_us - rdzv->out.now_us;
    char where[REASON_BYTES_MAX], until[REASON_BYTES_MAX];

    linger_where(rdzv, job->linger_node, where);
    linger_until(rdzv, job->linger_until_us, job->linger_node, until);
    text_format(text, "its ranks on %s may still run for up to %llu s, %s", where,
                (unsigned long long)((left_us + 999999) / 1000000), until);
}

void linger_end(struct rdzv *rdzv, struct job *job)
{
    char what[REASON_BYTES_MAX], text[REASON_BYTES_MAX];

    if (job->linger_until_us <= rdzv->out.now_us) {
        job->linger_until_us = 0;
        return;
    }
    describe(rdzv, job, what);
    job_log(rdzv, job, what);
    text_format(text, "%.120s%s%s", job->record.reason, job->record.reason[0] != '\0' ? "; " : "",
                what);
    (void)snprintf(job->record.reason, sizeof job->record.reason, "%s", text);
    if (job->note.is_dirty && job->note.decision[0] != '\0') {
        text_format(text, "%.120s; %s", job->note.decision, what);
        (void)snprintf(job->note.decision, sizeof job->note.decision, "%s", text);
    }
    rdzv->linger_count++;
}

/* The node has the shim, and it is of no current generation. */
static bool is_old(const struct rdzv *rdzv, const struct node *node,
                   const struct part_beat_shim *shim, const struct job *job)
{
    return shim->phase != SHIM_ENDED &&
           (job == NULL || job->ended || shim->generation != job->record.generation ||
            roster_part_of(rdzv, node, job) == UINT32_MAX);
}

/* Whether it lists ranks of an earlier generation of the job; NULL: of jobs that have ended. */
static bool lists_old(const struct rdzv *rdzv, const struct node *node, const struct job *of)
{
    for (uint32_t i = 0; i < node->shim_count; i++) {
        const struct job *job = job_find(rdzv, node->shims[i].job_id);

        if (is_old(rdzv, node, &node->shims[i], job) &&
            (of != NULL ? job == of : job == NULL || job->ended))
            return true;
    }
    return false;
}

/* It does not know whether that runs, and is told to forget it: only the end of its lease is a proof. */
static bool lists_unseen(const struct rdzv *rdzv, const struct node *node)
{
    for (uint32_t i = 0; i < node->shim_count; i++)
        if (node->shims[i].unseen &&
            is_old(rdzv, node, &node->shims[i], job_find(rdzv, node->shims[i].job_id)))
            return true;
    return false;
}

/* True: it lists them still, and has a lease again. */
static bool wait_on(struct rdzv *rdzv, const struct node *node, struct job *job)
{
    const uint64_t until_us = claim_lease_end_us(rdzv, node);

    if (!lists_old(rdzv, node, job)) {
        job->linger_until_us = rdzv->out.now_us;
        expect_at(rdzv, rdzv->out.now_us);
        return false;
    }
    if (until_us > job->linger_until_us)
        job->linger_until_us = until_us;
    return true;
}

void linger_heard(struct rdzv *rdzv, struct node *node)
{
    const uint32_t index = roster_index(rdzv, node);
    bool lingers = false;

    if (node->lingers && lists_unseen(rdzv, node))
        node->list_is_proof = false;
    if (!node->lingers || !node->list_is_proof)
        return;
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = job_at(rdzv, i);

        if (job->linger_until_us != 0 && job->linger_node == index)
            lingers = wait_on(rdzv, node, job) || lingers;
    }
    if (lists_old(rdzv, node, NULL))
        return;
    node->lingers = lingers;
    if (node->held_mask != 0) {
        claim_drop_hold(rdzv, node);
        roster_refresh(rdzv, node);
    }
}

/* False: no room was left. */
static bool end(struct rdzv *rdzv, struct job *job)
{
    if (job->ended && !actions_have_room(&rdzv->out, 1))
        return false;
    job->linger_until_us = 0;
    if (!job->ended)
        return true;
    rdzv->linger_count--;
    rdzv->sched_due = true;
    job_log(rdzv, job, "nothing of it can run any more: what waited for that may start");
    return true;
}

void linger_tick(struct rdzv *rdzv)
{
    if (rdzv->out.now_us >= rdzv->linger_at_us) {
        rdzv->linger_at_us = UINT64_MAX;
        for (uint32_t i = 0; i < rdzv->job_count; i++) {
            struct job *job = job_at(rdzv, i);

            if (job->linger_until_us == 0 ||
                (rdzv->out.now_us >= job->linger_until_us && end(rdzv, job)))
                continue;
            expect_at(rdzv, job->linger_until_us);
        }
    }
    if (rdzv->linger_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->linger_at_us);
}

const struct node *linger_of_before(const struct rdzv *rdzv)
{
    for (uint32_t i = 0; rdzv->restored_holds > 0 && i < rdzv->node_count; i++) {
        const struct node *node = &rdzv->nodes[rdzv->by_name[i]];

        if (node->held_mask != 0 && node->held_is_restored)
            return node;
    }
    return NULL;
}
