#include "rendezvous/core/failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/failure_alike.h"
#include "rendezvous/core/restart.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

/* Writes the table into the record as text: "gpu01 2 gpu02 1". */
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

/* The index of that node's entry; fault_count: none. */
static uint32_t fault_of(const struct job *job, const char *node)
{
    uint32_t i = 0;

    while (i < job->fault_count && strcmp(job->faults[i].node, node) != 0)
        i++;
    return i;
}

/* Reads one entry of the text and returns what follows it; NULL: there is none. */
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
        job->record.failed_class = FAILURE_PROGRAM; /* from a version that did not store it */
    job->fault_count = 0;
    while (job->fault_count < NODE_FAULTS_MAX && (at = read_fault(at, &fault)) != NULL)
        if (fault_of(job, fault.node) == job->fault_count)
            job->faults[job->fault_count++] = fault;
}

/* The entry of that node, moved to the end of the table. A new one replaces the node whose last
 * failure is oldest. */
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
    for (; at + 1 < job->fault_count; at++) { /* move it to the end: the newest is the last */
        struct node_fault fault = job->faults[at];

        job->faults[at] = job->faults[at + 1];
        job->faults[at + 1] = fault;
    }
    return &job->faults[at];
}

void failure_exclude(struct rdzv *rdzv, struct job *job, const char *node)
{
    struct node_fault *fault = find_fault(job, node);

    fault->failures = EXCLUDE_FAILURES;
    fault->until_us = rdzv->out.now_us + EXCLUDE_US;
    write_faults(rdzv, job);
}

bool failure_is_crash(const struct rdzv_record *record)
{
    const uint32_t signal = record->failed_signal;

    return record->failed_class == FAILURE_HANG || signal == SIGSEGV || signal == SIGBUS ||
           signal == SIGILL || signal == SIGFPE || strstr(record->reason, "CUDA error") != NULL ||
           strstr(record->tail, "CUDA error") != NULL;
}

/* Whether enough nodes could run the job without this one and those that are excluded already. */
static bool can_spare(const struct rdzv *rdzv, const struct job *job, const char *name)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const uint32_t index = rdzv->by_name[i];
        const struct node *node = &rdzv->nodes[index];

        count += node->state == NODE_UP && !node->is_drained &&
                 bits_count(rdzv->views[index].able) >= job->record.nproc_per_node &&
                 !failure_excludes(rdzv, job, index) && strcmp(node->name, name) != 0;
    }
    return count >= job->record.nodes_min;
}

bool failure_is_alone(const struct rdzv *rdzv, const struct job *job)
{
    return job->record.failed_class == FAILURE_NODE &&
           !can_spare(rdzv, job, job->record.failed_node);
}

static void count_for_node(struct rdzv *rdzv, struct job *job)
{
    struct node_fault *fault = find_fault(job, job->record.failed_node);
    char text[REASON_BYTES_MAX];
    const bool is_again = fault->failures > 0, was_late = is_excluded(rdzv, fault);
    /* What keeps it from running the job may pass, and the job has no other. */
    const uint32_t tries = rdzv->options.is_one_machine ? RESTART_ONE_MACHINE : RESTART_ALONE;
    const bool is_spared = failure_is_alone(rdzv, job) && job->record.node_failures < tries;

    if (fault->failures + is_spared < EXCLUDE_FAILURES)
        fault->failures++;
    fault->until_us = rdzv->out.now_us + EXCLUDE_US;
    if (fault->failures < EXCLUDE_FAILURES && is_again)
        text_format(text,
                    "node %s has failed the job again, and no other node can run it: it is tried "
                    "there again, %u times in all",
                    fault->node, tries);
    else if (fault->failures < EXCLUDE_FAILURES)
        text_format(text, "node %s has failed the job once%s", fault->node,
                    job->record.max_restarts == 0 ? "" : "; --max-restarts does not count that");
    else
        text_format(text,
                    "node %s has failed the job%s: the job does not use it for %llu minutes, or "
                    "until \"ddpctl node resume %s\"",
                    fault->node, was_late ? "" : " again",
                    (unsigned long long)(EXCLUDE_US / 60000000), fault->node);
    job_log(rdzv, job, text);
    write_faults(rdzv, job);
}

