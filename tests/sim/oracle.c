#include "tests/sim/oracle.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/oracle_facts.h"

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL)
        abort();
    return memory;
}

struct oracle *oracle_new(const struct sim_size *size)
{
    struct oracle *oracle = zeroed(1, sizeof *oracle);

    oracle->job_count = (size->jobs > SIM_IDS_MAX ? size->jobs : SIM_IDS_MAX) + 1;
    oracle->jobs = zeroed(oracle->job_count, sizeof *oracle->jobs);
    oracle->node_count = size->nodes;
    oracle->nodes = zeroed(size->nodes, sizeof *oracle->nodes);
    return oracle;
}

static void free_gens(struct oracle_gen *gen)
{
    while (gen != NULL) {
        struct oracle_gen *older = gen->older;

        free(gen->parts);
        free(gen->node_of);
        free(gen->has_joined);
        free(gen->told);
        free(gen);
        gen = older;
    }
}

void oracle_free(struct oracle *oracle)
{
    for (uint32_t i = 0; i < oracle->job_count; i++)
        free_gens(oracle->jobs[i].newest);
    free(oracle->jobs);
    free(oracle->nodes);
    free(oracle);
}

struct oracle_job *oracle_job(const struct sim *sim, uint64_t job_id)
{
    return job_id < sim->oracle->job_count ? &sim->oracle->jobs[job_id] : NULL;
}

struct oracle_gen *oracle_gen(const struct sim *sim, uint64_t job_id, uint32_t generation)
{
    const struct oracle_job *job = oracle_job(sim, job_id);

    for (struct oracle_gen *gen = job == NULL ? NULL : job->newest; gen != NULL; gen = gen->older)
        if (gen->generation == generation)
            return gen;
    return NULL;
}

struct oracle_part *oracle_part(const struct oracle_gen *gen, uint32_t node)
{
    for (uint32_t i = 0; i < gen->part_count; i++)
        if (gen->parts[i].node == node)
            return &gen->parts[i];
    return NULL;
}

/* -- how long the server has run -- */

#define SHORT_PAUSE_US (2 * SECOND_US) /* the server need not notice a pause this short */

uint64_t oracle_ran_us(const struct sim *sim)
{
    const struct oracle *oracle = sim->oracle;
    const uint64_t resumed_us = sim->server.paused_until_us;
    uint64_t from_us = oracle->ran_at_us;

    if (!sim->server.alive)
        return oracle->ran_us;
    if (resumed_us > from_us + SHORT_PAUSE_US)
        from_us = resumed_us < sim->now_us ? resumed_us : sim->now_us;
    return oracle->ran_us + (sim->now_us - from_us);
}

void oracle_time(struct sim *sim)
{
    sim->oracle->ran_us = oracle_ran_us(sim);
    sim->oracle->ran_at_us = sim->now_us;
}

void oracle_wall_clock_set(struct sim *sim)
{
    sim->oracle->wall_sets++;
}

static void expect_nodes(struct sim *sim, const struct rdzv_record *record)
{
    for (uint32_t p = 0; p < record->part_count; p++) {
        struct oracle_node *node = &sim->oracle->nodes[node_of_name(record->parts[p].node)];

        node->is_expected = true;
    }
}

/* Its row no longer says that the generation is being stopped, so its end has a cause of its own. */
static void note_old(struct oracle_job *job)
{
    job->is_old = job->newest != NULL;
    if (job->newest != NULL)
        job->newest->stopping = 0;
}

