/* Checks what runs on the nodes: leases, ranks, slots, how workers end. */
#include "tests/sim/oracle_facts.h"

#define KILL_SLACK_US 150000u
#define SILENT_US 3000000u /* after a stop launcherd asks a shim for 4 s, and then looks at it */
#define STUCK_US 500000u   /* launcherd kills a stuck shim this long after the lease, */
#define STOP_SLACK_US 10000000u /* and after the grace; the documented figures */
#define ALONE_US                                                                                   \
    10000000u /* a node that leaves stops its shims itself after that, with the grace */
#define DEAF_US                                                                                    \
    19000000u /* since it stopped: launcherd asks it for 30 s since it has said something */
#define UNKILLABLE_US 60000000u

static struct oracle_gen *gen_of(const struct sim *sim, const struct sim_shim *shim)
{
    return oracle_gen(sim, shim->job_id, shim->generation);
}

static uint64_t later(uint64_t a_us, uint64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

/* -- leases -- */

static void ordered_by(struct sim_shim_facts *facts, uint64_t at_us)
{
    if (facts->order_us == 0 || at_us < facts->order_us)
        facts->order_us = at_us;
}

static void extend_lease(struct sim_node *node, uint64_t sent_us)
{
    node->lease_end_us = later(node->lease_end_us, sent_us + node->lease_us);
}

void oracle_node_hears(struct sim *sim, uint32_t index, const struct msg *msg)
{
    struct sim_node *node = &sim->nodes[index];
    const uint64_t now_us = sim_node_us(sim, index);
    struct sim_shim *shim;

    if (msg->type == MSG_TYPE_NODE_WELCOME) {
        node->is_welcome = node->has_welcome = true;
        node->welcome_us = now_us;
        node->lease_us = msg->node_welcome.lease_us;
        node->leave_told_us = 0;
        node->leave_is_known = false;
        extend_lease(node, node->hello_us);
    } else if (msg->type == MSG_TYPE_BEAT_ACK) {
        if (msg->beat_ack.sent_us > now_us)
            sim_fail(sim, "lease", "node%u: a beat is acknowledged that it has not sent", index);
        extend_lease(node, msg->beat_ack.sent_us);
        if (node->leave_told_us != 0 && msg->beat_ack.sent_us >= node->leave_told_us)
            node->leave_is_known = true;
    } else if (msg->type == MSG_TYPE_START) {
        oracle_check_arrived(sim, index, &msg->start);
    } else if (msg->type == MSG_TYPE_STOP) {
        shim = node_find(sim, index, msg->stop.job_id, msg->stop.generation);
        if (shim != NULL)
            ordered_by(&shim->facts, now_us + msg->stop.grace_us);
    } else if (msg->type == MSG_TYPE_FORGET) {
        shim = node_find(sim, index, msg->forget.job_id, msg->forget.generation);
        if (shim != NULL)
            ordered_by(&shim->facts, now_us);
    }
}

/* launcherd says that a slot is free, and its GPU still has memory of the job that it had. */
static void check_freed(struct sim *sim, uint32_t index, const struct msg_beat *beat)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < beat->closed.count; i++)
        mask |= 1ull << beat->closed.items[i].slot;
    for (uint32_t i = 0; i < beat->shims.count; i++)
        mask |= beat->shims.items[i].slot_mask;
    for (uint32_t i = 0; i < sim->nodes[index].gpu_count; i++)
        if ((mask >> i & 1) == 0 && sim->now_us < sim->nodes[index].gpus[i].leaked_until_us)
            sim_fail(sim, "placed", "node%u says that slot %u is free, and its GPU is not", index,
                     i);
}

