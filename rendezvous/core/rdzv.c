#include "rendezvous/core/rdzv.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/after_list.h"
#include "rendezvous/core/check.h"
#include "rendezvous/core/deadline.h"
#include "rendezvous/core/drains.h"
#include "rendezvous/core/elastic.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/generation.h"
#include "rendezvous/core/history.h"
#include "rendezvous/core/linger.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/pace.h"
#include "rendezvous/core/reach.h"
#include "rendezvous/core/reconcile.h"
#include "rendezvous/core/restart.h"
#include "rendezvous/core/sched.h"
#include "rendezvous/core/state.h"
#include "rendezvous/core/steps.h"
#include "rendezvous/core/submit.h"
#include "rendezvous/core/warm.h"

/* Offsets of the tables, one after another in the core's memory, and the end of the last. */
struct layout {
    uint64_t nodes, many_shims, slot_states, slot_reasons, parts_on, spares_on, jobs, order,
        indices, queue, users, pass, slot_ends;
    uint64_t marks, blocks, end;
};

static uint64_t place_table(uint64_t *end, uint64_t count, uint64_t bytes)
{
    uint64_t begin = (*end + 63) / 64 * 64;

    *end = begin + count * bytes;
    return begin;
}

static struct layout make_layout(const struct rdzv_options *options)
{
    struct layout layout = {.end = sizeof(struct rdzv)};

    layout.nodes = place_table(&layout.end, options->nodes_max, sizeof(struct node));
    layout.many_shims = place_table(&layout.end, options->nodes_max,
                                    SHIMS_PER_NODE_MAX * sizeof(struct part_beat_shim));
    layout.slot_states =
        place_table(&layout.end, options->nodes_max, SLOTS_PER_NODE_MAX * sizeof(struct node_slot));
    layout.slot_reasons =
        place_table(&layout.end, options->nodes_max, SLOTS_PER_NODE_MAX * REASON_BYTES_MAX);
    layout.parts_on = place_table(&layout.end, options->nodes_max, sizeof(struct node_parts));
    layout.spares_on = place_table(&layout.end, options->nodes_max, sizeof(struct node_spares));
    layout.jobs = place_table(&layout.end, options->jobs_max + 1, sizeof(struct job));
    layout.order = place_table(&layout.end, options->jobs_max + 1, sizeof(struct job_key));
    layout.indices = place_table(&layout.end, 4ull * (options->jobs_max + 1), sizeof(uint32_t));
    layout.queue = place_table(&layout.end, options->jobs_max + 1, sizeof(struct queued));
    layout.users = place_table(&layout.end, USERS_MAX, sizeof(struct user));
    layout.pass = place_table(&layout.end, 1, sizeof(struct pass));
    layout.slot_ends =
        place_table(&layout.end, options->nodes_max, SLOTS_PER_NODE_MAX * sizeof(uint64_t));
    layout.marks = place_table(&layout.end, 1, blocks_mark_bytes(gang_chunks(options)));
    layout.blocks = place_table(&layout.end, 1, blocks_base_bytes(gang_chunks(options)));
    return layout;
}

uint64_t rdzv_bytes(const struct rdzv_options *options)
{
    return make_layout(options).end;
}

struct rdzv *rdzv_init(void *memory, const struct rdzv_options *options)
{
    struct layout layout = make_layout(options);
    struct rdzv *rdzv = memory;
    char *base = memory;

