/* The server's edge in the simulation: its clock, transactions, actions to messages. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/core/after_list.h"
#include "tests/sim/oracle.h"

#define BEAT_US 1000000u
#define TICK_US_MAX 1000000u  /* same value as in rendezvous/server */
#define PAUSE_MIN_US 1000000u /* the same */
#define RANKS_LOOKED_AT 64u
#define WALL_START_MS 1000000000000

int64_t server_wall_ms(const struct sim *sim)
{
    return WALL_START_MS + sim->server.wall_ms + (int64_t)(sim->now_us / 1000);
}

bool server_is_ready(const struct sim *sim)
{
    return sim->server.alive && !sim->server.commits && sim->now_us >= sim->server.paused_until_us;
}

static void tick(struct sim *sim, const struct sim_event *event)
{
    if (sim->server.alive && sim->server.incarnation == event->incarnation &&
        sim->server.tick_us == event->asked_us)
        server_step(sim, (struct rdzv_event){.type = RDZV_EVENT_TICK});
}

/* Like the real edge, waits at most a second, so that the server notices its own pauses. */
static void arm_tick(struct sim *sim, uint64_t at_us)
{
    struct sim_server *server = &sim->server;

    server->tick_us = 0;
    if (at_us == UINT64_MAX)
        return;
    if (at_us <= server->stepped_us)
        at_us = server->stepped_us + 1;
    if (at_us > server->stepped_us + TICK_US_MAX)
        at_us = server->stepped_us + TICK_US_MAX;
    server->tick_us = at_us;
    sim_at(sim, sim_clock_at(sim, &server->clock, at_us),
           (struct sim_event){.run = tick,
                              .party = PARTY_SERVER,
                              .asked_us = at_us,
                              .incarnation = server->incarnation});
}

static uint64_t paused_us(const struct sim_server *server, uint64_t now_us)
{
    if (server->tick_us == 0 || now_us < server->tick_us + PAUSE_MIN_US)
        return 0;
    return now_us - server->stepped_us;
}

static void make_message(struct sim *sim, const struct rdzv_action *action, struct msg *msg)
{
    static const char *const argv[] = {"train"};

    if (action->type == RDZV_SEND_WELCOME) {
        msg->type = MSG_TYPE_NODE_WELCOME;
        msg->node_welcome =
            (struct msg_node_welcome){"simulated", BEAT_US, sim->lease_us, PROTOCOL_VERSION, ""};
    } else if (action->type == RDZV_CLOSE_NODE) {
        msg->type = MSG_TYPE_ERROR;
        msg->error = (struct msg_error){action->status == STATUS_CONFLICT ? "busy" : "unreachable",
                                        action->text, ""};
    } else {
        bool is_order = rdzv_order(sim->server.core, action, msg);

        assert(is_order);
        (void)is_order;
    }
    if (msg->type == MSG_TYPE_WARM) {
        msg->warm.cluster = "simulated";
        msg->warm.cwd = "/";
        msg->warm.argv = (struct msg_text_list){.items = argv, .count = 1};
    }
    if (msg->type == MSG_TYPE_START) {
        msg->start.cluster = "simulated";
        msg->start.cwd = "/";
        msg->start.argv = (struct msg_text_list){.items = argv, .count = 1};
    }
}

static void note_order(struct sim *sim, const struct rdzv_action *action, const struct msg *msg)
{
    if (msg->type == MSG_TYPE_START || msg->type == MSG_TYPE_GO || msg->type == MSG_TYPE_WORLD ||
        msg->type == MSG_TYPE_STOP || msg->type == MSG_TYPE_FORGET)
        sim_note(sim, "server sends node%u: %s of job %llu g%u", sim->conns[action->conn].node,
                 msg_type_name(msg->type), (unsigned long long)action->job_id, action->generation);
}

static void reply(struct sim *sim, const struct rdzv_action *action)
{
    struct sim_client *client;

    sim->operator_acked = sim->operator_acked || action->type == RDZV_REPLY_NODE;
    if (action->client > sim->client_count)
        return;
    client = &sim->clients[action->client - 1];
    if (action->type == RDZV_REPLY_ERROR)
        sim_note(sim, "server refuses client %llu: %s", (unsigned long long)action->client,
                 action->text);
    if (sim_chance(sim, 200))
        return; /* the answer is lost */
    if (action->type == RDZV_REPLY_SUBMITTED) {
        client->acked = true;
        client->job_id = action->job_id;
        oracle_told_submitted(sim, client);
    } else if (action->type == RDZV_REPLY_CANCELLED) {
        client->cancel_acked = true;
        oracle_told_cancel(sim, action->job_id, false);
    } else if (client->acked) {
        oracle_told_cancel(sim, client->job_id, true);
    }
}

