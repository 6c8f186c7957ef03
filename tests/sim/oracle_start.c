/* No start without an end. The limits are those of docs/architecture.md, "Every order has a deadline". */
#include "tests/sim/oracle_facts.h"

#define TAKE_US (30 * SECOND_US)
#define PREPARE_US (45 * SECOND_US)
#define STAGED_US (630 * SECOND_US)
#define RUN_US (75 * SECOND_US)
#define WORLD_US (20 * SECOND_US)
#define STOP_IDLE_US (45 * SECOND_US)
#define KILL_US (80 * SECOND_US) /* 10 s, then SIGKILL for a minute, and 10 s for messages */
#define SLOW_US (20 * SECOND_US)
#define GO_US (25 * SECOND_US) /* beats, which show that the go did not arrive, come each second */
#define REPEAT_US (8 * SECOND_US) /* so is what did not arrive */
#define SLACK_US                                                                                   \
    (10 * SECOND_US) /* a node may be silent for some of the time without being suspect */
#define EARLY_US (2 * SECOND_US) /* drift; the server counts in seconds */
#define AWAY_US (4 * SECOND_US)  /* the margin of a lease, and the next beat */

static uint64_t later(uint64_t a_us, uint64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

bool oracle_start_is_late(const struct sim *sim, const struct oracle_gen *gen)
{
    if (gen->running_us != 0)
        return gen->joined == gen->world && sim->now_us + EARLY_US >= gen->running_us + WORLD_US;
    return sim->now_us + EARLY_US >= gen->stored_us + TAKE_US;
}

bool oracle_start_is_slow(const struct sim *sim, const struct oracle_gen *gen)
{
    return gen->running_us == 0 && sim->now_us + EARLY_US >= gen->stored_us + SLOW_US;
}

bool oracle_stop_is_late(const struct sim *sim, const struct oracle_gen *gen)
{
    return !gen->go_was_sent && gen->stopping != 0 &&
           sim->now_us + EARLY_US >= gen->stop_us + STOP_IDLE_US;
}

static bool has_done(const struct oracle_gen *gen, const struct oracle_part *part)
{
    return gen->running_us != 0 ||
           (gen->go_was_sent ? part->running_was_told : part->ready_was_told);
}

void oracle_check_named(struct sim *sim, struct oracle_gen *gen, const struct rdzv_record *record)
{
    const struct oracle_part *part;

    if (!gen->was_late || gen->cause_count > 0 || record->failed_class != FAILURE_NODE ||
        oracle_job(sim, gen->job_id)->is_old)
        return;
    part =
        record->failed_node[0] == '\0' ? NULL : oracle_part(gen, node_of_name(record->failed_node));
    if (part == NULL)
        sim_fail(sim, "start", "job %llu g%u: its start was late, and node \"%s\" is named",
                 (unsigned long long)gen->job_id, gen->generation, record->failed_node);
    else if (gen->running_us == 0 && has_done(gen, part))
        sim_fail(sim, "start",
                 "job %llu g%u: its start was late, and node%u is named, which was not",
                 (unsigned long long)gen->job_id, gen->generation, part->node);
    for (uint32_t i = 0; i < gen->part_count; i++)
        gen->parts[i].was_late = !has_done(gen, &gen->parts[i]);
    gen->late_node = part == NULL ? 0 : part->node + 1;
    gen->late_us = sim->now_us;
}

/* What was sent before may have waited in the socket of a launcherd that was stopped. */
static bool runs_for(const struct sim *sim, uint32_t node, uint64_t us)
{
    const uint64_t steady_us = sim->nodes[node].steady_us, now_us = sim_node_us(sim, node);

    return steady_us < now_us && now_us - steady_us > us;
}

void oracle_check_arrived(struct sim *sim, uint32_t node, const struct msg_start *start)
{
    const struct oracle_gen *gen = oracle_gen(sim, start->job_id, start->generation);

    if (gen != NULL && gen->late_node == node + 1 && gen->running_us == 0 &&
        sim->past.put_back_us == 0 &&
        sim->now_us > gen->late_us + sim->faults.late_max_us + SECOND_US &&
        runs_for(sim, node, sim->faults.late_max_us + SECOND_US))
        sim_fail(sim, "start", "node%u: a start of job %llu g%u arrives that was given up", node,
                 (unsigned long long)gen->job_id, gen->generation);
}

/* Nothing of the generation counts any more for the server: it has ended, or the job is in a newer one. */
static bool is_over(const struct sim *sim, const struct oracle_gen *gen)
{
    const struct sim_row *row = disk_row(sim, gen->job_id);

    return row != NULL &&
           (row->record.part_count == 0 || row->record.generation != gen->generation);
}

void oracle_check_begun(struct sim *sim, uint32_t node, const struct sim_shim *shim,
                        const struct oracle_gen *gen)
{
    const struct oracle_part *part = oracle_part(gen, node);

    if (sim->past.put_back_us != 0 || oracle_job(sim, gen->job_id)->is_old || part == NULL)
        return;
    if (!gen->go_was_sent)
        sim_fail(sim, "go", "node%u: a rank of job %llu g%u begins, and the server has sent no go",
                 node, (unsigned long long)shim->job_id, shim->generation);
    else if (is_over(sim, gen) && !part->was_lost && !part->was_gone && !gen->has_impostor &&
             sim->oracle->nodes[node].lost_us < gen->stored_us)
        sim_fail(sim, "go", "node%u: a rank of job %llu g%u begins, and that is over", node,
                 (unsigned long long)shim->job_id, shim->generation);
}

static bool all_are_up(const struct sim *sim, const struct oracle_gen *gen)
{
    if (!server_is_ready(sim))
        return false;
    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct oracle_node *node = &sim->oracle->nodes[gen->parts[i].node];

        if (node->is_expected || oracle_ran_us(sim) > node->heard_us + NODE_SUSPECT_US - SECOND_US)
            return false;
    }
    return true;
}

