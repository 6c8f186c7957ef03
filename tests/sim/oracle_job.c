/* Checks what the server writes and sends about a job. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/oracle_facts.h"

#define SLACK_US 20000u

/* The values that the store uses. */
enum stopping { STOPPING_NOT, STOPPING_FAILURE, STOPPING_CANCEL, STOPPING_TIME, STOPPING_PLANNED };

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL)
        abort();
    return memory;
}

static uint64_t less_drift(uint64_t us)
{
    const uint64_t slack_us = us / 1000 * DRIFT_PM + SLACK_US;

    return us > slack_us ? us - slack_us : 0;
}

/* -- the end of a generation -- */

static bool has_cause(struct sim *sim, const struct oracle_gen *gen)
{
    if (gen->cause_count > 0 || oracle_job(sim, gen->job_id)->is_old || oracle_has_hung(sim, gen) ||
        oracle_start_is_late(sim, gen))
        return true;
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (oracle_may_be_lost(sim, gen->parts[i].node) ||
            sim->oracle->nodes[gen->parts[i].node].lost_us >= gen->stored_us)
            return true;
    return false;
}

/* Of the failures reported to the server, the earliest one; NULL: none. */
static const struct oracle_cause *first_told(const struct oracle_gen *gen)
{
    const struct oracle_cause *first = NULL;

    for (uint32_t i = 0; i < gen->cause_count; i++)
        if (gen->causes[i].was_told && !gen->causes[i].came_late &&
            (first == NULL || gen->causes[i].told_us < first->told_us))
            first = &gen->causes[i];
    return first;
}

static const struct oracle_cause *cause_of_rank(const struct oracle_gen *gen, int32_t rank)
{
    for (uint32_t i = 0; i < gen->cause_count; i++)
        if (gen->causes[i].rank == rank)
            return &gen->causes[i];
    return NULL;
}

static void check_exit(struct sim *sim, const struct rdzv_record *record,
                       const struct oracle_cause *cause)
{
    const uint32_t code = cause->number < 1000 ? cause->number : 0;
    const uint32_t signal = cause->number < 1000 ? 0 : cause->number - 1000;

    if ((uint32_t)record->failed_exit != code || record->failed_signal != signal)
        sim_fail(sim, "first-cause",
                 "job %llu g%u: rank %d ended with %u, signal %u; the job has %d, signal %u",
                 (unsigned long long)record->job_id, record->generation, cause->rank, code, signal,
                 record->failed_exit, record->failed_signal);
}

void oracle_check_cause(struct sim *sim, const struct oracle_gen *gen,
                        const struct rdzv_record *record)
{
    const struct oracle_cause *first = first_told(gen);
    const struct oracle_cause *shown =
        record->failed_rank < 0 ? NULL : cause_of_rank(gen, record->failed_rank);

    if (oracle_job(sim, gen->job_id)->is_old || gen->has_hung ||
        gen->cause_count == ORACLE_CAUSES_MAX || gen->has_impostor)
        return;
    if (record->failed_rank >= 0 && (shown == NULL || !shown->was_told)) {
        sim_fail(sim, "first-cause", "job %llu g%u: rank %d is the cause, and has not failed",
                 (unsigned long long)gen->job_id, gen->generation, record->failed_rank);
        return;
    }
    if (shown != NULL)
        check_exit(sim, record, shown);
    if (gen->stop_server != sim->server.incarnation || first == NULL)
        return; /* a new server does not know when the first failure was */
    if (shown == NULL ? first->told_us + SLACK_US < gen->stop_us
                      : shown->told_us > first->told_us + SLACK_US)
        sim_fail(
            sim, "first-cause", "job %llu g%u: rank %d is the cause, and rank %d failed before",
            (unsigned long long)gen->job_id, gen->generation, record->failed_rank, first->rank);
}

static void note_late(struct sim *sim, struct oracle_gen *gen)
{
    gen->was_late = oracle_start_is_late(sim, gen) || oracle_start_is_slow(sim, gen);
    oracle_job(sim, gen->job_id)->late_starts += gen->was_late;
}

