/* What must hold after every event, and at the end. Numbers: the invariants of
 * docs/architecture.md, "Invariants". */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define KILL_SLACK_US 100000u

static bool is_end(enum job_state state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

struct sim_generation *check_generation(struct sim *sim, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = sim->generation_count; i-- > 0;) /* the newest are asked for most */
        if (sim->generations[i].job_id == job_id && sim->generations[i].generation == generation)
            return &sim->generations[i];
    if (sim->generation_count == sim->size.generations) {
        sim_fail(sim, "more than %u generations", sim->size.generations);
        return NULL;
    }
    sim->generations[sim->generation_count] =
        (struct sim_generation){.job_id = job_id, .generation = generation};
    return &sim->generations[sim->generation_count++];
}

static uint32_t slot_of(const struct sim_shim *shim, uint32_t worker)
{
    uint64_t mask = shim->slot_mask;

    while (worker-- > 0)
        mask &= mask - 1;
    return (uint32_t)__builtin_ctzll(mask);
}

/* I1: no two live workers of one rank. I5: one worker a slot. Each rank is spawned once in a
 * generation, in one place; and a generation is on the disk before anything of it runs. */
void check_spawn(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t worker)
{
    struct sim_generation *generation = check_generation(sim, shim->job_id, shim->generation);
    const struct sim_row *row = store_row(sim, shim->job_id);
    uint32_t rank = shim->rank_base + worker;

    if (row == NULL || row->record.generation < shim->generation)
        sim_fail(sim, "job %llu g%u runs, and is not in the store",
                 (unsigned long long)shim->job_id, shim->generation);
    if (generation == NULL)
        return;
    if (row != NULL && row->record.generation == shim->generation && row->record.part_count > 0 &&
        generation->ready_count < row->record.part_count)
        sim_fail(sim, "job %llu g%u: a rank is spawned with %u of %u shims ready",
                 (unsigned long long)shim->job_id, shim->generation, generation->ready_count,
                 row->record.part_count);
    if (generation->node_of[rank] != 0)
        sim_fail(sim, "job %llu g%u: rank %u is spawned again, on node%u after node%u",
                 (unsigned long long)shim->job_id, shim->generation, rank, node,
                 generation->node_of[rank] - 1);
    generation->node_of[rank] = node + 1;
    for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
        const struct sim_shim *other = &sim->nodes[node].shims[s];

        for (uint32_t w = 0; other->alive && w < other->local_count; w++)
            if (other->workers[w].alive && (other != shim || w != worker) &&
                slot_of(other, w) == slot_of(shim, worker))
                sim_fail(sim, "node%u: two workers on slot %u, of job %llu g%u and job %llu g%u",
                         node, slot_of(shim, worker), (unsigned long long)shim->job_id,
                         shim->generation, (unsigned long long)other->job_id, other->generation);
    }
}

static void check_drained(struct sim *sim, const struct rdzv_part *part)
{
    for (uint32_t i = 0; i < sim->drain_count; i++) {
        const struct rdzv_drain *drain = &sim->drains[i];

        if (strcmp(drain->node, part->node) == 0 &&
            (drain->slot == RDZV_WHOLE_NODE || (part->slot_mask >> drain->slot & 1) != 0))
            sim_fail(sim, "ranks are placed on %s, and the store has it as drained", part->node);
    }
}

static bool has_action(const struct rdzv_actions *actions, enum rdzv_action_type type,
                       uint64_t conn)
{
    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == type && actions->items[i].conn == conn)
            return true;
    return false;
}

static void told_list(struct sim_told *told, const struct part_beat_shim *shims,
                      uint32_t shim_count, const struct part_slot_closed *closed, uint32_t count)
{
    told->shim_count = shim_count;
    for (uint32_t i = 0; i < shim_count; i++)
        told->shims[i] = shims[i];
    told->closed_mask = 0;
    for (uint32_t i = 0; i < count; i++)
        told->closed_mask |= 1ull << closed[i].slot;
}

/* Docs: a slot with a GPU is closed from the report of its shim's end to the node's next list. */
static void told_end(struct sim *sim, uint32_t node, const struct msg_shim_report *report)
{
    struct sim_told *told = &sim->told[node];

    for (uint32_t i = 0; i < told->shim_count; i++) {
        struct part_beat_shim *shim = &told->shims[i];

        if (shim->job_id != report->job_id || shim->generation != report->generation ||
            shim->phase == SHIM_ENDED || report->phase != SHIM_ENDED)
            continue;
        shim->phase = SHIM_ENDED;
        told->closed_mask |= shim->slot_mask & ((1ull << sim->nodes[node].gpu_count) - 1);
    }
}

