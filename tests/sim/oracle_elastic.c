/* Jobs whose number of nodes may change: how many they have, and that they grow. */
#include "rendezvous/core/elastic.h"
#include "rendezvous/core/failure.h"
#include "tests/sim/oracle_facts.h"

#define SLACK_US 20000u

bool oracle_is_elastic(const struct sim *sim, uint64_t job_id)
{
    const struct sim_client *client = client_of(sim, job_id);

    return client->nodes_min < client->nodes;
}

/* Whether a job may replace a node by another while it runs. */
static bool may_move(const struct sim *sim, uint64_t job_id)
{
    return oracle_is_elastic(sim, job_id) || client_of(sim, job_id)->spares > 0;
}

/* The server was told that a rank on another node failed at about that time, or later. */
static bool is_missed(const struct oracle_gen *gen, uint32_t index, uint64_t closed_us)
{
    for (uint32_t i = 0; i < gen->cause_count; i++) {
        const struct oracle_cause *cause = &gen->causes[i];

        if (cause->was_told && cause->rank >= 0 && gen->node_of[cause->rank] != index + 1 &&
            closed_us <= cause->at_us + FAILURE_BEFORE_US + SLACK_US)
            return true;
    }
    return false;
}

bool oracle_may_be_gone(const struct sim *sim, const struct oracle_gen *gen, uint32_t index)
{
    const struct oracle_node *node = &sim->oracle->nodes[index];
    uint64_t wait_us = is_missed(gen, index, node->closed_us) ? ELASTIC_MISSED_US : ELASTIC_GONE_US;

    return may_move(sim, gen->job_id) && gen->joined == gen->world && node->conn == 0 &&
           node->closed_us != 0 && sim->now_us + SLACK_US >= node->closed_us + wait_us;
}

void oracle_is_back(struct sim *sim, uint32_t node)
{
    for (uint32_t i = 0; i < sim->oracle->job_count; i++) {
        struct oracle_gen *gen = sim->oracle->jobs[i].newest;
        struct oracle_part *part = gen == NULL ? NULL : oracle_part(gen, node);

        if (part != NULL)
            part->was_gone = part->was_gone || oracle_may_be_gone(sim, gen, node);
    }
}

static void check_size(struct sim *sim, const struct rdzv_record *after)
{
    const struct sim_client *client = client_of_record(sim, after);

    if (after->nodes < client->nodes_min || after->nodes > client->nodes ||
        (after->part_count != 0 && after->part_count != after->nodes))
        sim_fail(sim, "elastic", "job %llu g%u has %u parts and %u nodes, it wants %u to %u",
                 (unsigned long long)after->job_id, after->generation, after->part_count,
                 after->nodes, client->nodes_min, client->nodes);
}

/* A node of the generation has told the server that it leaves. */
static bool is_on_leaving(struct sim *sim, const struct rdzv_record *record)
{
    struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);

    for (uint32_t i = 0; gen != NULL && i < sim->node_count; i++)
        if (oracle_part(gen, i) != NULL && sim->nodes[i].leave_told_us != 0)
            return true;
    return false;
}

/* The server, which was started after the generation, has just taken its state for one of the past, and a node does not
 * list its part. Whether that was never started or went on in what is lost, no server knows that may be wrong about its
 * state; as ranks may run on the other nodes, it is stopped and begun anew. The nodes remember what they have seen, so a
 * later server may conclude that once more, of jobs that were submitted since (seed 8234 of --starts). */
static bool is_of_past(struct sim *sim, const struct rdzv_record *record)
{
    const struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);

    if (gen == NULL || sim->past.known_by != sim->server.incarnation ||
        gen->stored_us >= sim->server.started_us)
        return false;
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (sim->oracle->nodes[gen->parts[i].node].conn != 0 &&
            !oracle_is_listed(sim, gen, &gen->parts[i]))
            return true;
    return false;
}

bool oracle_may_not_have_begun(const struct sim *sim, const struct rdzv_record *before)
{
    const struct oracle_gen *gen = oracle_gen(sim, before->job_id, before->generation);

    if (gen == NULL || before->state != JOB_STARTING || before->max_restarts == 0 ||
        gen->stored_us >= sim->server.started_us ||
        sim->now_us + SECOND_US < sim->server.started_us + sim->lease_us)
        return false;
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (!oracle_is_listed(sim, gen, &gen->parts[i]))
            return true;
    return false;
}

