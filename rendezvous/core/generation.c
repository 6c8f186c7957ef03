#include "rendezvous/core/generation.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/claim.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/failure_note.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/generation_end.h"
#include "rendezvous/core/history.h"
#include "rendezvous/core/orders.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/reach.h"
#include "rendezvous/core/restart.h"
#include "rendezvous/core/state.h"
#include "rendezvous/core/steps.h"

#define EXIT_OURS 125
#define HANG_GRACE_US 5000000u

/* Sets `where` to "node0,node1", or to the first names and a count if not all fit. */
static void set_where(struct rdzv_record *record)
{
    size_t used = 0;

    for (uint32_t i = 0; i < record->part_count && used < sizeof record->where; i++)
        used += (size_t)snprintf(record->where + used, sizeof record->where - used, "%s%s",
                                 i == 0 ? "" : ",", record->parts[i].node);
    if (used >= sizeof record->where)
        text_format(record->where, "%s and %u more", record->parts[0].node, record->part_count - 1);
}

static void count_restart(struct rdzv_record *record)
{
    record->restarts++;
    if (record->planned)
        return;
    if (failure_is_program(record->failed_class))
        record->restarts_without_progress++;
    else
        record->node_failures++;
}

static void fail(struct rdzv *rdzv, struct job *job, uint32_t part, enum failure_class class,
                 const char *cause);

/* Instead of ranks that wait for one another until their program gives up. */
static void refuse_unreached(struct rdzv *rdzv, struct job *job)
{
    char cause[REASON_BYTES_MAX];
    uint32_t part;

    if (!reach_is_refused(rdzv, job, &part, cause))
        return;
    job->record.cannot_start = true;
    fail(rdzv, job, part, FAILURE_PROGRAM, cause);
}

void generation_start(struct rdzv *rdzv, struct job *job, const struct gang *gang)
{
    struct rdzv_record *record = &job->record;

    assert(!job->ended && record->part_count == 0);
    assert(record->state == JOB_QUEUED || record->state == JOB_RESTARTING);
    fence_drop(rdzv, job);
    queue_remove(rdzv, job);
    if (record->generation == 0)
        record->started_ms = rdzv->out.wall_ms;
    else
        count_restart(record);
    job_skip_seen(job);
    record->planned = false;
    record->preempted_by = 0;
    record->generation++;
    record->resumed_step = record->checkpoint_step;
    job->gang = *gang;
    record->nodes = record->part_count = gang->part_count;
    record->parts = gang->places;
    set_where(record);
    job->record.stopping = STOP_NONE;
    job->record.cannot_start = false;
    job->record.errno_exit = 0;
    job->record.failed_class = FAILURE_PROGRAM;
    job->running_at_us = UINT64_MAX;
    job->more_until_us = 0;
    job->hang = (struct hang_job){0};
    job->pace = (struct straggler_job){0};
    job->slow[0] = job->silent[0] = '\0';
    job->has_new_checkpoint = false;
    job->is_ours = true;
    job->go_sent = job->world_sent = false;
    job->blob_byte_count = 0;
    job->limit_at_us = UINT64_MAX;
    record->limit_at_ms = 0;
    job_set_dirty(rdzv, job);
    job_set_state(rdzv, job, JOB_STARTING);
    record->reason[0] = '\0';
    for (uint32_t i = 0; i < record->part_count; i++) {
        const struct node *node = roster_find(rdzv, record->parts[i].node);

        assert(node != NULL);
        job->gang.parts[i].node = (uint16_t)roster_index(rdzv, node);
        record->parts[i].identity = node->identity;
        roster_part_add(rdzv, job->gang.parts[i].node, job, i);
        orders_owe(rdzv, job, i, ORDER_START);
    }
    steps_note_all(rdzv, job);
    refuse_unreached(rdzv, job);
}

