/* The numbers of jobs and generations, when the store was put back to an earlier commit. */
#include <string.h>

#include "tests/sim/oracle_facts.h"

/* The shim of that generation on a node, or its directory. NULL: there is none. */
static const struct sim_shim *shim_on(const struct sim_node *node, uint64_t job_id,
                                      uint32_t generation)
{
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++)
        if (node->shims[i].used && node->shims[i].job_id == job_id &&
            node->shims[i].generation == generation)
            return &node->shims[i];
    return NULL;
}

/* What a node has not told the server yet, the server cannot know. Another process with the node's name tells nothing of
 * that: only the node's own launcherd knows what it has seen (seed 8310 of --starts). But of what is in the copy nothing
 * begins beside what such a node may run; a job that is new may get the number of a lost one, unless the server knows that
 * its state is of the past. */
static void check_shims(struct sim *sim, const struct rdzv_record *record)
{
    const bool is_of_copy = sim->past.put_back_us != 0 && record->job_id <= sim->past.last_job_id;

    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct sim_shim *shim = shim_on(&sim->nodes[i], record->job_id, record->generation);
        const bool is_heard = sim->oracle->nodes[i].has_called;
        const bool has_workers = shim != NULL && shim_has_workers(shim);

        if (shim == NULL)
            continue;
        if (!is_heard && !((sim->past.is_known || is_of_copy) && has_workers))
            sim->is_void = true;
        else
            sim_fail(sim, "number", "job %llu: g%u begins, and node%u has a shim of that number",
                     (unsigned long long)record->job_id, record->generation, i);
    }
}

bool oracle_is_in_copy(const struct sim *sim, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < sim->past.row_count; i++)
        if (sim->past.rows[i].record.job_id == job_id)
            return sim->past.rows[i].record.generation == generation;
    return false;
}

void oracle_check_numbers(struct sim *sim, const struct rdzv_record *before,
                          const struct rdzv_record *after)
{
    struct oracle_job *job = oracle_job(sim, after->job_id);

    /* Of a job that never began no node knows, and nothing of it is anywhere. */
    if (before == NULL && job->newest != NULL && sim->past.put_back_us != 0) {
        for (uint32_t i = 0; i < sim->node_count; i++)
            if (!sim->oracle->nodes[i].has_called)
                sim->is_void = true;
        if (!sim->is_void)
            sim_fail(sim, "number", "job %llu is given a second time",
                     (unsigned long long)after->job_id);
    }
    if (after->generation > (before == NULL ? 0 : before->generation))
        check_shims(sim, after);
}

void oracle_keep(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->oracle->job_count; i++) {
        memcpy(sim->oracle->jobs[i].kept, sim->oracle->jobs[i].restarts,
               sizeof sim->oracle->jobs[i].kept);
        sim->oracle->jobs[i].kept_step = sim->oracle->jobs[i].limited_step;
    }
}

void oracle_put_back(struct sim *sim)
{
    oracle_server_started(sim, true); /* what is known of the jobs is of another history */
    for (uint32_t i = 0; i < sim->oracle->job_count; i++) {
        struct oracle_job *job = &sim->oracle->jobs[i];

        memcpy(job->restarts, job->kept, sizeof job->kept);
        job->limited_step = job->kept_step;
        job->blame = BLAME_NOBODY;
        job->shown = (struct oracle_shown){0};
    }
    sim->past.put_back_us = sim->now_us;
}

void oracle_of_past(struct sim *sim)
{
    sim->past.is_known = true;
    sim->past.known_by = sim->server.incarnation;
    if (sim->past.put_back_us == 0)
        sim_fail(sim, "number", "the server takes its state for one of the past, and it is not");
}
