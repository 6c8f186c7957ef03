/* The clients of the simulation: each repeats its submit until it is acknowledged, and may
 * cancel. */
#include "tests/sim/sim.h"

#include <signal.h>
#include <string.h>

#include "tests/sim/oracle.h"

static const struct sim_row *row_of_request(const struct sim *sim, const char *request_id)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        if (strcmp(sim->disk.written[i].record.request_id, request_id) == 0)
            return &sim->disk.written[i];
    return NULL;
}

/* In an array the first job has the request id. */
const struct sim_client *client_of_record(const struct sim *sim, const struct rdzv_record *record)
{
    const bool is_later = record->array_job != 0 && record->array_job != record->job_id;
    const struct sim_row *first = is_later ? disk_row(sim, record->array_job) : NULL;
    const char *request_id = first != NULL ? first->record.request_id : record->request_id;

    for (uint32_t i = 0; i < sim->client_count; i++)
        if (strcmp(sim->clients[i].request_id, request_id) == 0)
            return &sim->clients[i];
    return &sim->clients[0];
}

const struct sim_client *client_of(const struct sim *sim, uint64_t job_id)
{
    const struct sim_row *row = disk_row(sim, job_id);

    if (row != NULL && sim->past.put_back_us != 0) /* two of them may have been given this number */
        return client_of_record(sim, &row->record);
    for (uint32_t i = 0; i < sim->client_count; i++) {
        const struct sim_client *client = &sim->clients[i];

        if (client->job_id != 0 && job_id >= client->job_id &&
            job_id < client->job_id + client_job_count(client))
            return client;
    }
    if (job_id < SIM_IDS_MAX && sim->past.lost[job_id] != 0)
        return &sim->clients[sim->past.lost[job_id] - 1];
    return row == NULL ? &sim->clients[0] : client_of_record(sim, &row->record);
}

static bool has_failed(const struct sim_row *row)
{
    return row == NULL || row->record.state == JOB_FAILED || row->record.state == JOB_CANCELLED;
}

void jobs_find_failed(const struct sim *sim, struct rdzv_after *after)
{
    for (uint32_t i = 0; i < after->count; i++) {
        const struct rdzv_after_item *item = &after->items[i];

        for (uint64_t id = item->first; !item->any && id <= item->last; id++) {
            const struct sim_row *row = disk_row(sim, id);

            if (after->failed_id != 0 || !has_failed(row))
                continue;
            after->failed_id = id;
            after->failed_state = row == NULL ? JOB_QUEUED : row->record.state;
        }
    }
}

/* The jobs to wait for are chosen once for each client: a retry asks for the same ones. */
static struct rdzv_after ask_for_others(struct sim *sim, struct sim_client *client)
{
    struct rdzv_after after = {0};

    for (uint32_t i = 0; i < SIM_AFTER_MAX; i++) {
        struct sim_after *wanted = &client->after[i];
        const struct sim_client *other =
            wanted->client == 0 ? NULL : &sim->clients[wanted->client - 1];

        if (other != NULL && wanted->first == 0 && other->acked) {
            wanted->first = other->job_id;
            wanted->last = other->job_id + client_job_count(other) - 1;
        }
        if (wanted->first != 0)
            after.items[after.count++] =
                (struct rdzv_after_item){wanted->first, wanted->last, wanted->any};
    }
    jobs_find_failed(sim, &after);
    return after;
}

/* Takes one step for each job of an array, as rendezvous/server/request.c does; the last one
 * commits all. */
static void submit_all(struct sim *sim, const struct sim_client *client, struct rdzv_event event)
{
    struct array_spec array = {.count = client->array_count, .at_most = client->array_at_most};
    const uint32_t server = sim->server.incarnation;

    for (uint32_t i = 0; i < array.count; i++)
        array.indices[i] = 2 * i + 1;
    if (array.count > 0)
        event.array = &array;
    do {
        server_step(sim, event);
    } while (sim->server.alive && sim->server.incarnation == server && !server_has_refused(sim) &&
             ++event.array_place < array.count);
}

static void submit(struct sim *sim, uint32_t index)
{
    static const char *const argv[] = {"train"};
    struct sim_client *client = &sim->clients[index];
    const struct sim_row *row = row_of_request(sim, client->request_id);
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    if (row != NULL) { /* like the edge, asks the store before the core */
        client->acked = true;
        client->job_id = row->record.job_id;
        oracle_told_submitted(sim, client);
        return;
    }
    msg.submit = (struct msg_submit){
        .request_id = client->request_id,
        .name = "job",
        .nodes = client->nodes,
        .nodes_min = client->nodes_min,
        .nproc_per_node = client->nproc,
        .spares = client->spares,
        .max_restarts = client->max_restarts,
        .restarts_given = client->max_restarts != SIM_RESTARTS_DEFAULT,
        .grace_us = client->grace_us,
        .time_limit_us = client->time_limit_us,
        .priority = client->priority,
        .wait_for_nodes = true,
        .cwd = "/",
        .argv = {.items = argv, .count = 1},
        .requeue_at_limit = client->requeues,
        .warn_us = client->warn_us,
        .warn_signal = client->warn_us == 0 ? 0 : SIM_WARN_SIGNAL,
    };
    submit_all(sim, client,
               (struct rdzv_event){.type = RDZV_EVENT_SUBMIT,
                                   .client = index + 1,
                                   .msg = &msg,
                                   .user = "u",
                                   .after = ask_for_others(sim, client)});
}

static bool knows_others(const struct sim *sim, const struct sim_client *client)
{
    for (uint32_t i = 0; client->after_is_sure && i < SIM_AFTER_MAX; i++)
        if (client->after[i].client != 0 && !sim->clients[client->after[i].client - 1].acked)
            return false;
    return true;
}

static void try_submit(struct sim *sim, const struct sim_event *event)
{
    const struct sim_client *client = &sim->clients[event->number];

    if (client->acked)
        return;
    if (server_is_ready(sim) && knows_others(sim, client) && !sim_chance(sim, 100))
        submit(sim, event->number);
    sim_at(sim, sim->now_us + 500000 + sim_draw(sim, 2000000),
           (struct sim_event){.run = try_submit, .number = event->number});
}

static void try_cancel(struct sim *sim, const struct sim_event *event)
{
    struct sim_client *client = &sim->clients[event->number];
    const struct sim_row *row = disk_row(sim, client->job_id);
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1",
                                 .signal = client->cancel_signal,
                                 .grace_us = client->cancel_grace_us}};

    if (row != NULL && rdzv_state_is_final(row->record.state))
        return;
    if (client->cancel_acked)
        return;
    if (server_is_ready(sim) && client->acked)
        server_step(sim, (struct rdzv_event){.type = RDZV_EVENT_CANCEL,
                                             .client = event->number + 1,
                                             .job_id = client->job_id,
                                             .msg = &msg});
    sim_at(sim, sim->now_us + 1000000,
           (struct sim_event){.run = try_cancel, .number = event->number});
}

void client_start(struct sim *sim, uint32_t index)
{
    const struct sim_client *client = &sim->clients[index];

    sim_at(sim, client->submit_at_us, (struct sim_event){.run = try_submit, .number = index});
    if (client->cancel_at_us != UINT64_MAX)
        sim_at(sim, client->cancel_at_us, (struct sim_event){.run = try_cancel, .number = index});
}
