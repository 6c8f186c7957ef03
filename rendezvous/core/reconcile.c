#include "rendezvous/core/reconcile.h"

#include <signal.h>
#include <stdio.h>

#include "rendezvous/core/claim.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/linger.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"
#include "rendezvous/core/steps.h"

/* A node lists a shim that belongs to no current generation: stop it, or forget it if it has
 * ended or nothing can be done about it there (`is_over`). */
static void clear(struct rdzv *rdzv, const struct node *node, uint64_t job_id, uint32_t generation,
                  bool is_over)
{
    struct rdzv_action *action;

    assert(node->conn != 0);
    action = action_add(&rdzv->out, is_over ? RDZV_SEND_FORGET : RDZV_SEND_STOP);
    action->conn = node->conn;
    action->job_id = job_id;
    action->generation = generation;
    action->signal = SIGKILL;
    action_text(&rdzv->out, action, "generation %u of job %llu is over", generation,
                (unsigned long long)job_id);
}

/* The job and part of a shim on this node; NULL: there is none in the current generation. */
static struct job *find_part(const struct rdzv *rdzv, const struct node *node, uint64_t job_id,
                             uint32_t generation, uint32_t *part)
{
    struct job *job = job_find(rdzv, job_id);

    if (job == NULL || job->record.generation != generation)
        return NULL;
    *part = roster_part_of(rdzv, node, job);
    return *part == UINT32_MAX ? NULL : job;
}

static bool waits_or_is_over(const struct job *job, uint32_t part)
{
    return job->gang.parts[part].is_away || parts_is_over(&job->gang.parts[part]);
}

/* Only the end of the part's lease is a proof that it does not run. `seen` says what the node says of it. */
static void begin_wait(struct rdzv *rdzv, const struct node *node, struct job *job, uint32_t part,
                       const char *seen)
{
    char text[REASON_BYTES_MAX];

    if (waits_or_is_over(job, part))
        return;
    generation_away(job, part);
    if (node->away_until_us <= rdzv->out.now_us)
        return;
    text_format(text, "node %s %s: the job goes on when that lease is over, in %llu s", node->name,
                seen,
                (unsigned long long)((node->away_until_us - rdzv->out.now_us + 999999) / 1000000));
    job_log(rdzv, job, text);
    job_set_changed(rdzv, job);
}

void reconcile_unknown(struct rdzv *rdzv, struct node *node)
{
    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;
        struct job *job = roster_part(rdzv, node, i, &part);

        if (roster_lists(node, job->record.job_id, job->record.generation))
            continue;
        begin_wait(rdzv, node, job, part,
                   "does not list its part of the job, and does not show that it is the same "
                   "machine as before");
    }
    fence_keep(rdzv, node);
}

/* The node does not know whether the part still runs. */
static void unseen(struct rdzv *rdzv, struct node *node, struct job *job, uint32_t part)
{
    const uint64_t until_us = claim_lease_end_us(rdzv, node);

    if (!waits_or_is_over(job, part) && until_us > node->away_until_us)
        node->away_until_us = until_us;
    begin_wait(rdzv, node, job, part, "cannot see whether its part of the job still runs");
}

void reconcile_list(struct rdzv *rdzv, struct node *node)
{
    uint32_t part;

    for (uint32_t i = 0; i < node->shim_count; i++) {
        const struct part_beat_shim *shim = &node->shims[i];
        struct job *job = find_part(rdzv, node, shim->job_id, shim->generation, &part);

        if (job == NULL)
            clear(rdzv, node, shim->job_id, shim->generation,
                  shim->phase == SHIM_ENDED || shim->unseen);
        else if (shim->unseen)
            unseen(rdzv, node, job, part); /* for the rest it counts as not listed */
        else
            generation_listed(rdzv, job, part, shim->phase);
    }
    for (uint32_t i = roster_part_count(rdzv, node); i-- > 0;) { /* a lost part leaves the list */
        struct job *job;

        if (i >= roster_part_count(rdzv, node))
            continue;
        job = roster_part(rdzv, node, i, &part);
        if (!roster_lists(node, job->record.job_id, job->record.generation))
            generation_unlisted(rdzv, job, part);
    }
    fence_heard(rdzv, node);
    linger_heard(rdzv, node);
}

void reconcile_report(struct rdzv *rdzv, struct node *node, const struct msg_shim_report *report)
{
    struct rdzv_action *action = action_add(&rdzv->out, RDZV_SEND_REPORT_ACK);
    struct job *job;
    uint32_t part;

    assert(node->conn != 0);
    action->conn = node->conn;
    action->job_id = report->job_id;
    action->generation = report->generation;
    action->revision = report->revision;
    roster_phase(rdzv, node, report->job_id, report->generation, report->phase);
    job = find_part(rdzv, node, report->job_id, report->generation, &part);
    if (job == NULL) {
        clear(rdzv, node, report->job_id, report->generation, report->phase == SHIM_ENDED);
        return;
    }
    if (report->phase == SHIM_ENDED && job->gang.parts[part].phase != SHIM_ENDED)
        slots_left(rdzv, node, job->record.parts[part].slot_mask); /* maybe never listed */
    roster_refresh(rdzv, node);
    generation_report(rdzv, job, part, report);
}