/* How long the present server may take from the beginning of the start, or of its stop; UINT64_MAX: no rule. */
static uint64_t bound_us(const struct sim *sim, const struct oracle_gen *gen)
{
    const bool is_ours = gen->stored_us >= sim->server.started_us;

    if (gen->stopping == 0) /* a new server does not know whether a folder was staged for the job */
        return TAKE_US +
               (oracle_job(sim, gen->job_id)->submitted_us >= sim->server.started_us ? PREPARE_US
                                                                                     : STAGED_US) +
               RUN_US;
    return is_ours && !gen->go_was_sent ? STOP_IDLE_US : UINT64_MAX;
}

/* No order is lost on the way to the node now, and the server hears it. */
static bool is_reached(const struct sim *sim, const struct oracle_part *part)
{
    const struct sim_node *node = &sim->nodes[part->node];
    const struct oracle_node *told = &sim->oracle->nodes[part->node];

    return node->alive && node->is_welcome && !node->cut_to_server && !node->cut_to_node &&
           sim->now_us >= node->paused_until_us && sim->now_us >= node->frozen_until_us &&
           sim->now_us >= node->lost_until_us && sim->now_us >= node->stalls_until_us &&
           told->conn != 0 && sim->now_us < told->heard_at_us + 2 * SECOND_US;
}

/* A new server does not know whether another boot is a later one. Nor does it know whose parts and holds are if those of
 * two processes are stored under the name. */
static bool waits_for_lease(const struct sim *sim, uint32_t node)
{
    return (sim->oracle->nodes[node].was_shared || sim->nodes[node].boots > 0) &&
           sim->now_us < sim->server.started_us + 2 * sim->lease_us;
}

/* Some part has no shim, nor an answer, although its node is reached and has its slots free. */
static bool waits_for_start(const struct sim *sim, const struct oracle_gen *gen)
{
    bool any_waits = false;

    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct oracle_part *part = &gen->parts[i];
        const struct sim_node *node = &sim->nodes[part->node];

        if (!is_reached(sim, part) || sim->oracle->nodes[part->node].left_us != 0 ||
            waits_for_lease(sim, part->node))
            return false;
        for (uint32_t s = 0; s < SIM_WARM_MAX; s++)
            if (node->warm[s].used && node->warm[s].holds_up_order)
                return false;
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++)
            if (node->shims[s].used && node->shims[s].job_id == gen->job_id &&
                node->shims[s].generation != gen->generation)
                return false;
        any_waits = any_waits || (oracle_shim_of(sim, gen, part) == NULL && !part->end_was_told);
    }
    return any_waits && server_is_ready(sim) && !gen->has_impostor && !gen->go_was_sent &&
           sim->past.put_back_us == 0; /* then it waits for all nodes */
}

/* Likewise a world, which all ranks have joined for. */
static bool waits_for_world(const struct sim *sim, const struct oracle_gen *gen)
{
    bool any_waits = false;

    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct sim_shim *shim = oracle_shim_of(sim, gen, &gen->parts[i]);

        if (!is_reached(sim, &gen->parts[i]) || !oracle_is_heard(sim, gen, &gen->parts[i]) ||
            shim->core.phase != SHIM_RUNNING)
            return false;
        any_waits = any_waits || !shim->core.has_world;
    }
    return any_waits && server_is_ready(sim) && gen->joined == gen->world && !gen->has_impostor;
}

static void check_repeated(struct sim *sim, struct oracle_gen *gen)
{
    if (gen->stopping != 0 || gen->cause_count > 0 || !waits_for_start(sim, gen))
        gen->no_start_us = sim->now_us;
    else if (sim->now_us > later(gen->no_start_us, gen->stored_us) + REPEAT_US)
        sim_fail(sim, "start", "job %llu g%u has a part that was not started, and is not ordered",
                 (unsigned long long)gen->job_id, gen->generation);
    if (gen->stopping != 0 || gen->cause_count > 0 || !waits_for_world(sim, gen))
        gen->no_world_us = sim->now_us;
    else if (sim->now_us > later(gen->no_world_us, gen->stored_us) + REPEAT_US)
        sim_fail(sim, "world", "job %llu g%u has joined on all its nodes, and gets no world",
                 (unsigned long long)gen->job_id, gen->generation);
}

