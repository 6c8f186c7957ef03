#include "rendezvous/core/check.h"

#include <string.h>

#include "rendezvous/core/after_list.h"
#include "rendezvous/core/state.h"

static bool has_parts(enum job_state state)
{
    return state == JOB_STARTING || state == JOB_RUNNING;
}

/* Ranks are contiguous from node to node, one slot for each. */
static const char *check_parts(const struct rdzv_record *record, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < record->part_count && i - first < count; i++) {
        const struct rdzv_part *part = &record->parts[i];

        if (part->local_count != record->nproc_per_node ||
            part->rank_base != i * record->nproc_per_node)
            return "its ranks are not those of its size";
        if (bits_count(part->slot_mask) != part->local_count)
            return "a part of it has not one slot for each rank";
        if (part->node[0] == '\0')
            return "a part of it is on no node";
    }
    return NULL;
}

/* FNV-1a. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static bool has_twins(const struct rdzv_record *record)
{
    uint16_t table[2 * NODES_PER_JOB_MAX] = {0}; /* parts by the hash of their nodes: index + 1 */

    for (uint32_t i = 0; i < record->part_count; i++) {
        uint32_t at = hash_of(record->parts[i].node) % (2 * NODES_PER_JOB_MAX);

        for (; table[at] != 0; at = (at + 1) % (2 * NODES_PER_JOB_MAX))
            if (strcmp(record->parts[table[at] - 1u].node, record->parts[i].node) == 0)
                return true;
        table[at] = (uint16_t)(i + 1);
    }
    return false;
}

bool check_after(const struct rdzv_record *record)
{
    struct rdzv_after after;
    bool is_right = after_list_read(record, &after);

    for (uint32_t i = 0; is_right && i < after.count; i++)
        is_right = after.items[i].first <= after.items[i].last &&
                   after.items[i].last < record->job_id && after.items[i].first > 0;
    return is_right && (record->after_job != 0 || record->after_last == 0);
}

bool check_array(const struct rdzv_record *record)
{
    return record->array_job <= record->job_id && record->array_count <= ARRAY_JOBS_MAX &&
           (record->array_job == 0) == (record->array_count == 0) &&
           (record->array_job == 0 || record->job_id - record->array_job < record->array_count);
}

static const char *check_shape(const struct rdzv_record *record)
{
    if (record->job_id == 0 || record->job_id > JOB_ID_MAX || record->name[0] == '\0')
        return "it has no id or no name";
    if (record->nodes == 0 || record->nodes > NODES_PER_JOB_MAX || record->nproc_per_node == 0 ||
        record->nproc_per_node > SLOTS_PER_NODE_MAX ||
        record->nodes * record->nproc_per_node > RANKS_PER_JOB_MAX)
        return "its size is out of range";
    if (record->state > JOB_CANCELLED)
        return "its state is unknown";
    if (!check_after(record))
        return "it waits for jobs that are not before it";
    if (!check_array(record))
        return "its array is malformed";
    if (record->part_count != (has_parts(record->state) ? record->nodes : 0))
        return "its parts do not fit its state";
    if ((record->generation == 0) != (record->state == JOB_QUEUED) &&
        !(record->state == JOB_QUEUED && record->planned) && !rdzv_state_is_final(record->state))
        return "its generation does not fit its state";
    if (record->stopping > STOP_PLANNED ||
        (record->stopping != STOP_NONE &&
         (record->part_count == 0 || record->stop_signal == 0 || record->stop_signal > 64)))
        return "its stop is malformed";
    if (record->nodes_max != 0 &&
        (record->nodes_min == 0 || record->nodes < record->nodes_min ||
         record->nodes > record->nodes_max || record->nodes_max > NODES_PER_JOB_MAX ||
         record->nodes_max * record->nproc_per_node > RANKS_PER_JOB_MAX))
        return "its number of nodes is not one that was asked for";
    if (record->failed_rank < -1 ||
        record->failed_rank >=
            (int32_t)((record->nodes_max != 0 ? record->nodes_max : record->nodes) *
                      record->nproc_per_node))
        return "its failed rank is out of range";
    if (record->restarts != (record->generation == 0 ? 0 : record->generation - 1) &&
        !rdzv_state_is_final(record->state))
        return "its restarts do not fit its generation";
    return NULL;
}

