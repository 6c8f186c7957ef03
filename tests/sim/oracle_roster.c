/* What nodes have told the server and how long they were silent, and what follows from that: where
 * ranks may be placed, and which nodes may count as lost. */
#include <string.h>

#include "tests/sim/oracle_facts.h"

#define SLACK_US 20000u

static bool has_action(const struct rdzv_actions *actions, enum rdzv_action_type type,
                       uint64_t conn)
{
    for (uint32_t i = 0; i < actions->count; i++)
        if (actions->items[i].type == type && actions->items[i].conn == conn)
            return true;
    return false;
}

static void told_list(struct oracle_node *told, const struct part_beat_shim *shims,
                      uint32_t shim_count, const struct part_slot_closed *closed, uint32_t count)
{
    told->shim_count = shim_count;
    for (uint32_t i = 0; i < shim_count; i++)
        told->shims[i] = shims[i];
    told->closed_mask = told->left_mask = 0;
    for (uint32_t i = 0; i < count; i++)
        told->closed_mask |= 1ull << closed[i].slot;
}

/* When a rank failed, from the age in the report. A report that was long in flight makes the
 * failure look later than it was, never earlier. */
static void told_failure(struct sim *sim, struct oracle_gen *gen,
                         const struct msg_shim_report *report, bool was_lost)
{
    const uint64_t age_us = report->failed_age_us;
    const uint64_t told_us = age_us < sim->now_us ? sim->now_us - age_us : 0;

    for (uint32_t i = 0; i < gen->cause_count; i++) {
        struct oracle_cause *cause = &gen->causes[i];

        if (report->failed_rank < 0 || cause->rank != report->failed_rank)
            continue;
        if (!cause->was_told || told_us < cause->told_us)
            cause->told_us = told_us;
        cause->came_late = cause->came_late || (was_lost && !cause->was_told);
        cause->was_told = true;
        if (told_us + SLACK_US + age_us / 1000 * DRIFT_PM < cause->at_us)
            sim_fail(sim, "first-cause",
                     "job %llu g%u: rank %d failed at %.3f s, and its report says %.3f s",
                     (unsigned long long)gen->job_id, gen->generation, cause->rank,
                     (double)cause->at_us / 1e6, (double)told_us / 1e6);
        return;
    }
}

/* As documented: a slot with a GPU is closed from the report of its shim's end until the node's
 * next list. */
static void told_end(struct sim *sim, uint32_t node, const struct msg_shim_report *report)
{
    struct oracle_node *told = &sim->oracle->nodes[node];
    struct oracle_gen *gen = oracle_gen(sim, report->job_id, report->generation);
    struct oracle_part *part = gen == NULL ? NULL : oracle_part(gen, node);

    if (gen != NULL)
        told_failure(sim, gen, report,
                     told->lost_us >= gen->stored_us || (part != NULL && part->was_gone));
    for (uint32_t i = 0; i < told->shim_count; i++) {
        struct part_beat_shim *shim = &told->shims[i];

        if (shim->job_id != report->job_id || shim->generation != report->generation ||
            shim->phase == SHIM_ENDED || report->phase != SHIM_ENDED)
            continue;
        shim->phase = SHIM_ENDED;
        told->closed_mask |= shim->slot_mask & ((1ull << sim->nodes[node].gpu_count) - 1);
    }
    if (part != NULL) {
        part->ready_was_told = part->ready_was_told || report->phase >= SHIM_READY;
        part->running_was_told = part->running_was_told || report->phase >= SHIM_RUNNING;
    }
    if (part == NULL || report->phase != SHIM_ENDED || part->end_was_told)
        return;
    part->end_was_told = true;
    if (gen == oracle_job(sim, gen->job_id)->newest)
        told->left_mask |= part->slot_mask & ((1ull << sim->nodes[node].gpu_count) - 1);
}

static void told_progress(struct sim *sim, uint32_t node, const struct msg_progress *progress)
{
    struct oracle_job *job = oracle_job(sim, progress->job_id);
    struct oracle_gen *gen = oracle_gen(sim, progress->job_id, progress->generation);

    if (gen == NULL || gen != job->newest || oracle_part(gen, node) == NULL)
        return;
    oracle_told_progress(sim, gen, progress);
    if (progress->checkpoint_step > gen->checkpoint)
        sim_fail(sim, "written", "job %llu g%u: a checkpoint that nobody has made",
                 (unsigned long long)gen->job_id, gen->generation);
    if (progress->checkpoint_step > job->checkpoint_heard)
        job->checkpoint_heard = progress->checkpoint_step;
}

