/* The server's disk in the simulation. Every reader sees written data at once, as in a file;
 * unsynced data is lost in a crash. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <string.h>

const struct sim_row *disk_row(const struct sim *sim, uint64_t job_id)
{
    const struct sim_disk *disk = &sim->disk;
    uint64_t guess = job_id - 1; /* ids are assigned in the order of the rows */

    if (guess < disk->row_count && disk->written[guess].record.job_id == job_id)
        return &disk->written[guess];
    for (uint32_t i = 0; i < disk->row_count; i++)
        if (disk->written[i].record.job_id == job_id)
            return &disk->written[i];
    return NULL;
}

static void set_row(struct sim_row *row, const struct rdzv_record *record)
{
    assert(record->part_count <= SIM_JOB_PARTS_MAX);
    if (record->part_count > 0)
        memmove(row->parts, record->parts, record->part_count * sizeof *row->parts);
    row->record = *record;
    row->record.parts = row->parts;
}

void disk_put(struct sim *sim, const struct rdzv_record *record)
{
    struct sim_disk *disk = &sim->disk;
    const struct sim_row *row = disk_row(sim, record->job_id);
    uint32_t at = row == NULL ? disk->row_count++ : (uint32_t)(row - disk->written);
    bool is_listed = false;

    assert(at < sim->size.jobs);
    set_row(&disk->written[at], record);
    for (uint32_t i = 0; i < disk->unsynced_count; i++)
        is_listed = is_listed || disk->unsynced[i] == at;
    if (!is_listed)
        disk->unsynced[disk->unsynced_count++] = at;
    if (record->job_id > disk->last_job_id)
        disk->last_job_id = record->job_id;
    store_put(record);
}

void disk_put_drains(struct sim *sim, const struct rdzv_drain *drains, uint32_t count)
{
    assert(count <= DRAINS_MAX);
    memcpy(sim->disk.drains, drains, count * sizeof *drains);
    sim->disk.drain_count = count;
    store_put_drains(drains, count);
}

void disk_put_hold(struct sim *sim, const struct rdzv_hold *hold)
{
    sim->disk.holds[node_of_name(hold->node)] = *hold;
    store_put_hold(hold);
}

void disk_put_lease(struct sim *sim, uint64_t lease_us)
{
    sim->disk.lease_us = lease_us;
    store_put_lease(lease_us);
}

void disk_put_gap(struct sim *sim, uint64_t job_id)
{
    if (job_id > sim->disk.last_job_id)
        sim->disk.last_job_id = job_id;
    assert(job_id + 1 < SIM_IDS_MAX);
}

void disk_put_back(struct sim *sim)
{
    struct sim_disk *disk = &sim->disk;
    const struct sim_past *past = &sim->past;

    assert(past->rows != NULL);
    for (uint32_t i = 0; i < past->row_count; i++) {
        set_row(&disk->synced[i], &past->rows[i].record);
        set_row(&disk->written[i], &past->rows[i].record);
    }
    disk->row_count = disk->synced_count = past->row_count;
    disk->last_job_id = disk->synced_last_id = past->last_job_id;
    disk->lease_us = disk->synced_lease_us = past->lease_us;
    memcpy(disk->holds, past->holds, sim->size.nodes * sizeof *disk->holds);
    memcpy(disk->synced_holds, past->holds, sim->size.nodes * sizeof *disk->holds);
    disk->unsynced_count = 0;
}

void disk_commit(struct sim *sim)
{
    struct sim_disk *disk = &sim->disk;

    store_commit_all();
    for (uint32_t i = 0; i < disk->unsynced_count; i++) {
        uint32_t at = disk->unsynced[i];

        set_row(&disk->synced[at], &disk->written[at].record);
    }
    disk->unsynced_count = 0;
    disk->synced_count = disk->row_count;
    disk->synced_last_id = disk->last_job_id;
    disk->synced_lease_us = disk->lease_us;
    disk->synced_drain_count = disk->drain_count;
    memcpy(disk->synced_drains, disk->drains, disk->drain_count * sizeof *disk->drains);
    memcpy(disk->synced_holds, disk->holds, sim->size.nodes * sizeof *disk->holds);
}

void disk_crash(struct sim *sim)
{
    struct sim_disk *disk = &sim->disk;

    disk->unsynced_count = 0;
    disk->row_count = disk->synced_count;
    disk->last_job_id = disk->synced_last_id;
    disk->lease_us = disk->synced_lease_us;
    for (uint32_t i = 0; i < disk->row_count; i++)
        set_row(&disk->written[i], &disk->synced[i].record);
    disk->drain_count = disk->synced_drain_count;
    memcpy(disk->drains, disk->synced_drains, disk->drain_count * sizeof *disk->drains);
    memcpy(disk->holds, disk->synced_holds, sim->size.nodes * sizeof *disk->holds);
    store_crash(sim);
}

void disk_downgrade(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        struct rdzv_record *record = &sim->disk.written[i].record;

        if (rdzv_state_is_final(record->state))
            continue;
        record->stopping = record->stop_signal = 0;
        record->stop_grace_us = 0;
        record->cannot_start = false;
        record->errno_exit = record->failed_signal = 0;
        record->failed_exit = 0;
        record->failed_class = FAILURE_UNSAID;
        record->node_failures = 0;
        record->early_failure = 0;
        record->restarts_given = false;
        record->alike_ms = 0;
        record->node_faults[0] = '\0';
        record->running_ms = 0;
        record->limit_at_ms = record->retry_at_ms = 0;
        disk_put(sim, record);
    }
    disk_commit(sim);
}
