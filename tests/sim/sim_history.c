/* Runs in which the server's store is put back to an earlier commit: a copy of it was restored by hand, its disk was
 * rolled back. The clients whose jobs are gone submit them again. No number of a job may stand for two (oracle_history.c). */
#include "tests/sim/sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/oracle.h"

#define NODES 3u
#define SLOTS 4u
#define CLIENTS 8u
#define JOBS 64u /* rows: with those that are submitted again */

void history_free(struct sim *sim)
{
    free(sim->past.rows);
    free(sim->past.holds);
}

static void put_back(struct sim *sim, const struct sim_event *event);

/* Of such a job the copy does not know that it has begun. */
static bool any_waits(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.synced_count; i++)
        if (sim->disk.synced[i].record.state == JOB_QUEUED)
            return true;
    return false;
}

/* The copy has what was committed. */
static void copy(struct sim *sim)
{
    struct sim_past *past = &sim->past;

    if (past->rows == NULL)
        past->rows = calloc(sim->size.jobs, sizeof *past->rows);
    if (past->holds == NULL)
        past->holds = calloc(sim->size.nodes, sizeof *past->holds);
    if (past->rows == NULL || past->holds == NULL)
        abort();
    for (uint32_t i = 0; i < sim->disk.synced_count; i++) {
        past->rows[i] = sim->disk.synced[i];
        past->rows[i].record.parts = past->rows[i].parts;
    }
    oracle_keep(sim);
    past->row_count = sim->disk.synced_count;
    past->last_job_id = sim->disk.synced_last_id;
    past->lease_us = sim->disk.synced_lease_us;
    memcpy(past->holds, sim->disk.synced_holds, sim->size.nodes * sizeof *past->holds);
    sim_note(sim, "the store is copied: %u jobs", past->row_count);
}

/* number: how often it waits half a second for a job that waits. asked_us: after how long the copy is put back. */
static void keep(struct sim *sim, const struct sim_event *event)
{
    struct sim_event next = *event;

    if (event->number > 0 && !any_waits(sim)) {
        next.number--;
        sim_at(sim, sim->now_us + SECOND_US / 2, next);
        return;
    }
    sim_at(sim, sim->now_us + event->asked_us, (struct sim_event){.run = put_back, .number = 1});
    sim->faults.until_us = sim->now_us + event->asked_us + sim->lease_us;
    copy(sim);
}

static bool has_row(const struct sim *sim, const struct sim_client *client)
{
    const struct sim_row *row = disk_row(sim, client->job_id);

    return row != NULL && strcmp(row->record.request_id, client->request_id) == 0;
}

static void start_server(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    if (!sim->server.alive)
        server_start(sim);
}

static void rejoin(struct sim *sim, const struct sim_event *event)
{
    sim_note(sim, "node%u is reachable again", event->node);
    sim->nodes[event->node].cut_to_server = sim->nodes[event->node].cut_to_node = false;
}

/* The node runs something that the copy does not have. */
static bool runs_news(const struct sim *sim, uint32_t node)
{
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        const struct sim_shim *shim = &sim->nodes[node].shims[i];

        if (shim->used && shim_has_workers(shim) &&
            !oracle_is_in_copy(sim, shim->job_id, shim->generation))
            return true;
    }
    return false;
}

/* What the server does not know may run on a node that it cannot hear. */
static void cut_off(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++) {
        if (!sim_chance(sim, runs_news(sim, i) ? 600 : 250))
            continue;
        sim_note(sim, "node%u is cut off", i);
        sim->nodes[i].cut_to_server = sim->nodes[i].cut_to_node = true;
        sim_at(sim, sim->now_us + sim_draw(sim, sim->lease_us / 5 * 4),
               (struct sim_event){.run = rejoin, .node = i});
    }
}

/* Its job is gone, and it submits it again. */
static void submit_again(struct sim *sim, uint32_t index)
{
    struct sim_client *client = &sim->clients[index];

    client->acked = client->cancel_acked = false;
    client->job_id = 0;
    for (uint32_t i = 0; i < SIM_AFTER_MAX; i++)
        client->after[i].first = client->after[i].last = 0;
    client->submit_at_us = sim->now_us + 2 * SECOND_US + sim_draw(sim, 8 * SECOND_US);
    client_start(sim, index);
}

/* A cancel that the copy does not have was acknowledged. */
static void cancel_again(struct sim *sim, uint32_t index)
{
    struct sim_client *client = &sim->clients[index];
    const struct sim_row *row = disk_row(sim, client->job_id);

    if (!client->cancel_acked || row->record.cancel_wanted || row->record.state == JOB_CANCELLED)
        return;
    client->cancel_acked = false;
    client_start(sim, index);
}

/* Shims of jobs that the copy does not have run on, also of those whose clients had no answer. */
static void note_lost_jobs(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        if (record->job_id < SIM_IDS_MAX)
            sim->past.lost[record->job_id] =
                (uint32_t)(client_of_record(sim, record) - sim->clients) + 1;
    }
}

