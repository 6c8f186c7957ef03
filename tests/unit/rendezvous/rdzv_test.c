/* Scenarios of the server's core alone: placement, reasons, restarts, cancel, restore. The
 * simulation has the rest. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

#define JOBS_MAX 8u
#define NODES 4u

static void begin(void)
{
    begin_with(JOBS_MAX, NODES);
}

static void begin_empty(void)
{
    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
}

static void hello(uint64_t conn, const char *name, uint32_t slots)
{
    step_hello(conn, (struct msg_node_hello){.name = name, .instance = conn, .slots = slots});
}

static uint64_t submit(uint32_t nodes, uint32_t nproc, uint32_t max_restarts)
{
    return step_submit((struct msg_submit){.nodes = nodes,
                                           .nproc_per_node = nproc,
                                           .max_restarts = max_restarts,
                                           .grace_us = SECOND_US});
}

/* A report of all ranks of one part, alike. `failed`: the global rank that exited 9 by signal; -1:
 * none. */
static void report(uint64_t conn, uint64_t job_id, enum shim_phase phase, uint32_t rank_base,
                   uint32_t ranks, enum rank_state state, int32_t failed)
{
    struct part_report_rank list[SLOTS_PER_NODE_MAX] = {{0}};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    for (uint32_t i = 0; i < ranks; i++) {
        list[i].rank = rank_base + i;
        list[i].state = state;
        list[i].signal = (int32_t)(rank_base + i) == failed ? SIGKILL : 0;
    }
    msg.shim_report = (struct msg_shim_report){
        .job_id = job_id,
        .generation = rdzv_job_record(core, job_id)->generation,
        .revision = 1,
        .phase = phase,
        .master_port = 4000,
        .failed_rank = failed,
        .cause = failed < 0 ? "" : "rank was killed by signal 9 (SIGKILL)",
        .tail = "last words",
        .error = "",
        .failed_core = "",
    };
    msg.shim_report.ranks.items = list;
    msg.shim_report.ranks.count = ranks;
    step_node(conn, &msg);
}

static void run_on_one_node(uint64_t job_id, uint64_t conn, uint32_t ranks)
{
    report(conn, job_id, SHIM_READY, 0, ranks, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 1);
    report(conn, job_id, SHIM_RUNNING, 0, ranks, RANK_RUNNING, -1);
    CHECK_EQ(rdzv_job_record(core, job_id)->state, JOB_RUNNING);
}

TEST(a_job_runs_and_succeeds)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 2);
    CHECK_EQ(count_of(RDZV_SEND_WELCOME), 1);
    id = submit(1, 2, 0);
    CHECK_EQ(id, 1);
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
    CHECK_EQ(count_of(RDZV_PERSIST), 1); /* queued and generation 1: one transaction */
    CHECK_EQ(rdzv_job_record(core, id)->generation, 1);
    run_on_one_node(id, 1, 2);
    report(1, id, SHIM_ENDED, 0, 2, RANK_EXITED, -1);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_SUCCEEDED);
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 1);
    CHECK_EQ(count_of(RDZV_PERSIST_RANKS), 1);
    CHECK_EQ(count_of(RDZV_JOB_ENDED), 1);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK(rdzv_job_record(core, id) == NULL);
}

TEST(a_waiting_job_says_why)
{
    uint64_t first, second, third;

    begin_empty();
    first = submit(1, 4, 0); /* no node was ever there: it waits */
    CHECK_STR(rdzv_job_record(core, first)->reason, "no node is connected");
    hello(1, "node0", 2);
    CHECK_STR(rdzv_job_record(core, first)->reason,
              "wants 4 slots on one node; 0 of the 1 connected have that many at all");
    hello(2, "node1", 4);
    CHECK_EQ(rdzv_job_record(core, first)->state, JOB_STARTING);
    second = submit(1, 3, 0);
    CHECK_STR(rdzv_job_record(core, second)->reason,
              "wants 3 slots on one node; 0 have them free, the best other has 2");
    third = submit(1, 1, 0);
    CHECK_EQ(rdzv_job_record(core, third)->state, JOB_STARTING); /* node0 is of no use to job 2 */
    third = submit(1, 2, 0);
    CHECK_STR(rdzv_job_record(core, third)->reason,
              "behind job 2 (job): it waits for 3 slots on node1, reserved");
}

