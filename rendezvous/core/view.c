/* Reading the core: records, summaries, nodes. */
#include "common/name_order.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/reach.h"
#include "rendezvous/core/slots.h"
#include "rendezvous/core/state.h"

#include <stdio.h>
#include <string.h>

/* Shown as the operator who drained a node that is leaving. */
#define LEAVING_BY "its launcherd"
#define LEAVING_WHY "it was told to end, and waits for its jobs"

const struct rdzv_record *rdzv_job_record(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = job_find(rdzv, job_id);

    return job == NULL ? NULL : &job->record;
}

uint32_t rdzv_job_nodes(const struct rdzv *rdzv, uint64_t job_id, struct msg_pair *out)
{
    const struct job *job = job_find(rdzv, job_id);
    const struct node *node;

    for (uint32_t i = 0; job != NULL && i < job->record.part_count; i++) {
        if (job->gang.parts[i].node == NODE_NONE)
            return 0;
        node = &rdzv->nodes[job->gang.parts[i].node];
        if (node->address[0] == '\0')
            return 0;
        out[i] = (struct msg_pair){.name = node->name, .value = reach_address(rdzv, job, i)};
    }
    return job == NULL ? 0 : job->record.part_count;
}

const struct rdzv_rank *rdzv_ranks(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = job_find(rdzv, job_id);

    return job == NULL ? NULL : job->gang.ranks;
}

const struct rdzv_rank *rdzv_ended_ranks(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = job_find(rdzv, job_id);

    return job == NULL ? NULL : job->last.ranks;
}

const struct part_failure *rdzv_failure(const struct rdzv *rdzv, uint64_t job_id, bool *is_restored)
{
    const struct job *job = job_find(rdzv, job_id);

    assert(job != NULL && job->note.failure.generation > 0);
    *is_restored = job->note.is_restored;
    return &job->note.failure;
}

uint64_t rdzv_running_since(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = job_find(rdzv, job_id);

    return job == NULL || job->record.part_count == 0 ? UINT64_MAX : job->running_at_us;
}

static_assert(NODE_FAULTS_MAX * NODE_NAME_BYTES_MAX <= AVOIDED_BYTES_MAX, "all names fit");

void rdzv_avoided(const struct rdzv *rdzv, uint64_t job_id, char text[AVOIDED_BYTES_MAX])
{
    const struct job *job = job_find(rdzv, job_id);
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; job != NULL && i < job->fault_count; i++)
        if (failure_excluded(rdzv, job, i) != NODE_NONE)
            used += (size_t)snprintf(text + used, AVOIDED_BYTES_MAX - used, "%s%s",
                                     used > 0 ? " " : "", job->faults[i].node);
}

const struct rdzv_part *rdzv_ended_parts(const struct rdzv *rdzv, uint64_t job_id,
                                         uint32_t *part_count)
{
    const struct job *job = job_find(rdzv, job_id);

    *part_count = job == NULL ? 0 : job->last.part_count;
    return job == NULL ? NULL : job->last.places;
}

uint64_t rdzv_job_version(const struct rdzv *rdzv, uint64_t job_id)
{
    const struct job *job = job_find(rdzv, job_id);

    return job == NULL ? 0 : job->version;
}

bool rdzv_is_of_past(const struct rdzv *rdzv)
{
    return rdzv->is_of_past;
}

const char *rdzv_past_why(const struct rdzv *rdzv)
{
    return rdzv->past_why;
}

uint32_t rdzv_job_count(const struct rdzv *rdzv)
{
    return rdzv->job_count;
}

uint64_t rdzv_job_at(const struct rdzv *rdzv, uint32_t index)
{
    return job_at(rdzv, index)->record.job_id;
}

void rdzv_job_part(const struct rdzv *rdzv, uint64_t job_id, struct part_job *out)
{
    const struct job *job = job_find(rdzv, job_id);

    assert(job != NULL);
    rdzv_summary(&job->record, out);
    out->straggler = job->slow;
    if (job->silent[0] != '\0')
        out->reason = job->silent;
    out->spares_held = job->spare_count;
    out->spares_warm = job->warm_count;
    if (job->told_generation != 0)
        out->progress_generation = job->told_generation;
    for (uint32_t i = 0; job->record.part_count > 0 && i < job_world(job); i++)
        out->ranks_running += job->gang.ranks[i].state == RANK_RUNNING;
}

uint32_t rdzv_node_count(const struct rdzv *rdzv)
{
    return rdzv->node_count;
}

/* Fills in the operator's drain or the node's own. `node` may be NULL. */
static void fill_drain(const struct node *node, const struct rdzv_drain *drain,
                       struct part_node *out)
{
    const bool is_leaving = node != NULL && node->is_leaving;

    out->drained = drain != NULL || is_leaving;
    out->drain_reason = drain != NULL ? drain->reason : is_leaving ? LEAVING_WHY : "";
    out->drained_by = drain != NULL ? drain->user : is_leaving ? LEAVING_BY : "";
    out->drained_ms = drain != NULL ? drain->at_ms : is_leaving ? node->leaving_ms : 0;
}

static const struct node *node_at(const struct rdzv *rdzv, uint32_t index)
{
    assert(index < rdzv->node_count);
    return &rdzv->nodes[rdzv->by_name[index]];
}