/* All its shims are ready, and one has no go, although no order is lost on the way to it now. */
static bool waits_for_go(const struct sim *sim, const struct oracle_gen *gen)
{
    bool any_waits = false;

    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct sim_node *node = &sim->nodes[gen->parts[i].node];
        const struct sim_shim *shim = oracle_shim_of(sim, gen, &gen->parts[i]);

        if (!oracle_is_heard(sim, gen, &gen->parts[i]) || sim->now_us < node->lost_until_us ||
            sim->now_us < node->stalls_until_us || shim->core.phase < SHIM_READY ||
            shim->core.phase > SHIM_RUNNING)
            return false;
        any_waits = any_waits || !shim->core.go_taken;
    }
    return any_waits && server_is_ready(sim);
}

/* A go that was lost is sent again, long before the deadline that makes its loss a failure of the node. */
static void check_go(struct sim *sim, struct oracle_gen *gen)
{
    if (!waits_for_go(sim, gen) || gen->stopping != 0)
        gen->no_go_us = sim->now_us;
    else if (sim->now_us > later(gen->no_go_us, gen->stored_us) + GO_US)
        sim_fail(sim, "go", "job %llu g%u is ready on all its nodes, and gets no go",
                 (unsigned long long)gen->job_id, gen->generation);
}

/* Its shim can be told to stop and be killed now, and no order to its node is lost. */
static bool can_stop(const struct sim *sim, const struct oracle_part *part)
{
    const struct sim_node *node = &sim->nodes[part->node];

    return part->end_was_told ||
           (node->alive && node->is_welcome && node->conn != 0 && !node->cut_to_server &&
            !node->cut_to_node && sim->now_us >= node->paused_until_us &&
            sim->now_us >= node->frozen_until_us && sim->now_us >= node->lost_until_us &&
            sim->now_us >= node->stalls_until_us);
}

/* Until when the server waits for a part that its node does not list, as the process that has the node's name does not
 * say who it is: whoever got the part may be another one, on which ranks run, and the lease alone ends them. A lease of
 * 90 s is longer than a stop may take (seed 8117). 0: it does not. */
static uint64_t away_until_us(const struct sim *sim, const struct oracle_gen *gen,
                              const struct oracle_part *part)
{
    const struct oracle_node *told = &sim->oracle->nodes[part->node];

    if (part->end_was_told || told->unknown_until_us == 0 || oracle_is_listed(sim, gen, part))
        return 0;
    return told->unknown_until_us + AWAY_US;
}

/* After the go a stop ends the ranks, whatever their shim does: after the grace and 10 s they are killed, and a minute
 * later they are given up. */
static void check_stop(struct sim *sim, struct oracle_gen *gen, const struct rdzv_record *record)
{
    bool can = gen->stopping != 0 && server_is_ready(sim) && !gen->has_impostor;
    uint64_t until_us = 0;

    for (uint32_t i = 0; can && i < gen->part_count; i++) {
        can = can_stop(sim, &gen->parts[i]);
        until_us = later(until_us, away_until_us(sim, gen, &gen->parts[i]));
    }
    if (!can)
        gen->no_stop_us = sim->now_us;
    else if (sim->now_us > until_us &&
             sim->now_us > later(gen->no_stop_us, gen->stop_us) + record->stop_grace_us + KILL_US)
        sim_fail(sim, "start", "job %llu g%u was told to stop %.1f s ago, and has not ended",
                 (unsigned long long)gen->job_id, gen->generation,
                 (double)(sim->now_us - gen->stop_us) / 1e6);
}

static void check(struct sim *sim, struct oracle_gen *gen)
{
    const uint64_t bound = bound_us(sim, gen);
    const uint64_t from_us =
        later(later(gen->stored_us, gen->stopping == 0 ? 0 : gen->stop_us),
              later(gen->up_since_us, later(sim->server.started_us, sim->server.paused_until_us)));

    if (!all_are_up(sim, gen))
        gen->up_since_us = sim->now_us;
    else if (bound != UINT64_MAX && sim->now_us > from_us + bound + SLACK_US)
        sim_fail(sim, "start",
                 "job %llu g%u was %s %.1f s ago, and all its nodes are up: a start without an end",
                 (unsigned long long)gen->job_id, gen->generation,
                 gen->stopping == 0 ? "started" : "stopped", (double)(sim->now_us - from_us) / 1e6);
}

void oracle_check_starts(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;
        struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);

        if (gen == NULL || record->part_count == 0 || oracle_job(sim, record->job_id)->is_old)
            continue;
        check_stop(sim, gen, record);
        check_repeated(sim, gen);
        if (record->state == JOB_STARTING) {
            check(sim, gen);
            check_go(sim, gen);
        }
    }
}