TEST(the_first_restart_is_immediate_and_ranks_stay)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 2);
    hello(2, "node1", 2);
    id = submit(2, 2, 3);
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "node0");
    CHECK_STR(rdzv_job_record(core, id)->parts[1].node, "node1");
    CHECK_EQ(rdzv_job_record(core, id)->parts[1].rank_base, 2);
    report(1, id, SHIM_READY, 0, 2, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 0); /* all parts, or none */
    report(2, id, SHIM_READY, 2, 2, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 2);
    report(1, id, SHIM_RUNNING, 0, 2, RANK_RUNNING, -1);
    report(2, id, SHIM_RUNNING, 2, 2, RANK_RUNNING, -1);
    report(2, id, SHIM_STOPPING, 2, 2, RANK_EXITED, 3);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 2);
    CHECK_EQ(rdzv_job_record(core, id)->failed_rank, 3);
    CHECK_STR(rdzv_job_record(core, id)->failed_node, "node1");
    CHECK_STR(rdzv_job_record(core, id)->tail, "last words");
    report(2, id, SHIM_ENDED, 2, 2, RANK_EXITED, 3);
    CHECK_EQ(count_of(RDZV_SEND_START), 0); /* node0 has not ended yet */
    report(1, id, SHIM_ENDED, 0, 2, RANK_STOPPED, -1);
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 2);
    CHECK_EQ(count_of(RDZV_SEND_START), 2);
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);
    CHECK_EQ(rdzv_job_record(core, id)->restarts, 1);
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "node0");
    CHECK_EQ(rdzv_ended_ranks(core, id)[3].signal, SIGKILL);
}

TEST(the_budget_ends_and_progress_renews_it)
{
    struct msg progress = {.type = MSG_TYPE_PROGRESS};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 1);
    run_on_one_node(id, 1, 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_job_record(core, id)->restarts_without_progress, 1);
    run_on_one_node(id, 1, 1);
    progress.progress =
        (struct msg_progress){.job_id = id, .generation = 2, .step = 9, .checkpoint_step = 8};
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &progress});
    CHECK_EQ(rdzv_job_record(core, id)->restarts_without_progress, 0);
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_job_record(core, id)->generation, 3);
    progress.progress.step = 30; /* of generation 2, late: it does not count */
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &progress});
    CHECK_EQ(rdzv_job_record(core, id)->restarts_without_progress, 1);
    run_on_one_node(id, 1, 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_FAILED);
    CHECK_EQ(rdzv_job_record(core, id)->exit_code, 128 + SIGKILL);
    CHECK_EQ(rdzv_job_record(core, id)->restarts, 2);
}

TEST(back_off_keeps_the_place_in_the_queue)
{
    uint64_t id, other;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 5);
    other = submit(1, 1, 0);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_RESTARTING);
    CHECK_EQ(rdzv_job_record(core, other)->state, JOB_QUEUED);
    CHECK(actions.timer_at_us <= now_us + 2 * SECOND_US);
    now_us += 2 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_record(core, id)->generation, 3);
    CHECK_EQ(rdzv_job_record(core, other)->state, JOB_QUEUED);
}

TEST(a_silent_node_is_lost_and_its_part_moves)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    hello(2, "node1", 1);
    id = submit(1, 1, 1);
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "node0");
    run_on_one_node(id, 1, 1);
    now_us += 14 * SECOND_US;
    step_beat(2, NULL, 0);
    CHECK_EQ(rdzv_job_record(core, id)->generation, 1);
    now_us += SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "node1");
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 1);
    hello(3, "node0", 1); /* the node comes back, and still has the old shim */
    CHECK_EQ(rdzv_node_conn(core, "node0"), 3);
    step_beat(3, &(struct part_beat_shim){id, 1, SHIM_RUNNING, 1, false}, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->generation, 1);
    CHECK_EQ(submit(1, 1, 0), 2); /* its slot is not free before that shim has ended */
    CHECK_EQ(rdzv_job_record(core, 2)->state, JOB_QUEUED);
    step_beat(3, &(struct part_beat_shim){id, 1, SHIM_ENDED, 1, false}, 1);
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 1);
    CHECK_EQ(rdzv_job_record(core, 2)->state, JOB_STARTING);
}