void generation_limit(struct rdzv *rdzv, struct job *job, uint64_t at_us)
{
    assert(at_us >= rdzv->out.now_us);
    if (at_us >= job->limit_at_us)
        return; /* it has an earlier limit, for a job that has its slots reserved */
    job->limit_at_us = at_us;
    if (at_us < rdzv->limit_at_us)
        rdzv->limit_at_us = at_us;
    job->record.limit_at_ms =
        rdzv->out.wall_ms + (int64_t)((at_us - rdzv->out.now_us + 999) / 1000);
    job_set_dirty(rdzv, job);
}

void generation_stop(struct rdzv *rdzv, struct job *job, enum stop_cause why, uint32_t signal,
                     uint64_t grace_us)
{
    assert(why != STOP_NONE && signal > 0 && job->record.part_count > 0);
    job->record.stopping = why;
    job->record.stop_signal = signal;
    job->record.stop_grace_us = grace_us;
    job_set_dirty(rdzv, job);
    rdzv->gone_at_us = rdzv->out.now_us; /* elastic.h: nodes of it may be gone already */
    orders_cancel(job, ORDER_START, ORDER_WORLD);
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (!parts_is_over(&job->gang.parts[i]))
            orders_owe(rdzv, job, i, ORDER_STOP);
    steps_note_all(rdzv, job);
}

static bool any_succeeded(const struct job *job)
{
    for (uint32_t i = 0; i < job_world(job); i++)
        if (job->gang.ranks[i].state == RANK_EXITED && job->gang.ranks[i].exit_code == 0 &&
            job->gang.ranks[i].signal == 0)
            return true;
    return false;
}

bool generation_may_stop(const struct job *job)
{
    return !job->ended && job->record.part_count > 0 && job->record.stopping == STOP_NONE &&
           !any_succeeded(job);
}

bool generation_stop_planned(struct rdzv *rdzv, struct job *job, const char *why)
{
    if (!generation_may_stop(job))
        return false;
    (void)snprintf(job->record.reason, sizeof job->record.reason, "%s", why);
    job_log(rdzv, job, job->record.reason);
    generation_stop(rdzv, job, STOP_PLANNED, SIGTERM, job->record.grace_us);
    return true;
}

static void settle(struct rdzv *rdzv, struct job *job);

static void set_cause(struct rdzv *rdzv, struct job *job, uint32_t part, enum failure_class class,
                      const char *cause)
{
    struct rdzv_record *record = &job->record;

    assert(part < record->part_count);
    record->failed_rank = -1;
    record->failed_class = class;
    record->tail[0] = '\0';
    record->errno_exit = 0;
    record->failed_exit = EXIT_OURS;
    record->failed_signal = 0;
    (void)snprintf(record->failed_node, sizeof record->failed_node, "%s", record->parts[part].node);
    (void)snprintf(record->reason, sizeof record->reason, "%s", cause);
    job_log(rdzv, job, record->reason);
}

/* Records the first failure of a generation. Later ones are consequences of it and change
 * nothing. */
static void fail(struct rdzv *rdzv, struct job *job, uint32_t part, enum failure_class class,
                 const char *cause)
{
    if (job->record.stopping != STOP_NONE)
        return;
    set_cause(rdzv, job, part, class, cause);
    job->failed_at_us = rdzv->out.now_us;
    failure_note_cause(rdzv, job, NULL);
    generation_stop(rdzv, job, STOP_FAILURE, SIGTERM, job->record.grace_us);
}

void generation_hang(struct rdzv *rdzv, struct job *job, int32_t rank, const char *cause,
                     const char *stacks)
{
    struct rdzv_record *record = &job->record;
    uint32_t part = rank < 0 ? 0 : (uint32_t)rank / record->nproc_per_node;

    assert(record->stopping == STOP_NONE && rank < (int32_t)job_world(job));
    set_cause(rdzv, job, part, FAILURE_HANG, cause);
    record->failed_rank = rank;
    if (rank < 0)
        record->failed_node[0] = '\0';
    job->failed_at_us = rdzv->out.now_us;
    failure_note_cause(rdzv, job, NULL);
    job->note.failure.stacks = stacks;
    generation_stop(rdzv, job, STOP_FAILURE, SIGTERM,
                    record->grace_us < HANG_GRACE_US ? record->grace_us : HANG_GRACE_US);
}

