/* The server's edge in the simulation: its disk, its clients, actions to messages. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEAT_US 1000000u

static void step(struct sim *sim, struct rdzv_event event);

const struct sim_row *store_row(const struct sim *sim, uint64_t job_id)
{
    uint64_t guess = job_id - 1; /* ids are given in the order in which rows come */

    if (guess < sim->row_count && sim->rows[guess].record.job_id == job_id)
        return &sim->rows[guess];
    for (uint32_t i = 0; i < sim->row_count; i++)
        if (sim->rows[i].record.job_id == job_id)
            return &sim->rows[i];
    return NULL;
}

static void store_write(struct sim *sim, uint64_t job_id)
{
    const struct rdzv_record *record = rdzv_job_record(sim->server.core, job_id);
    const struct sim_row *row = store_row(sim, job_id);
    uint32_t i = row == NULL ? sim->row_count++ : (uint32_t)(row - sim->rows);

    if (record == NULL) {
        sim_fail(sim, "PERSIST of job %llu, which is not there", (unsigned long long)job_id);
        return;
    }
    assert(i < sim->size.jobs);
    check_write(sim, row == NULL ? NULL : &row->record, record);
    if (row == NULL || row->record.generation != record->generation)
        check_placed(sim, record);
    sim->rows[i].record = *record;
    sim->rows[i].record.parts = sim->rows[i].parts;
    assert(record->part_count <= SIM_JOB_RANKS_MAX);
    if (record->part_count > 0)
        memcpy(sim->rows[i].parts, record->parts, record->part_count * sizeof *record->parts);
    if (job_id > sim->last_job_id)
        sim->last_job_id = job_id;
}

static void store_drains(struct sim *sim)
{
    const struct rdzv_drain *drains = rdzv_drains(sim->server.core, &sim->drain_count);

    memcpy(sim->drains, drains, sim->drain_count * sizeof *drains);
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    if (sim->server.alive && sim->server.incarnation == event->incarnation &&
        sim->server.timer_us == event->at_us)
        step(sim, (struct rdzv_event){.type = RDZV_EVENT_TICK});
}

static void set_timer(struct sim *sim, uint64_t at_us)
{
    if (at_us == UINT64_MAX)
        return;
    sim->server.timer_us = at_us < sim->now_us + 1 ? sim->now_us + 1 : at_us;
    sim_at(sim, sim->server.timer_us,
           (struct sim_event){.run = tick, .incarnation = sim->server.incarnation});
}

static void make_message(struct sim *sim, const struct rdzv_action *action, struct msg *msg)
{
    static const char *const argv[] = {"train"};

    if (action->type == RDZV_SEND_WELCOME) {
        msg->type = MSG_TYPE_NODE_WELCOME;
        msg->node_welcome =
            (struct msg_node_welcome){"simulated", BEAT_US, LEASE_DEFAULT_US, PROTOCOL_VERSION};
    } else if (action->type == RDZV_CLOSE_NODE) {
        msg->type = MSG_TYPE_ERROR;
        msg->error = (struct msg_error){action->status == STATUS_CONFLICT ? "busy" : "unreachable",
                                        action->text, ""};
    } else {
        bool is_order = rdzv_order(sim->server.core, action, msg);

        assert(is_order);
        (void)is_order;
    }
    if (msg->type == MSG_TYPE_START) {
        msg->start.cluster = "simulated";
        msg->start.cwd = "/";
        msg->start.argv = (struct msg_text_list){.items = argv, .count = 1};
    }
}

static void carry_out(struct sim *sim, const struct rdzv_action *action)
{
    struct msg msg = {0};

    if (rdzv_is_for_node(action->type)) {
        make_message(sim, action, &msg);
        net_send(sim, (uint32_t)action->conn, false, &msg);
        if (action->type == RDZV_CLOSE_NODE)
            net_close(sim, (uint32_t)action->conn, false);
    } else if (action->type == RDZV_LOG_EVENT) {
        sim_note(sim, "server: job %llu g%u: %s", (unsigned long long)action->job_id,
                 action->generation, action->text);
    } else if (action->type == RDZV_REPLY_ERROR && action->client <= sim->client_count) {
        sim_note(sim, "server refuses client %llu: %s", (unsigned long long)action->client,
                 action->text);
    } else if (action->type == RDZV_REPLY_SUBMITTED &&
               !sim_chance(sim, 200)) { /* or the answer is lost */
        sim->clients[action->client - 1].acked = true;
        sim->clients[action->client - 1].job_id = action->job_id;
    }
}

/* One durable transaction, then the sends; a torn step dies before it, or between two actions. */
static void step(struct sim *sim, struct rdzv_event event)
{
    struct rdzv_actions *actions = &sim->server_actions;
    uint32_t writes = 0, tear = 0;

    event.now_us = sim->now_us;
    event.wall_ms = (int64_t)(1000000 + sim->now_us / 1000);
    rdzv_step(sim->server.core, &event, actions);
    if (sim->server.step_count++ % sim->size.core_check_interval == 0)
        rdzv_check(sim->server.core);
    if (event.type == RDZV_EVENT_NODE_MSG)
        check_told(sim, (uint32_t)event.conn, event.msg, actions);
    for (uint32_t i = 0; i < actions->count; i++)
        writes += actions->items[i].type == RDZV_PERSIST;
    if (writes > 0)
        tear = sim->server.tear;
    if (tear == 1) {
        server_kill(sim);
        return;
    }
    for (uint32_t i = 0; i < actions->count; i++) {
        if (actions->items[i].type == RDZV_PERSIST)
            store_write(sim, actions->items[i].job_id);
        else if (actions->items[i].type == RDZV_PERSIST_DRAINS)
            store_drains(sim);
    }
    for (uint32_t i = 0; i < actions->count; i++) {
        if (tear > 1 && i + 2 == tear) {
            server_kill(sim);
            return;
        }
        carry_out(sim, &actions->items[i]);
    }
    set_timer(sim, actions->timer_at_us);
}