void failure_late(struct rdzv *rdzv, struct job *job, const char *node)
{
    struct node_fault *fault;

    if (can_spare(rdzv, job, node))
        failure_exclude(rdzv, job, node);
    fault = find_fault(job, node);
    fault->is_late = true;
    fault->until_us = rdzv->out.now_us + EXCLUDE_US;
}

static void count_crash(struct rdzv *rdzv, struct job *job)
{
    const struct rdzv_record *record = &job->record;
    struct node_fault *fault;
    char text[REASON_BYTES_MAX];

    if (!failure_is_program(record->failed_class) || record->failed_rank < 0 ||
        record->failed_node[0] == '\0' || !failure_is_crash(record) ||
        !can_spare(rdzv, job, record->failed_node))
        return;
    fault = find_fault(job, record->failed_node);
    if (fault->failures < EXCLUDE_FAILURES)
        fault->failures++;
    fault->until_us = rdzv->out.now_us + EXCLUDE_US;
    if (fault->failures == EXCLUDE_FAILURES) {
        text_format(
            text,
            "ranks of the job have crashed or hung on node %s twice: the job does not use it "
            "for %llu minutes, or until \"ddpctl node resume %s\"",
            fault->node, (unsigned long long)(EXCLUDE_US / 60000000), fault->node);
        job_log(rdzv, job, text);
    }
    write_faults(rdzv, job);
}

/* Whether enough nodes could start the job at once without this one. A job whose command is missing
 * must not wait for slots before it fails. */
static bool has_room_elsewhere(const struct rdzv *rdzv, const struct job *job, const char *name)
{
    const uint32_t slots = job->record.nproc_per_node;
    uint32_t count = 0;

    if (rdzv->reservation.job_id != 0)
        return false; /* the next free slots are for a job that waits */
    for (uint32_t i = 0; i < rdzv->node_count; i++) {
        const struct node *node = &rdzv->nodes[rdzv->by_name[i]];
        const bool is_own = roster_part_of(rdzv, node, job) != UINT32_MAX;

        count += node->state == NODE_UP && node->conn != 0 && !node->is_drained &&
                 !node->is_leaving && !failure_excludes(rdzv, job, rdzv->by_name[i]) &&
                 (is_own || bits_count(roster_free_mask(rdzv, node)) >= slots) &&
                 strcmp(node->name, name) != 0;
    }
    return count >= job->record.nodes_min;
}

/* Excludes the node, if the job may be tried on others. `says` completes "node NAME ..." in the job's log. */
static bool goes_elsewhere(struct rdzv *rdzv, struct job *job, const char *node, const char *says)
{
    char text[REASON_BYTES_MAX];

    if (job->record.max_restarts == 0 || job->went_elsewhere ||
        !has_room_elsewhere(rdzv, job, node))
        return false;
    job->went_elsewhere = true;
    failure_exclude(rdzv, job, node);
    text_format(text, "node %s %s, and the job does not use this one for %llu minutes", node, says,
                (unsigned long long)(EXCLUDE_US / 60000000));
    job_log(rdzv, job, text);
    return true;
}

bool failure_goes_elsewhere(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    uint32_t count = 0;

    for (uint32_t i = 0; i < record->part_count; i++)
        count += job->gang.parts[i].cannot_run;
    if ((record->errno_exit == 0 && !failure_is_for_want_of_program(record)) || count > 1 ||
        record->failed_node[0] == '\0' ||
        !goes_elsewhere(rdzv, job, record->failed_node,
                        "cannot run the command: it is tried on other nodes"))
        return false;
    record->failed_class = FAILURE_NODE;
    return true;
}

bool failure_stage_elsewhere(struct rdzv *rdzv, struct job *job, const char *node)
{
    return goes_elsewhere(rdzv, job, node,
                          "cannot have the staged directory: other nodes may have it from before");
}

