/* Hangs: no generation that works is stopped as hung, and each hang is found in time, with the rank
 * that hangs. The bounds are those of docs/hangs.md, plus the time that questions to the nodes
 * take. */
#include "tests/sim/oracle_facts.h"

#define HANG_SLACK_US (20 * SECOND_US) /* from the last look at the processes to the end */
#define LEAST_US (30 * SECOND_US)
#define STEP_FACTOR 5u
#define LOOK_US (15 * SECOND_US) /* for one question to the nodes: an answer takes 10 s at most */
#define FINE_US (5 * SECOND_US)
#define HEARD_US (3500000u) /* a beat comes each second */

static bool is_of(const struct sim_shim *shim, const struct oracle_gen *gen)
{
    return shim->used && shim->job_id == gen->job_id && shim->generation == gen->generation;
}

const struct sim_shim *oracle_shim_of(const struct sim *sim, const struct oracle_gen *gen,
                                      const struct oracle_part *part)
{
    for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++)
        if (is_of(&sim->nodes[part->node].shims[s], gen))
            return &sim->nodes[part->node].shims[s];
    return NULL;
}

/* The worker of a rank; NULL: it does not exist. */
static const struct sim_worker *worker_of(const struct sim *sim, const struct oracle_gen *gen,
                                          uint32_t rank)
{
    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct oracle_part *part = &gen->parts[i];
        const struct sim_shim *shim = oracle_shim_of(sim, gen, part);

        if (rank >= part->rank_base && rank < part->rank_base + part->local_count)
            return shim == NULL ? NULL : &shim->workers[rank - part->rank_base];
    }
    return NULL;
}

/* One of its workers hangs, or did: the server may end the generation for lack of progress. */
bool oracle_has_hung(const struct sim *sim, const struct oracle_gen *gen)
{
    for (uint32_t rank = 0; rank < gen->world; rank++) {
        const struct sim_worker *worker = worker_of(sim, gen, rank);

        if (worker != NULL && (worker->hung_until_us != 0 || worker->absent_until_us != 0))
            return true;
    }
    return false;
}

/* The worker is stopped, or enters no collective, so the others wait for it. */
static bool stands(const struct sim *sim, const struct sim_worker *worker, uint64_t slack_us)
{
    return worker != NULL && worker->alive &&
           (sim->now_us < worker->hung_until_us + slack_us ||
            (worker->absent_until_us != 0 && (sim->now_us < worker->absent_until_us ||
                                              sim->now_us - worker->absent_until_us < slack_us)));
}

/* The worker takes steps, or will. False if it stands still, or waits for one that does. */
static bool goes_on(const struct sim *sim, const struct sim_worker *worker)
{
    return worker != NULL && worker->alive && !stands(sim, worker, 0) && !worker->is_waiting;
}

/* Its shim has died and it has not: nobody passes on what it says. */
static bool is_orphan(const struct sim *sim, const struct oracle_gen *gen, uint32_t rank)
{
    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct oracle_part *part = &gen->parts[i];
        const struct sim_shim *shim = oracle_shim_of(sim, gen, part);

        if (rank >= part->rank_base && rank < part->rank_base + part->local_count && shim != NULL)
            return !shim->alive && shim->workers[rank - part->rank_base].alive;
    }
    return false;
}

/* The rank stands still, or did until a moment ago. A process that was killed and does not die
 * counts too. */
static bool may_be_hung(const struct sim *sim, const struct oracle_gen *gen, uint32_t rank)
{
    const struct sim_worker *worker = worker_of(sim, gen, rank);

    return stands(sim, worker, HANG_SLACK_US) || is_orphan(sim, gen, rank) ||
           (worker != NULL && worker->alive && worker->is_dying);
}

/* The server can tell which rank hangs: it is stopped, or others wait for it in a collective. */
static bool can_be_named(const struct sim *sim, const struct oracle_gen *gen)
{
    bool any_is_stopped = false, any_is_absent = false, any_waits = false;

    for (uint32_t rank = 0; rank < gen->world; rank++) {
        const struct sim_worker *worker = worker_of(sim, gen, rank);

        if (worker == NULL || !worker->alive)
            continue;
        any_is_stopped = any_is_stopped || sim->now_us < worker->hung_until_us;
        any_is_absent = any_is_absent || sim->now_us < worker->absent_until_us;
        any_waits = any_waits || worker->is_waiting;
    }
    return any_is_stopped || (any_is_absent && any_waits);
}