void oracle_server_started(struct sim *sim, bool is_old)
{
    struct oracle *oracle = sim->oracle;

    if (is_old) {
        for (uint32_t i = 0; i < oracle->job_count; i++)
            note_old(&oracle->jobs[i]);
        for (uint32_t i = 0; i < sim->disk.row_count; i++)
            oracle_job(sim, sim->disk.written[i].record.job_id)->is_unasked = true;
        return;
    }
    oracle->ran_at_us = sim->now_us;
    for (uint32_t i = 0; i < oracle->node_count; i++) {
        const struct oracle_node before = oracle->nodes[i];

        oracle->nodes[i] = (struct oracle_node){
            .lost_us = before.lost_us, .was_shared = before.was_shared, .heard_us = oracle->ran_us};
    }
    oracle->first_id = 0;
    oracle_check_arrays(sim);
    for (uint32_t i = 0; i < oracle->job_count; i++) {
        struct oracle_gen *gen = oracle->jobs[i].newest;

        for (uint32_t p = 0; gen != NULL && p < gen->part_count; p++) {
            struct oracle_part *part = &gen->parts[p];

            part->ready_was_told = part->running_was_told = part->end_was_told = false;
        }
    }
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        if (!rdzv_state_is_final(sim->disk.written[i].record.state))
            expect_nodes(sim, &sim->disk.written[i].record);
}

/* -- failures -- */

void oracle_add_cause(struct sim *sim, uint64_t job_id, uint32_t generation, int32_t rank,
                      uint32_t number)
{
    struct oracle_gen *gen = oracle_gen(sim, job_id, generation);

    if (gen == NULL || gen->cause_count == ORACLE_CAUSES_MAX)
        return;
    gen->causes[gen->cause_count++] = (struct oracle_cause){
        .at_us = sim->now_us, .rank = rank, .number = number, .node = UINT32_MAX};
}

void oracle_failed(struct sim *sim, const struct sim_shim *shim, uint32_t node, int32_t rank,
                   uint32_t number)
{
    struct oracle_gen *gen = oracle_gen(sim, shim->job_id, shim->generation);

    oracle_add_cause(sim, shim->job_id, shim->generation, rank, number);
    if (gen != NULL)
        gen->causes[gen->cause_count - 1].node = node;
    if (number >= 1000 && oracle_job(sim, shim->job_id) != NULL)
        oracle_job(sim, shim->job_id)->crashes++;
}

void oracle_node_failed(struct sim *sim, uint32_t node)
{
    for (uint32_t i = 0; i < sim->oracle->job_count; i++) {
        const struct oracle_gen *gen = sim->oracle->jobs[i].newest;

        if (gen != NULL && oracle_part(gen, node) != NULL)
            oracle_add_cause(sim, gen->job_id, gen->generation, -1, 0);
    }
}

/* -- the end -- */

static uint32_t exit_of(uint32_t number)
{
    return number >= 1000 ? 128 + number - 1000 : number;
}

static bool has_exit(const struct oracle_gen *gen, uint32_t exit_code)
{
    for (uint32_t i = 0; i < gen->cause_count; i++)
        if (exit_of(gen->causes[i].number) == exit_code)
            return true;
    return gen->cause_count == ORACLE_CAUSES_MAX;
}

bool oracle_cannot_run(const struct oracle_gen *gen)
{
    return gen != NULL && (has_exit(gen, 126) || has_exit(gen, 127));
}

/* How often a machine may fail a job that has no other one, until the job is given up. */
#define ALONE_FAILURES 8u
#define ALIKE 3u /* failures in the same way, after which a job is given up */

/* --max-restarts limits restarts after failures of the program; for failures of machines the limit
 * is 20, or less for a job with one machine. A user who asks for a number of restarts gets them, even
 * if the program always fails at the same step. */
static bool may_give_up(const struct oracle_job *job, const struct sim_client *client)
{
    const uint32_t unsure = job->failures[BLAME_UNSURE];
    const uint32_t failures = job->failures[BLAME_PROGRAM] + unsure;

    return job->restarts[BLAME_PROGRAM] + unsure >= client->max_restarts ||
           job->failures[BLAME_MACHINE] + unsure + job->late_starts >= ALONE_FAILURES ||
           oracle_cannot_run(job->newest) ||
           ((job->crashes >= ALIKE || (client->says_why && failures >= ALIKE)) &&
            (client->max_restarts == SIM_RESTARTS_DEFAULT || job->is_old || job->is_unasked));
}