TEST(cancel_is_durable_and_waits_for_the_end)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    run_on_one_node(id, 1, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = id, .msg = &msg});
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    CHECK_EQ(count_of(RDZV_REPLY_CANCELLED), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->signal, SIGTERM);
    CHECK_EQ(find(RDZV_SEND_STOP)->grace_us, SECOND_US);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_RUNNING);
    report(1, id, SHIM_ENDED, 0, 1, RANK_STOPPED, -1);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_CANCELLED);
    CHECK_EQ(rdzv_job_record(core, id)->exit_code, 125);
}

TEST(a_restored_job_goes_on_untouched)
{
    struct rdzv_record record;
    struct part_beat_shim shim = {0};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    run_on_one_node(id, 1, 1);
    record = keep_record(id);
    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    now_us += 30 * SECOND_US; /* longer than a node may be silent, shorter than a lease */
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_RUNNING);
    hello(1, "node0", 1); /* the node lists no shim: it is gone without a trace */
    now_us += SECOND_US;  /* the back-off after a failure of a node */
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);

    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    shim = (struct part_beat_shim){id, 1, SHIM_RUNNING, 1, false};
    step_hello(4, (struct msg_node_hello){.name = "node0", .slots = 1, .shims = {&shim, 1}});
    CHECK_EQ(rdzv_job_record(core, id)->generation, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP) + count_of(RDZV_SEND_START) + count_of(RDZV_SEND_GO), 0);
    report(4, id, SHIM_ENDED, 0, 1, RANK_EXITED, -1);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_SUCCEEDED);
}

TEST(two_processes_with_one_name)
{
    begin_empty();
    hello(1, "node0", 1);
    hello(2, "node0", 1);
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 1);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->conn, 2);
    now_us += 6 * SECOND_US; /* the first is silent: the second may have the name */
    hello(3, "node0", 1);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->conn, 1);
    CHECK_EQ(rdzv_node_conn(core, "node0"), 3);
}

TEST(a_command_that_is_not_there_is_not_tried_again)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};
    struct part_report_rank rank = {.state = RANK_EXITED, .exit_code = 127};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    msg.shim_report = (struct msg_shim_report){.job_id = id,
                                               .generation = 1,
                                               .revision = 1,
                                               .phase = SHIM_ENDED,
                                               .failed_errno_exit = 127,
                                               .cause = "rank 0: cannot run foo",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &msg});
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_FAILED);
    CHECK_EQ(rdzv_job_record(core, id)->exit_code, 127);
    CHECK(rdzv_job_record(core, id)->exit_is_ours);
}

TEST(too_many_ranks_and_a_full_queue_are_answers)
{
    char full[REASON_BYTES_MAX];

    begin_empty();
    CHECK_EQ(submit(NODES_PER_JOB_MAX, SLOTS_PER_NODE_MAX, 0), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_BAD_INPUT);
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        CHECK(submit(1, 1, 0) != 0);
    CHECK_EQ(submit(1, 1, 0), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_TOO_BIG); /* there may be room later */
    (void)snprintf(
        full, sizeof full,
        "the queue is full: %u jobs wait or run, %u of them are of ann; submit again when "
        "some have ended",
        JOBS_MAX, JOBS_MAX);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text, full);
}

/* A job of one rank that runs on node0, as it is stored. */
static struct rdzv_record running_record(uint64_t job_id)
{
    struct rdzv_record record = {.job_id = job_id,
                                 .name = "stored",
                                 .user = "ann",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .max_restarts = 3,
                                 .state = JOB_RUNNING,
                                 .generation = 2,
                                 .restarts = 1,
                                 .failed_rank = -1,
                                 .part_count = 1};
    static struct rdzv_part parts[64][2];
    static uint32_t made;