void oracle_check_hang(struct sim *sim, const struct oracle_gen *gen,
                       const struct rdzv_record *after)
{
    const int32_t named = after->failed_rank;
    bool any_did = false;

    for (uint32_t rank = 0; rank < gen->world; rank++)
        any_did = any_did || may_be_hung(sim, gen, rank);
    /* It may have gone since with its machine, of which the server has not heard yet (seed 22949). */
    any_did = any_did || (gen->stood_us != 0 && sim->now_us < gen->stood_us + HANG_SLACK_US);
    if (!any_did)
        sim_fail(sim, "hang", "job %llu g%u is stopped as hung, and all its processes go on",
                 (unsigned long long)gen->job_id, gen->generation);
    else if (can_be_named(sim, gen) && sim->now_us >= gen->heard_since_us + LEAST_US + LOOK_US &&
             (named < 0 || !may_be_hung(sim, gen, (uint32_t)named)))
        sim_fail(sim, "hang", "job %llu g%u hangs, and rank %d is named, which does not",
                 (unsigned long long)gen->job_id, gen->generation, named);
}

void oracle_told_progress(struct sim *sim, struct oracle_gen *gen,
                          const struct msg_progress *progress)
{
    struct oracle_told *told;

    if (progress->rank >= gen->world)
        return;
    told = &gen->told[progress->rank];
    if (told->at_us == 0 || told->server != sim->server.incarnation)
        told->first_us = sim->now_us;
    told->at_us = sim->now_us;
    told->server = sim->server.incarnation;
    gen->told_us = sim->now_us;
    if (progress->step <= gen->step)
        return;
    if (gen->step > 0 && sim->now_us - gen->step_us > gen->gap_max_us)
        gen->gap_max_us = sim->now_us - gen->step_us;
    gen->step = progress->step;
    gen->step_us = sim->now_us;
}

/* -- hangs are found in time
 * -------------------------------------------------------------------- */

bool oracle_is_heard(const struct sim *sim, const struct oracle_gen *gen,
                     const struct oracle_part *part)
{
    const struct sim_node *node = &sim->nodes[part->node];
    const struct oracle_node *told = &sim->oracle->nodes[part->node];
    const struct sim_shim *shim = oracle_shim_of(sim, gen, part);

    return node->alive && node->is_welcome && !node->cut_to_server && !node->cut_to_node &&
           sim->now_us >= node->paused_until_us && sim->now_us >= node->frozen_until_us &&
           told->conn != 0 && sim->now_us < told->heard_at_us + HEARD_US && shim != NULL &&
           shim->alive && shim->conn != 0 && sim->now_us >= shim->paused_until_us;
}