void server_start(struct sim *sim)
{
    struct rdzv_options options = {
        .jobs_max = sim->size.jobs,
        .nodes_max = sim->size.nodes,
        .lease_us = sim->size.lease_us,
        .beat_interval_us = BEAT_US,
        .suspect_us = NODE_SUSPECT_US,
        .lost_us = NODE_LOST_US,
        .waits_for_lease = true,
        .seed = sim->seed + sim->server.incarnation,
        .cluster = "simulated",
    };
    uint64_t bytes = rdzv_bytes(&options);

    sim_note(sim, "server starts");
    if (sim->server.memory == NULL)
        sim->server.memory = malloc(bytes);
    if (sim->server.memory == NULL)
        abort();
    memset(sim->server.memory, 0, bytes);
    sim->server.core = rdzv_init(sim->server.memory, &options);
    sim->server.alive = true;
    sim->server.incarnation++;
    memset(sim->told, 0, sim->size.nodes * sizeof *sim->told);
    for (uint32_t i = 0; i < sim->drain_count; i++)
        step(sim, (struct rdzv_event){.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &sim->drains[i]});
    for (uint64_t id = 1; id <= sim->last_job_id; id++) {
        const struct sim_row *row = store_row(sim, id);

        if (row != NULL && row->record.ended_ms == 0)
            step(sim, (struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &row->record});
    }
    step(sim,
         (struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = sim->last_job_id + 1});
}

void server_kill(struct sim *sim)
{
    sim_note(sim, "server is killed");
    sim->server.alive = false;
    sim->server.tear = 0;
    for (uint32_t i = 1; i < sim->conn_count; i++)
        if (sim->conns[i].is_server && sim->conns[i].to_far.open) {
            sim->conns[i].to_far.open = false;
            net_close(sim, i, false);
        }
}

void server_message(struct sim *sim, uint32_t conn, const struct msg *msg)
{
    if (sim->server.alive)
        step(sim, (struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = conn, .msg = msg});
}

void server_closed(struct sim *sim, uint32_t conn)
{
    if (sim->server.alive)
        step(sim, (struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = conn});
}

void server_operate(struct sim *sim, enum rdzv_event_type type, const struct msg *msg)
{
    if (sim->server.alive)
        step(sim, (struct rdzv_event){
                      .type = type, .client = SIM_CLIENT_OPERATOR, .msg = msg, .user = "operator"});
}

/* -- clients ----------------------------------------------------------------------------------- */

static const struct sim_row *row_of_request(const struct sim *sim, const char *request_id)
{
    for (uint32_t i = 0; i < sim->row_count; i++)
        if (strcmp(sim->rows[i].record.request_id, request_id) == 0)
            return &sim->rows[i];
    return NULL;
}

static void submit(struct sim *sim, uint32_t index)
{
    static const char *const argv[] = {"train"};
    struct sim_client *client = &sim->clients[index];
    const struct sim_row *row = row_of_request(sim, client->request_id);
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    if (row != NULL) { /* the edge asks the store before the core */
        client->acked = true;
        client->job_id = row->record.job_id;
        return;
    }
    msg.submit = (struct msg_submit){
        .request_id = client->request_id,
        .name = "job",
        .nodes = client->nodes,
        .nproc_per_node = client->nproc,
        .max_restarts = client->max_restarts,
        .grace_us = 2000000,
        .cwd = "/",
        .argv = {.items = argv, .count = 1},
    };
    step(sim, (struct rdzv_event){
                  .type = RDZV_EVENT_SUBMIT, .client = index + 1, .msg = &msg, .user = "u"});
}

static void try_submit(struct sim *sim, const struct sim_event *event)
{
    struct sim_client *client = &sim->clients[event->number];

    if (client->acked)
        return;
    if (sim->server.alive && !sim_chance(sim, 100))
        submit(sim, event->number);
    sim_at(sim, sim->now_us + 500000 + sim_draw(sim, 2000000),
           (struct sim_event){.run = try_submit, .number = event->number});
}

static void try_cancel(struct sim *sim, const struct sim_event *event)
{
    struct sim_client *client = &sim->clients[event->number];
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};

    if (!sim->server.alive || !client->acked) {
        sim_at(sim, sim->now_us + 1000000,
               (struct sim_event){.run = try_cancel, .number = event->number});
        return;
    }
    if (rdzv_job_record(sim->server.core, client->job_id) != NULL)
        step(sim, (struct rdzv_event){.type = RDZV_EVENT_CANCEL,
                                      .client = event->number + 1,
                                      .job_id = client->job_id,
                                      .msg = &msg});
}

void client_start(struct sim *sim, uint32_t index)
{
    const struct sim_client *client = &sim->clients[index];

    sim_at(sim, client->submit_at_us, (struct sim_event){.run = try_submit, .number = index});
    if (client->cancel_at_us != UINT64_MAX)
        sim_at(sim, client->cancel_at_us, (struct sim_event){.run = try_cancel, .number = index});
}