void oracle_node_sends(struct sim *sim, uint32_t index, const struct msg *msg)
{
    const struct msg_shim_report *report = &msg->shim_report;
    const struct oracle_gen *gen;
    const struct oracle_part *part;
    struct sim_shim *shim;

    if (msg->type == MSG_TYPE_BEAT)
        check_freed(sim, index, &msg->beat);
    if (msg->type == MSG_TYPE_NODE_HELLO)
        sim->nodes[index].hello_us = sim_node_us(sim, index);
    if (msg->type == MSG_TYPE_BEAT && msg->beat.leaving && sim->nodes[index].leave_told_us == 0)
        sim->nodes[index].leave_told_us = msg->beat.sent_us;
    if (msg->type != MSG_TYPE_SHIM_REPORT || report->phase != SHIM_ENDED)
        return;
    shim = node_find(sim, index, report->job_id, report->generation);
    if (shim != NULL)
        shim->facts.end_was_sent = true;
    gen = oracle_gen(sim, report->job_id, report->generation);
    part = gen == NULL ? NULL : oracle_part(gen, index);
    /* launcherd has refused the start. That is a cause if a GPU may have been busy. */
    if (shim == NULL && part != NULL &&
        (part->slot_mask & ((1ull << sim->nodes[index].gpu_count) - 1)) != 0)
        oracle_add_cause(sim, report->job_id, report->generation, -1, 0);
}

void oracle_node_stops(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    if (shim->facts.order_us != 0)
        return;
    if (!sim->nodes[node].is_leaving)
        sim_fail(sim, "leave", "node%u stops job %llu g%u, and nobody has ordered that", node,
                 (unsigned long long)shim->job_id, shim->generation);
    oracle_add_cause(sim, shim->job_id, shim->generation, -1, 0);
}

void oracle_shim_hears(struct sim *sim, uint32_t node, struct sim_shim *shim, const struct msg *msg)
{
    const uint64_t now_us = sim_node_us(sim, node);
    uint64_t stop_us = 0;

    if (msg->type == MSG_TYPE_LEASE)
        shim->facts.lease_us = later(shim->facts.lease_us, msg->lease.until_us);
    else if (msg->type == MSG_TYPE_FORGET)
        stop_us = now_us;
    else if (msg->type == MSG_TYPE_STOP)
        stop_us = now_us + (msg->stop.signal == 9 ? 0 : msg->stop.grace_us);
    if (stop_us == 0)
        return;
    shim->facts.kill_now = shim->facts.kill_now || stop_us == now_us;
    if (shim->facts.stop_us == 0 || stop_us < shim->facts.stop_us)
        shim->facts.stop_us = stop_us;
}

/* -- the life of a generation -- */

static bool is_killable(const struct sim *sim, const struct sim_worker *worker)
{
    return worker->alive && sim->now_us >= worker->unkillable_until_us;
}

void oracle_ordered(struct sim *sim, uint32_t index, const struct msg_start *start)
{
    const struct sim_node *node = &sim->nodes[index];

    if (node->leave_is_known)
        sim_fail(sim, "leave", "node%u leaves, and gets job %llu g%u", index,
                 (unsigned long long)start->job_id, start->generation);
    for (uint32_t i = 0; i < node->gpu_count; i++) {
        const struct sim_gpu *gpu = &node->gpus[i];

        if ((start->slot_mask >> i & 1) == 0)
            continue;
        if (gpu->is_faulty)
            sim_fail(sim, "placed", "node%u: a shim is ordered on slot %u, and its GPU has a fault",
                     index, i);
        if (sim->now_us < gpu->leaked_until_us || sim->now_us < gpu->zombie_until_us)
            sim_fail(sim, "placed", "node%u: a shim is ordered on slot %u, and its GPU is not free",
                     index, i);
    }
}

void oracle_denied(struct sim *sim, uint64_t job_id, uint32_t generation)
{
    oracle_add_cause(sim, job_id, generation, -1, 0);
}

