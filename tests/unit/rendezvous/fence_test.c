/* After a lost node: when the next generation may start. */
#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>

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

/* A new server, whose store has the record, and what is held on node a. */
static void restore(const struct rdzv_record *record, int64_t at_ms)
{
    struct rdzv_hold hold;

    rdzv_hold(core, "a", &hold);
    begin_leased(4, 3, lease_us);
    wall_ms = at_ms;
    if (hold.slot_mask != 0)
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(2, "b");
    hello(3, "c");
}

/* The same, at the same time of the wall clock. */
static void restart(void)
{
    const struct rdzv_record record = *rdzv_job_record(core, 1);

    restore(&record, wall_ms);
}

static void check_whole_lease(void)
{
    pass(lease_us / SECOND_US); /* a second less than with LEASE_MARGIN_US */
    check(JOB_RESTARTING, 1);
    pass(2);
    check(JOB_STARTING, 2);
}

TEST(a_server_that_starts_waits_for_a_whole_lease)
{
    lose(false);
    restart();
    check_whole_lease();

    lease_us = LEASE_OF(300);
    lose(false);
    pass(10);
    restart();
    pass(61);
    check(JOB_RESTARTING, 1);
    restart();
    check_whole_lease();

    lose(false);
    wall_ms -= 86400000; /* the clock is set back: a lease is still the longest wait */
    restart();
    check_whole_lease();

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

/* The stored end of the wait is over by a clock that was set forward, or by that of another machine. A checkpoint that
 * was reported, and a stop that was planned when the node was lost, end no wait. */
TEST(a_clock_that_is_ahead_does_not_shorten_the_wait)
{
    for (int i = 0; i < 4; i++) {
        struct rdzv_record record;

        lose(false);
        check(JOB_RESTARTING, 1);
        record = *rdzv_job_record(core, 1);
        record.checkpoint_step = (i & 1) != 0 ? 3 : 0;
        record.planned = (i & 2) != 0;
        restore(&record, wall_ms + 86400000);
        check_whole_lease();
    }
}

/* Node a is back with a shim that was stopped, so nothing holds its slots any more. Then it is silent, and the server
 * starts again. */
TEST(nor_if_the_node_was_back_meanwhile)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};
    struct rdzv_record record;
    struct rdzv_hold hold;

    lose(false);
    step_hello(
        4, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .shims = {&shim, 1}});
    check(JOB_RESTARTING, 1);
    rdzv_hold(core, "a", &hold);
    CHECK_EQ(hold.slot_mask, 0);
    record = *rdzv_job_record(core, 1);
    restore(&record, wall_ms + 86400000);
    check_whole_lease();
}

/* Job 1 runs with two ranks on node a; the first has joined. */
TEST(ranks_that_have_not_all_joined_have_no_fence)
{
    struct part_report_rank ranks[] = {{.rank = 0, .state = RANK_RUNNING, .joined = true},
                                       {.rank = 1, .state = RANK_RUNNING}};

    for (int i = 0; i < 2; i++) {
        begin_leased(4, 3, lease_us);
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
        step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 2});
        CHECK_EQ(
            step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 2, .max_restarts = 3}),
            1);
        step_part_report(1, 1, 1, SHIM_READY, ranks, 0);
        ranks[1].joined = i == 1;
        step_part_report(1, 1, 1, SHIM_RUNNING, ranks, 2);
        lose_a();
        check(JOB_RESTARTING, 1); /* b and c are too small */
        check_decision(i == 1
                           ? "restarted at once (--max-restarts does not count it)"
                           : "restarted once the lost node's lease is over, as its ranks may run "
                             "until then: 45 s at most");
    }
}

/* Node a is lost while there is no other. A server that starts then knows from its store whether there is a lease to
 * wait for. */
static void restart_without_room(bool joined, bool is_back)
{
    struct msg drain = {.type = MSG_TYPE_NODE_DRAIN, .node_drain = {"a", 0, "x"}};
    struct rdzv_record record;

    submit_to_a();
    report(1, SHIM_READY, false);
    report(1, SHIM_RUNNING, joined);
    now_us += 16 * SECOND_US;
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_DRAIN, .client = 5, .msg = &drain, .user = "ann"});
    check(JOB_RESTARTING, 1);
    if (is_back)
        hello(4, "a");
    check(JOB_RESTARTING, 1);
    record = *rdzv_job_record(core, 1);
    restore(&record, wall_ms);
    pass(2);
    check(joined || is_back ? JOB_STARTING : JOB_RESTARTING, joined || is_back ? 2 : 1);
}

TEST(a_server_that_starts_knows_who_need_not_wait)
{
    restart_without_room(false, false);
    restart_without_room(true, false);
    restart_without_room(false, true);
}

/* Its node has no entry, so nobody can say that its rank has ended. */
TEST(a_stored_job_whose_node_is_not_known_waits)
{
    struct rdzv_record record;

    submit_to_a();
    report(1, SHIM_READY, false);
    report(1, SHIM_RUNNING, false);
    record = keep_record(1);
    begin_leased(4, 1, lease_us);
    for (uint64_t id = 1; id <= 2; id++) {
        record.job_id = id;
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
        (void)snprintf(record.parts[0].node, sizeof record.parts[0].node, "n%llu",
                       (unsigned long long)id);
    }
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    CHECK_EQ(rdzv_job_record(core, 2)->state, JOB_RESTARTING);
    CHECK_EQ(rdzv_job_record(core, 2)->retry_at_ms,
             wall_ms + (int64_t)(lease_us + LEASE_MARGIN_US) / 1000);
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