void rdzv_node_at(const struct rdzv *rdzv, uint32_t index, uint64_t now_us, struct part_node *out)
{
    const struct node *node = node_at(rdzv, index);

    *out = (struct part_node){
        .slots_closed = bits_count(slots_closed_mask(node) & bits_below(node->slots)),
        .name = node->name,
        .state = node->state,
        .address = node->address,
        .slots = node->slots,
        .slots_free = node->state == NODE_LOST ? 0 : bits_count(roster_free_mask(rdzv, node)),
        .gpus = node->gpus,
        .pid = node->pid,
        .version = node->version,
        .protocol = node->protocol,
        .drains_on_term = node->drains_on_term,
        .notice = now_us < node->notice_until_us ? node->notice : "",
        .beat_age_us = node->has_beat ? (int64_t)(now_us - node->beat_at_us) : -1,
    };
    out->reconnects = node->trouble.reconnects;
    if (out->notice == NULL || out->notice[0] == '\0')
        out->notice = node->trouble.text[0] != '\0' ? node->trouble.text : node->trouble.silent;
    fill_drain(node, slots_drain_of(rdzv, node->name, RDZV_WHOLE_NODE), out);
}

void rdzv_hold(const struct rdzv *rdzv, const char *name, struct rdzv_hold *out)
{
    const struct node *node = roster_find(rdzv, name);

    *out = (struct rdzv_hold){.slot_mask = node == NULL ? 0 : node->held_mask};
    (void)snprintf(out->node, sizeof out->node, "%s", name);
    if (node != NULL)
        out->identity = node->held_by;
}

uint32_t rdzv_node_after(const struct rdzv *rdzv, const char *name)
{
    uint32_t at = roster_place(rdzv, name);

    return at < rdzv->node_count && strcmp(node_at(rdzv, at)->name, name) == 0 ? at + 1 : at;
}

bool rdzv_has_node(const struct rdzv *rdzv, const char *name)
{
    return roster_find(rdzv, name) != NULL;
}

const char *rdzv_away_after(const struct rdzv *rdzv, const char *name, const char *end)
{
    const char *first = NULL;

    for (uint32_t i = 0; i < rdzv->drain_count; i++) {
        const char *other = rdzv->drains[i].node;

        if (name_order(other, name) > 0 && (end == NULL || name_order(other, end) < 0) &&
            (first == NULL || name_order(other, first) < 0) && roster_find(rdzv, other) == NULL)
            first = other;
    }
    return first;
}

bool rdzv_is_away(const struct rdzv *rdzv, const char *name)
{
    for (uint32_t i = 0; i < rdzv->drain_count; i++)
        if (strcmp(rdzv->drains[i].node, name) == 0)
            return roster_find(rdzv, name) == NULL;
    return false;
}

void rdzv_away(const struct rdzv *rdzv, const char *name, struct part_node *out)
{
    *out = (struct part_node){
        .name = name, .state = NODE_LOST, .address = "", .version = "", .beat_age_us = -1};
    fill_drain(NULL, slots_drain_of(rdzv, name, RDZV_WHOLE_NODE), out);
}

uint32_t rdzv_away_slots(const struct rdzv *rdzv, const char *name,
                         struct part_slot out[SLOTS_PER_NODE_MAX])
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < SLOTS_PER_NODE_MAX; slot++) {
        const struct rdzv_drain *drain = slots_drain_of(rdzv, name, slot);

        if (drain != NULL)
            out[count++] = (struct part_slot){.node = name,
                                              .slot = slot,
                                              .state = SLOT_DRAINED,
                                              .reason = drain->reason,
                                              .drained_by = drain->user,
                                              .since_ms = drain->at_ms};
    }
    return count;
}

const struct rdzv_drain *rdzv_drains(const struct rdzv *rdzv, uint32_t *count)
{
    *count = rdzv->drain_count;
    return rdzv->drains;
}

static void fill_spare(const struct rdzv *rdzv, uint32_t node, uint32_t slot, struct part_slot *out)
{
    const struct node_spares *on = &rdzv->spares_on[node];

    for (uint32_t i = 0; i < on->count; i++)
        if ((on->items[i].slot_mask >> slot & 1) != 0) {
            out->job_id = rdzv->jobs[on->items[i].job].record.job_id;
            out->generation = rdzv->jobs[on->items[i].job].record.generation;
        }
}

/* Finds the job on a slot: from the node's list (which may have a job that the server has given
 * up), otherwise from the parts of jobs. */
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
    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;
        const struct job *job = roster_part(rdzv, node, i, &part);

        if ((job->record.parts[part].slot_mask >> slot & 1) == 0)
            continue;
        out->job_id = job->record.job_id;
        out->generation = job->record.generation;
        return;
    }
    fill_spare(rdzv, roster_index(rdzv, node), slot, out);
}

/* An operator's drain takes precedence over the node's own state of the slot. */
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
    } else if (node->is_leaving) {
        out->state = SLOT_DRAINED;
        out->reason = LEAVING_WHY;
        out->drained_by = LEAVING_BY;
        out->since_ms = node->leaving_ms;
    } else if (state->state != SLOT_FREE) {
        out->state = state->state;
        out->reason = node->reasons[slot];
        out->since_ms = state->since_ms;
    } else {
        out->state = out->job_id != 0 ? SLOT_BUSY : SLOT_FREE;
    }
}

uint32_t rdzv_node_slots(const struct rdzv *rdzv, uint32_t index, bool all,
                         struct part_slot out[SLOTS_PER_NODE_MAX])
{
    const struct node *node = node_at(rdzv, index);
    uint64_t mask = bits_below(node->slots) & (all ? UINT64_MAX : slots_closed_mask(node));
    uint32_t count = 0;

    for (; mask != 0; mask &= mask - 1)
        fill_slot(rdzv, node, (uint32_t)__builtin_ctzll(mask), &out[count++]);
    return count;
}

uint64_t rdzv_node_conn(const struct rdzv *rdzv, const char *name)
{
    const struct node *node = roster_find(rdzv, name);

    return node == NULL ? 0 : node->conn;
}