void oracle_left(struct sim *sim, uint32_t index)
{
    for (uint32_t i = 0; i < SIM_SHIMS_MAX; i++) {
        const struct sim_shim *shim = &sim->nodes[index].shims[i];

        for (uint32_t w = 0; shim->used && !shim->is_orphan && w < shim->local_count; w++)
            if (is_killable(sim, &shim->workers[w]))
                sim_fail(sim, "leave", "node%u ends, and job %llu g%u runs on it", index,
                         (unsigned long long)shim->job_id, shim->generation);
    }
}

void oracle_prepared(struct sim *sim, struct sim_shim *shim, uint32_t port)
{
    struct oracle_gen *gen = gen_of(sim, shim);

    for (uint32_t i = 0; gen != NULL && i < gen->part_count; i++)
        if (gen->parts[i].rank_base == shim->rank_base)
            gen->parts[i].is_ready = true;
    if (gen != NULL && port != 0)
        gen->port = port;
    shim->is_prepared = true;
}

void oracle_goes(struct sim *sim, const struct sim_shim *shim, uint32_t port)
{
    const struct oracle_gen *gen = gen_of(sim, shim);
    uint32_t ready = 0;

    for (uint32_t i = 0; gen != NULL && i < gen->part_count; i++)
        ready += gen->parts[i].is_ready;
    if (gen == NULL)
        sim_fail(sim, "stored", "job %llu g%u runs, and is not in the store",
                 (unsigned long long)shim->job_id, shim->generation);
    else if (ready < gen->part_count || port != gen->port)
        sim_fail(sim, "go", "job %llu g%u goes with %u of %u shims ready, and port %u, not %u",
                 (unsigned long long)shim->job_id, shim->generation, ready, gen->part_count, port,
                 gen->port);
}

/* Until when the shim's workers may live: an orphan gets no more of its node's lease. */
static uint64_t lease_end_us(const struct sim_node *node, const struct sim_shim *shim)
{
    return shim->is_orphan ? shim->facts.lease_us : node->lease_end_us;
}

static bool lease_is_over(const struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    return sim_node_us(sim, node) >= shim->facts.lease_us;
}

/* Whether the shim or launcherd has run without a break since before its lease ended, and must have killed its workers by
 * the time at which the server counts on that. */
static bool is_minded(const struct sim *sim, uint32_t index, const struct sim_shim *shim)
{
    const struct sim_node *node = &sim->nodes[index];
    const uint64_t end_us = lease_end_us(node, shim);
    const bool by_shim = shim->alive && shim->facts.free_us <= end_us;
    const bool by_launcherd = node->alive && node->steady_us <= end_us && !shim->is_orphan;

    return (by_shim || by_launcherd) && sim->now_us >= node->frozen_until_us &&
           sim->faults.amount[FAULT_SLOW_KILL] == 0;
}

/* Its lease is not over, or it must have been killed by now: the server had to wait for that. */
static bool may_not_be(const struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    return is_minded(sim, node, shim) ||
           (shim->facts.free_us != UINT64_MAX &&
            sim_node_us(sim, node) + KILL_SLACK_US + sim->longest_us / 1000 * DRIFT_PM <
                lease_end_us(&sim->nodes[node], shim));
}

/* A worker of an older generation may live only on a node that was lost. Unless all ranks had joined,
 * nothing else fences it, so it may live only until the end of its lease. */
static void check_older(struct sim *sim, const struct sim_shim *shim, uint32_t node,
                        const struct sim_shim *older)
{
    const struct oracle_gen *gen = gen_of(sim, older);
    const struct oracle_part *part = gen == NULL ? NULL : oracle_part(gen, node);

    if (part == NULL)
        return;
    if (!part->was_lost)
        sim_fail(sim, "one-generation", "job %llu: g%u starts, and g%u runs on node%u",
                 (unsigned long long)shim->job_id, shim->generation, older->generation, node);
    else if (gen->joined < gen->world && is_minded(sim, node, older))
        sim_fail(sim, "one-generation",
                 "job %llu: g%u starts, and g%u runs on node%u beside it, without a fence",
                 (unsigned long long)shim->job_id, shim->generation, older->generation, node);
    else if (gen->joined < gen->world && older->facts.free_us != UINT64_MAX &&
             sim_node_us(sim, node) + KILL_SLACK_US + sim->longest_us / 1000 * DRIFT_PM <
                 lease_end_us(&sim->nodes[node], older))
        sim_fail(sim, "one-generation",
                 "job %llu: g%u starts, and g%u runs on node%u, which was lost, without a fence",
                 (unsigned long long)shim->job_id, shim->generation, older->generation, node);
}

