/* Passes one event through the core and carries out its actions: first everything that must be
 * durable, in one transaction, then the sends. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/msg_schema.h"
#include "rendezvous/server/internal.h"

/* The longest sleep. libuv's clock stops while the machine is suspended and the boot clock does
 * not, so a longer timer could be late. */
#define TICK_US_MAX 1000000u
#define PAUSE_MIN_US 1000000u
/* Leaves room for one more start order in the queue of a connection. */
#define START_WINDOW_BYTES (CONN_QUEUE_BYTES_MAX - 2u * FRAME_LARGE_BYTES_MAX)

static void write_spec(struct server *server, uint64_t job_id, const struct rdzv_event *event)
{
    store_write_spec(server->store, job_id, event->user, &event->msg->submit);
    server->counts.submitted++;
}

/* The spec is written once, with the row of the new job. Request ids are unique only within a user
 * (store_find_request), so another user's job may have the same one. */
static void write_job(struct server *server, uint64_t job_id, const struct rdzv_event *event)
{
    const struct rdzv_record *record = rdzv_job_record(server->core, job_id);

    assert(record != NULL);
    store_write_job(server->store, record);
    server->counts.succeeded += record->state == JOB_SUCCEEDED; /* an ended job is written once */
    server->counts.failed += record->state == JOB_FAILED;
    server->counts.cancelled += record->state == JOB_CANCELLED;
    if (event->type == RDZV_EVENT_SUBMIT && event->array_place == 0 &&
        strcmp(record->user, event->user) == 0 &&
        strcmp(record->request_id, event->msg->submit.request_id) == 0)
        write_spec(server, job_id, event);
}

static void write_ranks(struct server *server, const struct rdzv_action *action,
                        const struct rdzv_event *event)
{
    struct store_clock clock = {.boot_us = event->now_us, .wall_ms = event->wall_ms};
    uint32_t part_count;
    const struct rdzv_part *parts = rdzv_ended_parts(server->core, action->job_id, &part_count);

    if (part_count > 0)
        store_write_ranks(server->store, action->job_id, action->generation, parts, part_count,
                          rdzv_ended_ranks(server->core, action->job_id), clock);
}

static void write_failure(struct server *server, const struct rdzv_action *action)
{
    bool is_restored;
    const struct part_failure *failure = rdzv_failure(server->core, action->job_id, &is_restored);

    store_write_failure(server->store, action->job_id, failure, is_restored);
}

static void write_drains(struct server *server)
{
    uint32_t count;
    const struct rdzv_drain *drains = rdzv_drains(server->core, &count);

    store_write_drains(server->store, drains, count);
}

static void write_hold(struct server *server, const struct rdzv_action *action)
{
    struct rdzv_hold hold;

    rdzv_hold(server->core, action->text, &hold);
    store_write_hold(server->store, &hold);
}

/* The core's own line, an event, says what was seen. */
static void write_gap(struct server *server, uint64_t job_id)
{
    store_write_gap(server->store, job_id);
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "the state in %s is older than what nodes have seen: no number of a job up to %llu is "
             "given again. If it was put back by hand, restore a backup instead (ddpctl help "
             "restore); if not, look after its disk",
             store_path(server->store), (unsigned long long)job_id);
    keys_lost(server);
    server->core_options.is_copy =
        true; /* also for a server that starts before the leases are over */
    server_keep_copy(server);
}

static void log_event(struct server *server, const struct rdzv_action *action, int64_t wall_ms)
{
    struct log_about about = {
        .job_id = action->job_id, .generation = action->generation, .rank = -1};

    (void)store_write_event(server->store, wall_ms, action->job_id, action->generation,
                            action->text);
    log_line(LOG_INFO, about, "%s", action->text);
}

static void on_flush(uv_timer_t *timer)
{
    server_flush(timer->data);
}

/* A submit waits for the other submits of this turn of the loop, and they all share one
 * transaction: with an fsync for each, few jobs a second could be accepted. So the step of a submit
 * may only do what can wait: write the job, log events about it, answer its client. */
static bool can_wait(const struct server *server, const struct rdzv_event *event)
{
    const struct rdzv_actions *actions = server->actions;
    uint64_t job_id = 0;

    if (event->type != RDZV_EVENT_SUBMIT || server->is_stopping ||
        server->submitted_count == SUBMITTED_MAX)
        return false;
    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == RDZV_REPLY_SUBMITTED)
            job_id = actions->items[i].job_id;
    for (uint32_t i = 0; i < actions->count; i++) {
        enum rdzv_action_type type = actions->items[i].type;

        if (actions->items[i].job_id != job_id ||
            (type != RDZV_PERSIST && type != RDZV_LOG_EVENT && type != RDZV_JOB_CHANGED &&
             type != RDZV_REPLY_SUBMITTED))
            return false;
    }
    return job_id != 0;
}