static void check_failed(struct sim *sim, const struct sim_client *client,
                         const struct rdzv_record *record)
{
    const struct oracle_job *job = oracle_job(sim, record->job_id);
    const uint32_t code = (uint32_t)record->exit_code;

    if (code == 124 && client->time_limit_us != 0)
        return;
    if (!may_give_up(job, client))
        sim_fail(sim, "outcome", "job %llu was given up after %u of %u restarts: %s",
                 (unsigned long long)record->job_id, job->restarts[BLAME_PROGRAM],
                 record->max_restarts, record->reason);
    if (code != 125 && job->newest != NULL && !job->is_old && !has_exit(job->newest, code))
        sim_fail(sim, "outcome", "job %llu ends with %u, and no rank of g%u has",
                 (unsigned long long)record->job_id, code, record->generation);
}

static void check_success(struct sim *sim, const struct sim_client *client,
                          const struct rdzv_record *record)
{
    const struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);

    if (client->fails || gen == NULL || gen->exited_ok != gen->world)
        sim_fail(sim, "outcome", "job %llu has succeeded with %u of %u ranks",
                 (unsigned long long)record->job_id, gen == NULL ? 0 : gen->exited_ok,
                 gen == NULL ? 0 : gen->world);
}

static void check_job_outcome(struct sim *sim, const struct sim_client *client,
                              const struct rdzv_record *record)
{
    const bool is_cancelled = /* in an array only the first job is cancelled */
        client->cancel_at_us != UINT64_MAX && record->job_id == client->job_id;
    const bool in_vain = oracle_waits_in_vain(sim, client);

    if (record->state == JOB_CANCELLED && !is_cancelled && !in_vain)
        sim_fail(sim, "outcome", "job %llu was cancelled by nobody",
                 (unsigned long long)record->job_id);
    if (record->state == JOB_SUCCEEDED)
        check_success(sim, client, record);
    if (record->state != JOB_CANCELLED && in_vain)
        sim_fail(sim, "after", "job %llu has ended as %s, and what it waited for did not succeed",
                 (unsigned long long)record->job_id, job_state_name(record->state));
    if (record->state == JOB_FAILED)
        check_failed(sim, client, record);
}

static void check_outcome(struct sim *sim, uint32_t index)
{
    const struct sim_client *client = &sim->clients[index];

    for (uint32_t i = 0; i < client_job_count(client); i++) {
        const struct sim_row *row = disk_row(sim, client->job_id + i);

        if (!client->acked || row == NULL || !rdzv_state_is_final(row->record.state)) {
            sim_fail(sim, "outcome", "request %u has not ended", index);
            return;
        }
        check_job_outcome(sim, client, &row->record);
    }
}

static void check_left(struct sim *sim, uint32_t index)
{
    const struct oracle_node *told = &sim->oracle->nodes[index];

    for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
        const struct sim_shim *shim = &sim->nodes[index].shims[s];

        if (shim->used)
            sim_fail(sim, "outcome", "node%u: the shim of job %llu g%u is left", index,
                     (unsigned long long)shim->job_id, shim->generation);
    }
    if (told->shim_count != 0 || told->closed_mask != 0)
        sim_fail(sim, "outcome", "node%u still lists %u shims, and slots %llx as closed", index,
                 told->shim_count, (unsigned long long)told->closed_mask);
}

/* Notes each job that has not ended, with the reason that its user sees. */
void oracle_note_waiting(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;
        struct part_job shown;

        if (rdzv_state_is_final(record->state))
            continue;
        rdzv_job_part(sim->server.core, record->job_id, &shown);
        sim_note(sim, "job %llu, %u x %u, is %s: %s", (unsigned long long)record->job_id,
                 record->nodes, record->nproc_per_node, job_state_name(record->state),
                 shown.reason);
    }
}

void oracle_check_end(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->client_count; i++)
        check_outcome(sim, i);
    for (uint32_t n = 0; n < sim->node_count; n++)
        check_left(sim, n);
}

void oracle_check(struct sim *sim)
{
    oracle_check_roster(sim);
    oracle_check_nodes(sim);
    oracle_check_jobs(sim);
    oracle_check_hangs(sim);
    oracle_check_starts(sim);
    oracle_check_warm(sim);
}
