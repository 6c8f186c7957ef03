/* --requeue-at-limit, as docs/queue.md describes it. */
#include "tests/sim/oracle_facts.h"

uint64_t oracle_checkpoint(const struct sim *sim, uint64_t job_id)
{
    const struct oracle_job *job = oracle_job(sim, job_id);
    uint64_t newest = 0;

    for (const struct oracle_gen *gen = job == NULL ? NULL : job->newest; gen != NULL;
         gen = gen->older)
        newest = gen->checkpoint > newest ? gen->checkpoint : newest;
    return newest;
}

/* Puts the job behind the waiting jobs, as if it were submitted now. */
static void put_back(struct sim *sim, struct oracle_job *job, const struct rdzv_record *after)
{
    job->limited_step = after->checkpoint_step;
    job->place_ms =
        sim->server.step_wall_ms - (int64_t)client_of_record(sim, after)->priority * 60000;
}

void oracle_limit_ended(struct sim *sim, const struct rdzv_record *after)
{
    struct oracle_job *job = oracle_job(sim, after->job_id);
    const bool goes_on = !rdzv_state_is_final(after->state);
    const bool may = client_of_record(sim, after)->requeues &&
                     after->checkpoint_step > job->limited_step && !after->cancel_wanted;

    if (goes_on && !may)
        sim_fail(sim, "requeue",
                 "job %llu g%u goes on at its time limit with checkpoint %llu after %llu",
                 (unsigned long long)after->job_id, after->generation,
                 (unsigned long long)after->checkpoint_step, (unsigned long long)job->limited_step);
    else if (!goes_on && may && after->state != JOB_SUCCEEDED)
        sim_fail(sim, "requeue", "job %llu ends at its time limit with checkpoint %llu after %llu",
                 (unsigned long long)after->job_id, (unsigned long long)after->checkpoint_step,
                 (unsigned long long)job->limited_step);
    else if (after->state == JOB_FAILED && after->exit_code != 124)
        sim_fail(sim, "requeue", "job %llu ends at its time limit with %d",
                 (unsigned long long)after->job_id, after->exit_code);
    if (goes_on)
        put_back(sim, job, after);
}
