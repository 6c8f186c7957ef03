#include "rendezvous/core/explain.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/after.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/linger.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

/* Counts over all nodes, as one job sees them. */
struct sight {
    uint32_t fit_count;  /* nodes with enough free slots */
    uint32_t up_count;   /* nodes that are up */
    uint32_t able_count; /* nodes that would have enough were they empty */
    uint32_t best_free;  /* the most free slots of any node without room */
    uint32_t closed_count;
    const char *excluded;           /* a node that the job excludes; NULL: none */
    const struct node *closed_node; /* a node with a closed slot to name; NULL: none */
    uint32_t closed_slot;
};

/* Remembers one closed slot to name in the reason. A slot that is being checked opens by itself
 * within seconds, so any other closed slot is preferred. */
static void take_closed(struct sight *sight, const struct node *node)
{
    uint64_t mask = slots_closed_mask(node) & bits_below(node->slots);
    bool is_passing;

    sight->closed_count += bits_count(mask);
    for (; mask != 0; mask &= mask - 1) {
        uint32_t slot = (uint32_t)__builtin_ctzll(mask);

        is_passing = sight->closed_node != NULL && !sight->closed_node->is_drained &&
                     !sight->closed_node->is_leaving &&
                     sight->closed_node->slot_states[sight->closed_slot].state == SLOT_CHECKING;
        if (sight->closed_node != NULL && !is_passing)
            return;
        sight->closed_node = node;
        sight->closed_slot = slot;
    }
}

static struct sight look(const struct rdzv *rdzv, const struct pass *pass, const struct job *job)
{
    const uint32_t slots_needed = job->record.nproc_per_node;
    struct sight sight = {0};

    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const struct node *node = &rdzv->nodes[rdzv->by_name[i]];
        uint32_t free_count = bits_count(pass->free.masks[rdzv->by_name[i]]);

        if (node->state != NODE_UP || node->conn == 0)
            continue;
        sight.up_count++;
        if (failure_excludes(rdzv, job, rdzv->by_name[i])) {
            sight.excluded = node->name;
            continue;
        }
        sight.able_count += node->slots >= slots_needed;
        take_closed(&sight, node);
        if (free_count >= slots_needed)
            sight.fit_count++;
        else if (free_count > sight.best_free)
            sight.best_free = free_count;
    }
    return sight;
}

/* "wants 4 slots on one node", "wants 1 slot on each of 3 nodes", "... of 2 to 4 nodes" */
static void format_request(uint32_t nodes, uint32_t nodes_max, uint32_t slots,
                           char out[REASON_BYTES_MAX])
{
    const char *plural = slots == 1 ? "" : "s";

    if (nodes < nodes_max)
        text_format(out, "wants %u slot%s on each of %u to %u nodes", slots, plural, nodes,
                    nodes_max);
    else if (nodes == 1)
        text_format(out, "wants %u slot%s on one node", slots, plural);
    else
        text_format(out, "wants %u slot%s on each of %u nodes", slots, plural, nodes);
}

/* "; 2 slots are closed: slot 1 of gpu01 is quarantined: ..." */
static void format_closed(const struct rdzv *rdzv, const struct sight *sight,
                          char out[REASON_BYTES_MAX])
{
    char why[REASON_BYTES_MAX];

    out[0] = '\0';
    if (sight->closed_node == NULL)
        return;
    slots_why(rdzv, sight->closed_node, sight->closed_slot, why);
    if (sight->closed_count == 1)
        text_format(out, "; %s", why);
    else
        text_format(out, "; %u slots are closed: %s", sight->closed_count, why);
}

void explain_blocked(struct rdzv *rdzv, const struct pass *pass, struct job *job)
{
    uint32_t nodes = job->record.nodes_min, slots = job->record.nproc_per_node;
    char request[REASON_BYTES_MAX], closed[REASON_BYTES_MAX], text[REASON_BYTES_MAX];
    char excluded[REASON_BYTES_MAX] = "";
    struct sight sight = look(rdzv, pass, job);

    format_request(nodes, job->record.nodes_max, slots, request);
    format_closed(rdzv, &sight, closed);
    if (sight.excluded != NULL)
        text_format(excluded,
                    "; without node %s, which the job does not use now: for some minutes, or until "
                    "\"ddpctl node resume %s\"",
                    sight.excluded, sight.excluded);
    if (sight.up_count == 0)
        text_format(text, "no node is connected");
    else if (sight.able_count < nodes)
        text_format(text, "%s; %u of the %u connected %s that many at all%s", request,
                    sight.able_count, sight.up_count, sight.able_count == 1 ? "has" : "have",
                    excluded);
    else
        text_format(text, "%s; %u %s them free, the best other has %u%s%s", request,
                    sight.fit_count, sight.fit_count == 1 ? "has" : "have", sight.best_free,
                    excluded, closed);
    job_set_reason(rdzv, job, text);
}

void explain_behind(struct rdzv *rdzv, struct job *job)
{
    const struct job *first = job_find(rdzv, rdzv->reservation.job_id);
    char text[REASON_BYTES_MAX], title[JOB_TITLE_BYTES];
    uint32_t slots = first->record.nodes_min * first->record.nproc_per_node;

    text_format(text, "behind %s: it waits for %u slot%s on %s, reserved",
                job_title(first, job, title), slots, slots == 1 ? "" : "s", rdzv->reservation.text);
    job_set_reason(rdzv, job, text);
}