static void check_others(struct sim *sim, uint32_t node, const struct sim_shim *shim,
                         uint32_t worker)
{
    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *other = &sim->nodes[n].shims[s];

            for (uint32_t w = 0; other->used && w < other->local_count; w++) {
                if (!is_killable(sim, &other->workers[w]) ||
                    (other->is_orphan && lease_is_over(sim, n, other)))
                    continue; /* it is killed, which may take a moment: see the rule lease */
                if (other->job_id == shim->job_id && other->generation < shim->generation)
                    check_older(sim, shim, n, other);
                if (other->job_id == shim->job_id && other->generation > shim->generation)
                    check_older(sim, other, node, shim);
                if (other->job_id != shim->job_id && may_not_be(sim, n, other))
                    oracle_check_lingering(sim, shim, n, other);
                if (n == node && (other != shim || w != worker) &&
                    shim_slot(other, w) == shim_slot(shim, worker))
                    sim_fail(sim, "one-slot",
                             "node%u: two workers on slot %u, of job %llu g%u and job %llu g%u",
                             node, shim_slot(shim, worker), (unsigned long long)shim->job_id,
                             shim->generation, (unsigned long long)other->job_id,
                             other->generation);
            }
        }
}

void oracle_spawned(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t worker)
{
    struct oracle_gen *gen = gen_of(sim, shim);
    const uint32_t rank = shim->rank_base + worker;

    if (gen == NULL || rank >= gen->world) {
        sim_fail(sim, "stored", "job %llu g%u: rank %u is spawned, and is not in the store",
                 (unsigned long long)shim->job_id, shim->generation, rank);
        return;
    }
    if (gen->node_of[rank] != 0 && sim->past.put_back_us != 0 &&
        (!sim->past.is_known || oracle_is_in_copy(sim, shim->job_id, shim->generation)))
        sim->is_void = true;
    else if (gen->node_of[rank] != 0)
        sim_fail(sim, "one-rank", "job %llu g%u: rank %u is spawned again, on node%u after node%u",
                 (unsigned long long)shim->job_id, shim->generation, rank, node,
                 gen->node_of[rank] - 1u);
    gen->node_of[rank] = (uint16_t)(node + 1);
    oracle_check_begun(sim, node, shim, gen);
    oracle_warm_spawned(sim, node, shim, worker);
    check_others(sim, node, shim, worker);
}

void oracle_joined(struct sim *sim, const struct sim_shim *shim, uint32_t worker, uint8_t blob)
{
    struct oracle_gen *gen = gen_of(sim, shim);
    const uint32_t rank = shim->rank_base + worker;

    if (gen == NULL || gen->has_joined[rank])
        return;
    gen->has_joined[rank] = true;
    gen->joined++;
    if (rank == 0)
        gen->blob = blob;
}

void oracle_world(struct sim *sim, const struct sim_shim *shim, uint8_t blob)
{
    const struct oracle_gen *gen = gen_of(sim, shim);

    if (gen != NULL && (gen->joined < gen->world || gen->blob != blob))
        sim_fail(sim, "world", "job %llu g%u: the world after %u of %u ranks, blob %u, not %u",
                 (unsigned long long)shim->job_id, shim->generation, gen->joined, gen->world, blob,
                 gen->blob);
}

void oracle_said(struct sim *sim, const struct sim_shim *shim, uint64_t checkpoint_step)
{
    struct oracle_gen *gen = gen_of(sim, shim);

    if (gen != NULL && checkpoint_step > gen->checkpoint)
        gen->checkpoint = checkpoint_step;
}