static void on_stop(struct sim *sim, struct oracle_gen *gen, const struct rdzv_record *after)
{
    const uint64_t limit_us = after->time_limit_us;
    uint64_t from_us = gen->stored_us + 60 * SECOND_US;

    gen->stopping = after->stopping;
    gen->stop_us = sim->server.step_at_us;
    gen->stop_server = sim->server.incarnation;
    note_late(sim, gen);
    if (after->stopping == STOPPING_FAILURE && after->failed_class == FAILURE_HANG) {
        gen->has_hung = true;
        oracle_job(sim, gen->job_id)->crashes++;
        oracle_check_hang(sim, gen, after);
    }
    if (after->stopping == STOPPING_FAILURE && !gen->has_hung && !has_cause(sim, gen))
        sim_fail(sim, "cause", "job %llu g%u is stopped, and nothing of it has failed: %s",
                 (unsigned long long)gen->job_id, gen->generation, after->reason);
    if (after->stopping == STOPPING_FAILURE)
        oracle_check_named(sim, gen, after);
    if (after->stopping != STOPPING_TIME || sim->oracle->wall_sets > 0)
        return;
    if (gen->running_us != 0 && gen->running_us < from_us)
        from_us = gen->running_us;
    if (limit_us == 0 || sim->now_us < from_us + less_drift(limit_us))
        sim_fail(sim, "time-limit", "job %llu g%u is stopped %.3f s before its limit",
                 (unsigned long long)gen->job_id, gen->generation,
                 (double)(from_us + limit_us - sim->now_us) / 1e6);
}

static bool has_gpu(const struct sim *sim, const struct oracle_gen *gen, int32_t rank)
{
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (rank >= (int32_t)gen->parts[i].rank_base &&
            rank < (int32_t)(gen->parts[i].rank_base + gen->parts[i].local_count))
            return sim->nodes[gen->parts[i].node].gpu_count > 0;
    return false;
}

static bool any_lost(struct sim *sim, const struct oracle_gen *gen)
{
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (oracle_may_be_lost(sim, gen->parts[i].node) ||
            oracle_may_be_gone(sim, gen, gen->parts[i].node) ||
            sim->oracle->nodes[gen->parts[i].node].lost_us >= gen->stored_us)
            return true;
    return false;
}

static enum oracle_blame blame_for(struct sim *sim, const struct oracle_gen *gen,
                                   const struct rdzv_record *record)
{
    const struct oracle_cause *shown =
        record->failed_rank < 0 ? NULL : cause_of_rank(gen, record->failed_rank);

    if (oracle_job(sim, gen->job_id)->is_old || any_lost(sim, gen))
        return BLAME_UNSURE;
    if (gen->has_hung)
        return BLAME_PROGRAM;
    if (oracle_cannot_run(gen)) /* the program, or this one node, and then another is tried */
        return BLAME_UNSURE;
    if (shown == NULL || shown->number == 125)
        return BLAME_MACHINE;
    if (cause_of_rank(gen, -1) != NULL) /* a peer on a lost node may be the cause */
        return BLAME_UNSURE;
    return has_gpu(sim, gen, shown->rank) ? BLAME_UNSURE : BLAME_PROGRAM;
}

/* The next generation, if it has begun at once, counts a failure. */
static bool is_planned(const struct rdzv_record *before, const struct rdzv_record *after)
{
    return after->planned || (after->generation != before->generation &&
                              after->node_failures == before->node_failures);
}