static void heard(struct sim *sim, uint32_t index)
{
    struct oracle_node *node = &sim->oracle->nodes[index];

    (void)oracle_may_be_lost(sim, index);
    node->heard_us = oracle_ran_us(sim);
    node->heard_at_us = sim->now_us;
    node->is_expected = false;
}

/* No other process with this name was heard within the last five seconds. */
static void check_name(struct sim *sim, uint32_t index, uint32_t conn)
{
    const struct oracle_node *node = &sim->oracle->nodes[index];

    if (node->conn != 0 && sim->conns[node->conn].owner != sim->conns[conn].owner &&
        sim->now_us + SLACK_US < node->heard_at_us + NODE_SUSPECT_US)
        sim_fail(sim, "name", "node%u was heard %.3f s ago, and another process gets its name",
                 index, (double)(sim->now_us - node->heard_at_us) / 1e6);
    if (!sim->conns[conn].is_impostor)
        return;
    sim->oracle->nodes[index].was_shared = true;
    oracle_node_failed(sim, index); /* it may have waited until the lease was over */
    for (uint32_t i = 0; i < sim->oracle->job_count; i++) {
        struct oracle_gen *gen = sim->oracle->jobs[i].newest;

        if (gen != NULL && oracle_part(gen, index) != NULL)
            gen->has_impostor = true;
    }
}

bool oracle_is_listed(const struct sim *sim, const struct oracle_gen *gen,
                      const struct oracle_part *part)
{
    const struct oracle_node *told = &sim->oracle->nodes[part->node];

    for (uint32_t i = 0; i < told->shim_count; i++)
        if (told->shims[i].job_id == gen->job_id && told->shims[i].generation == gen->generation)
            return true;
    return false;
}