void check_told(struct sim *sim, uint32_t conn, const struct msg *msg,
                const struct rdzv_actions *actions)
{
    uint32_t node = sim->conns[conn].node;
    struct sim_told *told = &sim->told[node];

    if (msg->type == MSG_TYPE_NODE_HELLO && has_action(actions, RDZV_SEND_WELCOME, conn))
        told_list(told, msg->node_hello.shims.items, msg->node_hello.shims.count,
                  msg->node_hello.closed.items, msg->node_hello.closed.count);
    else if (msg->type == MSG_TYPE_BEAT && has_action(actions, RDZV_SEND_BEAT_ACK, conn))
        told_list(told, msg->beat.shims.items, msg->beat.shims.count, msg->beat.closed.items,
                  msg->beat.closed.count);
    else if (msg->type == MSG_TYPE_SHIM_REPORT && has_action(actions, RDZV_SEND_REPORT_ACK, conn))
        told_end(sim, node, &msg->shim_report);
}

void check_ready(struct sim *sim, struct sim_shim *shim)
{
    struct sim_generation *generation = check_generation(sim, shim->job_id, shim->generation);

    if (generation == NULL || shim->was_ready || shim->core.phase < SHIM_READY)
        return;
    shim->was_ready = true;
    generation->ready_count++;
}

/* I4, I9: what the server starts is on slots that no shim is on, by what their node has told it, and
 * on none that the node has closed or an operator has drained. */
void check_placed(struct sim *sim, const struct rdzv_record *record)
{
    for (uint32_t p = 0; p < record->part_count; p++) {
        const struct rdzv_part *part = &record->parts[p];
        const struct sim_told *told = &sim->told[strtoul(part->node + 4, NULL, 10)];

        check_drained(sim, part);
        if ((part->slot_mask & told->closed_mask) != 0)
            sim_fail(sim, "job %llu g%u is placed on slots %llx of %s, which has closed %llx",
                     (unsigned long long)record->job_id, record->generation,
                     (unsigned long long)part->slot_mask, part->node,
                     (unsigned long long)told->closed_mask);
        for (uint32_t i = 0; i < told->shim_count; i++)
            if (told->shims[i].phase != SHIM_ENDED &&
                (told->shims[i].slot_mask & part->slot_mask) != 0)
                sim_fail(sim, "job %llu g%u is placed on %s where job %llu g%u still is",
                         (unsigned long long)record->job_id, record->generation, part->node,
                         (unsigned long long)told->shims[i].job_id, told->shims[i].generation);
    }
}

/* I9: what a node starts is on GPUs that are free in truth: nothing of an earlier job is on them;
 * and no fault that the node knows of. */
void check_order(struct sim *sim, uint32_t node, uint64_t slot_mask)
{
    const struct sim_node *on = &sim->nodes[node];

    for (uint32_t i = 0; i < on->gpu_count; i++) {
        if ((slot_mask >> i & 1) == 0)
            continue;
        if (on->gpus[i].is_faulty)
            sim_fail(sim, "node%u: a shim is ordered on slot %u, and its GPU has a fault", node, i);
        if (sim->now_us < on->gpus[i].leaked_until_us)
            sim_fail(sim, "node%u: a shim is ordered on slot %u, and its GPU is not free", node, i);
        if (on->core.slots[i].state != SLOT_FREE)
            sim_fail(sim, "node%u: a shim is ordered on slot %u, which is %s", node, i,
                     slot_state_name(on->core.slots[i].state));
    }
}

/* One world for each generation: every member got the same blob. */
void check_world(struct sim *sim, const struct sim_shim *shim, uint8_t blob)
{
    struct sim_generation *generation = check_generation(sim, shim->job_id, shim->generation);

    if (generation == NULL)
        return;
    if (generation->has_blob && generation->blob != blob)
        sim_fail(sim, "job %llu g%u: two worlds, blobs %u and %u", (unsigned long long)shim->job_id,
                 shim->generation, generation->blob, blob);
    generation->has_blob = true;
    generation->blob = blob;
}

/* I5, I6: what may be written: generations rise one by one, ended jobs stay, budgets hold. */
void check_write(struct sim *sim, const struct rdzv_record *before, const struct rdzv_record *after)
{
    unsigned long long id = (unsigned long long)after->job_id;
    struct sim_generation *generation;

    if (after->generation > 0 && after->restarts != after->generation - 1)
        sim_fail(sim, "job %llu: generation %u, but %u restarts", id, after->generation,
                 after->restarts);
    if (after->restarts_without_progress > after->max_restarts)
        sim_fail(sim, "job %llu: %u restarts without progress, %u are allowed", id,
                 after->restarts_without_progress, after->max_restarts);
    if (before != NULL &&
        (after->generation < before->generation || after->generation > before->generation + 1 ||
         after->checkpoint_step < before->checkpoint_step))
        sim_fail(sim, "job %llu: generation %u after %u, checkpoint %llu after %llu", id,
                 after->generation, before->generation, (unsigned long long)after->checkpoint_step,
                 (unsigned long long)before->checkpoint_step);
    if (before != NULL && is_end(before->state))
        sim_fail(sim, "job %llu is written after its end", id);
    if (after->state != JOB_SUCCEEDED)
        return;
    generation = check_generation(sim, after->job_id, after->generation);
    if (generation != NULL && generation->exited_ok != after->nodes * after->nproc_per_node)
        sim_fail(sim, "job %llu has succeeded with %u of %u ranks", id, generation->exited_ok,
                 after->nodes * after->nproc_per_node);
}