/* Adds one node's answer, or that it cannot answer, to what the ranks of a job that may hang are
 * doing. */
static void look_at_part(struct sim *sim, uint32_t node, struct rdzv_event *looked,
                         struct part_rank_look looks[RANKS_LOOKED_AT])
{
    const struct sim_node *at = &sim->nodes[node];
    bool has_answered = false;

    for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
        const struct sim_shim *shim = &at->shims[s];

        if (!shim->used || !shim->alive || shim->job_id != looked->job_id ||
            shim->generation != looked->generation || !at->alive || at->cut_to_server ||
            at->cut_to_node || sim->now_us < at->paused_until_us ||
            sim->now_us < at->frozen_until_us)
            continue;
        has_answered = true;
        looked->is_deaf = looked->is_deaf || sim->now_us < shim->paused_until_us;
        for (uint32_t w = 0; w < shim->local_count; w++) {
            const struct sim_worker *worker = &shim->workers[w];
            const bool hangs = sim->now_us < worker->hung_until_us;
            const bool idles = hangs || worker->is_waiting ||
                               (sim->now_us < worker->absent_until_us && !worker->spins);

            looked->is_busy = looked->is_busy || (worker->alive && !idles);
            if (worker->alive && looked->look_count < RANKS_LOOKED_AT)
                looks[looked->look_count++] = (struct part_rank_look){
                    .rank = shim->rank_base + w,
                    .state = hangs ? "T" : "S",
                    .place = worker->is_waiting ? LOOK_COLLECTIVE : LOOK_ELSEWHERE,
                    .where = "",
                    .stack = ""};
        }
    }
    looked->all_answered = looked->all_answered && has_answered;
}

static void nodes_have_looked(struct sim *sim, const struct sim_event *event)
{
    static struct part_rank_look looks[RANKS_LOOKED_AT];
    struct rdzv_event looked = {.type = RDZV_EVENT_LOOKED,
                                .job_id = event->asked_us,
                                .generation = event->number,
                                .looks = looks,
                                .all_answered = true,
                                .text = ""};
    const struct rdzv_record *record;

    if (!server_is_ready(sim) || sim->server.incarnation != event->incarnation)
        return; /* no answer; the core gives up waiting by itself */
    record = rdzv_job_record(sim->server.core, event->asked_us);
    for (uint32_t i = 0; record != NULL && i < record->part_count; i++)
        look_at_part(sim, (uint32_t)strtoul(record->parts[i].node + 4, NULL, 10), &looked, looks);
    server_step(sim, looked);
}

static void carry_out(struct sim *sim, const struct rdzv_action *action)
{
    struct msg msg = {0};

    if (action->type == RDZV_LOOK) {
        sim_at(sim, sim->now_us + SECOND_US + sim_draw(sim, 8 * SECOND_US),
               (struct sim_event){.run = nodes_have_looked,
                                  .party = PARTY_SERVER,
                                  .asked_us = action->job_id,
                                  .number = action->generation,
                                  .incarnation = sim->server.incarnation});
        return;
    }

    if (action->type == RDZV_SEND_WARM && !client_of(sim, action->job_id)->joins)
        return; /* only a ddp-worker can wait */
    if (rdzv_is_for_node(action->type)) {
        make_message(sim, action, &msg);
        note_order(sim, action, &msg);
        restarts_note_order(sim, sim->conns[action->conn].node, &msg);
        oracle_sends(sim, (uint32_t)action->conn, &msg);
        net_send(sim, (uint32_t)action->conn, false, &msg);
        starts_message(sim, sim->conns[action->conn].node, &msg);
        if (action->type == RDZV_CLOSE_NODE) {
            oracle_conn_closed(sim, (uint32_t)action->conn);
            net_close(sim, (uint32_t)action->conn, false);
        }
    } else if (action->type == RDZV_LOG_EVENT) {
        sim_note(sim, "server: job %llu g%u: %s", (unsigned long long)action->job_id,
                 action->generation, action->text);
    } else if (action->type == RDZV_REPLY_ERROR || action->type == RDZV_REPLY_SUBMITTED ||
               action->type == RDZV_REPLY_CANCELLED || action->type == RDZV_REPLY_NODE) {
        reply(sim, action);
    }
}