static uint64_t later(uint64_t a_us, uint64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

static void note_heard(const struct sim *sim, struct oracle_gen *gen)
{
    gen->heard_since_us =
        later(gen->heard_since_us, later(gen->running_us, sim->server.started_us));
    if (!server_is_ready(sim))
        gen->heard_since_us = sim->now_us;
    for (uint32_t i = 0; i < gen->part_count; i++) {
        const struct oracle_node *told = &sim->oracle->nodes[gen->parts[i].node];

        gen->heard_since_us = later(gen->heard_since_us, later(told->closed_us, told->hello_us));
        if (!oracle_is_heard(sim, gen, &gen->parts[i]))
            gen->heard_since_us = sim->now_us;
    }
}

/* The others do not wait for a rank that works. A rank that spins looks like one that works. */
static void note_standing(const struct sim *sim, struct oracle_gen *gen)
{
    gen->stands_since_us = later(gen->stands_since_us, later(gen->told_us, gen->heard_since_us));
    gen->still_since_us = later(gen->still_since_us, gen->heard_since_us);
    for (uint32_t rank = 0; rank < gen->world; rank++) {
        const struct sim_worker *worker = worker_of(sim, gen, rank);

        if (stands(sim, worker, 0))
            gen->stood_us = sim->now_us;
        if (goes_on(sim, worker))
            gen->still_since_us = sim->now_us;
        if (goes_on(sim, worker) || (stands(sim, worker, 0) && worker->spins))
            gen->stands_since_us = sim->now_us;
    }
}

static void fail_late(struct sim *sim, const struct oracle_gen *gen, const char *what)
{
    sim_fail(sim, "hang", "job %llu g%u hangs, and the server does not find it: %s",
             (unsigned long long)gen->job_id, gen->generation, what);
}

/* The job has reported steps, and idles: its nodes are asked every quarter of the limit. */
static void check_idle(struct sim *sim, const struct oracle_gen *gen)
{
    const uint64_t limit_us =
        later(LEAST_US, STEP_FACTOR * (gen->gap_max_us + gen->gap_max_us / 4));
    bool any_stands = false;

    for (uint32_t rank = 0; rank < gen->world; rank++)
        any_stands = any_stands || stands(sim, worker_of(sim, gen, rank), 0);
    if (any_stands && gen->step > 0 &&
        sim->now_us > gen->stands_since_us + limit_us + limit_us / 4 + 3 * LOOK_US + FINE_US)
        fail_late(sim, gen, "none of its ranks works");
}

/* A rank that repeated its reports has fallen silent, since its process is stopped. A server that
 * was started again has its last report from its shim. */
static void check_silent(struct sim *sim, const struct oracle_gen *gen, uint64_t again_us)
{
    const uint64_t limit_us = later(LEAST_US, STEP_FACTOR * again_us);

    for (uint32_t rank = 0; rank < gen->world; rank++) {
        const struct oracle_told *told = &gen->told[rank];
        const struct sim_worker *worker = worker_of(sim, gen, rank);

        if (told->at_us == 0 || !stands(sim, worker, 0) || worker->is_dying)
            continue;
        if (sim->now_us > later(later(told->at_us, worker->hung_at_us), gen->heard_since_us) +
                              limit_us + 2 * LOOK_US + FINE_US)
            fail_late(sim, gen, "a rank tells nothing any more");
    }
}

/* Since when the running server knows the step and the promise of each rank that has told it one.
 * A server that was restarted knows neither until a message comes; a stopped rank sends none. */
static uint64_t known_since_us(const struct sim *sim, const struct oracle_gen *gen)
{
    uint64_t since_us = 0;

    for (uint32_t rank = 0; rank < gen->world; rank++)
        if (gen->told[rank].at_us != 0 && gen->told[rank].server == sim->server.incarnation)
            since_us = later(since_us, gen->told[rank].first_us);
    return since_us == 0 ? sim->now_us : since_us;
}

/* All ranks repeat that they are in the same step, no matter whether they work. */
static void check_still(struct sim *sim, const struct oracle_gen *gen, uint64_t again_us)
{
    const uint64_t limit_us =
        later(LEAST_US, STEP_FACTOR * (gen->gap_max_us + gen->gap_max_us / 4));
    const uint64_t since_us =
        later(known_since_us(sim, gen), later(gen->still_since_us, gen->step_us));

    for (uint32_t rank = 0; rank < gen->world; rank++) {
        const struct sim_worker *worker = worker_of(sim, gen, rank);

        if (stands(sim, worker, 0) && sim->now_us < worker->absent_until_us && gen->step > 0 &&
            sim->now_us > since_us + again_us + limit_us + 2 * LOOK_US + FINE_US)
            fail_late(sim, gen, "a rank comes to no collective");
    }
}

static void check_gen(struct sim *sim, struct oracle_gen *gen, const struct rdzv_record *record)
{
    const uint64_t again_us = client_of(sim, gen->job_id)->again_us;

    note_heard(sim, gen);
    note_standing(sim, gen);
    if (record->state != JOB_RUNNING || record->stopping != 0 || gen->cause_count > 0 ||
        gen->has_impostor || oracle_job(sim, gen->job_id)->is_old)
        return;
    check_idle(sim, gen);
    if (again_us != 0)
        check_silent(sim, gen, again_us);
    if (again_us != 0)
        check_still(sim, gen, again_us);
}

void oracle_check_hangs(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;
        struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);

        if (gen != NULL && gen->running_us != 0 && record->part_count > 0)
            check_gen(sim, gen, record);
    }
}