    assert(options->jobs_max > 0 && options->jobs_max <= JOBS_ACTIVE_MAX);
    assert(options->nodes_max > 0 && options->nodes_max <= NODES_MAX);
    rdzv->options = *options;
    rdzv->random = options->seed | 1;
    rdzv->next_job_id = 1;
    rdzv->nodes = (struct node *)(void *)(base + layout.nodes);
    rdzv->many_shims =
        (struct part_beat_shim(*)[SHIMS_PER_NODE_MAX])(void *)(base + layout.many_shims);
    rdzv->slot_states =
        (struct node_slot(*)[SLOTS_PER_NODE_MAX])(void *)(base + layout.slot_states);
    rdzv->slot_reasons =
        (char(*)[SLOTS_PER_NODE_MAX][REASON_BYTES_MAX])(void *)(base + layout.slot_reasons);
    rdzv->jobs = (struct job *)(void *)(base + layout.jobs);
    rdzv->parts_on = (struct node_parts *)(void *)(base + layout.parts_on);
    rdzv->spares_on = (struct node_spares *)(void *)(base + layout.spares_on);
    rdzv->order = (struct job_key *)(void *)(base + layout.order);
    rdzv->free_jobs = (uint32_t *)(void *)(base + layout.indices);
    rdzv->live = rdzv->free_jobs + options->jobs_max + 1;
    rdzv->touched = rdzv->live + options->jobs_max + 1;
    rdzv->owing = rdzv->touched + options->jobs_max + 1;
    rdzv->queue = (struct queued *)(void *)(base + layout.queue);
    rdzv->users = (struct user *)(void *)(base + layout.users);
    rdzv->pass = (struct pass *)(void *)(base + layout.pass);
    rdzv->pass->slot_ends = (uint64_t(*)[SLOTS_PER_NODE_MAX])(void *)(base + layout.slot_ends);
    blocks_init(&rdzv->blocks, base + layout.blocks, base + layout.marks, gang_chunks(options));
    rdzv->sched_new = NEWCOMER_NONE;
    rdzv->sched_at_us = rdzv->limit_at_us = rdzv->roster_at_us = UINT64_MAX;
    rdzv->gone_at_us = rdzv->pace_at_us = rdzv->step_at_us = UINT64_MAX;
    rdzv->linger_at_us = UINT64_MAX;
    return rdzv;
}

static void on_cancel(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_cancel *request = &event->msg->cancel;
    struct job *job = job_find(rdzv, event->job_id);
    struct rdzv_action *action;

    if (job == NULL || job->ended) {
        action_reply_error(&rdzv->out, event->client, STATUS_NOT_FOUND,
                           "no such job is queued or running");
        return;
    }
    if (!job->record.cancel_wanted) {
        job->record.cancel_wanted = true;
        job_set_dirty(rdzv, job);
        action_log(&rdzv->out, job->record.job_id, job->record.generation,
                   "cancel was asked for%s%s", event->user != NULL ? " by " : "",
                   event->user != NULL ? event->user : "");
    }
    (void)snprintf(job->record.reason, sizeof job->record.reason, "cancelled");
    if (job->record.part_count == 0)
        job_end(rdzv, job, JOB_CANCELLED, 125, 0, true);
    else
        generation_stop(rdzv, job, STOP_CANCEL, request->signal,
                        request->grace_us < 0 ? job->record.grace_us : (uint64_t)request->grace_us);
    action = action_add(&rdzv->out, RDZV_REPLY_CANCELLED);
    action->client = event->client;
    action->job_id = event->job_id;
}

/* A stored job that cannot go on is kept and ends as failed. The fields that are unusable are
 * dropped, the others stay as stored. */
static void refuse_record(struct rdzv *rdzv, const struct rdzv_record *record, const char *problem)
{
    struct job *job = job_add_refused(rdzv, record->job_id);

    job->record = *record;
    job->record.part_count = 0;
    job->record.parts = NULL;
    job->record.failed_rank = -1;
    job->record.stopping = STOP_NONE; /* it has no parts to stop */
    if (record->nodes == 0 || record->nodes > NODES_PER_JOB_MAX)
        job->record.nodes = 1;
    if (record->nproc_per_node == 0 || record->nproc_per_node > SLOTS_PER_NODE_MAX ||
        job_world(job) > RANKS_PER_JOB_MAX)
        job->record.nproc_per_node = 1;
    job->record.nodes_min = job->record.nodes_max = job->record.nodes;
    if (!check_after(record))
        after_list_clear(&job->record);
    if (!check_array(record))
        job->record.array_job = job->record.array_count = 0;
    if (record->name[0] == '\0')
        (void)snprintf(job->record.name, sizeof job->record.name, "unnamed");
    text_format(job->record.reason, "it could not be restored: %s", problem);
    job_log(rdzv, job, job->record.reason);
    job->record.state = JOB_QUEUED;
    job_end(rdzv, job, JOB_FAILED, 125, 0, true);
}

/* Computes what is left of the time limit by the wall clock, the only clock that is known to have
 * run on. */
