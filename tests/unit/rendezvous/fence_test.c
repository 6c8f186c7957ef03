/* After a lost node: when the next generation may start. */
#include "tests/unit/rendezvous/core_tools.h"

#include "tests/lib/test.h"

static void hello(uint64_t conn, const char *name)
{
    step_hello(conn, (struct msg_node_hello){.name = name, .instance = conn, .slots = 1});
}

static void report(uint64_t conn, enum shim_phase phase, bool joined)
{
    step_rank_report(conn, (struct rank_report){.job_id = 1, .phase = phase, .joined = joined});
}

/* With LEASE_MARGIN_US whole seconds. */
#define LEASE_OF(seconds) ((seconds)*SECOND_US - LEASE_MARGIN_US)

static uint64_t lease_us = LEASE_OF(60);

static void submit_to_a(void)
{
    begin_leased(4, 3, lease_us);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a");
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3}),
             1);
}

/* Node a is lost after 15 s; b and c are connected, with a free slot each. */
static void lose_a(void)
{
    hello(2, "b");
    hello(3, "c");
    for (uint32_t i = 0; i < 5; i++) {
        now_us += 3 * SECOND_US;
        step_beat(2, NULL, 0);
        step_beat(3, NULL, 0);
    }
    CHECK_EQ(rdzv_node_conn(core, "a"), 0);
}

/* Job 1 runs on it. */
static void lose(bool joined)
{
    submit_to_a();
    report(1, SHIM_READY, false);
    report(1, SHIM_RUNNING, joined);
    lose_a();
}

static void check(enum job_state state, uint32_t generation)
{
    CHECK_EQ(rdzv_job_record(core, 1)->state, state);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, generation);
}

/* Checks the record of the failure that `ddpctl why` shows. */
static void check_decision(const char *text)
{
    bool is_restored;

    CHECK_STR(rdzv_failure(core, 1, &is_restored)->decision, text);
}

static void pass(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step_beat(2, NULL, 0);
        step_beat(3, NULL, 0);
    }
}

TEST(workers_of_ours_start_again_at_once)
{
    lose(true);
    check_decision("restarted at once (--max-restarts does not count it)");
    check(JOB_STARTING, 2);
}

TEST(others_wait_until_the_lease_is_over)
{
    lose(false);
    check_decision("restarted once the lost node's lease is over, as its ranks may run until then: "
                   "45 s at most");
    check(JOB_RESTARTING, 1);
    pass(44); /* 59 s after the last beat */
    check(JOB_RESTARTING, 1);
    pass(1);
    check(JOB_STARTING, 2);
}

/* Whoever ends the ranks on the lost node has until then (LEASE_LAUNCHER_US, LEASE_GUARD_US). */
TEST(and_for_the_time_that_killing_takes)
{
    lose(false);
    pass(44); /* 59 s after the last beat: the lease itself is over */
    check(JOB_RESTARTING, 1);
    now_us += SECOND_US - 1;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    check(JOB_RESTARTING, 1);
    now_us++;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    check(JOB_STARTING, 2);
}

/* Before the go no worker is spawned anywhere. */
TEST(nobody_waits_for_workers_that_never_were)
{
    submit_to_a();
    lose_a();
    check(JOB_STARTING, 2);

    submit_to_a();
    report(1, SHIM_READY, false);
    CHECK_EQ(count_of(RDZV_SEND_GO), 1);
    lose_a(); /* its report that they run may have been lost */
    check(JOB_RESTARTING, 1);
}

TEST(or_until_the_node_is_back_without_them)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false},
                                ended = {1, 1, SHIM_ENDED, 1, false};

    lose(false);
    pass(5);
    hello(4, "a");
    check(JOB_STARTING, 2); /* the node has restarted: nothing of the job runs there */

    lose(false);
    pass(5);
    step_hello(
        4, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .shims = {&shim, 1}});
    check(JOB_RESTARTING, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    step_beat(4, &shim, 1);
    check(JOB_RESTARTING, 1);
    step_beat(4, &ended, 1);
    check(JOB_STARTING, 2);
}