/* The part is given up. Without its node, nobody has seen its end: its slots stay held. */
static void leave_node(struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    struct node *node = &rdzv->nodes[job->gang.parts[part].node];

    roster_part_remove(rdzv, job->gang.parts[part].node, job);
    if (node->conn == 0)
        roster_hold(rdzv, node, job->record.parts[part].slot_mask);
}

/* The part counts as ended, whatever is left of it. */
static void take_out(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    const struct rdzv_part *place = &job->record.parts[part];

    if (job->gang.parts[part].node != NODE_NONE)
        leave_node(rdzv, job, part);
    job->gang.parts[part].is_lost = true;
    rdzv->sched_due = true;
    for (uint32_t i = 0; i < place->local_count; i++)
        if (job->gang.ranks[place->rank_base + i].state != RANK_EXITED)
            job->gang.ranks[place->rank_base + i].state = RANK_LOST;
    job_set_changed(rdzv, job);
    steps_note(rdzv, job, part);
}

void generation_part_lost(struct rdzv *rdzv, struct job *job, uint32_t part,
                          enum failure_class class, const char *cause)
{
    if (parts_is_over(&job->gang.parts[part]))
        return;
    take_out(rdzv, job, part);
    fail(rdzv, job, part, class, cause);
    settle(rdzv, job);
}

void generation_store_left(struct rdzv *rdzv, struct job *job)
{
    assert(parts_only_store_is_left(job) && job->record.stopping == STOP_NONE);
    take_out(rdzv, job, 0);
    settle(rdzv, job);
}

void generation_part_failed(struct rdzv *rdzv, struct job *job, uint32_t part,
                            enum failure_class class, const char *cause)
{
    assert(!parts_is_over(&job->gang.parts[part]));
    fail(rdzv, job, part, class, cause);
}

void generation_start_failed(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause)
{
    if (part >= job->record.part_count)
        return; /* the generation has ended meanwhile */
    if (job->record.stopping == STOP_NONE)
        job->record.cannot_start = true;
    generation_part_lost(rdzv, job, part, FAILURE_PROGRAM, cause);
}

void generation_stage_lost(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause)
{
    const struct part_state *state = &job->gang.parts[part];

    if (job->record.stopping != STOP_NONE || parts_is_over(state) || state->phase != SHIM_PREPARING)
        return; /* the part has its directory */
    if (failure_stage_elsewhere(rdzv, job, job->record.parts[part].node)) {
        fail(rdzv, job, part, FAILURE_NODE, cause);
        return;
    }
    job->record.cannot_start = true;
    fail(rdzv, job, part, FAILURE_PROGRAM, cause);
}

/* Sets the restart's time from the record. The wall clock may have been set since, so the delay is
 * capped at the longest that the job can have: its back-off, or a lost node's lease (fence.h). */
static void restore_retry(struct rdzv *rdzv, struct job *job)
{
    const uint64_t lease_us = claim_longest_lease_us(rdzv);
    const bool is_machines =
        job->record.failed_class == FAILURE_NODE || job->record.failed_class == FAILURE_NETWORK;
    const uint64_t delay_us = is_machines ? restart_back_off_most_us(job->record.node_failures + 1)
                                          : RESTART_DELAY_MAX_US;
    const uint64_t most_us = lease_us > delay_us ? lease_us : delay_us;
    const int64_t left_ms = job->record.retry_at_ms - rdzv->out.wall_ms;
    const uint64_t left_us = left_ms > 0 ? (uint64_t)left_ms * 1000 : 0;

    if (job->record.state == JOB_RESTARTING && left_us > 0)
        job->retry_at_us = rdzv->out.now_us + (left_us < most_us ? left_us : most_us);
}