static uint64_t later(uint64_t a_us, uint64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

/* Another process has the name: parts of the last one are lost when its lease is over, and not
 * before. The lease of one that the last server heard counts from the start of this one. */
static void note_left(struct sim *sim, struct oracle_node *node, uint32_t conn, bool says_machine)
{
    const uint64_t started_us = sim->server.started_us;

    if (node->owner == sim->conns[conn].owner)
        return;
    if (node->owner != 0)
        node->left_us = node->heard_at_us;
    if (!says_machine)
        node->unknown_until_us = later(later(started_us, node->heard_at_us) + sim->lease_us,
                                       started_us + sim->server.lease_before_us);
    node->owner = sim->conns[conn].owner;
}

void oracle_server_hears(struct sim *sim, uint32_t conn, const struct msg *msg,
                         const struct rdzv_actions *actions)
{
    const uint32_t index = sim->conns[conn].node;
    struct oracle_node *told = &sim->oracle->nodes[index];

    if (msg->type == MSG_TYPE_NODE_HELLO && has_action(actions, RDZV_SEND_WELCOME, conn)) {
        check_name(sim, index, conn);
        note_left(sim, told, conn, msg->node_hello.machine_id[0] != '\0');
        if (msg->node_hello.machine_id[0] == '\0')
            oracle_node_failed(sim, index); /* what it does not list counts until the lease, and
                                             * then as lost: even a start that never arrived */
        oracle_is_back(sim, index);
        heard(sim, index);
        told->conn = conn;
        told->hello_us = sim->now_us;
        told->has_called = told->has_called || !sim->conns[conn].is_impostor;
        told_list(told, msg->node_hello.shims.items, msg->node_hello.shims.count,
                  msg->node_hello.closed.items, msg->node_hello.closed.count);
    } else if (msg->type == MSG_TYPE_BEAT && has_action(actions, RDZV_SEND_BEAT_ACK, conn)) {
        heard(sim, index);
        told_list(told, msg->beat.shims.items, msg->beat.shims.count, msg->beat.closed.items,
                  msg->beat.closed.count);
        if (msg->beat.leaving)
            told->closed_mask = UINT64_MAX;
    } else if (msg->type == MSG_TYPE_SHIM_REPORT &&
               has_action(actions, RDZV_SEND_REPORT_ACK, conn)) {
        told_end(sim, index, &msg->shim_report);
    } else if (msg->type == MSG_TYPE_PROGRESS && told->conn == conn) {
        told_progress(sim, index, &msg->progress);
    }
}

void oracle_conn_closed(struct sim *sim, uint32_t conn)
{
    struct oracle_node *node = &sim->oracle->nodes[sim->conns[conn].node];

    if (node->conn == conn) {
        node->conn = 0;
        node->closed_us = sim->now_us;
    }
}

/* -- which nodes may count as lost -- */

static uint64_t silence_us(const struct sim *sim, uint32_t node)
{
    return oracle_ran_us(sim) - sim->oracle->nodes[node].heard_us;
}

/* More than half of the connected nodes are silent: the server must doubt itself. */
static bool must_doubt(const struct sim *sim)
{
    uint32_t here = 0, silent = 0;

    for (uint32_t i = 0; i < sim->node_count; i++) {
        if (sim->oracle->nodes[i].conn == 0)
            continue;
        here++;
        silent += silence_us(sim, i) > NODE_SUSPECT_US + SECOND_US / 2;
    }
    return silent >= 2 && silent > here / 2;
}

/* A lease, by a clock that is a little fast. */
static uint64_t less_lease(const struct sim *sim)
{
    return sim->lease_us - sim->lease_us / 1000 * DRIFT_PM - SLACK_US;
}

/* What runs when a server begins may have been given a longer lease by the one before. */
static uint64_t expected_us(const struct sim *sim)
{
    return later(later(sim->lease_us, sim->server.lease_before_us), NODE_LOST_US);
}

bool oracle_may_be_lost(struct sim *sim, uint32_t index)
{
    struct oracle_node *node = &sim->oracle->nodes[index];
    uint64_t after_us = NODE_LOST_US;

    if (node->is_expected)
        after_us = expected_us(sim);
    else if (node->conn != 0 && must_doubt(sim))
        after_us = later(after_us, sim->lease_us);
    after_us -= after_us / 1000 * DRIFT_PM + SLACK_US;
    if (node->left_us != 0 && sim->now_us >= node->left_us + less_lease(sim)) {
        node->lost_us = later(node->lost_us, node->left_us + sim->lease_us);
        node->left_us = 0;
    }
    if (!sim->server.alive || silence_us(sim, index) < after_us)
        return false;
    node->lost_us = sim->now_us;
    return true;
}

/* A row of an older version has the cancel and not the stop that it ordered. A server that starts takes that for a stop,
 * and need not write it again: it has given up the part, and waits for the others (seed 20770). */
static bool is_cancelled(const struct sim *sim, const struct rdzv_record *record)
{
    return record->cancel_wanted && oracle_job(sim, record->job_id)->is_old;
}

/* By now the server must have given up the parts that are stored for this node. */
static void check_gone(struct sim *sim, uint32_t index)
{
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;
        const struct oracle_gen *gen = oracle_gen(sim, record->job_id, record->generation);
        const struct oracle_part *part =
            gen == NULL || record->part_count == 0 ? NULL : oracle_part(gen, index);

        if (part == NULL || is_cancelled(sim, record))
            continue;
        if (!part->end_was_told && gen->stopping == 0 && record->stopping == 0 &&
            silence_us(sim, index) > oracle_ran_us(sim) - gen->stored_us)
            continue;
        if (!part->end_was_told && gen->stopping == 0 && record->stopping == 0)
            sim_fail(sim, "lost", "node%u is silent for %.1f s, and job %llu g%u goes on with it",
                     index, (double)silence_us(sim, index) / 1e6,
                     (unsigned long long)record->job_id, record->generation);
    }
}

void oracle_check_roster(struct sim *sim)
{
    const uint64_t longest_us = expected_us(sim);

    for (uint32_t i = 0; i < sim->node_count; i++) {
        (void)oracle_may_be_lost(sim, i);
        if (server_is_ready(sim) && silence_us(sim, i) > longest_us + 5 * SECOND_US &&
            sim->now_us > sim->server.paused_until_us + 5 * SECOND_US)
            check_gone(sim, i);
    }
}

/* -- where ranks may be placed -- */

static void check_drained(struct sim *sim, const struct rdzv_part *part)
{
    for (uint32_t i = 0; i < sim->disk.drain_count; i++) {
        const struct rdzv_drain *drain = &sim->disk.drains[i];

        if (strcmp(drain->node, part->node) == 0 &&
            (drain->slot == RDZV_WHOLE_NODE || (part->slot_mask >> drain->slot & 1) != 0))
            sim_fail(sim, "placed", "ranks are placed on %s, and the store has it as drained",
                     part->node);
    }
}

