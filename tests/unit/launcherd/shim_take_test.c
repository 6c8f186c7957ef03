/* Workers that were warm, and whether they take their ranks. */
#include <string.h>

#include "launcherd/core/shim_take.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/shim_tools.h"

static const char *placed(uint64_t now_us, uint32_t local)
{
    return step(now_us, (struct shim_event){.type = SHIM_EVENT_SPAWNED,
                                            .local = local,
                                            .pid = 100 + local,
                                            .must_take = true});
}

static const char *taken(uint64_t now_us, uint32_t local)
{
    return step(now_us, (struct shim_event){.type = SHIM_EVENT_TAKEN, .local = local});
}

static const char *joins(uint64_t now_us, uint32_t local)
{
    struct msg msg = {.type = MSG_TYPE_WORKER_JOIN};

    msg.worker_join = (struct msg_worker_join){.rank = local, .generation = 2};
    return step(now_us,
                (struct shim_event){.type = SHIM_EVENT_WORKER_MSG, .local = local, .msg = &msg});
}

/* Two ranks, both with a process that was warm, from 6 on. */
static void two_placed(void)
{
    ready(2);
    CHECK_STR(go(4, 2), "spawn(10.0.0.1:4711)");
    CHECK_STR(placed(5, 0), "report(ready)");
    CHECK_STR(placed(6, 1), "report(running)");
    CHECK(!report(6).warm_late);
}

TEST(those_that_take_their_ranks_are_left_alone)
{
    two_placed();
    CHECK_STR(taken(7, 0), "");
    CHECK_EQ(actions.timer_at_us <= 6 + SHIM_TAKE_US, true);
    CHECK_STR(joins(8, 1), "report(running)"); /* a worker that joins has taken its rank */
    CHECK(strstr(event(6 + SHIM_TAKE_US, SHIM_EVENT_TICK), "kill") == NULL);
    CHECK(!report(7).warm_late);
    CHECK_STR(exited(8 + SHIM_TAKE_US, 0, 0, 0), "report(running)"); /* an ordinary end */
    CHECK_EQ(report(8).ranks.items[0].state, RANK_EXITED);
}

TEST(one_that_does_not_take_its_rank_is_killed_and_another_one_started)
{
    struct msg_shim_report now;

    two_placed();
    taken(7, 0);
    CHECK(strstr(event(5 + SHIM_TAKE_US, SHIM_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(6 + SHIM_TAKE_US, SHIM_EVENT_TICK), "kill-one(1)") != NULL);
    CHECK(report(6 + SHIM_TAKE_US).warm_late);
    CHECK(strstr(event(7 + SHIM_TAKE_US, SHIM_EVENT_TICK), "kill") == NULL); /* once */
    taken(8 + SHIM_TAKE_US, 1); /* too late: it is dead */
    CHECK_STR(joins(8 + SHIM_TAKE_US, 1), "");
    CHECK_STR(exited(9 + SHIM_TAKE_US, 1, 0, 9), "spawn-one(1) report(running)");
    CHECK_STR(step(9 + SHIM_TAKE_US,
                   (struct shim_event){.type = SHIM_EVENT_SPAWNED, .local = 1, .pid = 300}),
              "report(running)");
    now = report(9 + SHIM_TAKE_US);
    CHECK_EQ(now.ranks.items[1].pid, 300);
    CHECK_EQ(now.ranks.items[1].state, RANK_RUNNING);
    CHECK(!now.ranks.items[1].joined);
    CHECK_EQ(now.failed_rank, -1);
    CHECK_STR(joins(10 + SHIM_TAKE_US, 1), "report(running)");
    CHECK(strstr(event(9 + 3 * SHIM_TAKE_US, SHIM_EVENT_TICK), "kill") == NULL);
    CHECK_STR(exited(9 + 3 * SHIM_TAKE_US, 1, 3, 0), "signal(15) report(stopping)");
    CHECK_EQ(report(9).failed_rank, 1);
}

TEST(one_that_ends_before_it_has_taken_its_rank_is_no_failure)
{
    two_placed();
    taken(7, 0);
    CHECK_STR(exited(8, 1, 1, 0), "spawn-one(1) report(running)");
    CHECK(report(8).warm_late);
    CHECK_STR(step(8, (struct shim_event){.type = SHIM_EVENT_SPAWN_FAILED,
                                          .local = 1,
                                          .code = 127,
                                          .text = "no such program"}),
              "kill report(stopping)");
    CHECK_STR(report(8).cause, "rank 1: no such program");
}

TEST(one_that_does_not_die_is_a_failure_of_the_node)
{
    two_placed();
    taken(7, 0);
    CHECK(strstr(event(6 + SHIM_TAKE_US, SHIM_EVENT_TICK), "kill-one(1)") != NULL);
    CHECK(strstr(event(6 + 2 * SHIM_TAKE_US, SHIM_EVENT_TICK), "signal(15)") != NULL);
    CHECK_EQ(report(6).failed_class, FAILURE_NODE);
    CHECK_STR(report(6).cause, "the process 101 that waited for rank 1 has not taken it, and does "
                               "not die of SIGKILL");
}

TEST(a_stop_comes_first)
{
    two_placed();
    taken(7, 0);
    CHECK(strstr(stop(8, 15, 2 * SHIM_TAKE_US), "signal(15)") != NULL);
    CHECK(strstr(event(6 + SHIM_TAKE_US, SHIM_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(exited(7 + SHIM_TAKE_US, 1, 0, 15), "spawn") == NULL);
    CHECK_EQ(report(9).ranks.items[1].state, RANK_STOPPED);
}

TEST_MAIN