/* Its shim was stopped, and does not end: with the node's new lease its ranks may run on. */
TEST(a_node_that_is_back_with_them_has_a_new_lease)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};

    lose(false);
    pass(40);
    step_hello(
        4, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .shims = {&shim, 1}});
    for (uint32_t i = 0; i < 30; i++) {
        pass(1);
        step_beat(4, &shim, 1);
        check(JOB_RESTARTING, 1);
    }
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 4});
    pass(59);
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);
}

/* A new server, at the same time of the wall clock. */
static void restart(void)
{
    struct rdzv_record record = *rdzv_job_record(core, 1);
    const int64_t at_ms = wall_ms;

    begin_leased(4, 3, lease_us);
    wall_ms = at_ms;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(2, "b");
    hello(3, "c");
}

TEST(the_wait_survives_the_server)
{
    lose(false);
    restart();
    pass(44);
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);
}

TEST(the_wait_for_a_long_lease_survives_the_server_too)
{
    lease_us = LEASE_OF(300);
    lose(false);
    pass(10);
    restart();
    pass(61);
    check(JOB_RESTARTING, 1);
    restart();
    pass(213); /* 299 s after the last beat */
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);

    lose(false);
    wall_ms -= 86400000; /* the clock is set back: a lease is still the longest wait */
    restart();
    pass(299);
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);

    lose(false);
    pass(10);
    hello(4, "a"); /* without the job */
    check(JOB_STARTING, 2);
    lease_us = LEASE_OF(60);
}

/* No back-off is that long after the first failure of a node. */
TEST(a_clock_that_was_set_back_does_not_lengthen_the_wait)
{
    lease_us = LEASE_OF(20);
    lose(false);
    check(JOB_RESTARTING, 1);
    wall_ms -= 2 * 86400000;
    restart();
    pass(19);
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);
    lease_us = LEASE_OF(60);
}

/* Job 1 runs on node a, which a new server with a lease of 10 s never hears. */
static void restart_shorter(const struct rdzv_record *record, const struct rdzv_hold *hold)
{
    begin_leased_after(4, 3, LEASE_OF(10), LEASE_OF(60));
    if (hold != NULL)
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(2, "b");
    hello(3, "c");
}

TEST(a_lease_given_before_is_waited_for_by_a_server_with_a_shorter_one)
{
    struct rdzv_record record;

    submit_to_a();
    report(1, SHIM_READY, false);
    report(1, SHIM_RUNNING, false);
    record = keep_record(1);
    restart_shorter(&record, NULL);
    pass(59);
    check(JOB_RUNNING, 1);
    pass(2);
    check(JOB_STARTING, 2);
}

TEST(a_node_that_was_heard_again_has_the_shorter_lease_then)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};
    struct rdzv_record record;

    submit_to_a();
    report(1, SHIM_READY, false);
    report(1, SHIM_RUNNING, false);
    record = keep_record(1);
    restart_shorter(&record, NULL);
    step_hello(
        4, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .shims = {&shim, 1}});
    step_beat(4, &shim, 1);
    pass(20); /* lost after 15 s */
    check(JOB_RESTARTING, 1);
    pass(39);
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);
}

/* The stored end of the wait is over by a clock that was set forward, or by that of another machine. */
TEST(a_clock_that_is_ahead_does_not_shorten_the_wait)
{
    struct rdzv_record record;
    struct rdzv_hold hold;
    int64_t at_ms;

    lose(false);
    check(JOB_RESTARTING, 1);
    rdzv_hold(core, "a", &hold);
    CHECK_EQ(hold.slot_mask, 1);
    record = *rdzv_job_record(core, 1);
    at_ms = wall_ms + 3600000;
    begin_leased(4, 3, lease_us);
    wall_ms = at_ms;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(2, "b");
    hello(3, "c");
    pass(59);
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);
}

TEST(a_job_that_waits_can_be_cancelled)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.job = "1", .signal = 15, .grace_us = 0}};

    lose(false);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    hello(4, "a");
    step_beat(4, NULL, 0);
}

TEST_MAIN