/* Answers the submits that are durable now. */
static void answer_submitted(struct server *server)
{
    struct msg msg = {.type = MSG_TYPE_SUBMITTED};

    assert(!store_is_dirty(server->store));
    for (uint32_t i = 0; i < server->submitted_count; i++) {
        struct peer *peer = peer_find(server, server->submitted[i].client);

        if (peer == NULL)
            continue; /* it may ask again with the same request id */
        peer->is_submitting = false;
        msg.submitted =
            (struct msg_submitted){.job_id = server->submitted[i].job_id, .is_new = true};
        peer_send(peer, &msg);
    }
    server->submitted_count = 0;
}

void server_flush(struct server *server)
{
    store_commit(server->store);
    (void)uv_timer_stop(&server->flush_timer);
    answer_submitted(server);
    if (server->seen_event_id == store_last_event_id(server->store))
        return;
    server->seen_event_id = store_last_event_id(server->store);
    wait_events_changed(server);
}

static void flush_in(struct server *server, uint64_t in_us)
{
    if (store_is_dirty(server->store) && !server->is_stopping)
        (void)uv_timer_start(&server->flush_timer, on_flush, in_us / 1000, 0);
}

void server_flush_soon(struct server *server)
{
    if (!uv_is_active((uv_handle_t *)&server->flush_timer))
        flush_in(server, EVENT_FLUSH_US);
}

/* Everything is durable when this returns, with two exceptions: events without other writes wait up
 * to EVENT_FLUSH_US, so that many share one transaction; submits wait until the end of this
 * turn. */
static void persist(struct server *server, const struct rdzv_event *event, bool waits)
{
    const struct rdzv_actions *actions = server->actions;
    bool must_last = false;

    for (uint32_t i = 0; i < actions->count; i++) {
        const struct rdzv_action *action = &actions->items[i];
        bool is_event = action->type == RDZV_LOG_EVENT;

        if (!is_event && action->type != RDZV_PERSIST && action->type != RDZV_PERSIST_RANKS &&
            action->type != RDZV_PERSIST_FAILURE && action->type != RDZV_PERSIST_DRAINS &&
            action->type != RDZV_PERSIST_HOLD && action->type != RDZV_PERSIST_GAP &&
            action->type != RDZV_PERSIST_LEASE)
            continue;
        store_begin(server->store);
        must_last = must_last || !is_event;
        if (is_event)
            log_event(server, action, event->wall_ms);
        else if (action->type == RDZV_PERSIST)
            write_job(server, action->job_id, event);
        else if (action->type == RDZV_PERSIST_DRAINS)
            write_drains(server);
        else if (action->type == RDZV_PERSIST_HOLD)
            write_hold(server, action);
        else if (action->type == RDZV_PERSIST_GAP)
            write_gap(server, action->job_id);
        else if (action->type == RDZV_PERSIST_LEASE)
            server_write_lease_before(server, action->lease_us);
        else if (action->type == RDZV_PERSIST_FAILURE)
            write_failure(server, action);
        else
            write_ranks(server, action, event);
    }
    if (waits)
        flush_in(server, 0);
    else if (must_last)
        store_commit(server->store);
    else
        server_flush_soon(server);
}

static enum status load_spec(struct server *server, uint64_t job_id)
{
    enum status status;

    if (server->spec_job_id == job_id)
        return STATUS_OK;
    arena_reset(&server->spec_arena);
    server->spec_job_id = 0;
    status = store_spec(server->store, job_id, true, &server->spec_arena, &server->spec);
    if (status == STATUS_OK)
        server->spec_job_id = job_id;
    return status;
}

/* A start order that cannot be made becomes an event for the core after this step. One for each
 * generation is enough, because the core stops the whole generation. If the table is full, nothing
 * is noted: the node's next beat lacks the shim, and the core orders it again. */
static void start_failed(struct server *server, const struct rdzv_action *action, const char *text)
{
    struct start_failure *failure = server->start_failures;
    const struct start_failure *end = failure + server->start_failure_count;

    while (failure < end && failure->job_id != action->job_id)
        failure++;
    if (failure < end || server->start_failure_count == RDZV_ACTIONS_MAX)
        return;
    server->start_failure_count++;
    *failure = (struct start_failure){
        .job_id = action->job_id, .generation = action->generation, .part = action->part};
    (void)snprintf(failure->text, sizeof failure->text, "%s", text);
}

