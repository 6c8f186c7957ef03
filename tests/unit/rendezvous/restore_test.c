/* A server that starts in the middle of a stop continues it, since a decision is stored before it
 * is carried out. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>

#include "tests/lib/test.h"

#define NODES 2u

static struct rdzv_record record;

static void hello(uint64_t conn, const char *name, enum shim_phase phase)
{
    struct part_beat_shim shim = {1, 1, phase, 1, false};

    step_hello(conn, (struct msg_node_hello){.name = name,
                                             .instance = conn,
                                             .slots = 1,
                                             .shims = {&shim, phase == SHIM_PREPARING ? 0 : 1}});
}

static void report(uint64_t conn, uint32_t rank, enum shim_phase phase, int32_t exit_code)
{
    step_rank_report(conn, (struct rank_report){.job_id = 1,
                                                .rank = rank,
                                                .phase = phase,
                                                .exit_code = exit_code,
                                                .cause = exit_code != 0 ? "rank failed" : ""});
}

/* Job 1 runs with a rank on each node. */
static void begin(uint32_t max_restarts, uint64_t time_limit_us)
{
    begin_with(4, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a", SHIM_PREPARING);
    hello(2, "b", SHIM_PREPARING);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = NODES,
                                             .nproc_per_node = 1,
                                             .max_restarts = max_restarts,
                                             .grace_us = 10 * SECOND_US,
                                             .time_limit_us = time_limit_us}),
             1);
    report(1, 0, SHIM_READY, 0);
    report(2, 1, SHIM_READY, 0);
    report(1, 0, SHIM_RUNNING, 0);
    report(2, 1, SHIM_RUNNING, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RUNNING);
}

/* A new server, with what was stored in the last step. */
static void restart(void)
{
    CHECK(count_of(RDZV_PERSIST) > 0);
    record = keep_record(1);
    begin_with(4, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
}

TEST(an_exit_code_survives)
{
    begin(0, 0);
    report(1, 0, SHIM_ENDED, 7); /* b is to be stopped */
    restart();
    hello(3, "a", SHIM_ENDED);
    report(3, 0, SHIM_ENDED, 7);
    hello(4, "b", SHIM_RUNNING);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->signal, SIGTERM);
    report(4, 1, SHIM_ENDED, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_FAILED);
    CHECK_EQ(rdzv_job_record(core, 1)->exit_code, 7);
    CHECK_EQ(rdzv_job_record(core, 1)->failed_rank, 0);
}

/* Lets a minute pass, and a little more, in which only node a sends beats. */
static void pass_a_minute(void)
{
    const struct part_beat_shim shim = {1, 1, SHIM_ENDED, 1, false};

    for (uint32_t i = 0; i < 65; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step_beat(3, &shim, 1);
    }
}

/* The rank on a failed because it lost its peer. */
TEST(a_node_that_does_not_come_back_was_gone_when_a_rank_failed)
{
    begin(3, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 2});
    report(1, 0, SHIM_ENDED, 1);
    CHECK_EQ(rdzv_job_record(core, 1)->failed_class, FAILURE_PROGRAM);
    restart();
    hello(3, "a", SHIM_ENDED);
    report(3, 0, SHIM_ENDED, 1);
    pass_a_minute();
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RESTARTING);
    CHECK_EQ(rdzv_job_record(core, 1)->failed_class, FAILURE_NETWORK);
}

TEST(one_that_came_back_and_was_lost_later_was_not)
{
    begin(3, 0);
    report(1, 0, SHIM_ENDED, 1);
    restart();
    hello(3, "a", SHIM_ENDED);
    report(3, 0, SHIM_ENDED, 1);
    hello(4, "b", SHIM_RUNNING);
    pass_a_minute();
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RESTARTING);
    CHECK_EQ(rdzv_job_record(core, 1)->failed_class, FAILURE_PROGRAM);
}

static void tell_step(uint64_t conn, uint32_t rank, uint64_t told)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = 1,
                                   .generation = 1,
                                   .rank = rank,
                                   .step = told,
                                   .again_us = SECOND_US,
                                   .doing = ""}};

    step_node(conn, &msg);
}

/* No other job starts, and nothing else makes the new server check the jobs. */
TEST(a_hang_is_found_after_a_restart)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};
    uint32_t looks = 0;

    begin(3, 0);
    restart();
    now_us += 2 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK}); /* no node has connected yet */
    hello(3, "a", SHIM_RUNNING);
    hello(4, "b", SHIM_RUNNING);
    report(3, 0, SHIM_RUNNING, 0);
    report(4, 1, SHIM_RUNNING, 0);
    for (int i = 0; i < 45 && looks == 0; i++) {
        now_us += SECOND_US;
        for (uint32_t rank = 0; rank < NODES; rank++) {
            step_beat(3 + rank, &shim, 1);
            looks += count_of(RDZV_LOOK);
            tell_step(3 + rank, rank, 10);
            looks += count_of(RDZV_LOOK);
        }
    }
    CHECK_EQ(looks, 1);
}

TEST(a_time_limit_that_was_reached_ends_the_job)
{
    begin(3, 10 * SECOND_US);
    now_us += 11 * SECOND_US;
    wall_ms += 11 * 1000;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(count_of(RDZV_SEND_STOP), 2);
    restart();
    hello(3, "a", SHIM_ENDED);
    report(3, 0, SHIM_ENDED, 0);
    hello(4, "b", SHIM_ENDED);
    report(4, 1, SHIM_ENDED, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_FAILED);
    CHECK_EQ(rdzv_job_record(core, 1)->exit_code, 124);
}

TEST(a_cancel_keeps_its_signal_and_its_grace)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGINT, .grace_us = 3 * SECOND_US}};

    begin(3, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    restart();
    hello(3, "a", SHIM_RUNNING);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->signal, SIGINT);
    CHECK_EQ(find(RDZV_SEND_STOP)->grace_us, 3 * SECOND_US);
}

TEST(a_back_off_goes_on)
{
    begin(3, 0);
    record = keep_record(1);
    record.restarts_without_progress = 2; /* so the next try waits for 1 to 2 s */
    begin_with(4, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(3, "a", SHIM_RUNNING);
    hello(4, "b", SHIM_RUNNING);
    report(3, 0, SHIM_ENDED, 7);
    report(4, 1, SHIM_ENDED, 7);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RESTARTING);
    restart();
    step_hello(5, (struct msg_node_hello){.name = "a", .instance = 5, .slots = 1});
    step_hello(6, (struct msg_node_hello){.name = "b", .instance = 6, .slots = 1});
    now_us += SECOND_US / 2;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RESTARTING);
    now_us += 2 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_STARTING);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, 2);
}

/* The row of the job is damaged. The server must start all the same, for the sake of the other
 * jobs. */
TEST(a_stop_that_cannot_be_ends_its_job_alone)
{
    begin(3, 0);
    CHECK(count_of(RDZV_PERSIST) > 0);
    record = keep_record(1);
    record.stopping = 64;
    begin_with(4, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    CHECK(rdzv_job_record(core, 1) == NULL || rdzv_job_record(core, 1)->state == JOB_FAILED);
}

TEST_MAIN