/* The generation is over: it restarts, or has ended. */
static void on_closed(struct sim *sim, struct oracle_gen *gen, const struct rdzv_record *before,
                      const struct rdzv_record *after)
{
    struct oracle_job *job = oracle_job(sim, after->job_id);
    const bool has_failed = after->state == JOB_RESTARTING || after->state == JOB_QUEUED ||
                            after->part_count > 0 || after->state == JOB_FAILED;

    job->closed_us = sim->server.step_at_us;
    job->closed_server = sim->server.incarnation;
    job->closed_wall = sim->oracle->wall_sets;
    job->blame = BLAME_NOBODY;
    if (before->stopping == STOPPING_TIME)
        oracle_limit_ended(sim, after);
    if (before->stopping == STOPPING_TIME || (gen->stopping == STOPPING_PLANNED && has_failed))
        return;
    if (has_failed && gen->stopping == STOPPING_NOT && is_planned(before, after) &&
        oracle_may_not_have_begun(sim, before))
        return; /* as planned, and over at once, since it had one part */
    if (has_failed && gen->stopping == STOPPING_NOT) {
        gen->stop_us = sim->server.step_at_us;
        gen->stop_server = sim->server.incarnation;
        note_late(sim, gen);
        gen->stopping = STOPPING_FAILURE;
        oracle_check_named(sim, gen, after);
    }
    if (has_failed && !gen->has_hung && !has_cause(sim, gen))
        sim_fail(sim, "cause", "job %llu g%u has failed, and nothing of it has: %s",
                 (unsigned long long)gen->job_id, gen->generation, after->reason);
    if (!has_failed)
        return;
    oracle_check_cause(sim, gen, after);
    job->blame = blame_for(sim, gen, after);
    job->failures[job->blame]++;
}

/* -- a new generation -- */

/* The least back-off. The first restart is immediate. The limit for the second is one second; it
 * doubles with each restart, up to a minute, and the server waits at least half of it. After the
 * failure of a machine the back-off may be one restart further. */
static uint64_t least_delay_us(const struct oracle_job *job)
{
    const uint32_t done = job->blame >= BLAME_UNSURE ? 0 : job->restarts[job->blame];
    uint64_t us = done == 0 ? 0 : SECOND_US;

    for (uint32_t i = 1; i < done && us < 60 * SECOND_US; i++)
        us *= 2;
    return (us > 60 * SECOND_US ? 60 * SECOND_US : us) / 2;
}

static void check_back_off(struct sim *sim, const struct oracle_job *job,
                           const struct rdzv_record *record)
{
    if (job->is_old || job->closed_wall != sim->oracle->wall_sets)
        return;
    if (sim->server.step_at_us < job->closed_us + less_drift(least_delay_us(job)))
        sim_fail(sim, "back-off", "job %llu g%u starts %.3f s after restart %u without progress",
                 (unsigned long long)record->job_id, record->generation,
                 (double)(sim->server.step_at_us - job->closed_us) / 1e6,
                 job->restarts[job->blame]);
}

static void note_lost(struct sim *sim, const struct oracle_gen *gen)
{
    for (uint32_t i = 0; gen != NULL && i < gen->part_count; i++)
        if (oracle_may_be_lost(sim, gen->parts[i].node) || gen->parts[i].was_gone ||
            oracle_may_be_gone(sim, gen, gen->parts[i].node) ||
            sim->oracle->nodes[gen->parts[i].node].lost_us >= gen->stored_us)
            gen->parts[i].was_lost = true;
}

static void add_gen(struct sim *sim, struct oracle_job *job, const struct rdzv_record *record)
{
    struct oracle_gen *gen = zeroed(1, sizeof *gen);

    note_lost(sim, job->newest);
    gen->older = job->newest;
    gen->job_id = record->job_id;
    gen->generation = record->generation;
    gen->stored_us = sim->server.step_at_us;
    gen->part_count = record->part_count;
    gen->world = record->nodes * record->nproc_per_node;
    gen->parts = zeroed(gen->part_count + 1, sizeof *gen->parts);
    gen->node_of = zeroed(gen->world, sizeof *gen->node_of);
    gen->has_joined = zeroed(gen->world, sizeof *gen->has_joined);
    gen->told = zeroed(gen->world, sizeof *gen->told);
    for (uint32_t i = 0; i < gen->part_count; i++)
        gen->parts[i] = (struct oracle_part){.node = node_of_name(record->parts[i].node),
                                             .rank_base = record->parts[i].rank_base,
                                             .local_count = record->parts[i].local_count,
                                             .slot_mask = record->parts[i].slot_mask};
    for (uint32_t i = 0; i < gen->part_count; i++) {
        const uint32_t conn = sim->oracle->nodes[gen->parts[i].node].conn;

        gen->has_impostor = gen->has_impostor || (conn != 0 && sim->conns[conn].is_impostor);
    }
    job->newest = gen;
}