/* I3, I4: each acknowledged job is in the store, once. */
static void check_acknowledged(struct sim *sim)
{
    for (uint32_t c = 0; c < sim->client_count; c++) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < sim->row_count; i++)
            found += strcmp(sim->rows[i].record.request_id, sim->clients[c].request_id) == 0;
        if (found > 1 || (sim->clients[c].acked && found == 0))
            sim_fail(sim, "request %u: acknowledged %d, %u times in the store", c,
                     sim->clients[c].acked, found);
    }
}

/* No worker outlives its lease; none of an old generation lives beside the new one on a node that
 * the server reaches. */
static void check_workers(struct sim *sim)
{
    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *shim = &sim->nodes[n].shims[s];

            if (!shim->alive)
                continue;
            for (uint32_t w = 0; w < shim->local_count; w++)
                if (shim->workers[w].alive &&
                    sim->now_us > shim->core.lease_until_us + KILL_SLACK_US)
                    sim_fail(sim, "node%u: a worker of job %llu g%u outlives its lease", n,
                             (unsigned long long)shim->job_id, shim->generation);
        }
}

/* An old generation acts in no way that counts: the server's picture of progress is of the current
 * one. */
static void check_progress(struct sim *sim)
{
    if (!sim->server.alive)
        return;
    for (uint32_t i = 0; i < rdzv_job_count(sim->server.core); i++) {
        uint64_t job_id = rdzv_job_at(sim->server.core, i);
        const struct rdzv_record *record = rdzv_job_record(sim->server.core, job_id);
        const struct sim_row *row = store_row(sim, job_id);

        if (row == NULL || row->record.generation != record->generation)
            sim_fail(sim, "job %llu: the server works with generation %u, the store has %u",
                     (unsigned long long)job_id, record->generation,
                     row == NULL ? 0 : row->record.generation);
    }
}

void check_all(struct sim *sim)
{
    if (sim->event_total % sim->size.check_interval != 0)
        return;
    check_acknowledged(sim);
    check_workers(sim);
    check_progress(sim);
}

static void check_outcome(struct sim *sim, uint32_t index)
{
    const struct sim_client *client = &sim->clients[index];
    const struct sim_row *row = store_row(sim, client->job_id);
    const struct rdzv_record *record;

    if (!client->acked || row == NULL || !is_end(row->record.state)) {
        sim_fail(sim, "request %u has not ended", index);
        return;
    }
    record = &row->record;
    if (record->state == JOB_CANCELLED && client->cancel_at_us == UINT64_MAX)
        sim_fail(sim, "job %u was cancelled by nobody", index);
    if (record->state == JOB_SUCCEEDED && client->fails)
        sim_fail(sim, "job %u has succeeded, but its rank 0 always fails", index);
    if (record->state == JOB_FAILED && !client->fails &&
        record->restarts_without_progress < record->max_restarts)
        sim_fail(sim, "job %u was given up after %u of %u restarts", index,
                 record->restarts_without_progress, record->max_restarts);
}

/* I6, I7: all have ended, and nothing is left on any node. */
void check_end(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->client_count; i++)
        check_outcome(sim, i);
    for (uint32_t n = 0; n < sim->node_count; n++) {
        for (uint32_t i = 0; i < sim->nodes[n].gpu_count; i++)
            if (sim->nodes[n].core.slots[i].state != SLOT_FREE)
                sim_fail(sim, "node%u: slot %u is still %s: %s", n, i,
                         slot_state_name(sim->nodes[n].core.slots[i].state),
                         sim->nodes[n].core.slots[i].reason);
        if (sim->nodes[n].core.shim_count != 0)
            sim_fail(sim, "node%u still knows %u shims", n, sim->nodes[n].core.shim_count);
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++)
            if (sim->nodes[n].shims[s].used)
                sim_fail(sim, "node%u: the shim of job %llu g%u is left", n,
                         (unsigned long long)sim->nodes[n].shims[s].job_id,
                         sim->nodes[n].shims[s].generation);
    }
}
