/* Ranks that live on after their job has ended, since their node was lost: what follows the job waits for them. */
#include "tests/sim/oracle_facts.h"

static bool is_final(const struct sim *sim, uint64_t job_id)
{
    const struct sim_row *row = disk_row(sim, job_id);

    return row != NULL && rdzv_state_is_final(row->record.state);
}

static bool was_lost(const struct sim *sim, const struct oracle_gen *gen)
{
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (gen->parts[i].was_lost || gen->parts[i].was_gone ||
            sim->oracle->nodes[gen->parts[i].node].lost_us >= gen->stored_us)
            return true;
    return false;
}

/* What a server that starts knows of that. */
static bool has_hold(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim->disk.holds[i].slot_mask != 0)
            return true;
    return false;
}

bool oracle_may_linger(const struct sim *sim, uint64_t job_id)
{
    const struct oracle_job *job = oracle_job(sim, job_id);

    if (has_hold(sim) && is_final(sim, job_id))
        return true;

    for (const struct oracle_gen *gen = job == NULL ? NULL : job->newest; gen != NULL;
         gen = gen->older)
        if (was_lost(sim, gen) && is_final(sim, job_id))
            return true;
    return false;
}

static bool follows(const struct sim *sim, const struct rdzv_record *record, uint64_t job_id)
{
    const struct sim_client *client = client_of_record(sim, record);

    for (uint32_t i = 0; i < SIM_AFTER_MAX; i++)
        if (client->after[i].first != 0 && job_id >= client->after[i].first &&
            job_id <= client->after[i].last)
            return true;
    return false;
}

/* The jobs are of one array, of which one may run at a time. */
static bool is_too_much(const struct sim *sim, const struct rdzv_record *record, uint64_t job_id)
{
    const struct sim_row *row = disk_row(sim, job_id);

    return record->array_job != 0 && row != NULL && row->record.array_job == record->array_job &&
           rdzv_state_is_final(row->record.state) && record->array_at_most == 1;
}

void oracle_check_lingering(struct sim *sim, const struct sim_shim *shim, uint32_t node,
                            const struct sim_shim *other)
{
    const struct sim_row *row = disk_row(sim, shim->job_id);

    if (row == NULL || shim->generation != 1 || oracle_job(sim, shim->job_id) == NULL ||
        oracle_job(sim, shim->job_id)->is_old)
        return;
    if (follows(sim, &row->record, other->job_id))
        sim_fail(sim, "linger", "job %llu starts after job %llu, of which g%u runs on node%u",
                 (unsigned long long)shim->job_id, (unsigned long long)other->job_id,
                 other->generation, node);
    else if (is_too_much(sim, &row->record, other->job_id))
        sim_fail(sim, "linger", "job %llu starts, and job %llu of its array runs on node%u",
                 (unsigned long long)shim->job_id, (unsigned long long)other->job_id, node);
}
