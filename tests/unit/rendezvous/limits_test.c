/* The server's core with many jobs and nodes: 512 jobs of 32 nodes on 256 nodes, so that every slot of every node has a rank. Whatever happens to all of them at the same instant,
 * no step overflows its actions; what does not fit is done by the next steps, at the same time. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

#define JOBS 512u

#define NODES 256u

#define NODES_PER_JOB 32u
#define STEPS_MAX 2000u /* to finish the work of one instant */

static uint32_t totals[RDZV_JOB_ENDED + 1]; /* actions of each type since totals_clear() */
static uint32_t steps;
static uint64_t time_limit_us; /* of the jobs that are made; 0: none */

/* Nothing may be sent about a generation that is not yet stored. */
static uint32_t stored_generation[JOBS + 1];

static void check_actions(void)
{
    CHECK(actions.count <= RDZV_ACTIONS_MAX);
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct rdzv_action *action = &actions.items[i];

        if (action->type == RDZV_PERSIST)
            stored_generation[action->job_id] = rdzv_job_record(core, action->job_id)->generation;
    }
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct rdzv_action *action = &actions.items[i];

        totals[action->type]++;
        if (action->type == RDZV_SEND_START)
            CHECK_EQ(stored_generation[action->job_id], action->generation);
        if (action->text != NULL)
            CHECK(action->text[0] != '\0');
    }
}

static void step_counted(struct rdzv_event event)
{
    step_unchecked(event);
    check_actions();
    if (steps++ % 64 == 0)
        rdzv_check(core);
}