static void on_new_gen(struct sim *sim, const struct rdzv_record *before,
                       const struct rdzv_record *after)
{
    struct oracle_job *job = oracle_job(sim, after->job_id);
    struct oracle *oracle = sim->oracle;

    if (before != NULL && (before->cancel_wanted || (before->stopping == STOPPING_TIME &&
                                                     !client_of_record(sim, after)->requeues)))
        sim_fail(sim, "cancel", "job %llu g%u starts after a stored cancel or time limit",
                 (unsigned long long)after->job_id, after->generation);
    if (before != NULL && before->part_count > 0) /* the old generation ended in the same step */
        on_closed(sim, job->newest, before, after);
    if (after->generation > 1) {
        check_back_off(sim, job, after);
        job->restarts[job->blame]++;
    }
    if (job->restarts[BLAME_PROGRAM] > after->max_restarts)
        sim_fail(sim, "budget", "job %llu: %u restarts without progress, %u are allowed",
                 (unsigned long long)after->job_id, job->restarts[BLAME_PROGRAM],
                 after->max_restarts);
    add_gen(sim, job, after);
    oracle_check_placed(sim, after);
    if (oracle->started_count < ORACLE_STARTED_MAX)
        oracle->started[oracle->started_count++] = after->job_id;
}

/* -- rows -- */

static void check_first_row(struct sim *sim, const struct rdzv_record *after)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        if (after->request_id[0] != '\0' && /* in an array only the first job has one */
            strcmp(sim->disk.written[i].record.request_id, after->request_id) == 0)
            sim_fail(sim, "stored", "jobs %llu and %llu are of one request",
                     (unsigned long long)sim->disk.written[i].record.job_id,
                     (unsigned long long)after->job_id);
    oracle_job(sim, after->job_id)->submitted_us = sim->server.step_at_us;
    oracle_job(sim, after->job_id)->place_ms =
        sim->server.step_wall_ms - (int64_t)client_of_record(sim, after)->priority * 60000;
}

static void check_change(struct sim *sim, const struct rdzv_record *before,
                         const struct rdzv_record *after)
{
    unsigned long long id = (unsigned long long)after->job_id;

    if (after->generation < before->generation ||
        (after->generation > before->generation + 1 && sim->past.put_back_us == 0) ||
        after->checkpoint_step < before->checkpoint_step)
        sim_fail(sim, "written", "job %llu: generation %u after %u, checkpoint %llu after %llu", id,
                 after->generation, before->generation, (unsigned long long)after->checkpoint_step,
                 (unsigned long long)before->checkpoint_step);
    if (rdzv_state_is_final(before->state))
        sim_fail(sim, "written", "job %llu is written after its end", id);
    if (before->cancel_wanted && !after->cancel_wanted)
        sim_fail(sim, "cancel", "job %llu: a stored cancel is taken back", id);
    if (before->cancel_wanted && rdzv_state_is_final(after->state) && after->state != JOB_CANCELLED)
        sim_fail(sim, "cancel", "job %llu ends as %s, and a cancel was stored", id,
                 job_state_name(after->state));
}

static void check_checkpoint(struct sim *sim, const struct rdzv_record *after, uint64_t before)
{
    struct oracle_job *job = oracle_job(sim, after->job_id);

    if (after->checkpoint_step <= before)
        return;
    if (after->checkpoint_step > job->checkpoint_heard)
        sim_fail(sim, "written", "job %llu has checkpoint %llu, its generation %llu",
                 (unsigned long long)after->job_id, (unsigned long long)after->checkpoint_step,
                 (unsigned long long)job->checkpoint_heard);
    memset(job->restarts, 0, sizeof job->restarts);
}

/* The row says that the current generation has reported a step. */
static void check_told(struct sim *sim, const struct oracle_gen *gen,
                       const struct rdzv_record *after)
{
    if (after->told_generation == after->generation && gen->told_us == 0 &&
        !oracle_job(sim, after->job_id)->is_old)
        sim_fail(sim, "written", "job %llu g%u counts as one that has told a step, and has not",
                 (unsigned long long)after->job_id, after->generation);
}