/* True: something was written. */
static bool write_rows(struct sim *sim)
{
    const struct rdzv_actions *actions = &sim->server_actions;
    bool has_written = false;

    for (uint32_t i = 0; i < actions->count; i++) {
        const struct rdzv_action *action = &actions->items[i];
        const struct rdzv_record *record = rdzv_job_record(sim->server.core, action->job_id);
        const struct sim_row *row = disk_row(sim, action->job_id);

        if (action->type == RDZV_PERSIST) {
            assert(record != NULL);
            oracle_write(sim, row == NULL ? NULL : &row->record, record);
            disk_put(sim, record);
            has_written = true;
        } else if (action->type == RDZV_PERSIST_DRAINS) {
            uint32_t count;
            const struct rdzv_drain *drains = rdzv_drains(sim->server.core, &count);

            disk_put_drains(sim, drains, count);
            has_written = true;
        } else if (action->type == RDZV_PERSIST_HOLD) {
            struct rdzv_hold hold;

            rdzv_hold(sim->server.core, action->text, &hold);
            disk_put_hold(sim, &hold);
        } else if (action->type == RDZV_PERSIST_GAP) {
            oracle_of_past(sim);
            disk_put_gap(sim, action->job_id);
            has_written = true;
        }
    }
    return has_written;
}

static void persist(struct sim *sim)
{
    if (!write_rows(sim))
        return;
    disk_commit(sim);
    oracle_committed(sim);
}

/* Commits the transaction, then sends. In a torn step the server dies between two sends. */
static void finish(struct sim *sim, uint32_t tear)
{
    struct rdzv_actions *actions = &sim->server_actions;

    persist(sim);
    for (uint32_t i = 0; i < actions->count && !sim->failed; i++) {
        if (tear > 1 && i + 2 == tear) {
            server_kill(sim);
            return;
        }
        carry_out(sim, &actions->items[i]);
    }
    arm_tick(sim, actions->timer_at_us);
}

static void commit_ends(struct sim *sim, const struct sim_event *event)
{
    struct sim_server *server = &sim->server;

    if (!server->alive || !server->commits || server->incarnation != event->incarnation)
        return;
    server->commits = false;
    finish(sim, server->tear);
}

static bool has_writes(const struct rdzv_actions *actions)
{
    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == RDZV_PERSIST ||
            actions->items[i].type == RDZV_PERSIST_DRAINS ||
            actions->items[i].type == RDZV_PERSIST_HOLD ||
            actions->items[i].type == RDZV_PERSIST_GAP)
            return true;
    return false;
}

bool server_has_refused(const struct sim *sim)
{
    const struct rdzv_actions *actions = &sim->server_actions;

    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == RDZV_REPLY_ERROR)
            return true;
    return false;
}

void server_step(struct sim *sim, struct rdzv_event event)
{
    struct sim_server *server = &sim->server;
    struct rdzv_actions *actions = &sim->server_actions;
    uint64_t slow_us;

    if (sim->failed)
        return;
    event.now_us = sim_clock_us(sim, &server->clock);
    event.wall_ms = server_wall_ms(sim);
    event.paused_us = paused_us(server, event.now_us);
    rdzv_step(server->core, &event, actions);
    server->stepped_us = event.now_us;
    server->step_at_us = sim->now_us;
    server->step_wall_ms = event.wall_ms;
    if (server->step_count++ % sim->size.core_check_interval == 0)
        rdzv_check(server->core);
    if (event.type == RDZV_EVENT_NODE_MSG)
        oracle_server_hears(sim, (uint32_t)event.conn, event.msg, actions);
    else if (event.type == RDZV_EVENT_NODE_CLOSED)
        oracle_conn_closed(sim, (uint32_t)event.conn);
    if (rdzv_has_more(&event) && !server_has_refused(sim)) {
        (void)write_rows(sim); /* the transaction continues with the next job of the array */
        if (server->tear > 1)
            server_kill(sim);
    } else if (!has_writes(actions)) {
        finish(sim, 0);
    } else if (server->tear == 1) {
        server_kill(sim);
    } else if (!server->is_loading && fault_strikes(sim, FAULT_SLOW_COMMIT)) {
        slow_us = sim_draw(sim, sim_chance(sim, 200) ? 20 * SECOND_US : SECOND_US);
        oracle_time(sim);
        sim_note(sim, "the server's disk takes %.1f s", (double)slow_us / 1e6);
        server->commits = true;
        server->paused_until_us = sim->now_us + slow_us;
        sim_at(sim, server->paused_until_us,
               (struct sim_event){.run = commit_ends, .incarnation = server->incarnation});
    } else {
        finish(sim, server->tear);
    }
}

