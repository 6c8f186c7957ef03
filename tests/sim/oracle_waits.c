/* What jobs wait for besides slots: other jobs (--after), and preemption. */
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
    bool has_failed = false;

    for (uint32_t i = 0; i < SIM_AFTER_MAX; i++) {
        const struct sim_after *wanted = &client->after[i];

        for (uint64_t id = wanted->first; id != 0 && id <= wanted->last && !wanted->any; id++) {
            const struct rdzv_record *other = record_of(sim, id);

            has_failed =
                has_failed ||
                (other != NULL && (other->state == JOB_FAILED || other->state == JOB_CANCELLED));
        }
    }
    return has_failed && !is_old(sim, client->job_id);
}

static void check_ended(struct sim *sim, const struct sim_after *wanted,
                        const struct rdzv_record *after, uint64_t id)
{
    const struct rdzv_record *other = record_of(sim, id);

    if (other == NULL || other->state == JOB_SUCCEEDED ||
        (wanted->any && rdzv_state_is_final(other->state)))
        return;
    sim_fail(sim, "after", "job %llu starts, and job %llu, which it waits for, is %s",
             (unsigned long long)after->job_id, (unsigned long long)id,
             job_state_name(other->state));
}

static void check_after(struct sim *sim, const struct rdzv_record *after)
{
    const struct sim_client *client = client_of_record(sim, after);

    if (after->generation != 1 || after->part_count == 0)
        return;
    for (uint32_t i = 0; i < SIM_AFTER_MAX; i++)
        for (uint64_t id = client->after[i].first; id != 0 && id <= client->after[i].last; id++)
            check_ended(sim, &client->after[i], after, id);
}

static bool is_waiting(const struct rdzv_record *record)
{
    return record->part_count == 0 && !rdzv_state_is_final(record->state);
}

/* The row of the other job may follow in the same transaction. */
static void note_preempted(struct sim *sim, const struct rdzv_record *after)
{
    struct oracle *oracle = sim->oracle;

    if (oracle->preempted_count < ORACLE_STARTED_MAX)
        oracle->preempted[oracle->preempted_count++] =
            (struct oracle_turn){after->job_id, after->preempted_by, 0};
}

static void check_preempted(struct sim *sim, const struct oracle_turn *turn)
{
    const struct rdzv_record *first = record_of(sim, turn->first_id);

    if (first == NULL || !is_waiting(first))
        sim_fail(sim, "preempt", "job %llu is preempted by job %llu, which does not wait",
                 (unsigned long long)turn->job_id, (unsigned long long)turn->first_id);
}

/* The job begins to stop to make room for another. */
static void check_preemption(struct sim *sim, const struct rdzv_record *after)
{
    const struct rdzv_record *first = record_of(sim, after->preempted_by);
    const struct sim_client *low = client_of_record(sim, after);

    if (first == NULL || !sim->preempts)
        sim_fail(sim, "preempt", "job %llu is preempted by job %llu, which may not",
                 (unsigned long long)after->job_id, (unsigned long long)after->preempted_by);
    else if (client_of_record(sim, first)->priority <= low->priority)
        sim_fail(sim, "preempt", "job %llu is preempted by job %llu, whose priority is not higher",
                 (unsigned long long)after->job_id, (unsigned long long)first->job_id);
    else if (!is_waiting(first))
        note_preempted(sim, after);
}

static void note_turn(struct sim *sim, const struct rdzv_record *before)
{
    struct oracle *oracle = sim->oracle;

    if (oracle->turn_count < ORACLE_STARTED_MAX)
        oracle->turns[oracle->turn_count++] =
            (struct oracle_turn){before->job_id, before->preempted_by, before->preempted_at};
}

/* A preempted job starts again. By the end of the transaction, the job that it made room for must
 * not wait any more; both may start in one transaction. */
static void check_turn(struct sim *sim, const struct oracle_turn *turn)
{
    const struct rdzv_record *first = record_of(sim, turn->first_id);

    if (first != NULL && is_waiting(first) && first->generation == turn->first_generation &&
        first->state == JOB_QUEUED && !first->cancel_wanted && oracle_is_calm(sim))
        sim_fail(sim, "preempt", "job %llu starts again before job %llu, which has preempted it",
                 (unsigned long long)turn->job_id, (unsigned long long)turn->first_id);
}

void oracle_check_turns(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->oracle->turn_count; i++)
        check_turn(sim, &sim->oracle->turns[i]);
    sim->oracle->turn_count = 0;
    for (uint32_t i = 0; i < sim->oracle->preempted_count; i++)
        check_preempted(sim, &sim->oracle->preempted[i]);
    sim->oracle->preempted_count = 0;
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
        note_turn(sim, before);
}