void oracle_write(struct sim *sim, const struct rdzv_record *before,
                  const struct rdzv_record *after)
{
    struct oracle_gen *gen;

    sim->moved_us = sim->now_us;
    oracle_check_numbers(sim, before, after);
    if (before == NULL)
        check_first_row(sim, after);
    else
        check_change(sim, before, after);
    check_checkpoint(sim, after, before == NULL ? 0 : before->checkpoint_step);
    oracle_check_waits(sim, before, after);
    if (after->generation > (before == NULL ? 0 : before->generation))
        on_new_gen(sim, before, after);
    oracle_check_elastic(sim, before, after);
    gen = oracle_gen(sim, after->job_id, after->generation);
    if (gen == NULL)
        return;
    check_told(sim, gen, after);
    if (after->state == JOB_RUNNING && gen->running_us == 0)
        gen->running_us = sim->server.step_at_us;
    if (after->part_count > 0 && after->stopping != gen->stopping)
        on_stop(sim, gen, after);
    if (before != NULL && before->part_count > 0 && after->part_count == 0)
        on_closed(sim, gen, before, after);
}

void oracle_committed(struct sim *sim)
{
    oracle_check_arrays(sim);
    oracle_check_turns(sim);
    oracle_check_queue(sim);
    oracle_check_growth(sim);
}

/* -- what the server sends -- */

static void check_stop(struct sim *sim, uint32_t node, const struct msg_stop *stop,
                       const struct rdzv_record *record)
{
    const struct sim_client *client = client_of(sim, record->job_id);
    const struct oracle_gen *gen = oracle_job(sim, record->job_id)->newest;
    const struct oracle_part *part;
    uint32_t signal = SIGTERM;
    uint64_t grace_us = client->grace_us;

    if (record->generation != stop->generation || record->part_count == 0 ||
        oracle_job(sim, record->job_id)->is_old)
        return;
    part = oracle_part(gen, node);
    if (sim->oracle->nodes[node].lost_us >= gen->stored_us || (part != NULL && part->was_gone))
        return; /* its part counts as over, and leftover processes are killed */
    if ((gen->was_late || oracle_stop_is_late(sim, gen)) && !gen->go_was_sent &&
        stop->signal == SIGKILL)
        return; /* likewise: no rank of it has begun */
    if (record->stopping == STOPPING_NOT && gen->exited_ok == gen->world &&
        gen->node_of[0] == node + 1)
        return; /* only the generation's store still runs */
    if (record->stopping == STOPPING_NOT)
        sim_fail(sim, "stored", "job %llu g%u is stopped, and the store does not have that",
                 (unsigned long long)record->job_id, record->generation);
    if (record->stopping == STOPPING_CANCEL) {
        signal = client->cancel_signal;
        grace_us =
            client->cancel_grace_us < 0 ? client->grace_us : (uint64_t)client->cancel_grace_us;
    }
    if (stop->signal != signal || stop->grace_us != grace_us)
        sim_fail(sim, "grace", "job %llu g%u is stopped with signal %u and %.1f s, not %u and %.1f",
                 (unsigned long long)record->job_id, record->generation, stop->signal,
                 (double)stop->grace_us / 1e6, signal, (double)grace_us / 1e6);
}

/* The part is given to another process with the node's name. */
static void note_impostor(struct sim *sim, uint32_t conn, const struct msg_start *start)
{
    struct oracle_gen *gen = oracle_gen(sim, start->job_id, start->generation);

    if (gen == NULL || !sim->conns[conn].is_impostor)
        return;
    gen->has_impostor = true;
    oracle_add_cause(sim, start->job_id, start->generation, -1, 0);
}