static void restore_limit(struct rdzv *rdzv, struct job *job)
{
    const struct rdzv_record *record = &job->record;
    int64_t left_ms = record->limit_at_ms - rdzv->out.wall_ms;
    uint64_t left_us = record->time_limit_us;

    if (record->part_count == 0 || left_us == 0 ||
        (record->limit_at_ms == 0 && record->state != JOB_RUNNING))
        return;
    if (record->limit_at_ms != 0 && left_ms < (int64_t)(left_us / 1000))
        left_us = left_ms > 0 ? (uint64_t)left_ms * 1000 : 0;
    job->limit_at_us = rdzv->out.now_us + left_us;
    if (job->limit_at_us < rdzv->limit_at_us)
        rdzv->limit_at_us = job->limit_at_us;
}

static void on_restore(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct rdzv_record *record = event->record;
    const char *problem = check_record(rdzv, record);
    struct job *job = NULL;
    struct gang gang = {0};
    char text[REASON_BYTES_MAX];

    if (problem == NULL && record->part_count > 0 &&
        !job_gang_new(rdzv, &gang, record->part_count, record->nodes * record->nproc_per_node))
        problem = "the server's memory for ranks is full";
    if (problem == NULL)
        job = job_add(rdzv, record->job_id);
    if (job == NULL) {
        gang_free(&rdzv->blocks, &gang);
        text_format(text, "the server's table of %u active jobs is full", rdzv->options.jobs_max);
        refuse_record(rdzv, record, problem != NULL ? problem : text);
        return;
    }
    job->record = *record;
    if (record->nodes_max == 0) /* written by a server that did not know these fields */
        job->record.nodes_min = job->record.nodes_max = record->nodes;
    job->after_failed_id = event->after.failed_id;
    job->after_failed_state = event->after.failed_state;
    job->record.parts = gang.places;
    job->gang = gang;
    if (gang.part_count > 0)
        memcpy(gang.places, record->parts, gang.part_count * sizeof *gang.places);
    users_add(rdzv, job);
    spare_table_begin(rdzv, job);
    job->go_sent = job->record.state == JOB_RUNNING;
    restore_limit(rdzv, job);
    if (job->record.cancel_wanted && job->record.part_count == 0) {
        job_end(rdzv, job, JOB_CANCELLED, 125, 0, true);
        return;
    }
    if (job->record.part_count == 0)
        queue_add(rdzv, job);
    if (job->record.cancel_wanted && job->record.stopping == STOP_NONE) {
        job->record.stopping = STOP_CANCEL; /* written by a version that did not store it */
        job->record.stop_signal = SIGTERM;
        job->record.stop_grace_us = job->record.grace_us;
    }
    generation_restore(rdzv, job);
}

static void on_start_failed(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct job *job = job_find(rdzv, event->job_id);

    if (job != NULL && !job->ended && job->record.generation == event->generation)
        generation_start_failed(rdzv, job, event->part, event->text);
}

/* Its node ends the part by itself, since it does not get the directory. */
static void on_stage_lost(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct job *job = job_find(rdzv, event->job_id);
    const struct node *node = roster_find_conn(rdzv, event->conn);
    const uint32_t part =
        job == NULL || node == NULL ? UINT32_MAX : roster_part_of(rdzv, node, job);

    if (part != UINT32_MAX && !job->ended)
        generation_stage_lost(rdzv, job, part, event->text);
}

static void take_move(struct rdzv *rdzv, struct job *job, const struct msg_progress *progress)
{
    if (pace_progress(rdzv, job, progress->rank, progress))
        job->gang.ranks[progress->rank].moved_ms = (uint32_t)(rdzv->out.now_us / 1000) | 1;
}

