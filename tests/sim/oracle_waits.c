/* Who waits for whom beside slots: --after, and preemption. */
#include "tests/sim/oracle_facts.h"

static const struct rdzv_record *record_of(const struct sim *sim, uint64_t job_id)
{
    const struct sim_row *row = job_id == 0 ? NULL : disk_row(sim, job_id);

    return row == NULL ? NULL : &row->record;
}

static bool is_old(const struct sim *sim, uint64_t job_id)
{
    const struct oracle_job *job = oracle_job(sim, job_id);

    return job != NULL && job->is_old;
}

bool oracle_waits_in_vain(const struct sim *sim, const struct sim_client *client)
{
    const struct rdzv_record *other = record_of(sim, client->after_id);

    return other != NULL && !client->after_any && !is_old(sim, client->job_id) &&
           (other->state == JOB_FAILED || other->state == JOB_CANCELLED);
}

static void check_after(struct sim *sim, const struct rdzv_record *after)
{
    const struct sim_client *client = client_of_request(sim, after->request_id);
    const struct rdzv_record *other = record_of(sim, client->after_id);

    if (other == NULL || after->generation != 1 || after->part_count == 0)
        return;
    if (other->state != JOB_SUCCEEDED && !(client->after_any && rdzv_state_is_final(other->state)))
        sim_fail(sim, "after", "job %llu starts, and job %llu, which it waits for, is %s",
                 (unsigned long long)after->job_id, (unsigned long long)other->job_id,
                 job_state_name(other->state));
}

static bool is_waiting(const struct rdzv_record *record)
{
    return record->part_count == 0 && !rdzv_state_is_final(record->state);
}

/* It begins to stop for another. */
static void check_preemption(struct sim *sim, const struct rdzv_record *after)
{
    const struct rdzv_record *first = record_of(sim, after->preempted_by);
    const struct sim_client *low = client_of_request(sim, after->request_id);

    if (first == NULL || !sim->preempts)
        sim_fail(sim, "preempt", "job %llu is preempted by job %llu, which may not",
                 (unsigned long long)after->job_id, (unsigned long long)after->preempted_by);
    else if (client_of_request(sim, first->request_id)->priority <= low->priority)
        sim_fail(sim, "preempt", "job %llu is preempted by job %llu, whose priority is not higher",
                 (unsigned long long)after->job_id, (unsigned long long)first->job_id);
    else if (!is_waiting(first))
        sim_fail(sim, "preempt", "job %llu is preempted by job %llu, which does not wait",
                 (unsigned long long)after->job_id, (unsigned long long)first->job_id);
}

/* What the other waits for may have left with a node. */
static bool any_leaves(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim->nodes[i].leave_told_us != 0)
            return true;
    return false;
}

/* A preempted job starts again, and the one that it has made room for waits still. */
static void check_turn(struct sim *sim, const struct rdzv_record *before)
{
    const struct rdzv_record *first = record_of(sim, before->preempted_by);

    if (first != NULL && is_waiting(first) && first->generation == before->preempted_at &&
        first->state == JOB_QUEUED && !first->cancel_wanted && oracle_is_calm(sim) &&
        !any_leaves(sim))
        sim_fail(sim, "preempt", "job %llu starts again before job %llu, which has preempted it",
                 (unsigned long long)before->job_id, (unsigned long long)first->job_id);
}

void oracle_check_waits(struct sim *sim, const struct rdzv_record *before,
                        const struct rdzv_record *after)
{
    if (is_old(sim, after->job_id))
        return;
    check_after(sim, after);
    if (before == NULL)
        return;
    if (after->preempted_by != 0 && before->preempted_by == 0)
        check_preemption(sim, after);
    if (before->preempted_by != 0 && after->generation > before->generation)
        check_turn(sim, before);
}