/* A restarted launcherd lists shims that have ended until it has checked them; the server already
 * knows of their end. */
static bool has_ended(const struct sim *sim, uint32_t node, const struct part_beat_shim *shim)
{
    const struct oracle_gen *gen = oracle_gen(sim, shim->job_id, shim->generation);
    const struct oracle_part *part = gen == NULL ? NULL : oracle_part(gen, node);

    return shim->phase == SHIM_ENDED || (part != NULL && part->end_was_told);
}

void oracle_check_placed(struct sim *sim, const struct rdzv_record *record)
{
    for (uint32_t p = 0; p < record->part_count; p++) {
        const struct rdzv_part *part = &record->parts[p];
        const struct oracle_node *told = &sim->oracle->nodes[node_of_name(part->node)];

        check_drained(sim, part);
        if ((part->slot_mask & told->closed_mask) != 0)
            sim_fail(sim, "placed", "job %llu g%u is on slots %llx of %s, which has closed %llx",
                     (unsigned long long)record->job_id, record->generation,
                     (unsigned long long)part->slot_mask, part->node,
                     (unsigned long long)told->closed_mask);
        for (uint32_t i = 0; i < told->shim_count; i++)
            if (!has_ended(sim, node_of_name(part->node), &told->shims[i]) &&
                (told->shims[i].slot_mask & part->slot_mask) != 0)
                sim_fail(sim, "placed", "job %llu g%u is placed on %s where job %llu g%u still is",
                         (unsigned long long)record->job_id, record->generation, part->node,
                         (unsigned long long)told->shims[i].job_id, told->shims[i].generation);
    }
}

void oracle_check_start(struct sim *sim, uint32_t index, const struct msg_start *start)
{
    const struct oracle_node *told = &sim->oracle->nodes[index];

    for (uint32_t i = 0; i < told->shim_count; i++)
        if (!has_ended(sim, index, &told->shims[i]) &&
            (told->shims[i].slot_mask & start->slot_mask) != 0 &&
            (told->shims[i].job_id != start->job_id ||
             told->shims[i].generation != start->generation))
            sim_fail(sim, "placed", "job %llu g%u is started on node%u where job %llu g%u still is",
                     (unsigned long long)start->job_id, start->generation, index,
                     (unsigned long long)told->shims[i].job_id, told->shims[i].generation);
}

uint64_t oracle_free_mask(const struct sim *sim, uint32_t index, uint64_t job_id)
{
    const struct oracle_node *told = &sim->oracle->nodes[index];
    uint64_t mask = ((1ull << sim->slots) - 1) & ~(told->closed_mask | told->left_mask);

    mask &= ~sim->disk.holds[index].slot_mask; /* an earlier launcherd may still use them */

    for (uint32_t i = 0; i < told->shim_count; i++)
        if (told->shims[i].phase != SHIM_ENDED)
            mask &= ~told->shims[i].slot_mask;
    for (uint32_t i = 0; i < sim->disk.drain_count; i++)
        if (node_of_name(sim->disk.drains[i].node) == index)
            mask &= sim->disk.drains[i].slot == RDZV_WHOLE_NODE
                        ? 0
                        : ~(1ull << sim->disk.drains[i].slot);
    for (uint32_t i = 0; i < sim->disk.row_count; i++) {
        const struct rdzv_record *record = &sim->disk.written[i].record;

        for (uint32_t p = 0; record->job_id != job_id && p < record->part_count; p++)
            if (node_of_name(record->parts[p].node) == index)
                mask &= ~record->parts[p].slot_mask;
    }
    return mask;
}

/* -- drains -- */

void oracle_drained(struct sim *sim, const char *node, uint64_t slot_mask)
{
    struct oracle *oracle = sim->oracle;

    if (oracle->drain_count < ORACLE_DRAINS_MAX)
        oracle->drains[oracle->drain_count++] =
            (struct oracle_drain){.node = node_of_name(node), .slot_mask = slot_mask};
}

void oracle_resumed(struct sim *sim, const char *node)
{
    struct oracle *oracle = sim->oracle;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < oracle->drain_count; i++)
        if (oracle->drains[i].node != node_of_name(node))
            oracle->drains[kept++] = oracle->drains[i];
    oracle->drain_count = kept;
}