/* Ticks for as long as the core wants another one at this instant. */
static void finish_instant(void)
{
    steps = 0;
    while (actions.timer_at_us <= now_us && steps < STEPS_MAX)
        step_counted((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK(steps < STEPS_MAX);
}

static void totals_clear(void)
{
    memset(totals, 0, sizeof totals);
}

static void node_name(uint32_t node, char name[NODE_NAME_BYTES_MAX])
{
    (void)snprintf(name, NODE_NAME_BYTES_MAX, "node%03u", node);
}

/* Job j (from 0) has slot j / 8 of 32 neighbours. */
static void make_record(uint32_t job, enum job_state state, struct rdzv_record *record)
{
    static struct rdzv_part parts[NODES_PER_JOB];

    memset(record, 0, sizeof *record);
    record->job_id = job + 1;
    record->nodes = NODES_PER_JOB;
    record->nproc_per_node = 1;
    record->max_restarts = 3;
    record->grace_us = SECOND_US;
    record->time_limit_us = time_limit_us;
    record->state = state;
    record->generation = 1;
    record->failed_rank = -1;
    (void)snprintf(record->name, sizeof record->name, "job%u", job);
    (void)snprintf(record->user, sizeof record->user, "ann");
    (void)snprintf(record->request_id, sizeof record->request_id, "%032u", job);
    record->part_count = NODES_PER_JOB;
    record->parts = parts;
    for (uint32_t i = 0; i < NODES_PER_JOB; i++) {
        record->parts[i] =
            (struct rdzv_part){.rank_base = i, .local_count = 1, .slot_mask = 1ull << (job / 8)};
        node_name(job % 8 * NODES_PER_JOB + i, record->parts[i].node);
    }
}

/* What this node lists: one shim of each job that has a part on it. */
static uint32_t list_shims(uint32_t node, struct part_beat_shim shims[SHIMS_PER_NODE_MAX])
{
    uint32_t count = 0;

    for (uint32_t job = node / NODES_PER_JOB; job < JOBS; job += 8)
        shims[count++] =
            (struct part_beat_shim){job + 1, 1, SHIM_RUNNING, 1ull << (job / 8), false};
    return count;
}

static void hello(uint32_t node, bool with_shims)
{
    struct part_beat_shim shims[SHIMS_PER_NODE_MAX];
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};
    char name[NODE_NAME_BYTES_MAX];
    static uint64_t conn;

    node_name(node, name);
    msg.node_hello = (struct msg_node_hello){.version = "1",
                                             .name = name,
                                             .boot_id = "b",
                                             .instance = node + 1,
                                             .address = "127.0.0.1",
                                             .slots = SLOTS_PER_NODE_MAX};
    msg.node_hello.shims.items = shims;
    msg.node_hello.shims.count = with_shims ? list_shims(node, shims) : 0;
    step_counted((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = ++conn, .msg = &msg});
}

static void begin(void)
{
    begin_with(JOBS, NODES);
    memset(stored_generation, 0, sizeof stored_generation);
    totals_clear();
}

/* Every job runs on every node. */
static void begin_full(void)
{
    struct rdzv_record record;

    begin();
    for (uint32_t i = 0; i < JOBS; i++) {
        make_record(i, JOB_RUNNING, &record);
        step_counted((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
        stored_generation[i + 1] = 1;
    }
    step_counted((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = JOBS + 1});
    for (uint32_t i = 0; i < NODES; i++)
        hello(i, true);
    CHECK_EQ(rdzv_job_count(core), JOBS);
    for (uint32_t i = 0; i < JOBS; i++)
        CHECK_EQ(rdzv_job_record(core, i + 1)->state, JOB_RUNNING);
    totals_clear();
}

static uint32_t jobs_in(enum job_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv_job_count(core); i++)
        count += rdzv_job_record(core, rdzv_job_at(core, i))->state == state;
    return count;
}

TEST(every_node_is_silent_at_once)
{
    begin_full();
    now_us += 60 * SECOND_US + LEASE_MARGIN_US; /* all are silent: lost when their lease ends */
    step_counted((struct rdzv_event){.type = RDZV_EVENT_TICK});
    finish_instant();
    CHECK_EQ(totals[RDZV_CLOSE_NODE], NODES);
    CHECK_EQ(jobs_in(JOB_RESTARTING), JOBS);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_EQ(rdzv_job_record(core, i + 1)->part_count, 0);
        CHECK(strstr(rdzv_job_record(core, i + 1)->failed_node, "node") != NULL);
    }
}

static void report(uint32_t node, uint32_t job, uint32_t generation, enum shim_phase phase)
{
    struct part_report_rank rank = {.rank = node % NODES_PER_JOB,
                                    .state = phase == SHIM_ENDED ? RANK_STOPPED : RANK_RUNNING};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};
    char name[NODE_NAME_BYTES_MAX];

    node_name(node, name);
    msg.shim_report = (struct msg_shim_report){.job_id = job + 1,
                                               .generation = generation,
                                               .revision = 1,
                                               .phase = phase,
                                               .master_port = 4000,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step_counted((struct rdzv_event){
        .type = RDZV_EVENT_NODE_MSG, .conn = rdzv_node_conn(core, name), .msg = &msg});
}

/* Every part of every job has come to that phase. */
static void report_all(uint32_t generation, enum shim_phase phase)
{
    for (uint32_t job = 0; job < JOBS; job++)
        for (uint32_t i = 0; i < NODES_PER_JOB; i++)
            report(job % 8 * NODES_PER_JOB + i, job, generation, phase);
}

TEST(every_node_comes_back_with_shims_that_are_over)
{
    begin_full();
    now_us += 60 * SECOND_US + LEASE_MARGIN_US; /* all are silent: lost when their lease ends */
    step_counted((struct rdzv_event){.type = RDZV_EVENT_TICK});
    totals_clear(); /* in the middle of the work for lost nodes */
    for (uint32_t i = 0; i < NODES; i++)
        hello(i, true);
    finish_instant();
    CHECK(totals[RDZV_SEND_STOP] > 0);
    report_all(1, SHIM_ENDED);
    for (uint32_t i = 0; i < NODES; i++) { /* the lists without them */
        now_us += 1000;
        hello(i, false);
    }
    finish_instant();
    now_us += 2 * SECOND_US; /* a second restart waits up to a second */
    step_counted((struct rdzv_event){.type = RDZV_EVENT_TICK});
    finish_instant();
    CHECK_EQ(jobs_in(JOB_STARTING), JOBS);
}

TEST(every_time_limit_is_over_at_once)
{
    time_limit_us = 2 * SECOND_US;
    begin_full();
    time_limit_us = 0;
    now_us += 2 * SECOND_US;
    step_counted((struct rdzv_event){.type = RDZV_EVENT_TICK});
    finish_instant();
    CHECK_EQ(totals[RDZV_SEND_STOP], JOBS * NODES_PER_JOB);
    CHECK_EQ(totals[RDZV_JOB_CHANGED], JOBS);
    report_all(1, SHIM_ENDED);
    CHECK_EQ(totals[RDZV_JOB_ENDED], JOBS);
    CHECK_EQ(totals[RDZV_SEND_FORGET], JOBS * NODES_PER_JOB);
}

static void cancel(uint64_t job_id)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};

    step_counted((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = job_id, .job_id = job_id, .msg = &msg});
}

