/* What others may read of the core: records, summaries, nodes. */
#include "rendezvous/rdzv_state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rdzv_record *rdzv_record(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = rdzv_find_job(rdzv, job_id);

    return job == NULL ? NULL : &job->record;
}

const struct rdzv_rank *rdzv_ranks(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = rdzv_find_job(rdzv, job_id);

    return job == NULL ? NULL : job->ranks;
}

const struct rdzv_rank *rdzv_ended_ranks(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = rdzv_find_job(rdzv, job_id);

    return job == NULL ? NULL : job->ended_ranks;
}

const struct rdzv_part *rdzv_ended_parts(const struct rdzv *rdzv, uint64_t job_id,
                                         uint32_t *part_count)
{
    const struct job *job = rdzv_find_job(rdzv, job_id);

    *part_count = job == NULL ? 0 : job->ended_part_count;
    return job == NULL ? NULL : job->ended_parts;
}

uint64_t rdzv_job_version(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = rdzv_find_job(rdzv, job_id);

    return job == NULL ? 0 : job->version;
}

uint32_t rdzv_job_count(const struct rdzv *rdzv)
{
    return rdzv->job_count;
}

uint64_t rdzv_job_at(const struct rdzv *rdzv, uint32_t index)
{
    assert(index < rdzv->job_count);
    return rdzv->jobs[rdzv->order[index]].record.job_id;
}

uint32_t rdzv_where(const struct rdzv_part *parts, uint32_t part_count, char *out, uint32_t bytes)
{
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < part_count && used < bytes; i++)
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%s", i == 0 ? "" : ",", parts[i].node);
    if (used >= bytes) {
        (void)snprintf(out, bytes, "%s and %u more", parts[0].node, part_count - 1);
        used = strlen(out);
    }
    return (uint32_t)used;
}

void rdzv_summary(const struct rdzv_record *record, const char *where, struct part_job *out)
{
    memset(out, 0, sizeof *out);
    out->job_id = record->job_id;
    out->name = record->name;
    out->user = record->user;
    out->state = record->state;
    out->generation = record->generation;
    out->restarts = record->restarts;
    out->max_restarts = record->max_restarts;
    out->nodes = record->nodes;
    out->nproc_per_node = record->nproc_per_node;
    out->where = where;
    out->reason = record->reason;
    out->ended = record->state == JOB_SUCCEEDED || record->state == JOB_FAILED ||
                 record->state == JOB_CANCELLED;
    out->exit_code = record->exit_code;
    out->signal = record->signal;
    out->exit_is_ours = record->exit_is_ours;
    out->submitted_ms = record->submitted_ms;
    out->started_ms = record->started_ms;
    out->ended_ms = record->ended_ms;
    out->checkpoint_step = record->checkpoint_step;
}

void rdzv_job_part(const struct rdzv *rdzv, uint64_t job_id, char where[REASON_BYTES_MAX],
                   struct part_job *out)
{
    const struct job *job = rdzv_find_job(rdzv, job_id);
    uint32_t count;

    assert(job != NULL);
    count = job->record.nodes * job->record.nproc_per_node;
    (void)rdzv_where(job->record.parts, job->record.part_count, where, REASON_BYTES_MAX);
    rdzv_summary(&job->record, where, out);
    for (uint32_t i = 0; job->record.part_count > 0 && i < count; i++)
        out->ranks_running += job->ranks[i].state == RANK_RUNNING;
    out->epoch = job->progress.epoch;
    out->epochs = job->progress.epochs;
    out->step = job->progress.step;
    out->steps = job->progress.steps;
    out->loss = job->progress.loss;
    out->samples_per_s = job->progress.samples_per_s;
}

uint32_t rdzv_node_count(const struct rdzv *rdzv)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++)
        count += rdzv->nodes[i].used;
    return count;
}

static uint64_t all_slots(const struct node *node)
{
    return node->slots >= 64 ? UINT64_MAX : (1ull << node->slots) - 1;
}

static void fill_drain(const struct rdzv_drain *drain, struct part_node *out)
{
    out->drained = drain != NULL;
    out->drain_reason = drain != NULL ? drain->reason : "";
    out->drained_by = drain != NULL ? drain->user : "";
    out->drained_ms = drain != NULL ? drain->at_ms : 0;
}