/* Sends nothing if memory is short, if the order needs an address that is not known yet, or if
 * START_WINDOW_BYTES are already on their way to the node. Then the node's next beat lacks the
 * shim, and the core orders it again. */
static void send_start(struct server *server, struct peer *peer, const struct rdzv_action *action,
                       struct msg *msg)
{
    enum status status;
    char text[REASON_BYTES_MAX];
    struct err err;

    if (peer->conn.queued_bytes > START_WINDOW_BYTES)
        return;
    status = load_spec(server, action->job_id);
    if (status == STATUS_MEMORY) {
        log_line(LOG_ERROR, (struct log_about){.job_id = action->job_id, .rank = -1},
                 "no memory to read the command of this job");
        return;
    }
    if (status != STATUS_OK) {
        start_failed(server, action,
                     status == STATUS_NOT_FOUND
                         ? "its command is lost: the server's state.db was damaged. Submit it again"
                         : "its command cannot be read from the server's store");
        return;
    }
    msg->start.cluster = store_cluster(server->store);
    msg->start.cwd = server->spec.cwd;
    msg->start.argv = server->spec.argv;
    msg->start.env = server->spec.env;
    msg->start.nodes = (struct msg_pair_list){
        .items = server->start_nodes,
        .count = rdzv_job_nodes(server->core, action->job_id, server->start_nodes)};
    if (msg->start.nodes.count == 0 && msg->start.node_rank == 0)
        return;
    if (msg->start.nodes.count > 0 && msg->start.node_rank > 0)
        msg->start.nodes.count = 1;
    msg->start.launch = server->spec.launch;
    status = peer_try_send(peer, msg, &err);
    if (status == STATUS_TOO_BIG || status == STATUS_BAD_INPUT) {
        (void)snprintf(text, sizeof text, "its start order cannot be sent: %.200s", err.text);
        start_failed(server, action, text);
    }
}

/* Optional: if it cannot be sent, the job's start on the spare is merely slower. */
static void send_warm(struct server *server, struct peer *peer, const struct rdzv_action *action,
                      struct msg *msg)
{
    struct err err;

    if (peer->conn.queued_bytes > START_WINDOW_BYTES ||
        load_spec(server, action->job_id) != STATUS_OK || !server_can_warm(server))
        return;
    msg->warm.cluster = store_cluster(server->store);
    msg->warm.cwd = server->spec.cwd;
    msg->warm.argv = server->spec.argv;
    msg->warm.env = server->spec.env;
    msg->warm.launch = server->spec.launch;
    (void)peer_try_send(peer, msg, &err);
}

static void send_welcome(const struct server *server, struct peer *peer)
{
    struct msg msg = {
        .type = MSG_TYPE_NODE_WELCOME,
        .node_welcome = {.cluster = store_cluster(server->store),
                         .beat_interval_us = (uint32_t)server->core_options.beat_interval_us,
                         .lease_us = server->core_options.lease_us,
                         .protocol = msg_protocol(),
                         .schema = msg_schema()}};

    peer_send(peer, &msg);
}

static const char *code_of(enum status status)
{
    switch (status) {
    case STATUS_BAD_INPUT:
    case STATUS_UNSUPPORTED:
        return "bad_request";
    case STATUS_NOT_FOUND:
        return "not_found";
    case STATUS_REFUSED:
    case STATUS_CONFLICT:
        return "refused";
    case STATUS_TOO_BIG:
    case STATUS_BUSY:
        return "full";
    case STATUS_CLOSED:
    case STATUS_PEER_LOST:
    case STATUS_TIMEOUT:
        return "unreachable";
    case STATUS_MEMORY:
        return "later";
    case STATUS_OK:
    case STATUS_IO:
    case STATUS_SYSTEM:
    case STATUS_LIBRARY:
        break;
    }
    return "internal";
}

static void send_to_node(struct server *server, const struct rdzv_action *action)
{
    struct peer *peer = peer_find(server, action->conn);
    struct msg msg = {0};

    if (peer == NULL)
        return; /* its end is on its way to the core */
    if (action->type == RDZV_SEND_WELCOME) {
        send_welcome(server, peer);
    } else if (action->type == RDZV_CLOSE_NODE) {
        peer->is_core_node = false;
        /* An old connection of the same node may hold the name, so the node retries for a while. */
        peer_error(peer, action->status == STATUS_CONFLICT ? "busy" : code_of(action->status), "",
                   "%s", action->text);
        peer_close(peer, action->status, action->text);
    } else if (rdzv_order(server->core, action, &msg)) {
        if (msg.type == MSG_TYPE_START)
            send_start(server, peer, action, &msg);
        else if (msg.type == MSG_TYPE_WARM)
            send_warm(server, peer, action, &msg);
        else
            peer_send(peer, &msg);
    }
}

