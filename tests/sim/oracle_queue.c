/* Which job starts, and where: the order of the queue, reserved slots, ranks that stay on their
 * nodes. */
#include "tests/sim/oracle_facts.h"

static bool is_waiting(const struct sim *sim, const struct rdzv_record *record)
{
    return record->state == JOB_QUEUED && record->generation == 0 && record->after_job == 0 &&
           !oracle_array_is_full(sim, record);
}

static bool is_before(const struct sim *sim, uint64_t a, uint64_t b)
{
    const int64_t place_a = oracle_job(sim, a)->place_ms, place_b = oracle_job(sim, b)->place_ms;

    return place_a != place_b ? place_a < place_b : a < b;
}

/* A job that is earlier in the queue and fits wherever a later one does starts before it. The slots
 * of a spare node are for its own job alone. */
static void check_order(struct sim *sim, const struct rdzv_record *started)
{
    for (uint32_t i = 0; started->spares == 0 && i < sim->disk.row_count; i++) {
        const struct rdzv_record *other = &sim->disk.written[i].record;

        if (is_waiting(sim, other) && is_before(sim, other->job_id, started->job_id) &&
            other->nodes_min <= started->nodes && other->nproc_per_node <= started->nproc_per_node)
            sim_fail(sim, "fifo",
                     "job %llu starts, and job %llu (%u x %u) was before it and needs no more",
                     (unsigned long long)started->job_id, (unsigned long long)other->job_id,
                     other->nodes_min, other->nproc_per_node);
    }
}

/* -- the first waiting job -- */

static uint64_t first_waiting(const struct sim *sim)
{
    uint64_t first = 0;

    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        if (is_waiting(sim, record) && (first == 0 || is_before(sim, record->job_id, first)))
            first = record->job_id;
    }
    return first;
}

/* A shim on the node is of a generation that has ended, as its node was lost: it still has its slots. */
static bool has_leftover(const struct sim *sim, const struct oracle_node *node)
{
    for (uint32_t i = 0; i < node->shim_count; i++) {
        const struct sim_row *row = disk_row(sim, node->shims[i].job_id);

        if (node->shims[i].phase != SHIM_ENDED &&
            (row == NULL || row->record.part_count == 0 ||
             row->record.generation != node->shims[i].generation))
            return true;
    }
    return false;
}

/* Slots become free only when jobs end, and stay: no GPUs, drains, restarts, silent or leaving nodes, nor leftover shims. */
bool oracle_is_calm(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim->nodes[i].gpu_count != 0 || sim->oracle->nodes[i].conn == 0 ||
            sim->nodes[i].leave_told_us != 0 || has_leftover(sim, &sim->oracle->nodes[i]) ||
            sim->now_us > sim->oracle->nodes[i].heard_at_us + 4 * SECOND_US)
            return false;
    for (uint32_t i = 0; i < sim->disk.row_count; i++)
        if (sim->disk.written[i].record.state == JOB_RESTARTING)
            return false;
    return sim->disk.drain_count == 0;
}

static void note_first(struct sim *sim, uint64_t first)
{
    struct oracle *oracle = sim->oracle;

    oracle->first_id = first;
    oracle->before_count = 0;
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        if (record->part_count == 0)
            continue;
        if (oracle->before_count == ORACLE_STARTED_MAX) {
            oracle->first_id = 0;
            return;
        }
        oracle->before_generation[oracle->before_count] = record->generation;
        oracle->before[oracle->before_count++] = record->job_id;
    }
}

/* Every generation that ran when the first waiting job became the first has ended. */
static bool before_have_ended(const struct sim *sim)
{
    const struct oracle *oracle = sim->oracle;

    for (uint32_t i = 0; i < oracle->before_count; i++) {
        const struct sim_row *row = disk_row(sim, oracle->before[i]);

        if (row->record.part_count > 0 && row->record.generation == oracle->before_generation[i])
            return false;
    }
    return true;
}

static void check_first(struct sim *sim)
{
    struct oracle *oracle = sim->oracle;
    const uint64_t first = first_waiting(sim);

    if (first == 0 || !oracle_is_calm(sim) || first != oracle->first_id) {
        note_first(sim, oracle_is_calm(sim) ? first : 0);
        return;
    }
    for (uint32_t i = 0; i < oracle->started_count; i++) {
        const struct rdzv_record *record = &disk_row(sim, oracle->started[i])->record;

        if (record->time_limit_us != 0 || record->generation > 1 || sim->has_spares ||
            is_before(sim, record->job_id, first))
            note_first(sim, first); /* it may use reserved slots, has kept its own, or goes first */
        else if (oracle->first_id == first && before_have_ended(sim))
            sim_fail(sim, "fifo", "job %llu starts, and job %llu waits for later ones",
                     (unsigned long long)record->job_id, (unsigned long long)first);
    }
}

void oracle_check_queue(struct sim *sim)
{
    if (sim->past.put_back_us != 0)
        sim->oracle->started_count = 0; /* jobs of before the copy wait, and hold up nobody */
    for (uint32_t i = 0; i < sim->oracle->started_count; i++) {
        const struct rdzv_record *record = &disk_row(sim, sim->oracle->started[i])->record;

        check_order(sim, record);
        oracle_check_ranks(sim, record);
    }
    check_first(sim);
    sim->oracle->started_count = 0;
}

/* -- ranks -- */

/* The job restarts, or was preempted. */
static bool is_to_go_on(const struct rdzv_record *record)
{
    return record->state == JOB_RESTARTING ||
           (record->state == JOB_QUEUED && record->generation > 0);
}

