#include "rendezvous/core/parts.h"

bool parts_is_over(const struct part_state *part)
{
    return part->is_lost || part->phase == SHIM_ENDED;
}

bool parts_all_over(const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (!parts_is_over(&job->gang.parts[i]))
            return false;
    return true;
}

bool parts_all_at_least(const struct job *job, enum shim_phase phase)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (job->gang.parts[i].is_lost || job->gang.parts[i].phase < phase)
            return false;
    return true;
}

bool parts_all_joined(const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (!job->gang.parts[i].has_joined)
            return false;
    return true;
}

bool parts_all_succeeded(const struct job *job, uint32_t part)
{
    const struct rdzv_part *place = &job->record.parts[part];

    for (uint32_t i = 0; i < place->local_count; i++) {
        const struct rdzv_rank *rank = &job->gang.ranks[place->rank_base + i];

        if (rank->state != RANK_EXITED || rank->exit_code != 0 || rank->signal != 0)
            return false;
    }
    return true;
}

bool parts_any_runs(const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (job->gang.parts[i].is_reported && job->gang.parts[i].phase >= SHIM_RUNNING)
            return true;
    return false;
}

bool parts_only_store_is_left(const struct job *job)
{
    if (job->record.part_count < 2 || job->gang.parts[0].phase != SHIM_STOPPING ||
        !parts_all_succeeded(job, 0))
        return false;
    for (uint32_t i = 1; i < job->record.part_count; i++)
        if (!parts_is_over(&job->gang.parts[i]))
            return false;
    return true;
}
