#include "rendezvous/rdzv.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/rdzv_state.h"

#define ACTIONS_RESERVED 1024u /* kept for what one event must be able to say */

uint64_t rdzv_bytes(const struct rdzv_options *options)
{
    return sizeof(struct rdzv) + options->nodes_max * sizeof(struct node) +
           options->jobs_max * sizeof(struct job);
}

struct rdzv *rdzv_init(void *memory, const struct rdzv_options *options)
{
    struct rdzv *rdzv = memory;

    assert(options->jobs_max > 0 && options->jobs_max <= JOBS_ACTIVE_MAX);
    assert(options->nodes_max > 0 && options->nodes_max <= NODES_MAX);
    _Static_assert(sizeof(struct rdzv) % 16 == 0 || _Alignof(struct node) <= 8, "alignment");
    _Static_assert(sizeof(struct rdzv) % _Alignof(struct node) == 0, "nodes follow aligned");
    _Static_assert(sizeof(struct node) % _Alignof(struct job) == 0, "jobs follow aligned");
    rdzv->options = *options;
    rdzv->random = options->seed | 1;
    rdzv->next_job_id = 1;
    rdzv->nodes = (struct node *)(void *)((char *)memory + sizeof *rdzv);
    rdzv->jobs = (struct job *)(void *)(rdzv->nodes + options->nodes_max);
    return rdzv;
}

struct rdzv_action *rdzv_act(struct rdzv *rdzv, enum rdzv_action_type type)
{
    struct rdzv_action *action;

    assert(rdzv->out->count < RDZV_ACTIONS_MAX);
    action = &rdzv->out->items[rdzv->out->count++];
    memset(action, 0, sizeof *action);
    action->type = type;
    return action;
}

bool rdzv_has_room(const struct rdzv *rdzv, uint32_t action_count)
{
    return rdzv->out->count + action_count + ACTIONS_RESERVED <= RDZV_ACTIONS_MAX;
}

void rdzv_wake_at(struct rdzv *rdzv, uint64_t at_us)
{
    if (at_us < rdzv->out->timer_at_us)
        rdzv->out->timer_at_us = at_us;
}

const char *rdzv_text(struct rdzv *rdzv, const char *format, ...)
{
    char *text = rdzv->texts + rdzv->texts_used;
    size_t room = sizeof rdzv->texts - rdzv->texts_used;
    va_list args;
    int length;

    if (room < REASON_BYTES_MAX)
        return "(and more)";
    va_start(args, format);
    length = vsnprintf(text, REASON_BYTES_MAX, format, args);
    va_end(args);
    if (length >= (int)REASON_BYTES_MAX) {
        length = REASON_BYTES_MAX - 1;
        while (length > 0 && ((unsigned char)text[length - 1] & 0xc0) == 0x80)
            length--; /* not within a character of UTF-8 */
        if (length > 0 && (unsigned char)text[length - 1] >= 0xc0)
            length--;
        text[length] = '\0';
    }
    rdzv->texts_used += (uint32_t)(length < 0 ? 0 : length) + 1;
    return text;
}

void rdzv_note(struct rdzv *rdzv, const struct job *job, const char *text)
{
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_EVENT_NOTE);

    action->job_id = job == NULL ? 0 : job->record.job_id;
    action->generation = job == NULL ? 0 : job->record.generation;
    action->text = text;
}

struct job *rdzv_find_job(const struct rdzv *rdzv, uint64_t job_id)
{
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];

        if (job->record.job_id == job_id)
            return job;
    }
    return NULL;
}

static struct job *add_job(struct rdzv *rdzv)
{
    for (uint32_t i = 0; i < rdzv->options.jobs_max; i++) {
        struct job *job = &rdzv->jobs[i];

        if (job->used)
            continue;
        memset(job, 0, sizeof *job);
        job->used = true;
        job->version = 1;
        job->limit_at_us = UINT64_MAX;
        job->record.failed_rank = -1;
        rdzv->order[rdzv->job_count++] = (uint16_t)i;
        return job;
    }
    return NULL;
}

/* Ended jobs stay readable for the edge until the next step: now. */
static void drop_ended(struct rdzv *rdzv)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];

        if (job->ended)
            job->used = false;
        else
            rdzv->order[kept++] = rdzv->order[i];
    }
    rdzv->job_count = kept;
}

void rdzv_reply_error(struct rdzv *rdzv, uint64_t client, enum status status, const char *text)
{
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_REPLY_ERROR);

    action->client = client;
    action->status = status;
    action->text = text;
}