TEST(every_job_is_cancelled_at_once)
{
    begin_full();
    for (uint32_t i = 0; i < JOBS; i++)
        cancel(i + 1);
    finish_instant();
    CHECK_EQ(totals[RDZV_REPLY_CANCELLED], JOBS);
    CHECK_EQ(totals[RDZV_PERSIST], JOBS);
    CHECK_EQ(totals[RDZV_SEND_STOP], JOBS * NODES_PER_JOB);
    report_all(1, SHIM_ENDED);
    CHECK_EQ(totals[RDZV_JOB_ENDED], JOBS);
    step_counted((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_count(core), 0);
}

static void submit(uint32_t job, uint32_t nodes, uint32_t nproc)
{
    static const char *const argv[] = {"x"};
    char request_id[REQUEST_ID_CHARS + 1], name[16];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    (void)snprintf(request_id, sizeof request_id, "%032u", job);
    (void)snprintf(name, sizeof name, "job%u", job);
    msg.submit = (struct msg_submit){.request_id = request_id,
                                     .name = name,
                                     .nodes = nodes,
                                     .nproc_per_node = nproc,
                                     .grace_us = SECOND_US,
                                     .cwd = "/",
                                     .argv = {argv, 1}};
    step_counted((struct rdzv_event){
        .type = RDZV_EVENT_SUBMIT, .client = job + 1, .msg = &msg, .user = "ann"});
}

/* The first job of the queue waits for every slot of 16 nodes, which are reserved for it; when it is
 * cancelled, all those after it start in one step. */
TEST(every_job_starts_at_once)
{
    const uint32_t nodes = 2; /* of each job: pairs of nodes are filled one by one */

    begin();
    step_counted((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 16; i++)
        hello(i, false);
    submit(0, 1, 1);
    submit(1, 16, SLOTS_PER_NODE_MAX);
    for (uint32_t i = 2; i < JOBS; i++)
        submit(i, nodes, 1);
    CHECK_EQ(totals[RDZV_REPLY_SUBMITTED], JOBS);
    CHECK_EQ(jobs_in(JOB_QUEUED), JOBS - 1);
    totals_clear();
    cancel(2);
    CHECK(actions.timer_at_us == now_us); /* it did not all fit */
    finish_instant();
    CHECK_EQ(jobs_in(JOB_STARTING), JOBS - 1);
    CHECK_EQ(totals[RDZV_SEND_START], (JOBS - 2) * nodes);
}

/* The first job of the queue waits for a ninth node that is away. That node comes back with too few
 * slots for it, and with as many stray shims as it can list: the orders to stop them and the starts
 * of all other jobs do not fit into one step. */
TEST(every_job_starts_when_a_node_comes)
{
    struct part_beat_shim strays[SHIMS_PER_NODE_MAX];

    begin();
    step_counted((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 9; i++)
        hello(i, false);
    step_counted((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED,
                                     .conn = rdzv_node_conn(core, "node008")});
    submit(0, 9, SLOTS_PER_NODE_MAX);
    for (uint32_t i = 1; i < JOBS; i++)
        submit(i, 1, 1);
    CHECK_EQ(jobs_in(JOB_QUEUED), JOBS);
    for (uint32_t i = 0; i < SHIMS_PER_NODE_MAX; i++)
        strays[i] = (struct part_beat_shim){JOBS + 1 + i, 1, SHIM_RUNNING, 0, false};
    totals_clear();
    step_hello(1000000, (struct msg_node_hello){.name = "node008",
                                                .instance = 9,
                                                .slots = 1,
                                                .shims = {strays, SHIMS_PER_NODE_MAX}});
    check_actions();
    CHECK(jobs_in(JOB_QUEUED) > 1);
    finish_instant();
    CHECK_EQ(jobs_in(JOB_STARTING), JOBS - 1);
    CHECK_EQ(totals[RDZV_SEND_STOP], SHIMS_PER_NODE_MAX);
    CHECK_EQ(totals[RDZV_SEND_START], JOBS - 1);
}

TEST_MAIN