const char *check_record(const struct rdzv *rdzv, const struct rdzv_record *record)
{
    const char *problem = check_shape(record);

    if (problem == NULL)
        problem = check_parts(record, 0, record->part_count);
    if (problem != NULL)
        return problem;
    if (rdzv_state_is_final(record->state))
        return "it has ended already";
    if (has_twins(record))
        return "two parts of it are on one node";
    for (uint32_t i = 0; i < record->part_count; i++) {
        const struct node *node = roster_find(rdzv, record->parts[i].node);

        for (uint32_t k = 0; node != NULL && k < roster_part_count(rdzv, node); k++) {
            uint32_t part;
            const struct job *other = roster_part(rdzv, node, k, &part);

            if ((other->record.parts[part].slot_mask & record->parts[i].slot_mask) != 0)
                return "its slots belong to another job";
        }
    }
    return NULL;
}

static void check_owed(const struct job *job, enum order order)
{
    const struct gang *gang = order == ORDER_FORGET ? &job->last : &job->gang;

    if (gang->part_count % 64 != 0)
        assert((gang_owed(gang, order)[gang->word_count - 1] &
                ~bits_below(gang->part_count % 64)) == 0);
}

/* Checks a job and `count` of its parts, from `first` on. */
static void check_job(const struct rdzv *rdzv, const struct job *job, uint32_t first,
                      uint32_t count)
{
    const struct rdzv_record *record = &job->record;

    assert(job->used && !job->dirty && !job->changed);
    assert(job->ended == rdzv_state_is_final(record->state) && job->is_announced == job->ended);
    assert(check_shape(record) == NULL);
    assert(check_parts(record, first, count) == NULL);
    assert(record->part_count == job->gang.part_count && record->parts == job->gang.places);
    for (uint32_t order = 0; order < ORDER_COUNT; order++)
        check_owed(job, (enum order)order);
    assert(record->part_count > 0 || job->record.stopping == STOP_NONE);
    for (uint32_t i = first; i < record->part_count && i - first < count; i++) {
        const struct part_state *part = &job->gang.parts[i];

        assert(part->node != NODE_NONE || part->is_lost);
        if (part->is_lost)
            continue;
        assert(part->node < rdzv->options.nodes_max && rdzv->nodes[part->node].used);
        assert(strcmp(rdzv->nodes[part->node].name, record->parts[i].node) == 0);
    }
}

/* Checks that the queue and the users' counts agree with the jobs. */
static void check_queue(const struct rdzv *rdzv)
{
    uint32_t waiting = 0, after_count = 0;

    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = job_at(rdzv, i);

        assert(job->is_queued == (!job->ended && job->record.part_count == 0));
        assert(!job->is_queued || queue_has(rdzv, job));
        waiting += job->is_queued;
        after_count += job->is_queued && job->record.after_job != 0;
        assert(job->user == USER_NONE ||
               (rdzv->users[job->user].jobs > 0 &&
                strcmp(rdzv->users[job->user].name, job->record.user) == 0));
        assert(job->user == USER_NONE ||
               job->counted_queued == (!job->ended && job->record.state == JOB_QUEUED));
    }
    assert(waiting == rdzv->queue_count);
    assert(after_count == rdzv->after_count);
    assert(rdzv->live_count == rdzv->job_count - waiting);
}

static void check_counts(const struct rdzv *rdzv)
{
    assert(rdzv->out.actions == NULL && rdzv->out.reserved == 0);
    assert(rdzv->job_count <= rdzv->options.jobs_max + 1);
    assert(rdzv->drain_count <= DRAINS_MAX);
    assert(rdzv->random != 0);
}

static void check_node(const struct rdzv *rdzv, const struct node *node)
{
    assert(node->shim_count <= SHIMS_PER_NODE_MAX && node->slots <= SLOTS_PER_NODE_MAX);
    assert(node->conn == 0 || node->state != NODE_LOST);
    assert(node->conn == rdzv->views[roster_index(rdzv, node)].conn);
    assert(roster_find(rdzv, node->name) == node);
    assert(!node->has_lost_parts || node->state == NODE_LOST);
    for (uint32_t i = 0; i < SLOTS_PER_NODE_MAX; i++) {
        enum slot_state state = node->slot_states[i].state;

        assert((node->closed_mask >> i & 1) == (state != SLOT_FREE));
        assert((node->checking_mask >> i & 1) == (state == SLOT_CHECKING));
    }
    for (uint32_t i = 0; node->conn != 0 && i < rdzv->options.nodes_max; i++)
        assert(&rdzv->nodes[i] == node || rdzv->views[i].conn != node->conn);
}