static void restore_running(struct rdzv *rdzv, struct job *job)
{
    int64_t ran_ms = rdzv->out.wall_ms - job->record.running_ms;

    job->running_at_us = UINT64_MAX;
    if (job->record.state == JOB_RUNNING && job->record.running_ms != 0 && ran_ms >= 0 &&
        (uint64_t)ran_ms <= rdzv->out.now_us / 1000)
        job->running_at_us = rdzv->out.now_us - (uint64_t)ran_ms * 1000;
    else if (job->record.state == JOB_RUNNING)
        job->running_at_us = rdzv->out.now_us;
    if (job->record.state == JOB_RUNNING && job->record.running_ms == 0)
        job->record.running_ms = rdzv->out.wall_ms; /* written by a version that did not store it */
    if (job->record.state == JOB_RUNNING)
        rdzv->pace_at_us = rdzv->out.now_us; /* it may hang even if no other job begins */
}

void generation_restore(struct rdzv *rdzv, struct job *job)
{
    char cause[REASON_BYTES_MAX];

    job->told_generation = job->record.told_generation;
    restore_retry(rdzv, job);
    restore_running(rdzv, job);
    failure_restore(rdzv, job);
    for (uint32_t i = 0; i < job->record.part_count; i++) {
        const struct node *node = roster_expect(rdzv, &job->record.parts[i]);

        job->gang.parts[i].node = node == NULL ? NODE_NONE : (uint16_t)roster_index(rdzv, node);
        if (node != NULL)
            roster_part_add(rdzv, job->gang.parts[i].node, job, i);
    }
    for (uint32_t i = 0; i < job->record.part_count; i++) {
        if (job->gang.parts[i].node != NODE_NONE)
            continue;
        text_format(cause, "node %s is not in the server's table of nodes, which is full",
                    job->record.parts[i].node);
        fence_note(rdzv, job, NULL);
        generation_part_lost(rdzv, job, i, FAILURE_NETWORK, cause);
    }
    steps_note_all(rdzv, job);
}

/* Takes the ranks of a report. Ranks outside this part are ignored: a node can only report what it
 * was given. */
static void take_ranks(struct job *job, uint32_t part, const struct msg_shim_report *report)
{
    const struct rdzv_part *place = &job->record.parts[part];

    for (uint32_t i = 0; i < report->ranks.count; i++) {
        const struct part_report_rank *from = &report->ranks.items[i];

        if (from->rank < place->rank_base || from->rank >= place->rank_base + place->local_count)
            continue;
        job->gang.ranks[from->rank] = (struct rdzv_rank){
            .failed_ms = job->gang.ranks[from->rank].failed_ms,
            .moved_ms = job->gang.ranks[from->rank].moved_ms,
            .pid = from->pid,
            .state = (uint8_t)from->state,
            .exit_code = (uint8_t)from->exit_code,
            .signal = (uint8_t)from->signal,
            .joined = from->joined,
        };
    }
    job->gang.parts[part].has_joined = true;
    for (uint32_t i = 0; i < place->local_count; i++)
        if (!job->gang.ranks[place->rank_base + i].joined)
            job->gang.parts[part].has_joined = false;
}

/* Whether this rank failed before the recorded cause: reports of two nodes may arrive in the wrong order, and late. */
static bool is_earlier(const struct rdzv *rdzv, const struct job *job,
                       const struct msg_shim_report *report)
{
    return report->failed_age_us < rdzv->out.now_us &&
           rdzv->out.now_us - report->failed_age_us < job->failed_at_us;
}

/* Whether this rank is the cause, and not the recorded one: it failed by itself and that one lost a peer, or else it failed
 * before. */
static bool is_nearer(const struct rdzv *rdzv, const struct job *job,
                      const struct msg_shim_report *report)
{
    if (job->record.stopping != STOP_FAILURE || report->failed_rank == job->record.failed_rank)
        return false;
    if (job->failed_by_peer != report->failed_by_peer &&
        job->record.failed_class == FAILURE_PROGRAM && job->record.failed_rank >= 0)
        return job->failed_by_peer;
    return is_earlier(rdzv, job, report);
}