static void on_submit(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_submit *wish = &event->msg->submit;
    struct rdzv_action *action;
    struct job *job;

    if (wish->nodes * wish->nproc_per_node > RANKS_PER_JOB_MAX) {
        rdzv_reply_error(rdzv, event->client, STATUS_TOO_BIG,
                         rdzv_text(rdzv, "%u ranks are over the limit of %u for one job",
                                   wish->nodes * wish->nproc_per_node, RANKS_PER_JOB_MAX));
        return;
    }
    job = add_job(rdzv);
    if (job == NULL) {
        rdzv_reply_error(rdzv, event->client, STATUS_TOO_BIG,
                         rdzv_text(rdzv, "the queue is full (%u jobs); wait for one to end",
                                   rdzv->options.jobs_max));
        return;
    }
    job->record.job_id = rdzv->next_job_id++;
    job->record.nodes = wish->nodes;
    job->record.nproc_per_node = wish->nproc_per_node;
    job->record.max_restarts = wish->max_restarts;
    job->record.grace_us = wish->grace_us;
    job->record.time_limit_us = wish->time_limit_us;
    job->record.submitted_ms = event->wall_ms;
    job->record.uid = event->uid;
    (void)snprintf(job->record.name, sizeof job->record.name, "%s", wish->name);
    (void)snprintf(job->record.user, sizeof job->record.user, "%s", event->user);
    (void)snprintf(job->record.request_id, sizeof job->record.request_id, "%s", wish->request_id);
    job->dirty = true;
    job->changed = true;
    rdzv_note(rdzv, job,
              rdzv_text(rdzv, "%s (%llu) was submitted by %s", job->record.name,
                        (unsigned long long)job->record.job_id, job->record.user));
    action = rdzv_act(rdzv, RDZV_REPLY_SUBMITTED);
    action->client = event->client;
    action->job_id = job->record.job_id;
}

static void on_cancel(struct rdzv *rdzv, const struct rdzv_event *event)
{
    const struct msg_cancel *wish = &event->msg->cancel;
    struct job *job = rdzv_find_job(rdzv, event->job_id);
    struct rdzv_action *action;

    if (job == NULL) {
        rdzv_reply_error(rdzv, event->client, STATUS_NOT_FOUND, "no such job is queued or running");
        return;
    }
    if (!job->record.cancel_wanted) {
        job->record.cancel_wanted = true;
        job->dirty = true;
        rdzv_note(rdzv, job, "cancel was asked for");
    }
    (void)snprintf(job->record.reason, sizeof job->record.reason, "cancelled");
    if (job->record.part_count == 0)
        job_end(rdzv, job, JOB_CANCELLED, 125, 0, true);
    else
        generation_stop(rdzv, job, STOP_CANCEL, wish->signal,
                        wish->grace_us < 0 ? job->record.grace_us : (uint64_t)wish->grace_us);
    action = rdzv_act(rdzv, RDZV_REPLY_CANCELLED);
    action->client = event->client;
    action->job_id = event->job_id;
}

static void on_restore(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct job *job = add_job(rdzv);

    if (job == NULL)
        return; /* jobs_max was lowered: the store still has it, and the next start may take it */
    job->record = *event->record;
    job->go_sent = job->record.state == JOB_RUNNING;
    if (job->go_sent && job->record.time_limit_us != 0)
        job->limit_at_us = rdzv->now_us + job->record.time_limit_us;
    if (job->record.cancel_wanted) {
        job->stopping = STOP_CANCEL;
        job->stop_signal = SIGTERM;
        job->stop_grace_us = job->record.grace_us;
    }
    for (uint32_t i = 0; i < job->record.part_count; i++)
        roster_expect(rdzv, job->record.parts[i].node);
    if (job->record.cancel_wanted && job->record.part_count == 0)
        job_end(rdzv, job, JOB_CANCELLED, 125, 0, true);
}

static void on_report(struct rdzv *rdzv, struct node *node, const struct msg_shim_report *report)
{
    struct job *job = rdzv_find_job(rdzv, report->job_id);
    struct rdzv_action *action = rdzv_act(rdzv, RDZV_SEND_REPORT_ACK);
    uint32_t part = UINT32_MAX;

    action->conn = node->conn;
    action->job_id = report->job_id;
    action->generation = report->generation;
    action->revision = report->revision;
    roster_phase(rdzv, node, report->job_id, report->generation, report->phase);
    if (job != NULL && !job->ended && job->record.generation == report->generation)
        part = job_part_on(job, node->name);
    if (part == UINT32_MAX || job->parts[part].is_lost)
        roster_clear(rdzv, node, report->job_id, report->generation, report->phase);
    else {
        if (report->phase == SHIM_ENDED && job->parts[part].phase != SHIM_ENDED)
            slots_left(rdzv, node, job->record.parts[part].slot_mask); /* no beat need have told */
        generation_report(rdzv, job, part, report);
    }
}