static void on_progress(struct rdzv *rdzv, const struct node *node,
                        const struct msg_progress *progress)
{
    struct job *job = job_find(rdzv, progress->job_id);
    const struct rdzv_part *place;
    uint32_t part = job == NULL ? UINT32_MAX : roster_part_of(rdzv, node, job);
    uint64_t ran_us;

    if (job == NULL || job->record.generation != progress->generation || part == UINT32_MAX)
        return;
    place = &job->record.parts[part];
    if (progress->rank >= place->rank_base &&
        progress->rank < place->rank_base + place->local_count)
        take_move(rdzv, job, progress);
    ran_us = rdzv->out.now_us > job->running_at_us ? rdzv->out.now_us - job->running_at_us : 0;
    job->record.epoch = progress->epoch;
    job->record.epochs = progress->epochs;
    job->record.step = progress->step;
    job->record.steps = progress->steps;
    job->record.loss = progress->loss;
    job->record.samples_per_s = progress->samples_per_s;
    job->told_generation = job->record.generation;
    job_set_changed(rdzv, job);
    if (progress->checkpoint_step > job->record.checkpoint_step &&
        restart_believes(job->record.checkpoint_step, progress->checkpoint_step, ran_us)) {
        job->record.checkpoint_step = progress->checkpoint_step;
        job->record.restarts_without_progress = 0;
        job->record.node_failures = 0;
        job_set_dirty(rdzv, job);
        elastic_checkpoint(rdzv, job);
    }
}

/* Logs the event with the job that runs on the slot. */
static void on_node_event(struct rdzv *rdzv, const struct node *node,
                          const struct msg_node_event *event)
{
    const struct job *on_it = NULL;

    for (uint32_t i = 0; i < roster_part_count(rdzv, node) && on_it == NULL; i++) {
        uint32_t part;
        const struct job *job = roster_part(rdzv, node, i, &part);

        if ((job->record.parts[part].slot_mask >> event->slot & 1) != 0)
            on_it = job;
    }
    action_log(&rdzv->out, on_it == NULL ? 0 : on_it->record.job_id,
               on_it == NULL ? 0 : on_it->record.generation, "node %s: %s", node->name,
               event->text);
}

static void on_hello(struct rdzv *rdzv, const struct rdzv_event *event)
{
    enum kinship kin;
    struct node *node = roster_hello(rdzv, event->conn, &event->msg->node_hello, &kin);

    if (node == NULL)
        return;
    reach_hello(node, event->text);
    if (kin == KIN_UNKNOWN)
        reconcile_unknown(rdzv, node);
    steps_heard(rdzv, node);
    history_hello(rdzv, node, &event->msg->node_hello);
    reconcile_list(rdzv, node);
    pace_heard_again(rdzv, node);
}

static void on_node_msg(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct node *node = roster_find_conn(rdzv, event->conn);

    if (event->msg->type == MSG_TYPE_NODE_HELLO && node == NULL) {
        on_hello(rdzv, event);
        return;
    }
    if (node == NULL)
        return; /* it was replaced or lost: its connection is being closed */
    if (event->msg->type == MSG_TYPE_BEAT) {
        if (pace_is_late(rdzv, node))
            pace_heard_again(rdzv, node);
        roster_beat(rdzv, node, &event->msg->beat);
        steps_heard(rdzv, node);
        history_beat(rdzv, node);
        reconcile_list(rdzv, node);
        reconcile_silent(rdzv, node, &event->msg->beat);
        reconcile_leaving(rdzv, node);
        warm_heard(rdzv, node, &event->msg->beat);
    } else if (event->msg->type == MSG_TYPE_SHIM_REPORT) {
        reconcile_report(rdzv, node, &event->msg->shim_report);
    } else if (event->msg->type == MSG_TYPE_PROGRESS) {
        on_progress(rdzv, node, &event->msg->progress);
    } else if (event->msg->type == MSG_TYPE_NODE_EVENT) {
        on_node_event(rdzv, node, &event->msg->node_event);
    } else {
        struct rdzv_action *action = action_add(&rdzv->out, RDZV_CLOSE_NODE);

        action->conn = event->conn;
        action->status = STATUS_BAD_INPUT;
        action_text(&rdzv->out, action, "a node may not send %s", msg_type_name(event->msg->type));
        roster_closed(rdzv, node);
    }
}