/* A later report of the rank that is the cause may have had less delay, and gives a better time. */
static void refine_time(struct rdzv *rdzv, struct job *job, const struct msg_shim_report *report)
{
    if (job->record.stopping == STOP_FAILURE && report->failed_rank >= 0 &&
        report->failed_rank == job->record.failed_rank &&
        report->failed_age_us < rdzv->out.now_us &&
        rdzv->out.now_us - report->failed_age_us < job->failed_at_us)
        job->failed_at_us = rdzv->out.now_us - report->failed_age_us;
}

static void take_rank(struct job *job, int32_t failed, const struct msg_shim_report *report)
{
    struct rdzv_record *record = &job->record;

    record->errno_exit = report->failed_errno_exit >= 126 ? (uint32_t)report->failed_errno_exit : 0;
    if (record->errno_exit != 0)
        record->failed_exit = (int32_t)record->errno_exit;
    if (failed < 0)
        return; /* no rank was started */
    record->failed_rank = failed;
    if (record->errno_exit == 0)
        record->failed_exit = job->gang.ranks[failed].exit_code;
    record->failed_signal = job->gang.ranks[failed].signal;
    (void)snprintf(record->tail, sizeof record->tail, "%s", report->tail);
}

/* The class of a reported failure. A launcherd of protocol 1 sends no class: if no rank failed, the
 * node did. */
static enum failure_class class_of(const struct msg_shim_report *report, int32_t failed)
{
    if (report->failed_class != FAILURE_UNSAID)
        return report->failed_class;
    return failed < 0 && report->failed_errno_exit < 126 ? FAILURE_NODE : FAILURE_PROGRAM;
}

/* Finds the cause of a reported failure: the first rank that failed, or a shim that ended although
 * not all its ranks exited 0. Ranks that die because their peers were killed fail later than
 * that. */
static void take_failure(struct rdzv *rdzv, struct job *job, uint32_t part,
                         const struct msg_shim_report *report)
{
    const struct rdzv_part *place = &job->record.parts[part];
    int32_t failed = report->failed_rank;
    const char *cause = report->cause;
    char text[REASON_BYTES_MAX];

    if (failed >= 0 && ((uint32_t)failed < place->rank_base ||
                        (uint32_t)failed >= place->rank_base + place->local_count))
        failed = -1;
    if (failed < 0 &&
        (report->phase != SHIM_ENDED || (cause[0] == '\0' && parts_all_succeeded(job, part))))
        return;
    refine_time(rdzv, job, report);
    if (failed >= 0)
        failure_note_rank(rdzv, job, (uint32_t)failed, report->failed_age_us);
    if (job->record.stopping != STOP_NONE && (failed < 0 || !is_nearer(rdzv, job, report))) {
        if (failed >= 0)
            failure_note_more(rdzv, job, report);
        return;
    }
    if (cause[0] == '\0') { /* something other than this server stopped its shim */
        text_format(text,
                    "node %s stopped its part of the job, and this server did not order that: its "
                    "launcherd was told to leave while no server answered, or somebody ended the "
                    "shim",
                    place->node);
        cause = text;
    }
    if (job->record.stopping == STOP_NONE && class_of(report, failed) == FAILURE_NODE &&
        steps_is_slow(rdzv, job, part))
        failure_late(rdzv, job, place->node); /* once is enough: the next try would take as long */
    if (job->record.stopping == STOP_NONE)
        fail(rdzv, job, part, class_of(report, failed), cause);
    else
        set_cause(rdzv, job, part, class_of(report, failed), cause);
    if (failed >= 0 && report->failed_age_us < rdzv->out.now_us)
        job->failed_at_us = rdzv->out.now_us - report->failed_age_us;
    job->failed_by_peer = failed >= 0 && report->failed_by_peer;
    take_rank(job, failed, report);
    failure_note_cause(rdzv, job, report);
}

