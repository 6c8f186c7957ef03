/* One event through the core; its actions, in order: first all that must be durable, in one
 * transaction, then the sends. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "rendezvous/rdzv_io_internal.h"

#define TICK_US_MAX                                                                                \
    1000000u /* libuv's clock stands still while the machine sleeps, ours does not */

static void write_job(struct rdzv_io *io, uint64_t job_id, const struct rdzv_event *event)
{
    const struct rdzv_record *record = rdzv_record(io->core, job_id);
    const struct rdzv_part *parts;
    struct store_job job = {0};
    struct part_job summary;
    uint32_t part_count;

    assert(record != NULL);
    rdzv_job_part(io->core, job_id, job.where, &summary);
    if (record->part_count == 0) { /* an ended job was somewhere, too */
        parts = rdzv_ended_parts(io->core, job_id, &part_count);
        (void)rdzv_where(parts, part_count, job.where, sizeof job.where);
    }
    job.record = *record;
    job.epoch = summary.epoch;
    job.epochs = summary.epochs;
    job.step = summary.step;
    job.steps = summary.steps;
    job.loss = summary.loss;
    job.samples_per_s = summary.samples_per_s;
    store_write_job(io->store, &job);
    if (event->type == RDZV_EVENT_SUBMIT &&
        strcmp(record->request_id, event->msg->submit.request_id) == 0)
        store_write_spec(io->store, job_id, event->uid, &event->msg->submit);
}

static void write_ranks(struct rdzv_io *io, const struct rdzv_action *action)
{
    uint32_t part_count;
    const struct rdzv_part *parts = rdzv_ended_parts(io->core, action->job_id, &part_count);

    if (part_count > 0)
        store_write_ranks(io->store, action->job_id, action->generation, parts, part_count,
                          rdzv_ended_ranks(io->core, action->job_id));
}

static void write_drains(struct rdzv_io *io)
{
    uint32_t count;
    const struct rdzv_drain *drains = rdzv_drains(io->core, &count);

    store_write_drains(io->store, drains, count);
}

static void note(struct rdzv_io *io, const struct rdzv_action *action, int64_t wall_ms)
{
    struct log_about about = {
        .job_id = action->job_id, .generation = action->generation, .rank = -1};

    (void)store_note_event(io->store, wall_ms, action->job_id, action->generation, action->text);
    log_line(LOG_INFO, about, "%s", action->text);
}

static void on_flush(uv_timer_t *timer)
{
    io_flush(timer->data);
}

void io_flush(struct rdzv_io *io)
{
    store_commit(io->store);
    (void)uv_timer_stop(&io->flush_timer);
    if (io->seen_event_id == store_last_event_id(io->store))
        return;
    io->seen_event_id = store_last_event_id(io->store);
    wait_events_changed(io);
}

/* Durable when this returns, but for notes alone: they wait a moment for company. */
static void persist(struct rdzv_io *io, const struct rdzv_event *event)
{
    const struct rdzv_actions *actions = io->actions;
    bool must_last = false;

    for (uint32_t i = 0; i < actions->count; i++) {
        const struct rdzv_action *action = &actions->items[i];
        bool is_note = action->type == RDZV_EVENT_NOTE;

        if (!is_note && action->type != RDZV_PERSIST && action->type != RDZV_PERSIST_RANKS &&
            action->type != RDZV_PERSIST_DRAINS)
            continue;
        store_begin(io->store);
        must_last = must_last || !is_note;
        if (is_note)
            note(io, action, event->wall_ms);
        else if (action->type == RDZV_PERSIST)
            write_job(io, action->job_id, event);
        else if (action->type == RDZV_PERSIST_DRAINS)
            write_drains(io);
        else
            write_ranks(io, action);
    }
    if (must_last)
        store_commit(io->store);
    else if (store_is_dirty(io->store) && !uv_is_active((uv_handle_t *)&io->flush_timer) &&
             !io->is_stopping)
        (void)uv_timer_start(&io->flush_timer, on_flush, NOTE_FLUSH_US / 1000, 0);
}

static bool load_spec(struct rdzv_io *io, uint64_t job_id)
{
    if (io->spec_job_id == job_id)
        return true;
    arena_reset(&io->spec_arena);
    io->spec_job_id = 0;
    if (store_spec(io->store, job_id, true, &io->spec_arena, &io->spec) != STATUS_OK)
        return false;
    io->spec_job_id = job_id;
    return true;
}

static void send_start(struct rdzv_io *io, struct peer *peer, uint64_t job_id, struct msg *msg)
{
    if (!load_spec(io, job_id)) {
        log_line(LOG_ERROR, (struct log_about){.job_id = job_id, .rank = -1},
                 "the command of this job cannot be read from the store");
        return;
    }
    msg->start.cluster = store_cluster(io->store);
    msg->start.cwd = io->spec.cwd;
    msg->start.argv = io->spec.argv;
    msg->start.env = io->spec.env;
    peer_send(peer, msg);
}