void oracle_succeeded(struct sim *sim, const struct sim_shim *shim, uint32_t worker)
{
    struct oracle_gen *gen = gen_of(sim, shim);

    (void)worker;
    if (gen != NULL)
        gen->exited_ok++;
}

/* -- how workers end -- */

static bool has_running(const struct sim_shim *shim)
{
    for (uint32_t i = 0; i < shim->local_count; i++)
        if (shim->workers[i].alive || shim->workers[i].is_coming)
            return true;
    return false;
}

/* The time by which the workers must have ended, since the shim was told to stop or one of them
 * failed. 0: never. */
static uint64_t grace_end_us(const struct sim_shim *shim)
{
    const struct sim_shim_facts *facts = &shim->facts;
    const uint64_t failed_us = facts->failed_us == 0 ? 0 : facts->failed_us + shim->grace_us;

    if (failed_us == 0 || (facts->stop_us != 0 && facts->stop_us < failed_us))
        return facts->stop_us;
    return failed_us;
}

void oracle_kills(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    const struct sim_shim_facts *facts = &shim->facts;
    const uint64_t now_us = sim_node_us(sim, node), end_us = grace_end_us(shim);

    if (lease_is_over(sim, node, shim)) {
        oracle_add_cause(sim, shim->job_id, shim->generation, -1, 0);
        return;
    }
    if (facts->kill_now || facts->spawned_late || !has_running(shim))
        return;
    if (end_us == 0 || now_us < end_us)
        sim_fail(sim, "grace", "node%u: job %llu g%u is killed %.3f s before the end of its grace",
                 node, (unsigned long long)shim->job_id, shim->generation,
                 end_us == 0 ? 0.0 : (double)(end_us - now_us) / 1e6);
    else if (!facts->was_asked && shim->grace_us > 0)
        sim_fail(sim, "grace", "node%u: job %llu g%u is killed, and had no signal before", node,
                 (unsigned long long)shim->job_id, shim->generation);
}

void oracle_ends_store(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    const struct oracle_gen *gen = gen_of(sim, shim);

    if (gen == NULL || gen->stopping != 0 || gen->cause_count > 0 ||
        lease_is_over(sim, node, shim) ||
        sim->past.put_back_us != 0) /* what is gone from the store is killed node by node */
        return;
    for (uint32_t n = 0; n < sim->node_count; n++)
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++) {
            const struct sim_shim *other = &sim->nodes[n].shims[s];

            if (other->used && other->job_id == shim->job_id &&
                other->generation == shim->generation && has_running(other))
                sim_fail(sim, "store", "job %llu g%u: its store ends while ranks run on node%u",
                         (unsigned long long)shim->job_id, shim->generation, n);
        }
}

/* It has not begun, and has not been able to answer launcherd for long enough. */
static bool is_deaf(const struct sim *sim, const struct sim_shim *shim)
{
    return shim->core.phase < SHIM_RUNNING &&
           (shim->conn == 0 || sim->now_us < shim->paused_until_us + SECOND_US) &&
           sim->now_us >= shim->facts.deaf_at_us + DEAF_US;
}

/* It is to stop, the grace is over or no rank is left, and it has not been able to answer launcherd. */
static bool is_silent(const struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    return shim->facts.order_us != 0 &&
           (sim_node_us(sim, node) >= shim->facts.order_us || !shim_has_workers(shim)) &&
           (shim->conn == 0 || sim->now_us < shim->paused_until_us + SECOND_US) &&
           sim->now_us >= shim->facts.deaf_at_us + SILENT_US;
}

/* It has ended, and has not been able to say so. */
static bool owes_end(const struct sim *sim, const struct sim_shim *shim)
{
    const uint64_t deaf_us = shim->facts.order_us != 0 ? SILENT_US : DEAF_US;

    return shim->core.phase == SHIM_ENDED && !shim_has_workers(shim) &&
           (shim->conn == 0 || sim->now_us < shim->paused_until_us + SECOND_US) &&
           sim->now_us >= shim->facts.deaf_at_us + deaf_us;
}