static void on_progress(struct rdzv *rdzv, const struct node *node,
                        const struct msg_progress *progress)
{
    struct job *job = rdzv_find_job(rdzv, progress->job_id);

    if (job == NULL || job->ended || job->record.generation != progress->generation ||
        job_part_on(job, node->name) == UINT32_MAX)
        return;
    job->progress = *progress;
    job->changed = true;
    if (progress->checkpoint_step > job->record.checkpoint_step) {
        job->record.checkpoint_step = progress->checkpoint_step;
        job->record.restarts_without_progress = 0;
        job->dirty = true;
    }
}

static void on_node_msg(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct node *node = roster_find_conn(rdzv, event->conn);

    if (event->msg->type == MSG_TYPE_NODE_HELLO && node == NULL) {
        roster_hello(rdzv, event->conn, &event->msg->node_hello);
        return;
    }
    if (node == NULL)
        return; /* it was replaced or lost in the meantime: its connection is being closed */
    if (event->msg->type == MSG_TYPE_BEAT) {
        roster_beat(rdzv, node, &event->msg->beat);
    } else if (event->msg->type == MSG_TYPE_SHIM_REPORT) {
        on_report(rdzv, node, &event->msg->shim_report);
    } else if (event->msg->type == MSG_TYPE_PROGRESS) {
        on_progress(rdzv, node, &event->msg->progress);
    } else if (event->msg->type == MSG_TYPE_NODE_EVENT) {
        slots_on_event(rdzv, node, &event->msg->node_event);
    } else {
        struct rdzv_action *action = rdzv_act(rdzv, RDZV_CLOSE_NODE);

        action->conn = event->conn;
        action->text = rdzv_text(rdzv, "a node may not send %s", msg_type_word(event->msg->type));
        roster_closed(rdzv, node);
    }
}

static void check_limits(struct rdzv *rdzv)
{
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];

        if (job->ended || job->stopping != STOP_NONE || job->limit_at_us == UINT64_MAX)
            continue;
        if (rdzv->now_us < job->limit_at_us) {
            rdzv_wake_at(rdzv, job->limit_at_us);
            continue;
        }
        (void)snprintf(job->record.reason, sizeof job->record.reason,
                       "the time limit of %llu s is over",
                       (unsigned long long)(job->record.time_limit_us / 1000000));
        generation_stop(rdzv, job, STOP_TIME, SIGTERM, job->record.grace_us);
    }
}

/* What the jobs of this step became: to the store first, then to those who watch. */
static void publish(struct rdzv *rdzv)
{
    for (uint32_t i = 0; i < rdzv->job_count; i++) {
        struct job *job = &rdzv->jobs[rdzv->order[i]];

        if (job->dirty)
            rdzv_act(rdzv, RDZV_PERSIST)->job_id = job->record.job_id;
        if (job->dirty || job->changed) {
            job->version++;
            rdzv_act(rdzv, RDZV_JOB_CHANGED)->job_id = job->record.job_id;
        }
        if (job->ended)
            rdzv_act(rdzv, RDZV_JOB_ENDED)->job_id = job->record.job_id;
        job->dirty = false;
        job->changed = false;
    }
}

static void dispatch(struct rdzv *rdzv, const struct rdzv_event *event)
{
    struct node *node;

    switch (event->type) {
    case RDZV_EVENT_TICK:
        break;
    case RDZV_EVENT_RESTORE:
        on_restore(rdzv, event);
        break;
    case RDZV_EVENT_RESTORE_DRAIN:
        slots_on_restore(rdzv, event->drain);
        break;
    case RDZV_EVENT_RESTORED:
        rdzv->next_job_id = event->next_job_id;
        rdzv->is_restored = true;
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
        on_submit(rdzv, event);
        break;
    case RDZV_EVENT_CANCEL:
        on_cancel(rdzv, event);
        break;
    case RDZV_EVENT_NODE_DRAIN:
        slots_on_drain(rdzv, event);
        break;
    case RDZV_EVENT_NODE_RESUME:
        slots_on_resume(rdzv, event);
        break;
    }
}

void rdzv_step(struct rdzv *rdzv, const struct rdzv_event *event, struct rdzv_actions *actions)
{
    assert(rdzv->is_restored || event->type == RDZV_EVENT_RESTORE ||
           event->type == RDZV_EVENT_RESTORE_DRAIN || event->type == RDZV_EVENT_RESTORED);
    rdzv->now_us = event->now_us;
    rdzv->wall_ms = event->wall_ms;
    rdzv->out = actions;
    rdzv->texts_used = 0;
    actions->count = 0;
    actions->timer_at_us = UINT64_MAX;
    drop_ended(rdzv);
    dispatch(rdzv, event);
    if (rdzv->is_restored) {
        roster_tick(rdzv);
        check_limits(rdzv);
        sched_run(rdzv);
    }
    publish(rdzv);
    rdzv->out = NULL;
}
