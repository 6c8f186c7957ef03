/* Job arrays: either all jobs of an array are in the store or none, and no more of them run at once
 * than allowed. */
#include "tests/sim/oracle_facts.h"

static bool is_active(const struct rdzv_record *record)
{
    return record->part_count > 0 || record->state == JOB_RESTARTING;
}

static uint32_t count_of(const struct sim *sim, uint64_t array_job, bool only_active)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        count += record->array_job == array_job && (!only_active || is_active(record));
    }
    return count;
}

static uint32_t lingering(const struct sim *sim, uint64_t array_job)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        count += record->array_job == array_job && oracle_may_linger(sim, record->job_id);
    }
    return count;
}

bool oracle_array_is_full(const struct sim *sim, const struct rdzv_record *record)
{
    const struct sim_client *client = client_of_record(sim, record);

    return client->array_at_most != 0 &&
           count_of(sim, record->array_job, true) + lingering(sim, record->array_job) >=
               client->array_at_most;
}

/* `first` is the first job of an array. */
static void check_array(struct sim *sim, const struct rdzv_record *first)
{
    const struct sim_client *client = client_of_record(sim, first);
    const uint32_t count = count_of(sim, first->job_id, false);
    const uint32_t active = count_of(sim, first->job_id, true);

    if (count != client->array_count)
        sim_fail(sim, "array", "array %llu has %u jobs in the store, %u were submitted",
                 (unsigned long long)first->job_id, count, client->array_count);
    if (client->array_at_most != 0 && active > client->array_at_most)
        sim_fail(sim, "array", "%u jobs of array %llu run at once, %u may", active,
                 (unsigned long long)first->job_id, client->array_at_most);
}

void oracle_check_arrays(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        if (record->array_job == record->job_id)
            check_array(sim, record);
        else if (record->array_job != 0 && disk_row(sim, record->array_job) == NULL)
            sim_fail(sim, "array", "job %llu is there, and array %llu, which it is of, is not",
                     (unsigned long long)record->job_id, (unsigned long long)record->array_job);
    }
}