void explain_many(struct rdzv *rdzv, struct job *job)
{
    char text[REASON_BYTES_MAX];

    text_format(text, "more than %u jobs are before it in the queue", REASONS_MAX);
    job_set_reason(rdzv, job, text);
}

void explain_quota(struct rdzv *rdzv, struct job *job)
{
    char text[REASON_BYTES_MAX];

    text_format(text,
                "waits for other jobs of %s to end: a user may have %u slots at a time "
                "(--max-slots-per-user of the server)",
                job->record.user, rdzv->options.max_slots_per_user);
    job_set_reason(rdzv, job, text);
}

void explain_settling(struct rdzv *rdzv, struct job *job)
{
    job_set_reason(rdzv, job, "the server has just started, and waits for its nodes to connect");
}

void explain_after(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_after_item item = {0};
    const uint32_t left = after_left(rdzv, job, &item);
    const struct job *other = job_find(rdzv, item.first);
    const uint64_t count = item.last - item.first + 1;
    char name[JOB_NAME_BYTES_MAX + 4] = "", more[32] = "", text[REASON_BYTES_MAX];

    if (other != NULL && strcmp(other->record.user, job->record.user) == 0)
        (void)snprintf(name, sizeof name, " (%s)", other->record.name);
    if (left > 1)
        (void)snprintf(more, sizeof more, ", and for %u more", left - 1);
    if (count > 1)
        text_format(text, "waits for the %llu jobs of array %llu%s to %s%s (--after)",
                    (unsigned long long)count, (unsigned long long)item.first, name,
                    item.any ? "end" : "succeed", more);
    else
        text_format(text, "waits for job %llu%s to %s%s (--after)", (unsigned long long)item.first,
                    name, item.any ? "end" : "succeed", more);
    job_set_reason(rdzv, job, text);
}

void explain_array(struct rdzv *rdzv, struct job *job)
{
    char text[REASON_BYTES_MAX];

    text_format(text,
                "waits for other jobs of its array to end: at most %u run at a time (--array)",
                job->record.array_at_most);
    job_set_reason(rdzv, job, text);
}

void explain_held(struct rdzv *rdzv, struct job *job)
{
    const char *why =
        "the state was restored from a backup, or is one that may be old: it starts when "
        "the leases of what may still run of it have ended";

    if (rdzv->is_of_past)
        why = "the server's state is of the past: it starts when the leases of what may still run "
              "of it have ended";
    else if (rdzv->is_unsure)
        why = "whether the server's state is the newest is not known: it starts when the leases of "
              "what may still run of it have ended";
    job_set_reason(rdzv, job, why);
}

void explain_linger(struct rdzv *rdzv, struct job *job)
{
    const struct job *other = after_lingering(rdzv, job);
    const struct node *node = other == NULL ? linger_of_before(rdzv) : NULL;
    char where[REASON_BYTES_MAX], until[REASON_BYTES_MAX], text[REASON_BYTES_MAX];

    if (other != NULL) {
        linger_until(rdzv, other->linger_until_us, other->linger_node, until);
        linger_where(rdzv, other->linger_node, where);
        text_format(text, "job %llu has ended, but its ranks on %s may still run: it waits %s",
                    (unsigned long long)other->record.job_id, where, until);
    } else if (node != NULL) {
        linger_until(rdzv, node->held_until_us, (uint16_t)roster_index(rdzv, node), until);
        text_format(text,
                    "ranks of a job that ended before the server started may still run on node %s: "
                    "it waits %s",
                    node->name, until);
    } else {
        explain_held(rdzv, job);
        return;
    }
    job_set_reason(rdzv, job, text);
}

void explain_preempted(struct rdzv *rdzv, struct job *job)
{
    const struct job *first = job_find(rdzv, job->record.preempted_by);
    char text[REASON_BYTES_MAX], title[JOB_TITLE_BYTES];

    text_format(text, "preempted by %s for its priority, %d against %d: starts after it",
                job_title(first, job, title), first->record.priority, job->record.priority);
    job_set_reason(rdzv, job, text);
}

void explain_memory(struct rdzv *rdzv, struct job *job)
{
    job_set_reason(rdzv, job,
                   "the server's memory for ranks is full: it waits for other jobs to end");
}

bool sched_is_possible(const struct rdzv *rdzv, uint32_t nodes, uint32_t slots,
                       char why[REASON_BYTES_MAX])
{
    uint32_t most_slots, able_count = roster_able_count(rdzv, slots, &most_slots);
    char request[REASON_BYTES_MAX];

    if (rdzv->node_count == 0 || able_count >= nodes || rdzv->out.now_us < rdzv->settled_at_us)
        return true;
    format_request(nodes, nodes, slots, request);
    if (rdzv->node_count < nodes && most_slots >= slots)
        text_format(why,
                    "it %s, and the server knows %u node%s: ask for fewer, or add "
                    "--wait-for-nodes to queue it until they are there",
                    request, rdzv->node_count, rdzv->node_count == 1 ? "" : "s");
    else
        text_format(why,
                    "it %s, and %u of the %u nodes that the server knows %s that many (the "
                    "most is %u): ask for fewer, or add --wait-for-nodes",
                    request, able_count, rdzv->node_count, able_count == 1 ? "has" : "have",
                    most_slots);
    return false;
}