/* number: 1 if some nodes are cut off. */
static void put_back(struct sim *sim, const struct sim_event *event)
{
    if (event->number == 1)
        cut_off(sim);
    if (sim->server.alive)
        server_kill(sim);
    sim_note(sim, "the copy is put back");
    note_lost_jobs(sim);
    disk_put_back(sim);
    oracle_put_back(sim);
    for (uint32_t i = 0; i < sim->client_count; i++) {
        if (!sim->clients[i].acked)
            continue;
        if (has_row(sim, &sim->clients[i]))
            cancel_again(sim, i);
        else
            submit_again(sim, i);
    }
    sim_at(sim, sim->now_us + sim_draw(sim, 3 * SECOND_US),
           (struct sim_event){.run = start_server});
}

void history_lose(struct sim *sim)
{
    if (sim->past.rows != NULL || sim->size.jobs > SIM_IDS_MAX || store_is_kept(sim))
        return;
    copy(sim);
    sim_at(sim, sim->now_us + sim_draw(sim, sim_chance(sim, 500) ? SECOND_US / 2 : 20 * SECOND_US),
           (struct sim_event){.run = put_back});
}

static void kill_server(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    if (!sim->server.alive)
        return;
    server_kill(sim);
    sim_at(sim, sim->now_us + sim_draw(sim, 3 * SECOND_US),
           (struct sim_event){.run = start_server});
}

static void choose_client(struct sim *sim, uint32_t index, uint64_t span_us)
{
    struct sim_client *client = &sim->clients[index];

    *client = (struct sim_client){
        .nodes = 1 + (uint32_t)sim_draw(sim, sim->node_count),
        .nproc = 1 + (uint32_t)sim_draw(sim, sim->slots),
        .joins = sim_chance(sim, 500),
        .fails = sim_chance(sim, 150),
        .steps = 1 + (uint32_t)sim_draw(sim, sim_chance(sim, 300) ? 100 : 20),
        .max_restarts = (uint32_t)sim_draw(sim, 4),
        .grace_us = sim_draw(sim, 4) * SECOND_US,
        .submit_at_us = sim->now_us + sim_draw(sim, span_us),
        .cancel_at_us = UINT64_MAX,
        .cancel_signal = SIGTERM,
        .cancel_grace_us = -1,
    };
    client->nodes_min = client->nodes;
    (void)snprintf(client->request_id, sizeof client->request_id, "%016llx%016llx",
                   (unsigned long long)sim->seed, (unsigned long long)index);
}

void sim_init_history(struct sim *sim, uint64_t seed)
{
    static const struct sim_size size = {.nodes = NODES,
                                         .slots = SLOTS,
                                         .jobs = JOBS,
                                         .conns = 2048,
                                         .check_interval_us = 50000,
                                         .core_check_interval = 1,
                                         .cleanup_us = 220 * SECOND_US,
                                         .bound_us = 2500 * SECOND_US,
                                         .spinning = 20000,
                                         .no_store = true};
    uint64_t at_us, keep_us, span_us;

    sim_begin(sim, seed, &size);
    sim->node_count = 1 + (uint32_t)sim_draw(sim, NODES);
    sim->slots = 1 + (uint32_t)sim_draw(sim, SLOTS);
    sim->lease_us = (sim_chance(sim, 500) ? 20 : 60) * SECOND_US;
    sim->faults.late_max_us = 1 + sim_draw(sim, 500000);
    sim->faults.amount[FAULT_LATE] = (uint32_t)sim_draw(sim, 200);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim->nodes[i].clock.offset_us = SECOND_US + sim_draw(sim, 100000 * SECOND_US);
    at_us = sim->now_us + 5 * SECOND_US + sim_draw(sim, 60 * SECOND_US);
    keep_us = SECOND_US + sim_draw(sim, 30 * SECOND_US);
    sim_at(sim, at_us,
           (struct sim_event){
               .run = keep, .number = sim_chance(sim, 700) ? 80 : 0, .asked_us = keep_us});
    if (sim_chance(sim, 300))
        sim_at(sim, sim->now_us + sim_draw(sim, 90 * SECOND_US),
               (struct sim_event){.run = kill_server});
    sim->faults.until_us = at_us + keep_us + 40 * SECOND_US + sim->lease_us;
    sim->client_count = 1 + (uint32_t)sim_draw(sim, CLIENTS);
    /* the copy often has all jobs: then a node that has begun none since does not know that it is of the past */
    span_us = (sim_chance(sim, 500) ? 4 : 60) * SECOND_US;
    for (uint32_t i = 0; i < sim->client_count; i++) {
        choose_client(sim, i, span_us);
        client_start(sim, i);
    }
    server_start(sim);
    for (uint32_t i = 0; i < sim->node_count; i++)
        node_start(sim, i);
}