static void reply(struct server *server, const struct rdzv_action *action)
{
    struct peer *peer = peer_find(server, action->client);

    if (peer == NULL)
        return;
    if (action->type == RDZV_REPLY_CANCELLED) {
        answer_job(peer, action->job_id, 0);
    } else if (action->type == RDZV_REPLY_NODE) {
        answer_node(peer, action->text);
    } else if (action->type == RDZV_REPLY_ERROR) {
        peer_error(peer, code_of(action->status), "", "%s", action->text);
    }
}

static void answer_when_durable(struct server *server, const struct rdzv_action *action)
{
    struct peer *peer = peer_find(server, action->client);

    assert(server->submitted_count < SUBMITTED_MAX);
    server->submitted[server->submitted_count++] =
        (struct submitted){.client = action->client, .job_id = action->job_id};
    if (peer != NULL)
        peer->is_submitting = true;
}

/* Carries out the actions that are no durable state. That has been written before. */
static void carry_out(struct server *server, const struct rdzv_action *action)
{
    if (rdzv_is_for_node(action->type))
        send_to_node(server, action);
    else if (action->type == RDZV_LOOK)
        look_begin(server, action, server_step);
    else if (action->type == RDZV_JOB_CHANGED || action->type == RDZV_JOB_ENDED)
        wait_job_changed(server, action->job_id);
    else if (action->type == RDZV_REPLY_SUBMITTED)
        answer_when_durable(server, action);
    else if (action->client != 0)
        reply(server, action);
}

static void on_tick(uv_timer_t *timer)
{
    struct rdzv_event event = {.type = RDZV_EVENT_TICK};

    server_step(timer->data, &event);
}

/* If the core has work left, it asks for a tick now. The timer of 0 ms fires in the loop's next
 * iteration, after connections have been read, so a long piece of work does not keep nodes
 * waiting. */
static void arm_tick(struct server *server, uint64_t now_us)
{
    uint64_t at_us = server->actions->timer_at_us, in_us;

    server->tick_at_us = 0;
    if (at_us == UINT64_MAX || server->is_stopping) {
        (void)uv_timer_stop(&server->tick_timer);
        return;
    }
    in_us = at_us > now_us ? at_us - now_us : 0;
    if (in_us > TICK_US_MAX)
        in_us = TICK_US_MAX;
    uv_update_time(server->loop);
    (void)uv_timer_start(&server->tick_timer, on_tick, (in_us + 999) / 1000, 0);
    server->stepped_at_us = now_us;
    server->tick_at_us = now_us + in_us;
}

/* Detects a tick that is later than any load explains: this process or its machine was stopped, or
 * a commit waited for the disk. What nodes sent meanwhile is still to be read. */
static uint64_t paused_us(const struct server *server, uint64_t now_us)
{
    if (server->tick_at_us == 0 || now_us < server->tick_at_us + PAUSE_MIN_US)
        return 0;
    return now_us - server->stepped_at_us;
}

static void step(struct server *server, struct rdzv_event *event)
{
    bool waits;

    assert(!server->is_stepping); /* sends and closes only queue: nothing calls back from here */
    server->is_stepping = true;
    server_check_lead(server);
    event->now_us = clock_boot_us();
    event->wall_ms = clock_wall_ms();
    event->paused_us = paused_us(server, event->now_us);
    rdzv_step(server->core, event, server->actions);
    waits = rdzv_has_more(event) || can_wait(server, event);
    persist(server, event, waits);
    if (!store_is_dirty(server->store))
        answer_submitted(server);
    for (uint32_t i = 0; i < server->actions->count; i++)
        carry_out(server, &server->actions->items[i]);
    if (!store_is_dirty(server->store))
        server_flush(server);
    if (server->spec_job_id != 0)
        arena_reset(&server->spec_arena);
    server->spec_job_id = 0;
    arm_tick(server, event->now_us);
    server->is_stepping = false;
}

void server_step(struct server *server, struct rdzv_event *event)
{
    step(server, event);
    while (server->start_failure_count > 0) {
        struct start_failure failure = server->start_failures[--server->start_failure_count];
        struct rdzv_event failed = {.type = RDZV_EVENT_START_FAILED,
                                    .job_id = failure.job_id,
                                    .generation = failure.generation,
                                    .part = failure.part,
                                    .text = failure.text};

        step(server, &failed);
    }
}