void rdzv_node_at(const struct rdzv *rdzv, uint32_t index, uint64_t now_us, struct part_node *out)
{
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        const struct node *node = &rdzv->nodes[i];

        if (!node->used || index-- != 0)
            continue;
        *out = (struct part_node){
            .slots_closed = bits_count(slots_closed_mask(node) & all_slots(node)),
            .name = node->name,
            .state = node->state,
            .address = node->address,
            .slots = node->slots,
            .slots_free = node->state == NODE_LOST ? 0 : bits_count(roster_free_mask(rdzv, node)),
            .gpus = node->gpus,
            .pid = node->pid,
            .version = node->version,
            .beat_age_us = node->has_beat ? (int64_t)(now_us - node->beat_at_us) : -1,
        };
        fill_drain(slots_drain_of(rdzv, node->name, RDZV_WHOLE_NODE), out);
        return;
    }
    assert(false);
}

bool rdzv_has_node(const struct rdzv *rdzv, const char *name)
{
    return roster_find(rdzv, name) != NULL;
}

const struct rdzv_drain *rdzv_drains(const struct rdzv *rdzv, uint32_t *count)
{
    *count = rdzv->drain_count;
    return rdzv->drains;
}

/* What has a slot: a job's part, or what the node says of one that the server has given up. */
static void fill_job(const struct rdzv *rdzv, const struct node *node, uint32_t slot,
                     struct part_slot *out)
{
    for (uint32_t i = 0; i < node->shim_count; i++) {
        const struct part_beat_shim *shim = &node->shims[i];

        if (shim->phase == SHIM_ENDED || (shim->slot_mask >> slot & 1) == 0)
            continue;
        out->job_id = shim->job_id;
        out->generation = shim->generation;
        return;
    }
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = &rdzv->jobs[rdzv->order[i]];
        uint32_t part = job->ended ? UINT32_MAX : job_part_on(job, node->name);

        if (part == UINT32_MAX || job->parts[part].is_lost ||
            (job->record.parts[part].slot_mask >> slot & 1) == 0)
            continue;
        out->job_id = job->record.job_id;
        out->generation = job->record.generation;
        return;
    }
}

/* An operator's drain says more than the node's own state. */
static void fill_slot(const struct rdzv *rdzv, const struct node *node, uint32_t slot,
                      struct part_slot *out)
{
    const struct rdzv_drain *drain = slots_drain_of(rdzv, node->name, slot);
    const struct node_slot *state = &node->slot_states[slot];

    if (drain == NULL)
        drain = slots_drain_of(rdzv, node->name, RDZV_WHOLE_NODE);
    *out = (struct part_slot){.node = node->name, .slot = slot, .reason = "", .drained_by = ""};
    fill_job(rdzv, node, slot, out);
    if (drain != NULL) {
        out->state = SLOT_DRAINED;
        out->reason = drain->reason;
        out->drained_by = drain->user;
        out->since_ms = drain->at_ms;
    } else if (state->state != SLOT_FREE) {
        out->state = state->state;
        out->reason = state->reason;
        out->since_ms = state->since_ms;
    } else {
        out->state = out->job_id != 0 ? SLOT_BUSY : SLOT_FREE;
    }
}

uint32_t rdzv_slots(const struct rdzv *rdzv, const char *name, struct part_slot *out, uint32_t max)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        const struct node *node = &rdzv->nodes[i];
        uint64_t mask = all_slots(node);

        if (!node->used || (name != NULL && strcmp(node->name, name) != 0))
            continue;
        if (name == NULL)
            mask &= slots_closed_mask(node);
        for (; mask != 0 && count < max; mask &= mask - 1)
            fill_slot(rdzv, node, (uint32_t)__builtin_ctzll(mask), &out[count++]);
    }
    return count;
}

uint64_t rdzv_node_conn(const struct rdzv *rdzv, const char *name)
{
    const struct node *node = roster_find(rdzv, name);

    return node == NULL ? 0 : node->conn;
}
