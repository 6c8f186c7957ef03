/* The life of one generation: start, go, world, the first failure, the stop, the end. */
#include "rendezvous/rdzv_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/restart.h"

#define EXIT_TIME_LIMIT 124
#define EXIT_OURS 125

uint32_t job_part_on(const struct job *job, const char *node)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (strcmp(job->record.parts[i].node, node) == 0)
            return i;
    return UINT32_MAX;
}

static struct node *node_of(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    struct node *node = roster_find(rdzv, job->record.parts[part].node);

    return node != NULL && node->conn != 0 ? node : NULL;
}

/* An order to the node of one part; NULL: it cannot be reached now, and hears of it when it calls.
 */
static struct rdzv_action *order(struct rdzv *rdzv, const struct job *job, uint32_t part,
                                 enum rdzv_action_type type)
{
    struct node *node = node_of(rdzv, job, part);
    struct rdzv_action *action;

    if (node == NULL || job->parts[part].is_lost)
        return NULL;
    action = rdzv_act(rdzv, type);
    action->conn = node->conn;
    action->job_id = job->record.job_id;
    action->generation = job->record.generation;
    action->part = part;
    return action;
}

static void set_state(struct rdzv *rdzv, struct job *job, enum job_state state)
{
    if (job->record.state == state)
        return;
    job->record.state = state;
    job->dirty = true;
    job->changed = true;
    rdzv_note(rdzv, job,
              rdzv_text(rdzv, "%s (%llu) is %s, generation %u", job->record.name,
                        (unsigned long long)job->record.job_id, job_state_word(state),
                        job->record.generation));
}

static uint32_t world_of(const struct job *job)
{
    return job->record.nodes * job->record.nproc_per_node;
}

void generation_start(struct rdzv *rdzv, struct job *job, const struct rdzv_part *parts)
{
    struct rdzv_record *record = &job->record;

    assert(record->part_count == 0);
    if (record->generation > 0) {
        record->restarts++;
        record->restarts_without_progress++;
    } else {
        record->started_ms = rdzv->wall_ms;
    }
    record->generation++;
    record->part_count = record->nodes;
    memcpy(record->parts, parts, record->nodes * sizeof *parts);
    memset(job->parts, 0, sizeof job->parts);
    memset(job->ranks, 0, world_of(job) * sizeof *job->ranks);
    job->stopping = STOP_NONE;
    job->errno_exit = 0;
    job->go_sent = false;
    job->blob_byte_count = 0;
    job->limit_at_us = UINT64_MAX;
    job->dirty = true;
    set_state(rdzv, job, JOB_STARTING);
    record->reason[0] = '\0';
    for (uint32_t i = 0; i < record->part_count; i++)
        (void)order(rdzv, job, i, RDZV_SEND_START);
}

static void send_go(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    const struct node *master = roster_find(rdzv, job->record.parts[0].node);
    struct rdzv_action *action;

    if (master == NULL || job->parts[0].master_port == 0)
        return;
    action = order(rdzv, job, part, RDZV_SEND_GO);
    if (action == NULL)
        return;
    action->text = master->address;
    action->master_port = job->parts[0].master_port;
}

static void send_world(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    struct rdzv_action *action = order(rdzv, job, part, RDZV_SEND_WORLD);

    if (action != NULL)
        action->blob = (struct msg_bytes){.items = job->blob, .count = job->blob_byte_count};
}

static void send_stop(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    struct rdzv_action *action = order(rdzv, job, part, RDZV_SEND_STOP);

    if (action == NULL)
        return;
    action->signal = job->stop_signal;
    action->grace_us = job->stop_grace_us;
    action->text = rdzv_text(rdzv, "%s", job->record.reason);
}

static bool is_over(const struct part_state *part)
{
    return part->is_lost || part->phase == SHIM_ENDED;
}

static bool all_over(const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (!is_over(&job->parts[i]))
            return false;
    return true;
}

static bool all_at_least(const struct job *job, enum shim_phase phase)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (job->parts[i].is_lost || job->parts[i].phase < phase)
            return false;
    return true;
}

static bool all_joined(const struct job *job)
{
    for (uint32_t i = 0; i < world_of(job); i++)
        if (!job->ranks[i].joined)
            return false;
    return true;
}

void generation_stop(struct rdzv *rdzv, struct job *job, enum stop_cause why, uint32_t signal,
                     uint64_t grace_us)
{
    job->stopping = why;
    job->stop_signal = signal;
    job->stop_grace_us = grace_us;
    job->changed = true;
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (!is_over(&job->parts[i]))
            send_stop(rdzv, job, i);
}

/* The first failure of a generation; later ones are its consequences and change nothing. */
void generation_fail(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause)
{
    struct rdzv_record *record = &job->record;

    if (job->stopping != STOP_NONE)
        return;
    record->failed_rank = -1;
    record->tail[0] = '\0';
    job->errno_exit = 0;
    job->failed_exit = EXIT_OURS;
    job->failed_signal = 0;
    (void)snprintf(record->failed_node, sizeof record->failed_node, "%s", record->parts[part].node);
    (void)snprintf(record->reason, sizeof record->reason, "%s", cause);
    rdzv_note(rdzv, job, rdzv_text(rdzv, "%s", cause));
    generation_stop(rdzv, job, STOP_FAILURE, SIGKILL, 0);
}