/* Checks that only the gangs of jobs take blocks. */
static void check_blocks(const struct rdzv *rdzv)
{
    uint32_t taken = 0;

    blocks_check(&rdzv->blocks);
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = job_at(rdzv, i);

        taken += job->gang.part_count > 0;
        taken += job->last.part_count > 0;
    }
    assert(taken == rdzv->blocks.taken_count);
}

static bool is_on(const struct rdzv *rdzv, uint32_t node, const struct job *job)
{
    for (uint32_t i = 0; i < rdzv->parts_on[node].count; i++)
        if (&rdzv->jobs[rdzv->parts_on[node].items[i].job] == job)
            return true;
    return false;
}

/* A spare must belong to a job that wants spares and has no part on the node, and no one else may
 * have its slots. `taken`: slots with parts. */
static void check_spares(const struct rdzv *rdzv, const uint64_t taken[NODES_MAX])
{
    uint32_t spare_count = 0, spare_jobs = 0, warm_count = 0;

    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++) {
        const struct node_spares *on = &rdzv->spares_on[i];
        uint64_t held = taken[i];

        assert(on->count == 0 || rdzv->nodes[i].used);
        for (uint32_t k = 0; k < on->count; k++) {
            const struct job *job = &rdzv->jobs[on->items[k].job];

            assert(job->used && !job->ended && job->wants_spares && !is_on(rdzv, i, job));
            assert(bits_count(on->items[k].slot_mask) == job->record.nproc_per_node);
            assert((held & on->items[k].slot_mask) == 0);
            held |= on->items[k].slot_mask;
            warm_count += on->items[k].state == WARM_READY;
        }
        spare_count += on->count;
    }
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = job_at(rdzv, i);

        assert(job->spare_count <= job->record.spares);
        spare_count -= job->spare_count;
        warm_count -= job->warm_count;
        spare_jobs += job->wants_spares;
    }
    assert(spare_count == 0 && warm_count == 0 && spare_jobs == rdzv->spare_jobs);
}

/* A slot may be given to one job only. */
static void check_slots(const struct rdzv *rdzv)
{
    uint64_t taken[NODES_MAX] = {0};
    uint32_t part_count = 0;

    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++)
        part_count -= rdzv->parts_on[i].count;
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = job_at(rdzv, i);

        for (uint32_t k = 0; k < job->record.part_count; k++) {
            uint64_t mask = job->record.parts[k].slot_mask;

            if (job->gang.parts[k].is_lost)
                continue;
            assert((taken[job->gang.parts[k].node] & mask) == 0);
            assert(is_on(rdzv, job->gang.parts[k].node, job));
            part_count++;
            taken[job->gang.parts[k].node] |= mask;
        }
    }
    assert(part_count == 0); /* every part on a node was found above */
    check_spares(rdzv, taken);
}

void rdzv_check(const struct rdzv *rdzv)
{
    uint32_t used_count = 0;

    check_counts(rdzv);
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        const struct job *job = job_at(rdzv, i);

        check_job(rdzv, job, 0, UINT32_MAX);
        assert(!has_twins(&job->record));
        assert(i == 0 || job_at(rdzv, i - 1)->record.job_id < job->record.job_id);
    }
    for (uint32_t i = 0; i < rdzv->job_high; i++)
        used_count += rdzv->jobs[i].used;
    assert(rdzv->job_high == rdzv->job_count + rdzv->free_count);
    assert(used_count == rdzv->job_count);
    for (uint32_t i = 0; i < rdzv->options.nodes_max; i++)
        if (rdzv->nodes[i].used)
            check_node(rdzv, &rdzv->nodes[i]);
    check_slots(rdzv);
    check_queue(rdzv);
    check_blocks(rdzv);
}

/* Each step checks one job, and this many of its parts. */
#define PARTS_CHECKED 64u

void check_step(struct rdzv *rdzv)
{
    const struct job *job;

    check_counts(rdzv);
    if (rdzv->check_next >= rdzv->job_count)
        rdzv->check_next = 0;
    if (rdzv->job_count == 0)
        return;
    job = job_at(rdzv, rdzv->check_next);
    check_job(rdzv, job, rdzv->check_part, PARTS_CHECKED);
    rdzv->check_part += PARTS_CHECKED;
    if (rdzv->check_part < job->record.part_count)
        return;
    rdzv->check_part = 0;
    rdzv->check_next++;
}