static void send_welcome(const struct rdzv_io *io, struct peer *peer)
{
    struct msg msg = {
        .type = MSG_TYPE_NODE_WELCOME,
        .node_welcome = {.cluster = store_cluster(io->store),
                         .beat_interval_us = (uint32_t)io->core_options.beat_interval_us,
                         .lease_us = io->core_options.lease_us}};

    peer_send(peer, &msg);
}

static void send_to_node(struct rdzv_io *io, const struct rdzv_action *action)
{
    struct peer *peer = peer_find(io, action->conn);
    struct msg msg = {0};

    if (peer == NULL)
        return; /* its end is on its way to the core */
    if (action->type == RDZV_SEND_WELCOME) {
        send_welcome(io, peer);
    } else if (action->type == RDZV_CLOSE_NODE) {
        peer->is_core_node = false;
        peer_error(peer, "refused", "", "%s", action->text);
        peer_close(peer, STATUS_REFUSED, action->text);
    } else if (rdzv_order(io->core, action, &msg)) {
        if (msg.type == MSG_TYPE_START)
            send_start(io, peer, action->job_id, &msg);
        else
            peer_send(peer, &msg);
    }
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
    case STATUS_OK:
    case STATUS_IO:
    case STATUS_SYSTEM:
    case STATUS_MEMORY:
    case STATUS_LIBRARY:
        break;
    }
    return "internal";
}

static void reply(struct rdzv_io *io, const struct rdzv_action *action)
{
    struct peer *peer = peer_find(io, action->client);
    struct msg msg = {.type = MSG_TYPE_SUBMITTED};

    if (peer == NULL)
        return; /* it may ask again: the request id is kept */
    if (action->type == RDZV_REPLY_SUBMITTED) {
        msg.submitted = (struct msg_submitted){.job_id = action->job_id, .is_new = true};
        peer_send(peer, &msg);
    } else if (action->type == RDZV_REPLY_CANCELLED) {
        client_send_job(peer, action->job_id);
    } else if (action->type == RDZV_REPLY_NODE) {
        client_send_nodes(peer, true, action->text);
    } else {
        peer_error(peer, code_of(action->status), "", "%s", action->text);
    }
}

static void carry_out(struct rdzv_io *io, const struct rdzv_action *action)
{
    switch (action->type) {
    case RDZV_PERSIST:
    case RDZV_PERSIST_RANKS:
    case RDZV_PERSIST_DRAINS:
    case RDZV_EVENT_NOTE:
        break; /* done, before anything was sent */
    case RDZV_SEND_WELCOME:
    case RDZV_SEND_BEAT_ACK:
    case RDZV_SEND_START:
    case RDZV_SEND_GO:
    case RDZV_SEND_WORLD:
    case RDZV_SEND_STOP:
    case RDZV_SEND_FORGET:
    case RDZV_SEND_REPORT_ACK:
    case RDZV_SEND_SLOT_RESUME:
    case RDZV_CLOSE_NODE:
        send_to_node(io, action);
        break;
    case RDZV_REPLY_SUBMITTED:
    case RDZV_REPLY_CANCELLED:
    case RDZV_REPLY_NODE:
    case RDZV_REPLY_ERROR:
        reply(io, action);
        break;
    case RDZV_JOB_CHANGED:
    case RDZV_JOB_ENDED:
        wait_job_changed(io, action->job_id);
        break;
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct rdzv_event event = {.type = RDZV_EVENT_TICK};

    io_step(timer->data, &event);
}

static void arm_tick(struct rdzv_io *io, uint64_t now_us)
{
    uint64_t at_us = io->actions->timer_at_us, in_us;

    if (at_us == UINT64_MAX || io->is_stopping) {
        (void)uv_timer_stop(&io->tick_timer);
        return;
    }
    in_us = at_us > now_us ? at_us - now_us : 0;
    if (in_us > TICK_US_MAX)
        in_us = TICK_US_MAX;
    uv_update_time(io->loop);
    (void)uv_timer_start(&io->tick_timer, on_tick, (in_us + 999) / 1000, 0);
}

void io_step(struct rdzv_io *io, struct rdzv_event *event)
{
    assert(!io->is_stepping); /* what sends and closes only queues: nothing comes back from here */
    io->is_stepping = true;
    event->now_us = clock_boot_us();
    event->wall_ms = clock_wall_ms();
    rdzv_step(io->core, event, io->actions);
    persist(io, event);
    for (uint32_t i = 0; i < io->actions->count; i++)
        carry_out(io, &io->actions->items[i]);
    if (!store_is_dirty(io->store))
        io_flush(io);
    if (io->spec_job_id != 0)
        arena_reset(&io->spec_arena);
    io->spec_job_id = 0;
    arm_tick(io, event->now_us);
    io->is_stepping = false;
}