    record.parts = parts[made++ % 64];
    record.parts[0] =
        (struct rdzv_part){.node = "node0", .local_count = 1, .slot_mask = 1ull << (job_id % 64)};
    return record;
}

static void check_refused(const struct rdzv_record *record, const char *why)
{
    char reason[REASON_BYTES_MAX];

    (void)snprintf(reason, sizeof reason, "it could not be restored: %s", why);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = record});
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    CHECK_EQ(count_of(RDZV_JOB_ENDED), 1);
    CHECK_EQ(find(RDZV_LOG_EVENT)->job_id, record->job_id);
    CHECK_STR(find(RDZV_LOG_EVENT)->text, reason);
    CHECK_EQ(rdzv_job_record(core, record->job_id)->state, JOB_FAILED);
    CHECK_EQ(rdzv_job_record(core, record->job_id)->exit_code, 125);
    CHECK_STR(rdzv_job_record(core, record->job_id)->reason, reason);
}

TEST(a_stored_job_that_is_malformed_fails_by_name)
{
    struct rdzv_record record;

    begin();
    record = running_record(1);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RUNNING);
    record = running_record(2);
    record.part_count = 0;
    check_refused(&record, "its parts do not fit its state");
    record = running_record(3);
    record.nodes = 0;
    check_refused(&record, "its size is out of range");
    record = running_record(4);
    record.parts[0].slot_mask = 3;
    check_refused(&record, "a part of it has not one slot for each rank");
    record = running_record(5);
    record.parts[0].slot_mask = 1ull << 1; /* job 1 has it */
    check_refused(&record, "its slots belong to another job");
    record = running_record(6);
    record.restarts = 7;
    check_refused(&record, "its restarts do not fit its generation");
    record = running_record(7);
    record.parts[0].rank_base = 1;
    check_refused(&record, "its ranks are not those of its size");
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 8});
    CHECK_EQ(rdzv_job_count(core), 1);
}

TEST(stored_jobs_over_the_limit_fail_by_name)
{
    struct rdzv_record record;

    begin();
    for (uint64_t id = 1; id <= JOBS_MAX; id++) {
        record = running_record(id);
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    }
    for (uint64_t id = JOBS_MAX + 1; id <= JOBS_MAX + 3; id++) {
        record = running_record(id);
        check_refused(&record, "the server's table of 8 active jobs is full");
    }
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 20});
    CHECK_EQ(rdzv_job_count(core), JOBS_MAX);
}

TEST(a_stored_job_on_more_nodes_than_there_may_be)
{
    struct rdzv_record record;

    begin();
    for (uint64_t id = 1; id <= NODES + 1; id++) {
        record = running_record(id);
        (void)snprintf(record.parts[0].node, sizeof record.parts[0].node, "node%u", (unsigned)id);
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    }
    CHECK_EQ(rdzv_job_record(core, NODES + 1)->state, JOB_RESTARTING);
    CHECK_STR(rdzv_job_record(core, NODES + 1)->reason,
              "node node5 is not in the server's table of nodes, which is full");
}

/* The go to node1 was lost with its connection, and the server restarted. Meanwhile rank 0 ended,
 * and its shim is gone, so the master port is not known any more. */
TEST(a_part_that_cannot_be_told_to_go_fails_the_generation)
{
    struct rdzv_record record = running_record(1);
    struct part_report_rank rank = {.state = RANK_EXITED};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    begin();
    record.state = JOB_STARTING;
    record.nodes = 2;
    record.part_count = 2;
    record.parts[1] =
        (struct rdzv_part){.node = "node1", .rank_base = 1, .local_count = 1, .slot_mask = 1};
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "node0", 2);
    hello(2, "node1", 2);
    report(2, 1, SHIM_READY, 1, 1, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 0);
    msg.shim_report = (struct msg_shim_report){
        .job_id = 1, .generation = 2, .revision = 1, .phase = SHIM_ENDED, .failed_rank = -1};
    msg.shim_report.cause = msg.shim_report.tail = "";
    msg.shim_report.error = msg.shim_report.failed_core = "";
    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &msg});
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_STR(rdzv_job_record(core, 1)->reason, "node0 ended its part before every node had begun");
    report(2, 1, SHIM_ENDED, 1, 1, RANK_STOPPED, -1);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, 3);
}

