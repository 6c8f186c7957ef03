/* The shim's core: the grace of survivors, and what workers leave behind. */
#include <signal.h>

#include "launcherd/core/shim_stop.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/shim_tools.h"

static const uint64_t at_us = 10 * SECOND_US;

TEST(survivors_of_a_failure_have_the_grace)
{
    running(3);
    CHECK_STR(exited(at_us, 1, 3, 0), "signal(15) report(stopping)");
    ack(at_us + 1, shim.revision);
    CHECK_EQ(actions.timer_at_us, at_us + GRACE_US / 4 * 3);
    CHECK_STR(event(at_us + GRACE_US / 4 * 3 - 1, SHIM_EVENT_TICK), "");
    CHECK_STR(event(at_us + GRACE_US / 4 * 3, SHIM_EVENT_TICK), "late(15)");
    CHECK_EQ(actions.timer_at_us, at_us + GRACE_US);
    CHECK_STR(event(at_us + GRACE_US - 1, SHIM_EVENT_TICK), "");
    CHECK_STR(exited(at_us + GRACE_US - 1, 0, 0, 15), "report(stopping)");
    ack(at_us + GRACE_US - 1, shim.revision);
    CHECK_STR(event(at_us + GRACE_US, SHIM_EVENT_TICK), "kill(told)");
}

