/* The server's core: a node whose connection ends as soon as an order arrives. It is back half a second later, again and
 * again: the server has its connection for no time at all, and the node is never silent for long enough to be lost. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/steps.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

#define NODES 3u
#define SECONDS(us) ((uint32_t)((us) / SECOND_US))

static const char *const names[] = {"n1", "n2", "n3"};
static struct part_beat_shim listed[NODES]; /* what node i lists */
static uint32_t listed_count[NODES];
static uint64_t conns[NODES], last_conn;
static uint32_t lines, closes;       /* events; connections that the server has closed */
static char cause[REASON_BYTES_MAX]; /* the newest event that names a deadline */

static void take_actions(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct rdzv_action *action = &actions.items[i];

        if (action->type == RDZV_LOG_EVENT && strstr(action->text, "although it") != NULL)
            (void)snprintf(cause, sizeof cause, "%s", action->text);
        lines += action->type == RDZV_LOG_EVENT;
        closes += action->type == RDZV_CLOSE_NODE;
    }
}

static void hello(uint32_t node)
{
    conns[node] = ++last_conn;
    step_hello(conns[node], (struct msg_node_hello){.name = names[node],
                                                    .instance = node + 1,
                                                    .slots = 1,
                                                    .shims = {&listed[node], listed_count[node]}});
    take_actions();
}

static void cut(uint32_t node)
{
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = conns[node]});
    take_actions();
}

static void begin(uint32_t nodes)
{
    memset(listed_count, 0, sizeof listed_count);
    cause[0] = '\0';
    begin_fenced(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < nodes; i++)
        hello(i);
    lines = closes = 0;
}

static void tick(uint64_t us)
{
    now_us += us;
    wall_ms += (int64_t)(us / 1000);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    take_actions();
}

static void beat(uint32_t node)
{
    step_beat(conns[node], &listed[node], listed_count[node]);
    take_actions();
}

/* Each second the nodes [first, NODES) beat. */
static void pass(uint32_t first, uint32_t nodes, uint32_t seconds)
{
    for (; seconds > 0; seconds--) {
        tick(SECOND_US);
        for (uint32_t i = first; i < nodes; i++)
            beat(i);
    }
}

/* The connection of `node` is cut again and again, and the others beat. */
static void pass_cut(uint32_t node, uint32_t nodes, uint32_t seconds)
{
    for (uint32_t i = 0; i < 2 * seconds; i++) {
        for (uint32_t k = 0; k < nodes; k++)
            if (k != node)
                beat(k);
        hello(node);
        cut(node);
        tick(SECOND_US / 2);
    }
}

static const struct rdzv_record *job(void)
{
    return rdzv_job_record(core, 1);
}

static void report(uint32_t node, uint32_t rank, enum shim_phase phase)
{
    listed[node] = (struct part_beat_shim){
        .job_id = 1, .generation = job()->generation, .phase = phase, .slot_mask = 1};
    listed_count[node] = 1;
    step_rank_report(conns[node], (struct rank_report){.job_id = 1,
                                                       .rank = rank,
                                                       .phase = phase,
                                                       .generation = job()->generation});
    take_actions();
}

static void submit(uint32_t nodes)
{
    CHECK_EQ(
        step_submit((struct msg_submit){.nodes = nodes, .nproc_per_node = 1, .max_restarts = 3}),
        1);
    take_actions();
}

static uint32_t reconnects(uint32_t node)
{
    struct part_node part;

    rdzv_node_at(core, node, now_us, &part);
    return part.reconnects;
}

TEST(a_start_order)
{
    begin(3);
    submit(1);
    CHECK_STR(job()->where, "n1");
    pass_cut(0, 3, SECONDS(STEP_TAKE_US) - 1);
    CHECK_EQ(job()->generation, 1);
    pass_cut(0, 3, 3);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n2");
    CHECK(strstr(cause, "node n1 did not take its start order within 30 s") == cause);
    CHECK(strstr(cause, "has connected again") != NULL);
    CHECK_EQ(
        closes,
        1); /* its first connection, by the second one: at the deadline there was none to close */
}

TEST(a_go)
{
    begin(3);
    submit(2);
    report(0, 0, SHIM_READY);
    report(1, 1, SHIM_READY);
    report(0, 0, SHIM_RUNNING);
    pass_cut(1, 3, SECONDS(STEP_RUN_US) - 1);
    CHECK_EQ(job()->stopping, 0);
    pass_cut(1, 3, 3);
    CHECK_EQ(job()->stopping, 1);
    CHECK_STR(job()->failed_node, "n2");
}

TEST(a_stop)
{
    struct msg cancel = {.type = MSG_TYPE_CANCEL, .cancel = {.signal = SIGTERM, .grace_us = -1}};

    begin(3);
    submit(1);
    report(0, 0, SHIM_PREPARING);
    pass(0, 3, 2);
    step((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = 1, .job_id = 1, .msg = &cancel, .user = "ann"});
    pass_cut(0, 3, SECONDS(STEP_STOP_IDLE_US) - 1);
    CHECK_EQ(job()->state, JOB_STARTING);
    pass_cut(0, 3, 3);
    CHECK(job() == NULL || job()->state == JOB_CANCELLED);
}

/* Small messages pass, and no start does: a job that may not fail once would fail there, beside a free node. */
TEST(new_jobs_go_elsewhere_while_there_is_room)
{
    begin(2);
    pass_cut(0, 2, 3);
    hello(0);
    CHECK(reconnects(0) > TROUBLE_RECONNECTS);
    submit(1);
    CHECK_STR(job()->where, "n2");
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1}), 2);
    CHECK_STR(rdzv_job_record(core, 2)->where, "n1"); /* there is no other */
}

/* The end of a connection is told twice, for the node and for its job, and that it is back as often; then only that it
 * does not hold, and at the end how often. */
TEST(it_fills_no_log)
{
    const uint32_t told = 2 * 2 + 2 * 2 + 1;

    begin(1);
    submit(1);
    report(0, 0, SHIM_READY);
    report(0, 0, SHIM_RUNNING);
    lines = 0;
    pass_cut(0, 1, 100);
    CHECK_EQ(lines, told);
    CHECK_EQ(reconnects(0), 200);
    hello(0);
    pass(0, 1, 31);
    CHECK_EQ(lines, told + 1);
    cut(0);
    hello(0);
    CHECK_EQ(lines, told + 1 + 2 * 2);
    CHECK_EQ(job()->state, JOB_RUNNING);
}

/* One that stays away is not late: it is lost, or comes back. */
TEST(a_node_that_stays_away_is_lost_as_ever)
{
    begin(3);
    submit(1);
    pass(0, 3, SECONDS(STEP_TAKE_US) - 8);
    cut(0);
    pass(1, 3, 14);
    CHECK_EQ(job()->generation, 1);
    pass(1, 3, 20);
    CHECK_STR(cause, "");
    CHECK(job()->generation > 1 || job()->state == JOB_RESTARTING);
}

TEST_MAIN
