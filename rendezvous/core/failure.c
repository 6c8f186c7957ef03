#include "rendezvous/core/failure.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

/* The record has the table as text: "gpu01 2 gpu02 1". */
static void write_faults(struct rdzv *rdzv, struct job *job)
{
    char *out = job->record.node_faults;
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < job->fault_count; i++)
        used += (size_t)snprintf(out + used, sizeof job->record.node_faults - used, "%s%s %u",
                                 i == 0 ? "" : " ", job->faults[i].node, job->faults[i].failures);
    assert(used < sizeof job->record.node_faults);
    job_set_dirty(rdzv, job);
}

static bool is_excluded(const struct rdzv *rdzv, const struct node_fault *fault)
{
    return fault->failures >= EXCLUDE_FAILURES && rdzv->out.now_us < fault->until_us;
}

/* The index of that node's entry; fault_count: it has none. */
static uint32_t fault_of(const struct job *job, const char *node)
{
    uint32_t i = 0;

    while (i < job->fault_count && strcmp(job->faults[i].node, node) != 0)
        i++;
    return i;
}

/* One entry of the text; returns what is behind it. NULL: there is none. */
static const char *read_fault(const char *at, struct node_fault *fault)
{
    size_t length;

    at += *at == ' ';
    length = strcspn(at, " ");
    if (length == 0 || length >= sizeof fault->node || at[length] != ' ' || at[length + 1] < '1' ||
        at[length + 1] > '0' + (int)EXCLUDE_FAILURES)
        return NULL;
    memcpy(fault->node, at, length);
    fault->node[length] = '\0';
    fault->failures = (uint32_t)(at[length + 1] - '0');
    return at + length + 2;
}

void failure_restore(struct rdzv *rdzv, struct job *job)
{
    struct node_fault fault = {.until_us = rdzv->out.now_us + EXCLUDE_US};
    const char *at = job->record.node_faults;

    if (job->record.failed_class == FAILURE_UNSAID)
        job->record.failed_class = FAILURE_PROGRAM; /* of a version that did not store it */
    job->fault_count = 0;
    while (job->fault_count < NODE_FAULTS_MAX && (at = read_fault(at, &fault)) != NULL)
        if (fault_of(job, fault.node) == job->fault_count)
            job->faults[job->fault_count++] = fault;
}

/* The entry of that node; a new one takes the place of the one that failed longest ago. */
static struct node_fault *find_fault(struct job *job, const char *node)
{
    uint32_t at = fault_of(job, node);

    if (at == job->fault_count) {
        if (job->fault_count == NODE_FAULTS_MAX)
            at = 0;
        else
            job->fault_count++;
        job->faults[at] = (struct node_fault){0};
        (void)snprintf(job->faults[at].node, sizeof job->faults[at].node, "%s", node);
    }
    for (; at + 1 < job->fault_count; at++) { /* the newest is the last */
        struct node_fault fault = job->faults[at];

        job->faults[at] = job->faults[at + 1];
        job->faults[at + 1] = fault;
    }
    return &job->faults[at];
}

static void count_for_node(struct rdzv *rdzv, struct job *job)
{
    struct node_fault *fault = find_fault(job, job->record.failed_node);
    char text[REASON_BYTES_MAX];

    if (fault->failures < EXCLUDE_FAILURES)
        fault->failures++;
    fault->until_us = rdzv->out.now_us + EXCLUDE_US;
    if (fault->failures < EXCLUDE_FAILURES)
        text_format(text, "node %s has failed the job once; --max-restarts does not count that",
                    fault->node);
    else
        text_format(text,
                    "node %s has failed the job again: it gets no rank of it for %llu minutes, or "
                    "until \"ddpctl node resume %s\"",
                    fault->node, (unsigned long long)(EXCLUDE_US / 60000000), fault->node);
    job_log(rdzv, job, text);
    write_faults(rdzv, job);
}

/* A rank that failed on a GPU that its node has drained for a fault was failed by the node. */
static void settle_class(const struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    uint32_t rank = (uint32_t)record->failed_rank;

    if (record->failed_class != FAILURE_PROGRAM || record->failed_rank < 0)
        return;
    for (uint32_t i = 0; i < record->part_count; i++) {
        const struct rdzv_part *part = &record->parts[i];
        const struct node *node = roster_find(rdzv, part->node);
        uint32_t slot;

        if (rank < part->rank_base || rank >= part->rank_base + part->local_count || node == NULL)
            continue;
        slot = rdzv_part_slot(part, rank - part->rank_base);
        if (slot < node->gpus && node->slot_states[slot].state == SLOT_DRAINED)
            record->failed_class = FAILURE_NODE;
    }
}

void failure_count(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    bool has_run_long = job->running_at_us != UINT64_MAX &&
                        rdzv->out.now_us >= job->running_at_us + RESTARTS_RENEWED_US;

    if (has_run_long)
        record->node_failures = 0;
    if (has_run_long && record->checkpoint_step == 0)
        record->restarts_without_progress = 0;
    settle_class(rdzv, job);
    if (record->failed_class == FAILURE_NODE)
        count_for_node(rdzv, job);
    job_set_dirty(rdzv, job);
}

uint16_t failure_excluded(const struct rdzv *rdzv, const struct job *job, uint32_t i)
{
    const struct node *node;

    assert(i < job->fault_count);
    if (!is_excluded(rdzv, &job->faults[i]))
        return NODE_NONE;
    node = roster_find(rdzv, job->faults[i].node);
    return node == NULL ? NODE_NONE : (uint16_t)roster_index(rdzv, node);
}

bool failure_excludes(const struct rdzv *rdzv, const struct job *job, uint32_t node)
{
    for (uint32_t i = 0; i < job->fault_count; i++)
        if (failure_excluded(rdzv, job, i) == node)
            return true;
    return false;
}

uint64_t failure_excluded_until(const struct rdzv *rdzv, const struct job *job)
{
    uint64_t until_us = UINT64_MAX;

    for (uint32_t i = 0; i < job->fault_count; i++)
        if (is_excluded(rdzv, &job->faults[i]) && job->faults[i].until_us < until_us)
            until_us = job->faults[i].until_us;
    return until_us;
}

bool failure_leaves_nodes(const struct rdzv *rdzv, const struct job *job)
{
    /* nodes that are not here may come, where there ever was more than one */
    if (failure_excluded_until(rdzv, job) == UINT64_MAX || rdzv->node_most > 1 ||
        rdzv->out.now_us < rdzv->settled_at_us)
        return true;
    return false;
}

void failure_pardon(struct rdzv *rdzv, const char *node)
{
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = job_at(rdzv, i);

        for (uint32_t k = 0; k < job->fault_count; k++) {
            if (strcmp(job->faults[k].node, node) != 0)
                continue;
            job->faults[k] = job->faults[--job->fault_count];
            rdzv->sched_due = true;
            if (actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
                write_faults(rdzv, job); /* else a restarted server excludes it once more */
            break;
        }
    }
}