/* The time limit counts from the moment at which every worker is running. */
static void enforce_time_limits(struct rdzv *rdzv)
{
    bool is_due = rdzv->out.now_us >= rdzv->limit_at_us;

    rdzv->limit_at_us = is_due ? UINT64_MAX : rdzv->limit_at_us;
    for (uint32_t i = 0; is_due && i < rdzv->live_count; i++) {
        struct job *job = job_live(rdzv, i);

        if (job->ended || job->record.stopping != STOP_NONE || job->limit_at_us == UINT64_MAX)
            continue;
        if (rdzv->out.now_us < job->limit_at_us ||
            !actions_have_room(&rdzv->out, JOB_ACTIONS_MAX)) {
            if (job->limit_at_us < rdzv->limit_at_us)
                rdzv->limit_at_us = job->limit_at_us;
            continue;
        }
        text_format(job->record.reason, "the time limit of %llu s is over",
                    (unsigned long long)(job->record.time_limit_us / 1000000));
        generation_stop(rdzv, job, STOP_TIME, SIGTERM, job->record.grace_us);
    }
    if (rdzv->limit_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->limit_at_us);
}

/* False: the next event belongs to the same transaction. */
static bool dispatch(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct node *node;

    switch (event->type) {
    case RDZV_EVENT_TICK:
        break;
    case RDZV_EVENT_RESTORE:
        on_restore(rdzv, event);
        break;
    case RDZV_EVENT_RESTORE_DRAIN:
        drains_on_restore(rdzv, event->drain);
        break;
    case RDZV_EVENT_RESTORE_HOLD:
        roster_restore_hold(rdzv, event->hold);
        break;
    case RDZV_EVENT_RESTORED:
        rdzv->next_job_id = event->next_job_id;
        rdzv->is_restored = true;
        rdzv->restored_at_us = rdzv->out.now_us;
        fence_restored(rdzv);
        history_restored(rdzv);
        rdzv->sched_due = true;
        if (event->next_job_id > 1) /* it has had nodes before and must wait for them to connect */
            rdzv->settled_at_us = rdzv->out.now_us + rdzv->options.lost_us;
        break;
    case RDZV_EVENT_NODE_MSG:
        on_node_msg(rdzv, event);
        break;
    case RDZV_EVENT_NODE_CLOSED:
        node = roster_find_conn(rdzv, event->conn);
        if (node != NULL)
            roster_closed(rdzv, node);
        break;
    case RDZV_EVENT_SUBMIT:
        return submit_take(rdzv, event);
    case RDZV_EVENT_CANCEL:
        on_cancel(rdzv, event);
        break;
    case RDZV_EVENT_START_FAILED:
        on_start_failed(rdzv, event);
        break;
    case RDZV_EVENT_STAGE_LOST:
        on_stage_lost(rdzv, event);
        break;
    case RDZV_EVENT_LOOKED:
        pace_looked(rdzv, event);
        break;
    case RDZV_EVENT_NODE_DRAIN:
        drains_on_drain(rdzv, event);
        break;
    case RDZV_EVENT_NODE_RESUME:
        drains_on_resume(rdzv, event);
        break;
    }
    return true;
}

void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_actions *actions)
{
    bool is_whole;

    assert(rdzv->is_restored || event->type == RDZV_EVENT_RESTORE ||
           event->type == RDZV_EVENT_RESTORE_DRAIN || event->type == RDZV_EVENT_RESTORE_HOLD ||
           event->type == RDZV_EVENT_RESTORED);
    assert(event->now_us >= rdzv->out.now_us);
    actions_begin(&rdzv->out, actions, event->now_us, event->wall_ms);
    jobs_drop_ended(rdzv);
    if (event->paused_us > 0) {
        roster_shift(rdzv, event->paused_us);
        steps_paused(rdzv, event->paused_us);
        pace_paused(rdzv);
    }
    is_whole = dispatch(rdzv, event);
    assert(actions_have_room(&rdzv->out, RDZV_ACTIONS_MAX - EVENT_ACTIONS_MAX));
    if (rdzv->is_restored && is_whole) {
        roster_tick(rdzv);
        reconcile_lost(rdzv);
        elastic_tick(rdzv);
        enforce_time_limits(rdzv);
        deadline_tick(rdzv);
        pace_tick(rdzv);
        linger_tick(rdzv);
        sched_run(rdzv);
    }
    jobs_publish(rdzv);
    orders_send(rdzv);
    if (rdzv->gone_at_us != UINT64_MAX)
        actions_wake_at(&rdzv->out, rdzv->gone_at_us);
    rdzv->out.actions = NULL;
    check_step(rdzv);
}