/* False: no room was left. */
static bool lose_parts(struct rdzv *rdzv, const struct node *node)
{
    char cause[REASON_BYTES_MAX];

    text_format(cause, "node %s was lost: silent for %llu s", node->name,
                (unsigned long long)(node->silent_us / 1000000));
    for (uint32_t i = roster_part_count(rdzv, node); i-- > 0;) { /* a lost part leaves the list */
        struct job *job;
        uint32_t part;

        if (i >= roster_part_count(rdzv, node))
            continue;
        job = roster_part(rdzv, node, i, &part);
        if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            return false;
        fence_note(rdzv, job, node);
        generation_part_lost(rdzv, job, part, FAILURE_NETWORK, cause);
    }
    return true;
}

void reconcile_lost(struct rdzv *rdzv)
{
    for (uint32_t i = 0; rdzv->any_lost_parts && i < rdzv->node_count; i++) {
        struct node *node = &rdzv->nodes[rdzv->by_name[i]];

        if (!node->has_lost_parts)
            continue;
        if (!lose_parts(rdzv, node)) {
            actions_continue(&rdzv->out);
            return;
        }
        node->has_lost_parts = false;
    }
    rdzv->any_lost_parts = false;
}

void reconcile_leaving(struct rdzv *rdzv, const struct node *node)
{
    char why[REASON_BYTES_MAX];

    text_format(why, "it leaves node %s, whose launcherd was told to end", node->name);
    for (uint32_t i = roster_part_count(rdzv, node); node->is_leaving && i-- > 0;) {
        uint32_t part;

        if (i >= roster_part_count(rdzv, node)) /* ended at once: it never started */
            continue;
        if (!actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            return; /* at the next beat */
        (void)generation_stop_planned(rdzv, roster_part(rdzv, node, i, &part), why);
    }
}

static const struct part_shim_silent *find_silent(const struct msg_beat *beat,
                                                  const struct job *job)
{
    for (uint32_t i = 0; i < beat->silent.count; i++)
        if (beat->silent.items[i].job_id == job->record.job_id &&
            beat->silent.items[i].generation == job->record.generation)
            return &beat->silent.items[i];
    return NULL;
}

/* "the shim of job 7 on node n2, pid 123, does not answer since 20:31:07 UTC: state T (stopped)" */
static void describe_silent(const struct rdzv *rdzv, const struct node *node,
                            const struct part_shim_silent *shim, char text[REASON_BYTES_MAX])
{
    const int64_t at_ms = rdzv->out.wall_ms - (int64_t)(shim->silent_us / 1000);
    const uint32_t second = at_ms > 0 ? (uint32_t)(at_ms / 1000 % 86400) : 0;

    text_format(text,
                "the shim of job %llu on node %.60s, pid %u, does not answer since %02u:%02u:%02u "
                "UTC: state %s; nobody sees how its ranks end, but a cancel ends them",
                (unsigned long long)shim->job_id, node->name, shim->pid, second / 3600,
                second / 60 % 60, second % 60, shim->state);
}

static void note_silent(struct rdzv *rdzv, const struct node *node, struct job *job, uint32_t part,
                        const struct part_shim_silent *shim)
{
    char text[REASON_BYTES_MAX];

    job->gang.parts[part].is_silent = shim != NULL;
    steps_expect(rdzv, job, part);
    if (shim != NULL) {
        describe_silent(rdzv, node, shim, text);
        (void)snprintf(job->silent, sizeof job->silent, "%s", text);
    } else {
        text_format(text, "its shim on node %s answers again", node->name);
        job->silent[0] = '\0';
    }
    job_log(rdzv, job, text);
    job_set_changed(rdzv, job);
}

void reconcile_silent(struct rdzv *rdzv, struct node *node, const struct msg_beat *beat)
{
    if (beat->silent.count == 0)
        node->trouble.silent[0] = '\0';
    else if (node->trouble.silent[0] == '\0')
        describe_silent(rdzv, node, &beat->silent.items[0], node->trouble.silent);
    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;
        struct job *job = roster_part(rdzv, node, i, &part);
        const struct part_shim_silent *shim = find_silent(beat, job);

        if ((shim != NULL) != job->gang.parts[part].is_silent &&
            actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
            note_silent(rdzv, node, job, part, shim);
    }
}