TEST(a_start_order_that_cannot_be_made_ends_the_job)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    hello(2, "node1", 1);
    id = submit(2, 1, 3);
    CHECK_EQ(count_of(RDZV_SEND_START), 2);
    step((struct rdzv_event){.type = RDZV_EVENT_START_FAILED,
                             .job_id = id,
                             .generation = 1,
                             .part = 0,
                             .text = "its command cannot be read"});
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1); /* the other part may be there */
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_STARTING);
    step((struct rdzv_event){.type = RDZV_EVENT_START_FAILED,
                             .job_id = id,
                             .generation = 1,
                             .part = 1,
                             .text = "its command cannot be read"});
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_FAILED); /* and is not restarted */
    CHECK_EQ(rdzv_job_record(core, id)->exit_code, 125);
    CHECK(rdzv_job_record(core, id)->exit_is_ours);
    CHECK_STR(rdzv_job_record(core, id)->reason, "its command cannot be read");
}

/* The index of the first action of a type; it must be there. */
static uint32_t index_of(enum rdzv_action_type type)
{
    const struct rdzv_action *action = find(type);

    CHECK(action != NULL);
    return (uint32_t)(action - actions.items);
}

TEST(a_slot_is_forgotten_before_its_next_start)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 0);
    (void)submit(1, 1, 0);
    run_on_one_node(id, 1, 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, -1); /* the next job starts in the same step */
    CHECK(index_of(RDZV_SEND_FORGET) < index_of(RDZV_SEND_START));
}

/* A job of one rank on each of two nodes; both run. */
static uint64_t run_on_two_nodes(void)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    hello(2, "node1", 1);
    id = submit(2, 1, 0);
    for (uint32_t i = 0; i < 2; i++)
        report(i + 1, id, SHIM_READY, i, 1, RANK_WAITING, -1);
    for (uint32_t i = 0; i < 2; i++)
        report(i + 1, id, SHIM_RUNNING, i, 1, RANK_RUNNING, -1);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_RUNNING);
    return id;
}

TEST(a_time_limit_wakes_the_server)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .time_limit_us = 1000});
    run_on_one_node(id, 1, 1);
    CHECK_EQ(actions.timer_at_us, now_us + 1000); /* before any node counts as suspect */
    now_us += 1000;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
}

TEST(progress_of_an_older_generation_changes_nothing)
{
    uint64_t id;
    struct msg msg = {.type = MSG_TYPE_PROGRESS};

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    run_on_one_node(id, 1, 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0); /* restarted in this step */
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);
    msg.progress = (struct msg_progress){.job_id = id, .generation = 1, .checkpoint_step = 5};
    step_node(1, &msg);
    CHECK_EQ(rdzv_job_record(core, id)->checkpoint_step, 0);
    CHECK_EQ(rdzv_job_record(core, id)->restarts_without_progress, 1);
    msg.progress.generation = 2;
    step_node(1, &msg);
    CHECK_EQ(rdzv_job_record(core, id)->checkpoint_step, 5);
}

TEST(a_phase_never_goes_back)
{
    uint64_t id = run_on_two_nodes();

    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, -1);
    report(1, id, SHIM_RUNNING, 0, 1, RANK_RUNNING, -1);
    report(2, id, SHIM_ENDED, 1, 1, RANK_EXITED, -1);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_SUCCEEDED);
}

TEST(a_node_can_only_blame_its_own_ranks)
{
    uint64_t id = run_on_two_nodes();

    report(1, id, SHIM_ENDED, 0, 1, RANK_STOPPED, RANKS_PER_JOB_MAX - 1);
    CHECK_EQ(rdzv_job_record(core, id)->failed_rank, -1);
    CHECK_STR(rdzv_job_record(core, id)->failed_node, "node0");
    report(2, id, SHIM_ENDED, 1, 1, RANK_STOPPED, 0);
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_FAILED);
    CHECK_EQ(rdzv_job_record(core, id)->failed_rank, -1);
}

TEST_MAIN