void generation_part_lost(struct rdzv *rdzv, struct job *job, uint32_t part, const char *cause)
{
    const struct rdzv_part *place = &job->record.parts[part];

    if (is_over(&job->parts[part]))
        return;
    job->parts[part].is_lost = true;
    for (uint32_t i = 0; i < place->local_count; i++)
        if (job->ranks[place->rank_base + i].state != RANK_EXITED)
            job->ranks[place->rank_base + i].state = RANK_LOST;
    job->changed = true;
    generation_fail(rdzv, job, part, cause);
    generation_settle(rdzv, job);
}

static void take_ranks(struct job *job, uint32_t part, const struct msg_shim_report *report)
{
    const struct rdzv_part *place = &job->record.parts[part];

    for (uint32_t i = 0; i < report->ranks.count; i++) {
        const struct part_report_rank *from = &report->ranks.items[i];

        if (from->rank < place->rank_base || from->rank >= place->rank_base + place->local_count)
            continue;
        job->ranks[from->rank] = (struct rdzv_rank){
            .pid = from->pid,
            .state = (uint8_t)from->state,
            .exit_code = (uint8_t)from->exit_code,
            .signal = (uint8_t)from->signal,
            .joined = from->joined,
        };
    }
}

static bool all_succeeded_on(const struct job *job, uint32_t part)
{
    const struct rdzv_part *place = &job->record.parts[part];

    for (uint32_t i = 0; i < place->local_count; i++) {
        const struct rdzv_rank *rank = &job->ranks[place->rank_base + i];

        if (rank->state != RANK_EXITED || rank->exit_code != 0 || rank->signal != 0)
            return false;
    }
    return true;
}

static void take_failure(struct rdzv *rdzv, struct job *job, uint32_t part,
                         const struct msg_shim_report *report)
{
    const struct rdzv_part *place = &job->record.parts[part];
    int32_t failed = report->failed_rank;
    const char *cause = report->cause;

    if (job->stopping != STOP_NONE)
        return;
    if (failed >= 0 && ((uint32_t)failed < place->rank_base ||
                        (uint32_t)failed >= place->rank_base + place->local_count))
        failed = -1;
    if (failed < 0 && (report->phase != SHIM_ENDED || all_succeeded_on(job, part)))
        return;
    if (cause[0] == '\0')
        cause = rdzv_text(rdzv, "%s ended its part of the job before its end", place->node);
    generation_fail(rdzv, job, part, cause);
    if (failed < 0)
        return;
    job->record.failed_rank = failed;
    job->errno_exit = report->failed_errno_exit >= 126 ? (uint32_t)report->failed_errno_exit : 0;
    job->failed_exit =
        job->errno_exit != 0 ? (int32_t)job->errno_exit : job->ranks[failed].exit_code;
    job->failed_signal = job->ranks[failed].signal;
    (void)snprintf(job->record.tail, sizeof job->record.tail, "%s", report->tail);
}

void generation_report(struct rdzv *rdzv, struct job *job, uint32_t part,
                       const struct msg_shim_report *report)
{
    struct part_state *state = &job->parts[part];

    if (state->is_reported && report->phase < state->phase)
        return; /* phases only go forward: this one is late */
    state->is_reported = true;
    state->phase = report->phase;
    state->has_world = report->has_world;
    if (report->master_port != 0)
        state->master_port = report->master_port;
    if (part == 0 && report->blob.count > 0 && report->blob.count <= sizeof job->blob) {
        memcpy(job->blob, report->blob.items, report->blob.count);
        job->blob_byte_count = report->blob.count;
    }
    take_ranks(job, part, report);
    job->changed = true;
    take_failure(rdzv, job, part, report);
    generation_settle(rdzv, job);
}

/* A beat lists the part: repeat what it has not taken yet. */
void generation_listed(struct rdzv *rdzv, struct job *job, uint32_t part, enum shim_phase phase)
{
    if (phase == SHIM_ENDED)
        return; /* its report says the rest */
    if (job->stopping != STOP_NONE)
        send_stop(rdzv, job, part);
    else if (phase == SHIM_READY && job->go_sent)
        send_go(rdzv, job, part);
    else if (phase == SHIM_RUNNING && !job->parts[part].has_world && all_joined(job))
        send_world(rdzv, job, part);
}

static bool any_part_runs(const struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        if (job->parts[i].is_reported && job->parts[i].phase >= SHIM_RUNNING)
            return true;
    return false;
}

/* A node does not know its part. Either the start order never came, or the shim is gone without a
 * trace. An end that was not heard of is not asked about again: launcherd answers a stop for what
 * it does not know with an ended report. */