void oracle_kills_shim(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    const struct sim_shim_facts *facts = &shim->facts;
    const uint64_t now_us = sim_node_us(sim, node);
    const bool has_overstayed = facts->order_us != 0 && now_us >= facts->order_us + STOP_SLACK_US;
    const bool is_late = now_us >= facts->lease_us + STUCK_US;
    /* If the node itself has stopped it, which a shim that stands still does not hear. */
    const bool was_alone =
        sim->nodes[node].is_leaving &&
        now_us >= sim->nodes[node].leave_at_us + ALONE_US + shim->grace_us + STOP_SLACK_US;

    if (!has_overstayed && !is_late && !was_alone && !is_deaf(sim, shim) &&
        !is_silent(sim, node, shim) && !owes_end(sim, shim))
        sim_fail(sim, "grace", "node%u: launcherd kills the shim of job %llu g%u for no reason",
                 node, (unsigned long long)shim->job_id, shim->generation);
}

void oracle_ended(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    if (lease_is_over(sim, node, shim))
        oracle_add_cause(sim, shim->job_id, shim->generation, -1, 0);
    if (shim->store_runs)
        sim_fail(sim, "store", "node%u: job %llu g%u has ended, and its store is left", node,
                 (unsigned long long)shim->job_id, shim->generation);
    if (shim_has_workers(shim))
        sim_fail(sim, "orphans", "node%u: job %llu g%u has ended, and processes of it are left",
                 node, (unsigned long long)shim->job_id, shim->generation);
}

/* -- the warning before the time limit -- */

/* When the warning is due; UINT64_MAX: there must be none. */
static uint64_t warn_at_us(const struct sim *sim, const struct sim_shim *shim)
{
    const struct sim_client *client = client_of(sim, shim->job_id);

    if (client->warn_us == 0 || client->warn_us >= client->time_limit_us ||
        shim->facts.running_us == 0)
        return UINT64_MAX;
    return shim->facts.running_us + client->time_limit_us - client->warn_us;
}

void oracle_warns(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t signal)
{
    const uint64_t at_us = warn_at_us(sim, shim), now_us = sim_node_us(sim, node);

    if (at_us == UINT64_MAX || now_us < at_us || signal != SIM_WARN_SIGNAL)
        sim_fail(sim, "warn", "node%u: job %llu g%u is warned too early, or with signal %u", node,
                 (unsigned long long)shim->job_id, shim->generation, signal);
    else if (shim->facts.was_warned)
        sim_fail(sim, "warn", "node%u: job %llu g%u is warned a second time", node,
                 (unsigned long long)shim->job_id, shim->generation);
}

/* A warning that is due must have been sent while the workers run and nothing ends them. */
static void check_warned(struct sim *sim, uint32_t node, const struct sim_shim *shim)
{
    const struct sim_shim_facts *facts = &shim->facts;
    const uint64_t at_us = warn_at_us(sim, shim), now_us = sim_node_us(sim, node);

    if (!shim->alive || facts->was_warned || at_us == UINT64_MAX || facts->free_us == UINT64_MAX ||
        facts->stop_us != 0 || facts->failed_us != 0 || facts->kill_now || !has_running(shim) ||
        lease_is_over(sim, node, shim))
        return;
    if (now_us > later(at_us, facts->free_us) + KILL_SLACK_US)
        sim_fail(sim, "warn", "node%u: job %llu g%u was to be warned %.3f s ago", node,
                 (unsigned long long)shim->job_id, shim->generation,
                 (double)(now_us - at_us) / 1e6);
}

/* -- deadlines; all times are of the node's clock -- */

struct deadline {
    uint64_t at_us;
    const char *rule, *what;
};