static void note_late(struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    char text[REASON_BYTES_MAX];

    job->gang.parts[part].warm_late = true;
    text_format(text,
                "node %s: processes that waited for their ranks have not taken them within 5 s, "
                "or have ended: others are started",
                job->record.parts[part].node);
    job_log(rdzv, job, text);
}

void generation_report(struct rdzv *rdzv, struct job *job, uint32_t part,
                       const struct msg_shim_report *report)
{
    struct part_state *state = &job->gang.parts[part];

    if (state->is_reported && report->phase < state->phase)
        return; /* phases only go forward: this report is out of date */
    state->is_reported = true;
    steps_back(rdzv, job, part);
    state->phase = report->phase;
    state->has_world = report->has_world;
    state->cannot_run = state->cannot_run || report->failed_errno_exit >= 126;
    if (report->master_port != 0)
        state->master_port = report->master_port;
    if (part == 0 && report->blob.count > 0 && report->blob.count <= sizeof job->blob) {
        memcpy(job->blob, report->blob.items, report->blob.count);
        job->blob_byte_count = report->blob.count;
    }
    take_ranks(job, part, report);
    if (report->warm_late && !state->warm_late)
        note_late(rdzv, job, part);
    trouble_end(rdzv, job, part, report);
    job_set_changed(rdzv, job);
    take_failure(rdzv, job, part, report);
    steps_note(rdzv, job, part);
    settle(rdzv, job);
}

/* Whether a ready part can never get its go. The go needs the master port. If the shim of rank 0
 * has ended, launcherd reports in its place and does not know that port. (This takes a server that
 * restarts after sending the go to one node and before sending it to another.) */
static bool cannot_go(const struct job *job)
{
    const struct part_state *master = &job->gang.parts[0];

    if (master->phase != SHIM_ENDED || master->master_port != 0)
        return false;
    for (uint32_t i = 1; i < job->record.part_count; i++)
        if (job->gang.parts[i].is_reported && job->gang.parts[i].phase == SHIM_READY)
            return true;
    return false;
}

static void settle_running(struct rdzv *rdzv, struct job *job)
{
    char cause[REASON_BYTES_MAX];

    if (cannot_go(job)) {
        text_format(cause, "%s ended its part before every node had begun",
                    job->record.parts[0].node);
        fail(rdzv, job, 0, FAILURE_NETWORK, cause);
        return;
    }
    if (parts_only_store_is_left(job)) {
        orders_owe(rdzv, job, 0, ORDER_STOP);
        steps_note(rdzv, job, 0);
    }
    if (!job->go_sent && parts_all_at_least(job, SHIM_READY)) {
        job->go_sent = true;
        for (uint32_t i = 0; i < job->record.part_count; i++)
            if (job->gang.parts[i].phase == SHIM_READY)
                orders_owe(rdzv, job, i, ORDER_GO);
        steps_note_all(rdzv, job);
    }
    if (job->record.state == JOB_STARTING && parts_all_at_least(job, SHIM_RUNNING)) {
        job_set_state(rdzv, job, JOB_RUNNING);
        job->running_at_us = rdzv->out.now_us;
        job->record.running_ms = rdzv->out.wall_ms;
        rdzv->pace_at_us = rdzv->out.now_us;
        if (job->record.time_limit_us != 0)
            generation_limit(rdzv, job, rdzv->out.now_us + job->record.time_limit_us);
    }
    if (job->go_sent && !job->world_sent && parts_all_joined(job)) {
        job->world_sent = true;
        for (uint32_t i = 0; i < job->record.part_count; i++)
            if (job->gang.parts[i].phase == SHIM_RUNNING && !job->gang.parts[i].has_world)
                orders_owe(rdzv, job, i, ORDER_WORLD);
        steps_note_all(rdzv, job);
    }
}

/* Does what the present state of the parts allows: go, world, running, the end. */
static void settle(struct rdzv *rdzv, struct job *job)
{
    if (job->ended || job->record.part_count == 0)
        return;
    if (parts_all_over(job))
        generation_conclude(rdzv, job);
    else if (job->record.stopping == STOP_NONE)
        settle_running(rdzv, job);
}