/* A job earlier in the queue waits; slots may be held or reserved for it. */
static bool is_behind_another(const struct sim *sim, uint64_t job_id)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        if ((is_waiting(sim, record) || is_to_go_on(record)) && record->job_id != job_id &&
            is_before(sim, record->job_id, job_id))
            return true;
    }
    return false;
}

/* Nodes of the last generation come first, in their previous order. */
static void check_survivors(struct sim *sim, const struct oracle_gen *last,
                            const struct oracle_gen *gen)
{
    uint32_t next = 0;
    bool any_new = false;

    for (uint32_t i = 0; i < gen->part_count; i++) {
        uint32_t at = 0;

        while (at < last->part_count && last->parts[at].node != gen->parts[i].node)
            at++;
        if (at < last->part_count && (any_new || at < next))
            sim_fail(sim, "ranks", "job %llu g%u: node%u, which stays, is behind another",
                     (unsigned long long)gen->job_id, gen->generation, gen->parts[i].node);
        any_new = any_new || at == last->part_count;
        next = at + 1;
    }
}

/* The node that could not start its part of the last generation, and ended it by that; UINT32_MAX:
 * none, or it is not certain. */
static uint32_t failed_node(const struct oracle_job *job, const struct oracle_gen *last)
{
    return job->blame == BLAME_MACHINE && last->cause_count == 1 && last->causes[0].number == 125
               ? last->causes[0].node
               : UINT32_MAX;
}

/* In the same step the server gives up the connection, as an order has not been carried out. */
static bool is_closed_now(const struct sim *sim, uint32_t conn)
{
    const struct rdzv_actions *actions = &sim->server_actions;

    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == RDZV_CLOSE_NODE && actions->items[i].conn == conn)
            return true;
    return false;
}

static bool is_usable(const struct sim *sim, uint32_t index, const struct rdzv_record *record)
{
    const struct oracle_node *node = &sim->oracle->nodes[index];
    const uint64_t free = oracle_free_mask(sim, index, record->job_id);

    return node->conn != 0 && !is_closed_now(sim, node->conn) &&
           sim->now_us <= node->heard_at_us + 4 * SECOND_US &&
           (uint32_t)__builtin_popcountll(free) >= record->nproc_per_node;
}

/* A job goes elsewhere after a failure of a node, if it can. Not to a node that was late with the same start, `late`: if
 * the job needs one of the two, either is right (seed 7868 of --starts). late: NULL if there was none. */
static void check_elsewhere(struct sim *sim, const struct oracle_gen *gen, uint32_t failed,
                            const struct rdzv_record *record, const struct oracle_gen *late)
{
    uint32_t others = 0;

    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct oracle_part *part = late == NULL ? NULL : oracle_part(late, i);

        others += i != failed && (part == NULL || !part->was_late) && is_usable(sim, i, record);
    }
    if (others >= gen->part_count && oracle_part(gen, failed) != NULL)
        sim_fail(sim, "elsewhere", "job %llu g%u: node%u, which has just failed it, has it again",
                 (unsigned long long)gen->job_id, gen->generation, failed);
}

/* A node that was late with a start is not used for ten minutes, if the job can run without it. */
static void check_late(struct sim *sim, const struct oracle_job *job,
                       const struct rdzv_record *record)
{
    if (job->late_starts > 1 || sim->has_spares ||
        job->failures[BLAME_MACHINE] + job->failures[BLAME_UNSURE] + job->crashes > 2 ||
        job->closed_server != sim->server.incarnation || is_behind_another(sim, record->job_id))
        return;
    for (const struct oracle_gen *gen = job->newest->older; gen != NULL; gen = gen->older)
        if (gen->late_node != 0 && gen->late_us > sim->server.started_us &&
            sim->now_us < gen->late_us + 590 * SECOND_US &&
            job->newest->part_count == gen->part_count)
            check_elsewhere(sim, job->newest, gen->late_node - 1, record, gen);
}

void oracle_check_ranks(struct sim *sim, const struct rdzv_record *record)
{
    const struct oracle_job *job = oracle_job(sim, record->job_id);
    const struct oracle_gen *gen = job->newest, *last = gen->older;
    uint32_t failed;

    check_late(sim, job, record);
    /* Two failures of a node exclude it; a crash counts as one, a late start as two. The store does not say which slots
     * are held as spares. */
    if (last == NULL || job->late_starts > 0 || sim->has_spares ||
        job->failures[BLAME_MACHINE] + job->failures[BLAME_UNSURE] + job->crashes >= 2 ||
        job->closed_server != sim->server.incarnation || is_behind_another(sim, record->job_id))
        return;
    failed = failed_node(job, last);
    if (failed != UINT32_MAX)
        check_elsewhere(sim, gen, failed, record, NULL);
    if (last->part_count != gen->part_count) {
        check_survivors(sim, last, gen);
        return;
    }
    for (uint32_t i = 0; i < last->part_count && i < gen->part_count; i++) {
        const uint32_t index = last->parts[i].node;

        if (gen->parts[i].node == index || !is_usable(sim, index, record) ||
            (job->blame != BLAME_PROGRAM && job->blame != BLAME_NOBODY))
            continue; /* a node that may have failed the job is left out */
        sim_fail(sim, "ranks", "job %llu g%u: ranks from %u on move from node%u to node%u",
                 (unsigned long long)record->job_id, record->generation, gen->parts[i].rank_base,
                 index, gen->parts[i].node);
    }
}