void generation_unlisted(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    struct part_state *state = &job->parts[part];

    if (is_over(state))
        return;
    if (job->stopping != STOP_NONE && !state->is_reported)
        send_stop(rdzv, job, part);
    else if (!state->is_reported && job->record.state == JOB_STARTING && !any_part_runs(job))
        (void)order(rdzv, job, part, RDZV_SEND_START);
    else
        generation_part_lost(rdzv, job, part,
                             rdzv_text(rdzv, "node %s no longer knows its part of the job",
                                       job->record.parts[part].node));
}

static void keep_ended(struct rdzv *rdzv, struct job *job)
{
    struct rdzv_action *action;

    job->ended_part_count = job->record.part_count;
    memcpy(job->ended_parts, job->record.parts, sizeof job->ended_parts);
    memcpy(job->ended_ranks, job->ranks, sizeof job->ended_ranks);
    action = rdzv_act(rdzv, RDZV_PERSIST_RANKS);
    action->job_id = job->record.job_id;
    action->generation = job->record.generation;
}

/* No process of the generation is left where we can see: its shims may go, its slots are free. */
static void close_generation(struct rdzv *rdzv, struct job *job)
{
    keep_ended(rdzv, job);
    for (uint32_t i = 0; i < job->record.part_count; i++) {
        struct node *node = node_of(rdzv, job, i);

        if (node != NULL && job->parts[i].phase == SHIM_ENDED)
            roster_phase(rdzv, node, job->record.job_id, job->record.generation, SHIM_ENDED);
        (void)order(rdzv, job, i, RDZV_SEND_FORGET);
    }
    job->record.part_count = 0;
    job->stopping = STOP_NONE;
    job->limit_at_us = UINT64_MAX;
}

void job_end(struct rdzv *rdzv, struct job *job, enum job_state state, int32_t exit_code,
             uint32_t signal, bool is_ours)
{
    if (job->record.part_count > 0)
        close_generation(rdzv, job);
    job->record.exit_code = signal != 0 ? (int32_t)(128 + signal) : exit_code;
    job->record.signal = signal;
    job->record.exit_is_ours = is_ours;
    job->record.ended_ms = rdzv->wall_ms;
    job->ended = true;
    set_state(rdzv, job, state);
}

static void conclude_failure(struct rdzv *rdzv, struct job *job)
{
    struct restart_case failed = {
        .max_restarts = job->record.max_restarts,
        .restarts_without_progress = job->record.restarts_without_progress,
        .errno_exit = job->errno_exit,
    };
    struct restart_answer answer = restart_decide(&failed, &rdzv->random);

    if (!answer.restart) {
        rdzv_note(rdzv, job, rdzv_text(rdzv, "not restarted: %s", answer.why_not));
        job_end(rdzv, job, JOB_FAILED, job->failed_exit, job->failed_signal,
                job->errno_exit != 0 || job->record.failed_rank < 0);
        return;
    }
    close_generation(rdzv, job);
    job->retry_at_us = rdzv->now_us + answer.delay_us;
    set_state(rdzv, job, JOB_RESTARTING);
}

static void conclude(struct rdzv *rdzv, struct job *job)
{
    if (job->record.cancel_wanted) {
        job_end(rdzv, job, JOB_CANCELLED, EXIT_OURS, 0, true);
        return;
    }
    switch (job->stopping) {
    case STOP_NONE:
        job_end(rdzv, job, JOB_SUCCEEDED, 0, 0, false);
        break;
    case STOP_FAILURE:
        conclude_failure(rdzv, job);
        break;
    case STOP_CANCEL:
        job_end(rdzv, job, JOB_CANCELLED, EXIT_OURS, 0, true);
        break;
    case STOP_TIME:
        job_end(rdzv, job, JOB_FAILED, EXIT_TIME_LIMIT, 0, true);
        break;
    }
}

static void settle_running(struct rdzv *rdzv, struct job *job)
{
    if (!job->go_sent && all_at_least(job, SHIM_READY)) {
        job->go_sent = true;
        for (uint32_t i = 0; i < job->record.part_count; i++)
            if (job->parts[i].phase == SHIM_READY)
                send_go(rdzv, job, i);
    }
    if (job->record.state == JOB_STARTING && all_at_least(job, SHIM_RUNNING)) {
        set_state(rdzv, job, JOB_RUNNING);
        if (job->record.time_limit_us != 0)
            job->limit_at_us = rdzv->now_us + job->record.time_limit_us;
    }
    if (job->go_sent && all_joined(job))
        for (uint32_t i = 0; i < job->record.part_count; i++)
            if (job->parts[i].phase == SHIM_RUNNING && !job->parts[i].has_world)
                send_world(rdzv, job, i);
}

void generation_settle(struct rdzv *rdzv, struct job *job)
{
    if (job->ended || job->record.part_count == 0)
        return;
    if (all_over(job))
        conclude(rdzv, job);
    else if (job->stopping == STOP_NONE)
        settle_running(rdzv, job);
}