/* When the last worker has ended, the shim ends without waiting for the grace. */
TEST(it_ends_when_the_last_has_ended)
{
    running(2);
    exited(at_us, 1, 3, 0);
    CHECK_STR(exited(at_us + 3 * SECOND_US, 0, 0, 0), "left(15) check report(stopping)");
    CHECK_STR(event(at_us + 3 * SECOND_US, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    CHECK_EQ(report(at_us).ranks.items[0].state, RANK_STOPPED);
    CHECK_EQ(report(at_us).ranks.items[1].state, RANK_EXITED);
}

/* The program of a shell that the signal has ended saves, and leaves its DataLoader's workers. */
TEST(what_is_left_gets_the_signal_as_long_as_something_is_left)
{
    running(1);
    stop(at_us, SIGINT, GRACE_US);
    CHECK_STR(exited(at_us, 0, 0, SIGINT), "left(2) check report(stopping)");
    ack(at_us, shim.revision);
    CHECK_STR(event(at_us + SHIM_LEFT_LOOK_US - 1, SHIM_EVENT_TICK), "check");
    CHECK_STR(event(at_us + SHIM_LEFT_LOOK_US, SHIM_EVENT_TICK), "left(2)");
    CHECK_STR(event(at_us + 2 * SHIM_LEFT_LOOK_US, SHIM_EVENT_TICK), "left(2) check");
    CHECK_STR(event(at_us + GRACE_US, SHIM_EVENT_TICK), "kill(told)");
    CHECK_STR(event(at_us + GRACE_US + SECOND_US, SHIM_EVENT_TICK), "");
}

/* Of a long grace the last seconds; of one that a second stop has cut the last quarter. */
TEST(when_others_get_the_signal_too)
{
    running(1);
    stop(at_us, SIGTERM, 10 * GRACE_US);
    CHECK_EQ(actions.timer_at_us, at_us + SECOND_US);
    ack(at_us, shim.revision);
    shim.lease_until_us = UINT64_MAX;
    event(at_us, SHIM_EVENT_TICK);
    CHECK_EQ(actions.timer_at_us, at_us + 10 * GRACE_US - SHIM_LATE_US);
    CHECK_STR(stop(at_us + SECOND_US, SIGTERM, 20 * GRACE_US), "");
    CHECK_EQ(actions.timer_at_us, at_us + 10 * GRACE_US - SHIM_LATE_US);
    CHECK_STR(stop(at_us + SECOND_US, SIGTERM, 4 * SECOND_US), "");
    CHECK_EQ(actions.timer_at_us, at_us + 4 * SECOND_US);
    CHECK_STR(event(at_us + 4 * SECOND_US, SHIM_EVENT_TICK), "late(15)");
    CHECK_STR(event(at_us + 5 * SECOND_US, SHIM_EVENT_TICK), "kill(told)");
}

TEST(a_second_failure_in_the_grace_is_not_the_cause)
{
    running(3);
    exited(at_us, 1, 3, 0);
    CHECK_STR(exited(at_us + SECOND_US, 0, 0, SIGSEGV), "report(stopping)");
    exited(at_us + 2 * SECOND_US, 2, 7, 0);
    event(at_us + 2 * SECOND_US, SHIM_EVENT_TREE_EMPTY);
    CHECK_STR(report(at_us).cause, "rank 1 exited with code 3");
    CHECK_EQ(report(at_us).failed_rank, 1);
    CHECK_EQ(shim.failed_at_us, at_us);
}

/* The server orders every node to stop the job, which the shim is already stopping. */
TEST(the_order_that_follows_signals_nobody_again)
{
    running(2);
    exited(at_us, 1, 3, 0);
    CHECK_STR(stop(at_us + 1000, SIGTERM, GRACE_US), "");
    CHECK_EQ(shim.kill_at_us, at_us + GRACE_US);
    CHECK_STR(stop(at_us + 2000, SIGKILL, 0), "kill");
}

TEST(without_grace_survivors_are_killed)
{
    running(2);
    shim.options.grace_us = 0;
    CHECK_STR(exited(at_us, 1, 3, 0), "kill report(stopping)");
    running(1);
    shim.options.grace_us = 0;
    CHECK_STR(exited(at_us, 0, 0, 0), "kill report(stopping)");
}

TEST(the_lease_ends_the_grace)
{
    running(2);
    CHECK_STR(exited(LEASE_US - SECOND_US, 1, 3, 0), "signal(15) report(stopping)");
    ack(LEASE_US - SECOND_US, shim.revision);
    CHECK_STR(event(LEASE_US, SHIM_EVENT_TICK), "kill hello");
    CHECK_STR(report(LEASE_US).cause, "rank 1 exited with code 3");
}

/* The job succeeds and leaves processes: they get a moment to end by themselves, SIGTERM, a short
 * grace, SIGKILL. */
TEST(what_is_left_after_success)
{
    running(2);
    exited(at_us - 5, 0, 0, 0);
    CHECK_STR(exited(at_us, 1, 0, 0), "check report(stopping)");
    ack(at_us, shim.revision);
    CHECK_STR(event(at_us + 20000, SHIM_EVENT_TICK), "check");
    CHECK_STR(event(at_us + SHIM_QUIET_US, SHIM_EVENT_TICK), "left(15, told) check");
    CHECK_STR(event(at_us + SHIM_QUIET_US + SHIM_LEFT_GRACE_US / 4 * 3, SHIM_EVENT_TICK),
              "late(15) left(15) check");
    CHECK_STR(event(at_us + SHIM_QUIET_US + SHIM_LEFT_GRACE_US - 1, SHIM_EVENT_TICK),
              "left(15) check");
    CHECK_STR(event(at_us + SHIM_QUIET_US + SHIM_LEFT_GRACE_US, SHIM_EVENT_TICK), "kill(told)");
    CHECK_STR(event(at_us + 9 * SECOND_US, SHIM_EVENT_TREE_EMPTY), "report(ended)");
    CHECK_EQ(report(at_us).failed_rank, -1);
    CHECK_EQ(report(at_us).ranks.items[0].state, RANK_EXITED);
    CHECK_EQ(report(at_us).ranks.items[1].state, RANK_EXITED);
}

TEST(a_grace_shorter_than_that_counts_for_them_too)
{
    running(1);
    shim.options.grace_us = SECOND_US;
    exited(at_us, 0, 0, 0);
    ack(at_us, shim.revision);
    event(at_us + SHIM_QUIET_US, SHIM_EVENT_TICK);
    CHECK_STR(event(at_us + SHIM_QUIET_US + SECOND_US, SHIM_EVENT_TICK), "kill(told)");
}

/* A cancel while processes are left: they get its signal, once. */
TEST(a_cancel_of_what_is_left)
{
    running(1);
    exited(at_us, 0, 0, 0);
    CHECK_STR(stop(at_us + 1000, SIGINT, GRACE_US), "");
    CHECK_STR(event(at_us + SHIM_QUIET_US, SHIM_EVENT_TICK), "left(2, told) check");
    CHECK_STR(stop(at_us + SHIM_QUIET_US + 1, SIGINT, GRACE_US), "");
    CHECK_STR(stop(at_us + SHIM_QUIET_US + 2, SIGTERM, GRACE_US), "left(15)");
    CHECK_STR(stop(at_us + SHIM_QUIET_US + 3, SIGKILL, 0), "kill");
}

static const char *raised(uint64_t now_us, uint32_t local, uint64_t age_us)
{
    return step(now_us, (struct shim_event){.type = SHIM_EVENT_RAISED,
                                            .local = local,
                                            .age_us = age_us,
                                            .text = "raised E: a"});
}

static const char *exited_late(uint64_t now_us, uint32_t local, int32_t code, uint64_t age_us)
{
    return step(
        now_us,
        (struct shim_event){
            .type = SHIM_EVENT_EXITED, .local = local, .code = code, .age_us = age_us, .text = ""});
}

/* Its peers get the grace and so does the rank itself; its own end is what counts. */
TEST(a_rank_that_has_raised_and_not_ended)
{
    running(2);
    CHECK_STR(raised(at_us, 0, SECOND_US), "signal(15) report(stopping)");
    CHECK_STR(shim.cause, "rank 0 raised E: a");
    CHECK_EQ(report(at_us).failed_age_us, SECOND_US);
    CHECK_EQ(report(at_us).ranks.items[0].state, RANK_EXITED);
    CHECK_EQ(report(at_us).ranks.items[0].exit_code, 1);
    exited(at_us + 1, 1, 4, 0);
    CHECK_EQ(report(at_us).ranks.items[1].state, RANK_STOPPED);
    CHECK_STR(event(at_us + 2, SHIM_EVENT_TREE_EMPTY), ""); /* its end is still to come */
    CHECK_STR(exited(at_us + 3, 0, 5, 0), "left(15) check report(ended)");
    CHECK_EQ(report(at_us + 3).ranks.items[0].exit_code, 5);
    CHECK_EQ(report(at_us + 3).failed_rank, 0);
    running(1);
    raised(at_us, 0, 0);
    exited(at_us + 3, 0, 0, 15); /* killed by our signal */
    CHECK_EQ(report(at_us + 3).ranks.items[0].exit_code, 1);
    CHECK_EQ(report(at_us + 3).ranks.items[0].signal, 0);
}

TEST(raised_after_the_end_or_a_stop)
{
    running(2);
    stop(at_us, 15, GRACE_US);
    CHECK_STR(raised(at_us + 1, 0, SECOND_US), "");
    CHECK_EQ(shim.failed_rank, -1);
    running(2);
    exited(at_us, 0, 0, 0);
    CHECK_STR(raised(at_us + 1, 0, SECOND_US), "");
    CHECK_EQ(shim.failed_rank, -1);
}

TEST(a_failure_before_a_stop_that_ends_after_it)
{
    running(2);
    stop(at_us, 15, GRACE_US);
    exited_late(at_us + SECOND_US, 0, 6, SECOND_US / 2); /* raised after the stop */
    CHECK_EQ(shim.failed_rank, -1);
    CHECK_EQ(shim.ranks[0].state, RANK_STOPPED);
    exited_late(at_us + SECOND_US, 1, 6, SECOND_US + 1);
    CHECK_EQ(shim.failed_rank, 1);
    CHECK_EQ(shim.ranks[1].state, RANK_EXITED);
    CHECK_EQ(report(at_us + SECOND_US).failed_age_us, SECOND_US + 1);
}

/* It had raised an exception, and the stop, which another node's rank that lost it has caused, came before it had ended. */
TEST(an_exception_before_a_stop_that_ended_the_rank)
{
    struct shim_event stopped = {.type = SHIM_EVENT_EXITED,
                                 .signal = 15,
                                 .age_us = SECOND_US / 2,
                                 .has_raised = true,
                                 .text = "raised E: a"};

    running(2);
    stop(at_us, 15, GRACE_US);
    (void)step(at_us + SECOND_US, stopped); /* in answer to the stop */
    CHECK_EQ(shim.failed_rank, -1);
    CHECK_EQ(shim.ranks[0].state, RANK_STOPPED);
    stopped.local = 1;
    stopped.age_us = SECOND_US + 1;
    (void)step(at_us + SECOND_US, stopped);
    CHECK_EQ(shim.failed_rank, 1);
    CHECK_STR(shim.cause, "rank 1 raised E: a");
    CHECK_EQ(report(at_us + SECOND_US).ranks.items[1].exit_code, 1);
    CHECK_EQ(report(at_us + SECOND_US).ranks.items[1].signal, 0);
    CHECK(!report(at_us + SECOND_US).failed_by_peer);
    running(1);
    (void)step(at_us, (struct shim_event){.type = SHIM_EVENT_EXITED,
                                          .code = 1,
                                          .by_peer = true,
                                          .text = "Connection reset by peer"});
    CHECK(report(at_us).failed_by_peer);
}

TEST_MAIN
