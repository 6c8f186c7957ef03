/* Join rounds in the server's core alone, from submit to the last world and on to the last forget: how
 * many messages go in and out, and the processor time of the steps. By hand: bench_join RANKS...
 *
 * Nodes of 32 slots, 4,096 at most. A job has 32,768 ranks at most, so more ranks are several jobs that
 * are submitted at once. Each node answers its orders in the order in which they came; nothing is lost.
 * Prints one line of JSON for each number of ranks. tests/bench/join.py makes the table and the plot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/core_drive.h"

#define SLOTS 32u
#define JOB_NODES_MAX (RANKS_PER_JOB_MAX / SLOTS)
#define BEAT_EVERY 16u /* nodes that report between two beats, as if the round took many beats */

/* What one node has on it. */
struct site {
    uint64_t job_id;
    uint32_t rank_base, revision;
    enum shim_phase phase;
    bool has_world, owes_report, is_gone;
};

struct counts {
    uint64_t in, out;
    double seconds;
};

static struct core_drive drive;
static struct site sites[NODES_MAX];
static struct counts counts;

static void fail(const char *why)
{
    (void)fprintf(stderr, "bench_join: %s\n", why);
    exit(1);
}

static void take_order(const struct rdzv_action *action)
{
    struct site *site = &sites[action->conn - 1];
    struct msg order;

    switch (action->type) {
    case RDZV_SEND_START:
        if (!rdzv_order(drive.core, action, &order))
            fail("a start without its job");
        site->job_id = action->job_id;
        site->rank_base = order.start.rank_base;
        site->phase = SHIM_READY;
        site->owes_report = true;
        break;
    case RDZV_SEND_GO:
        site->phase = SHIM_RUNNING;
        site->owes_report = true;
        break;
    case RDZV_SEND_WORLD:
        site->has_world = site->owes_report = true;
        break;
    case RDZV_SEND_FORGET:
        site->is_gone = true;
        break;
    default:
        break;
    }
}

/* One event, its orders, and the steps that it leaves to the timer. */
static void step(struct rdzv_event event)
{
    for (;;) {
        counts.seconds += core_drive_step(&drive, event);
        for (uint32_t i = 0; i < drive.actions.count; i++)
            if (rdzv_is_for_node(drive.actions.items[i].type)) {
                counts.out++;
                take_order(&drive.actions.items[i]);
            }
        if (drive.actions.timer_at_us > drive.now_us)
            return;
        event = (struct rdzv_event){.type = RDZV_EVENT_TICK};
    }
}

static void send(uint32_t node, const struct msg *msg)
{
    counts.in++;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = msg});
}

static void report(uint32_t node)
{
    struct part_report_rank ranks[SLOTS];
    struct site *site = &sites[node];
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    for (uint32_t i = 0; i < SLOTS; i++)
        ranks[i] = (struct part_report_rank){.rank = site->rank_base + i,
                                             .state = site->phase == SHIM_READY     ? RANK_WAITING
                                                      : site->phase == SHIM_RUNNING ? RANK_RUNNING
                                                                                    : RANK_EXITED,
                                             .pid = 1000 + i,
                                             .joined = site->phase != SHIM_READY};
    msg.shim_report = (struct msg_shim_report){.job_id = site->job_id,
                                               .generation = 1,
                                               .revision = ++site->revision,
                                               .phase = site->phase,
                                               .master_port = 40000,
                                               .has_world = site->has_world,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = ranks;
    msg.shim_report.ranks.count = SLOTS;
    site->owes_report = false;
    send(node, &msg);
}

static void beat(uint32_t node)
{
    const struct site *site = &sites[node];
    struct part_beat_shim shim = {site->job_id, 1, site->phase, (UINT64_C(1) << SLOTS) - 1, false};
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.sent_us = drive.now_us;
    msg.beat.shims.items = &shim;
    msg.beat.shims.count = site->job_id != 0 && !site->is_gone;
    send(node, &msg);
}

/* Until no node owes a report. */
static void exchange(uint32_t nodes)
{
    bool is_over = false;

    while (!is_over) {
        is_over = true;
        for (uint32_t node = 0; node < nodes; node++) {
            if (!sites[node].owes_report)
                continue;
            is_over = false;
            report(node);
            drive.now_us += 10;
            if (node % BEAT_EVERY == 0)
                beat(node / BEAT_EVERY);
        }
    }
}

static void print(const char *name)
{
    (void)printf(", \"%s_in\": %llu, \"%s_out\": %llu, \"%s_ms\": %.2f", name,
                 (unsigned long long)counts.in, name, (unsigned long long)counts.out, name,
                 counts.seconds * 1e3);
    counts = (struct counts){0};
}

static void run(uint32_t ranks)
{
    uint32_t nodes = ranks / SLOTS, jobs = (nodes + JOB_NODES_MAX - 1) / JOB_NODES_MAX;

    if (nodes == 0 || nodes > NODES_MAX || !core_drive_init(&drive, NODES_MAX, 64))
        fail("RANKS is 32 to 131072");
    memset(sites, 0, sizeof sites);
    for (uint32_t node = 0; node < nodes; node++)
        (void)core_drive_hello(&drive, node, SLOTS);
    counts = (struct counts){0};
    for (uint32_t left = nodes, size; left > 0; left -= size) {
        size = left < JOB_NODES_MAX ? left : JOB_NODES_MAX;
        counts.seconds += core_drive_submit(&drive, size, SLOTS);
        for (uint32_t i = 0; i < drive.actions.count; i++)
            if (rdzv_is_for_node(drive.actions.items[i].type)) {
                counts.out++;
                take_order(&drive.actions.items[i]);
            }
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    }
    exchange(nodes);
    for (uint32_t node = 0; node < nodes; node++)
        if (!sites[node].has_world)
            fail("a node has no world");
    (void)printf("{\"ranks\": %u, \"nodes\": %u, \"jobs\": %u", nodes * SLOTS, nodes, jobs);
    print("join");
    for (uint32_t node = 0; node < nodes; node++) {
        sites[node].phase = SHIM_ENDED;
        sites[node].owes_report = true;
    }
    exchange(nodes);
    for (uint32_t node = 0; node < nodes; node++)
        if (!sites[node].is_gone)
            fail("a node was not told to forget");
    print("end");
    (void)printf("}\n");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run((uint32_t)strtoul(argv[i], NULL, 10));
    return argc > 1 ? 0 : 2;
}