/* If the rank's GPU was drained by its node for a fault, the failure is the node's. */
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

/* Whether a node that is lost now was already gone when the job failed. If this server was started
 * after the failure, it does not know when that was: a node that it has never heard counts as gone. */
static bool was_gone(const struct job *job, const struct node *node)
{
    if (job->failed_at_us == 0)
        return !node->has_beat;
    return node->beat_at_us <= job->failed_at_us + FAILURE_BEFORE_US;
}

/* If a rank failed when another node of the generation was already gone, it failed because it lost
 * its peers. */
static void settle_gone(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_record *record = &job->record;
    char text[REASON_BYTES_MAX];

    for (uint32_t i = 0; failure_may_be_for_want(record) && i < record->part_count; i++) {
        const struct node *node = roster_find(rdzv, record->parts[i].node);

        if (!job->gang.parts[i].is_lost || node == NULL ||
            strcmp(record->failed_node, record->parts[i].node) == 0 || !was_gone(job, node))
            continue;
        record->failed_class = FAILURE_NETWORK;
        text_format(text,
                    "node %s was gone when rank %d failed: --max-restarts does not count that",
                    node->name, record->failed_rank);
        job_log(rdzv, job, text);
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
    settle_gone(rdzv, job);
    if (record->failed_class == FAILURE_NODE)
        count_for_node(rdzv, job);
    else
        count_crash(rdzv, job);
    job_set_dirty(rdzv, job);
}

#define CAUSE_BYTES 110 /* bytes of the old reason that are kept: `why` has room after it */

void failure_explain(struct rdzv_record *record, const char *why)
{
    char cause[REASON_BYTES_MAX];
    size_t end = CAUSE_BYTES - 3;

    (void)snprintf(cause, sizeof cause, "%s", record->reason);
    if (strlen(cause) > CAUSE_BYTES) {
        while (end > 1 && cause[end] != ' ')
            end--;
        if (end <= 1) /* one long word */
            end = CAUSE_BYTES - 3;
        while (end > 1 && strchr(" :;,", cause[end - 1]) != NULL)
            end--;
        memcpy(cause + end, "...", sizeof "...");
    }
    text_format(record->reason, "%s: %s", cause, why);
}

static uint16_t index_of(const struct rdzv *rdzv, const struct node_fault *fault)
{
    const struct node *node = roster_find(rdzv, fault->node);

    return node == NULL ? NODE_NONE : (uint16_t)roster_index(rdzv, node);
}

uint16_t failure_avoided(const struct rdzv *rdzv, const struct job *job, uint32_t i)
{
    assert(i < job->fault_count);
    if (!job->faults[i].is_late || rdzv->out.now_us >= job->faults[i].until_us)
        return NODE_NONE;
    return index_of(rdzv, &job->faults[i]);
}

uint16_t failure_excluded(const struct rdzv *rdzv, const struct job *job, uint32_t i)
{
    assert(i < job->fault_count);
    if (!is_excluded(rdzv, &job->faults[i]))
        return NODE_NONE;
    return index_of(rdzv, &job->faults[i]);
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
    if (failure_excluded_until(rdzv, job) == UINT64_MAX || rdzv->out.now_us < rdzv->settled_at_us)
        return true;
    if (rdzv->options.is_one_machine)
        return can_spare(rdzv, job, "");
    return rdzv->node_most > 1; /* the others may come back */
}

void failure_pardon(struct rdzv *rdzv, const char *node)
{
    struct node *known = roster_find(rdzv, node);

    if (known != NULL)
        trouble_clear(&known->trouble);
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = job_at(rdzv, i);

        if (job->ended)
            continue;
        for (uint32_t k = 0; k < job->fault_count; k++) {
            if (strcmp(job->faults[k].node, node) != 0)
                continue;
            job->faults[k] = job->faults[--job->fault_count];
            rdzv->sched_due = true;
            if (actions_have_room(&rdzv->out, JOB_ACTIONS_MAX))
                write_faults(rdzv, job); /* otherwise a restarted server would exclude it again */
            break;
        }
    }
}