static void earlier(struct deadline *deadline, uint64_t at_us, const char *rule, const char *what)
{
    if (at_us < deadline->at_us)
        *deadline = (struct deadline){at_us, rule, what};
}

/* The time by which every worker of the shim that can die must be dead. */
static struct deadline deadline_of(const struct sim_node *node, const struct sim_shim *shim)
{
    const struct sim_shim_facts *facts = &shim->facts;
    const uint64_t steady_us = later(node->steady_us, node->has_welcome ? node->welcome_us : 0);
    struct deadline first = {UINT64_MAX, "", ""};

    if (shim->alive && facts->free_us != UINT64_MAX) {
        earlier(&first, later(facts->free_us, lease_end_us(node, shim)), "lease",
                "outlives its lease");
        if (facts->stop_us != 0)
            earlier(&first, later(facts->free_us, facts->stop_us), "grace", "outlives its grace");
        if (facts->failed_us != 0)
            earlier(&first, later(facts->free_us, facts->failed_us + shim->grace_us), "local-peers",
                    "outlives a failure of its shim, and the grace");
    }
    if (!shim->alive && facts->killed_us != 0 && facts->free_us != UINT64_MAX)
        earlier(&first, later(facts->free_us, facts->killed_us), "lease", "outlives its shim");
    if (node->alive && node->steady_us != UINT64_MAX && !shim->is_orphan)
        earlier(&first, later(node->steady_us, node->lease_end_us + STUCK_US), "lease",
                "outlives its lease, its shim is stuck");
    if (node->alive && node->has_welcome && node->steady_us != UINT64_MAX && !shim->is_orphan) {
        if (facts->order_us != 0)
            earlier(&first, later(steady_us, facts->order_us + STOP_SLACK_US), "grace",
                    "outlives its grace, its shim is stuck");
    }
    return first;
}

static void check_shim(struct sim *sim, uint32_t index, const struct sim_shim *shim)
{
    const struct sim_node *node = &sim->nodes[index];
    const uint64_t now_us = sim_node_us(sim, index);
    const uint64_t slack_us =
        KILL_SLACK_US + (sim->faults.amount[FAULT_SLOW_KILL] > 0 ? sim->faults.slow_kill_us : 0);
    const struct deadline deadline = deadline_of(node, shim);
    bool is_stuck = false;

    for (uint32_t i = 0; i < shim->local_count; i++) {
        const struct sim_worker *worker = &shim->workers[i];

        is_stuck = is_stuck || (worker->alive && !is_killable(sim, worker));
        if (worker->alive && sim->now_us > worker->unkillable_until_us + slack_us &&
            deadline.at_us < now_us && now_us - deadline.at_us > slack_us)
            sim_fail(sim, deadline.rule, "node%u: a worker of job %llu g%u %s", index,
                     (unsigned long long)shim->job_id, shim->generation, deadline.what);
    }
    if (is_stuck && !shim->alive && node->alive && node->is_welcome &&
        node->steady_us != UINT64_MAX && !shim->facts.end_was_sent &&
        now_us > later(later(node->steady_us, node->welcome_us), shim->facts.killed_us) +
                     UNKILLABLE_US + 5 * SECOND_US)
        sim_fail(sim, "unkillable", "node%u: job %llu g%u was killed a minute ago, and holds out",
                 index, (unsigned long long)shim->job_id, shim->generation);
}

void oracle_check_nodes(struct sim *sim)
{
    for (uint32_t n = 0; n < sim->node_count; n++) {
        if (sim->now_us < sim->nodes[n].frozen_until_us)
            continue;
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++)
            if (sim->nodes[n].shims[s].used && shim_has_workers(&sim->nodes[n].shims[s]))
                check_shim(sim, n, &sim->nodes[n].shims[s]);
        for (uint32_t s = 0; s < SIM_SHIMS_MAX; s++)
            if (sim->nodes[n].shims[s].used)
                check_warned(sim, n, &sim->nodes[n].shims[s]);
    }
}
