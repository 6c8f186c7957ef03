/* Processes that wait for a job: they are on slots of no other job, and end with their job. */
#include "tests/sim/oracle_facts.h"

#define LEFT_US                                                                                    \
    (8 * SECOND_US) /* a beat, the answer, and the end of the processes: 2 s; a late message 4 s */

static bool is_final(const struct sim *sim, uint64_t job_id)
{
    const struct sim_row *row = disk_row(sim, job_id);

    return row == NULL || rdzv_state_is_final(row->record.state);
}

static void check_parts(struct sim *sim, uint32_t node, const struct msg_warm *warm,
                        const struct rdzv_record *other)
{
    for (uint32_t i = 0; i < other->part_count; i++)
        if (node_of_name(other->parts[i].node) == node &&
            (other->parts[i].slot_mask & warm->slot_mask) != 0)
            sim_fail(sim, "warm", "node%u is to keep job %llu warm on slots of job %llu", node,
                     (unsigned long long)warm->job_id, (unsigned long long)other->job_id);
}

void oracle_warms(struct sim *sim, uint32_t node, const struct msg_warm *warm)
{
    if (is_final(sim, warm->job_id))
        sim_fail(sim, "warm", "node%u is to keep job %llu warm, which has ended", node,
                 (unsigned long long)warm->job_id);
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        check_parts(sim, node, warm, &sim->disk.written[i].record);
}

void oracle_warm_spawned(struct sim *sim, uint32_t node, const struct sim_shim *shim,
                         uint32_t worker)
{
    for (uint32_t i = 0; i < SIM_WARM_MAX; i++) {
        const struct sim_warm *warm = &sim->nodes[node].warm[i];

        if (warm->used && warm->state != WARM_FAILED &&
            (warm->slot_mask >> shim_slot(shim, worker) & 1) != 0)
            sim_fail(sim, "warm", "node%u: job %llu g%u runs where processes wait for job %llu",
                     node, (unsigned long long)shim->job_id, shim->generation,
                     (unsigned long long)warm->job_id);
    }
}

/* The node sends beats and gets answers. */
static bool is_heard(const struct sim *sim, uint32_t index)
{
    const struct sim_node *node = &sim->nodes[index];

    return server_is_ready(sim) && node->alive && node->is_welcome && !node->cut_to_server &&
           !node->cut_to_node && sim->now_us >= node->paused_until_us &&
           sim->now_us >= node->frozen_until_us && sim->oracle->nodes[index].conn != 0 &&
           sim->now_us < sim->oracle->nodes[index].heard_at_us + 2 * SECOND_US;
}

void oracle_check_warm(struct sim *sim)
{
    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t i = 0; i < SIM_WARM_MAX; i++) {
            struct sim_warm *warm = &sim->nodes[n].warm[i];

            if (!warm->used || !is_final(sim, warm->job_id) || !is_heard(sim, n) ||
                sim->now_us < sim->nodes[n].stalls_until_us)
                warm->wanted_us = sim->now_us;
            else if (sim->now_us > warm->wanted_us + LEFT_US)
                sim_fail(sim, "warm", "node%u: processes wait for job %llu, which has ended", n,
                         (unsigned long long)warm->job_id);
        }
}