void oracle_sends(struct sim *sim, uint32_t conn, const struct msg *msg)
{
    const uint64_t job_id = msg->type == MSG_TYPE_START  ? msg->start.job_id
                            : msg->type == MSG_TYPE_STOP ? msg->stop.job_id
                                                         : 0;
    const struct sim_row *row = job_id == 0 ? NULL : disk_row(sim, job_id);

    if (msg->type == MSG_TYPE_GO && oracle_gen(sim, msg->go.job_id, msg->go.generation) != NULL)
        oracle_gen(sim, msg->go.job_id, msg->go.generation)->go_was_sent = true;
    if (msg->type == MSG_TYPE_WARM)
        oracle_warms(sim, sim->conns[conn].node, &msg->warm);
    if (job_id == 0)
        return; /* the message is not about a stored job */
    if (row == NULL && msg->type == MSG_TYPE_STOP && sim->past.put_back_us != 0)
        return; /* the job is gone with what the store had since */
    if (row == NULL) {
        sim_fail(sim, "stored", "an order of job %llu, which is not in the store",
                 (unsigned long long)job_id);
        return;
    }
    if (msg->type == MSG_TYPE_START) {
        note_impostor(sim, conn, &msg->start);
        oracle_check_start(sim, sim->conns[conn].node, &msg->start);
    }
    if (msg->type == MSG_TYPE_STOP)
        check_stop(sim, sim->conns[conn].node, &msg->stop, &row->record);
    else if (row->record.generation != msg->start.generation)
        sim_fail(sim, "stored", "job %llu: g%u is started, the store has g%u",
                 (unsigned long long)job_id, msg->start.generation, row->record.generation);
}

/* -- regular checks -- */

static void check_client(struct sim *sim, uint32_t index)
{
    const struct sim_client *client = &sim->clients[index];
    const struct sim_row *row = disk_row(sim, client->job_id);

    if (!client->acked)
        return;
    if (row == NULL || strcmp(row->record.request_id, client->request_id) != 0)
        sim_fail(sim, "stored",
                 "request %u was acknowledged as job %llu, which is not in the store", index,
                 (unsigned long long)client->job_id);
    else if (client->cancel_acked && !row->record.cancel_wanted &&
             row->record.state != JOB_CANCELLED)
        sim_fail(sim, "cancel", "the cancel of job %llu was acknowledged, and is not in the store",
                 (unsigned long long)client->job_id);
}

/* Only a server that has run for some seconds must have enforced the limit. */
static void check_limit(struct sim *sim, const struct rdzv_record *record)
{
    const struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);

    if (record->state != JOB_RUNNING || record->time_limit_us == 0 || gen == NULL ||
        gen->stopping != STOPPING_NOT || gen->running_us == 0 || sim->oracle->wall_sets > 0 ||
        oracle_job(sim, record->job_id)->is_old)
        return;
    if (!server_is_ready(sim) || sim->now_us < sim->server.started_us + 3 * SECOND_US ||
        sim->now_us < sim->server.paused_until_us + 3 * SECOND_US)
        return;
    if (sim->now_us > gen->running_us + record->time_limit_us + 3 * SECOND_US)
        sim_fail(sim, "time-limit", "job %llu g%u has run %.1f s, its limit is %.1f s",
                 (unsigned long long)record->job_id, record->generation,
                 (double)(sim->now_us - gen->running_us) / 1e6,
                 (double)record->time_limit_us / 1e6);
}

static bool has_drain(const struct sim *sim, uint32_t node, uint32_t slot)
{
    for (uint32_t i = 0; i < sim->disk.drain_count; i++)
        if (node_of_name(sim->disk.drains[i].node) == node && sim->disk.drains[i].slot == slot)
            return true;
    return false;
}

void oracle_check_jobs(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->client_count; i++)
        check_client(sim, i);
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        check_limit(sim, &sim->disk.written[i].record);
    for (uint32_t i = 0; i < sim->oracle->drain_count; i++) {
        const struct oracle_drain *drain = &sim->oracle->drains[i];
        uint32_t slot =
            drain->slot_mask == 0 ? RDZV_WHOLE_NODE : (uint32_t)__builtin_ctzll(drain->slot_mask);

        if (!has_drain(sim, drain->node, slot))
            sim_fail(sim, "stored", "the drain of node%u was acknowledged, and is not in the store",
                     drain->node);
    }
}