static void load(struct sim *sim)
{
    const struct sim_disk *disk = &sim->disk;

    for (uint32_t i = 0; i < disk->drain_count; i++)
        server_step(
            sim, (struct rdzv_event){.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &disk->drains[i]});
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (disk->holds[i].slot_mask != 0)
            server_step(
                sim, (struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &disk->holds[i]});
    for (uint64_t id = 1; id <= disk->last_job_id && sim->server.alive; id++) {
        const struct sim_row *row = disk_row(sim, id);
        struct rdzv_event event = {.type = RDZV_EVENT_RESTORE};

        if (row == NULL || row->record.ended_ms != 0)
            continue;
        event.record = &row->record;
        if (after_list_read(event.record, &event.after))
            jobs_find_failed(sim, &event.after);
        server_step(sim, event);
    }
    server_step(sim, (struct rdzv_event){.type = RDZV_EVENT_RESTORED,
                                         .next_job_id = disk->last_job_id + 1});
}

static void write_lease(struct sim *sim)
{
    disk_put_lease(sim, sim->lease_us);
    disk_commit(sim);
}

static void lease_before_is_over(struct sim *sim, const struct sim_event *event)
{
    if (sim->server.alive && sim->server.incarnation == event->incarnation)
        write_lease(sim);
}

/* As the edge does it (rendezvous/server/listen.c). */
static void keep_lease(struct sim *sim)
{
    const struct sim_server *server = &sim->server;

    if (!server->alive)
        return;
    if (server->lease_before_us < sim->lease_us)
        write_lease(sim);
    else if (server->lease_before_us > sim->lease_us)
        sim_at(sim,
               sim_clock_at(sim, &server->clock,
                            sim_clock_us(sim, &server->clock) + server->lease_before_us),
               (struct sim_event){.run = lease_before_is_over,
                                  .party = PARTY_SERVER,
                                  .incarnation = server->incarnation});
}

void server_start(struct sim *sim)
{
    struct sim_server *server = &sim->server;
    struct rdzv_options options = {
        .jobs_max = sim->size.jobs,
        .nodes_max = sim->size.nodes,
        .lease_us = sim->lease_us,
        .lease_before_us = sim->disk.lease_us,
        .beat_interval_us = BEAT_US,
        .suspect_us = NODE_SUSPECT_US,
        .lost_us = NODE_LOST_US,
        .grow_us = SIM_GROW_US,
        .preempts = sim->preempts,
        .waits_for_lease = true,
        .may_be_past = sim->past.put_back_us != 0,
        .id_gap = SIM_ID_GAP,
        .seed = sim->seed + server->incarnation,
        .cluster = "simulated",
    };
    uint64_t bytes = rdzv_bytes(&options);

    sim_note(sim, "server starts");
    sim->longest_us = sim->lease_us > sim->longest_us ? sim->lease_us : sim->longest_us;
    if (server->memory == NULL)
        server->memory = malloc(bytes);
    if (server->memory == NULL)
        abort();
    memset(server->memory, 0, bytes);
    server->core = rdzv_init(server->memory, &options);
    server->alive = true;
    server->commits = false;
    server->tear = 0;
    server->incarnation++;
    server->started_us = sim->now_us;
    server->lease_before_us = sim->disk.lease_us;
    server->paused_until_us = 0;
    server->clock.offset_us = SECOND_US + sim_draw(sim, 1000 * SECOND_US); /* perhaps a reboot */
    server->tick_us = 0;
    oracle_server_started(sim, false);
    server->is_loading = true;
    load(sim);
    server->is_loading = false;
    keep_lease(sim);
}

void server_kill(struct sim *sim)
{
    struct sim_server *server = &sim->server;

    sim_note(sim, "server is killed");
    oracle_time(sim);
    if (server->commits && sim_chance(sim, 500))
        persist(sim); /* the transaction had reached the disk */
    server->alive = server->commits = false;
    server->tear = 0;
    disk_crash(sim);
    for (uint32_t i = 1; i < sim->conn_count; i++)
        if (sim->conns[i].is_server && sim->conns[i].to_far.open) {
            sim->conns[i].to_far.open = false;
            net_close(sim, i, false);
        }
}

bool server_operate(struct sim *sim, enum rdzv_event_type type, const struct msg *msg)
{
    if (!server_is_ready(sim))
        return false;
    sim->operator_acked = false;
    server_step(sim, (struct rdzv_event){
                         .type = type, .client = SIM_CLIENT_OPERATOR, .msg = msg, .user = "op"});
    return sim->operator_acked;
}