void oracle_check_elastic(struct sim *sim, const struct rdzv_record *before,
                          const struct rdzv_record *after)
{
    if (before == NULL || oracle_job(sim, after->job_id)->is_old)
        return;
    check_size(sim, after);
    if (after->stopping == STOP_PLANNED && before->stopping != STOP_PLANNED &&
        after->preempted_by == 0 && !may_move(sim, after->job_id) && !is_on_leaving(sim, after) &&
        !is_of_past(sim, after) && !oracle_may_not_have_begun(sim, before))
        sim_fail(sim, "elastic", "job %llu g%u is stopped as planned, and has a fixed size",
                 (unsigned long long)after->job_id, after->generation);
    if (before->planned && after->generation > before->generation &&
        (after->restarts_without_progress > before->restarts_without_progress ||
         after->node_failures > before->node_failures))
        sim_fail(sim, "elastic", "job %llu g%u: a planned restart uses its budget",
                 (unsigned long long)after->job_id, after->generation);
    if (after->checkpoint_step > before->checkpoint_step)
        sim->oracle->grown_id = after->job_id;
}

/* No other job waits for slots, and the server hears every node. */
static bool is_alone(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim->oracle->nodes[i].conn == 0 || sim->nodes[i].leave_told_us != 0 ||
            sim->now_us > sim->oracle->nodes[i].heard_at_us + 4 * SECOND_US)
            return false;
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const enum job_state state = sim->disk.written[i].record.state;

        if (state == JOB_QUEUED || state == JOB_RESTARTING)
            return false;
    }
    return sim->disk.drain_count == 0;
}

/* A node outside the generation has room for a part of the job. */
static bool has_room(const struct sim *sim, const struct oracle_gen *gen,
                     const struct rdzv_record *record)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (oracle_part(gen, i) == NULL && (uint32_t)__builtin_popcountll(oracle_free_mask(
                                               sim, i, record->job_id)) >= record->nproc_per_node)
            return true;
    return false;
}

/* No node of the generation has closed its slots, so the next generation can use them all. */
static bool all_can_stay(const struct sim *sim, const struct oracle_gen *gen)
{
    for (uint32_t i = 0; i < gen->part_count; i++)
        if ((sim->oracle->nodes[gen->parts[i].node].closed_mask & gen->parts[i].slot_mask) != 0)
            return false;
    return true;
}

/* A node has failed the job often enough to be left out, or cannot run its command. */
static bool may_be_excluded(const struct oracle_job *job)
{
    for (const struct oracle_gen *gen = job->newest; gen != NULL; gen = gen->older)
        if (oracle_cannot_run(gen))
            return true;
    return job->failures[BLAME_MACHINE] + job->failures[BLAME_UNSURE] + job->crashes +
               2 * job->late_starts >=
           2;
}

/* If the job can grow, the step that records a checkpoint also ends the generation. The store does
 * not say which slots are held as spares, so runs with spares are not checked. */
void oracle_check_growth(struct sim *sim)
{
    const struct sim_row *row =
        sim->oracle->grown_id == 0 ? NULL : disk_row(sim, sim->oracle->grown_id);
    const struct oracle_gen *gen;
    const struct oracle_job *job;

    sim->oracle->grown_id = 0;
    if (row == NULL || row->record.part_count == 0)
        return;
    job = oracle_job(sim, row->record.job_id);
    gen = job->newest;
    if (sim->has_spares || row->record.nodes >= row->record.nodes_max ||
        row->record.stopping != STOP_NONE || row->record.state != JOB_RUNNING ||
        gen->running_us == 0 || job->is_old || gen->stop_server != 0 || gen->exited_ok > 0 ||
        sim->now_us < gen->running_us + SIM_GROW_US + SIM_GROW_US / 10 ||
        sim->now_us < sim->server.started_us + 2 * SIM_GROW_US || sim->oracle->wall_sets > 0 ||
        may_be_excluded(job) || !is_alone(sim) || !all_can_stay(sim, gen) ||
        !has_room(sim, gen, &row->record))
        return;
    sim_fail(sim, "elastic", "job %llu g%u has a new checkpoint and could grow from %u nodes",
             (unsigned long long)row->record.job_id, row->record.generation, row->record.nodes);
}
