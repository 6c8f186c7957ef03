/* The shim's core: the c10d store beside the workers of node rank 0. */
#include "launcherd/core/shim_store.h"
#include "tests/lib/test.h"
#include "tests/unit/launcherd/shim_tools.h"

static const char *store(uint64_t now_us, enum shim_event_type type, int32_t code)
{
    return step(now_us,
                (struct shim_event){.type = type, .code = code, .text = "process 9 was killed"});
}

/* Two ranks and a store; as node rank 0 of `node_count`. */
static void with_store(uint32_t node_count)
{
    ready(2);
    shim.options.node_count = node_count;
    (void)go(4, 2);
    CHECK_STR(store(5, SHIM_EVENT_STORE_STARTED, 0), "");
    (void)spawned(6, 0);
    (void)spawned(7, 1);
    CHECK_EQ(shim.phase, SHIM_RUNNING);
}

TEST(a_store_ends_with_the_last_rank_of_the_only_node)
{
    with_store(1);
    (void)exited(10, 0, 0, 0);
    CHECK_STR(exited(11, 1, 0, 0), "check report(stopping)");
    CHECK_STR(event(12, SHIM_EVENT_TREE_EMPTY), "end-store");
    CHECK_EQ(shim.phase, SHIM_STOPPING);
    CHECK_STR(store(13, SHIM_EVENT_STORE_EXITED, 0), "report(ended)");
    CHECK_STR(report(13).cause, "");
}

TEST(a_store_waits_for_the_other_nodes)
{
    with_store(2);
    (void)exited(10, 0, 0, 0);
    (void)exited(11, 1, 0, 0);
    (void)event(12, SHIM_EVENT_TREE_EMPTY);
    (void)ack(13, shim.revision);
    CHECK_EQ(actions.timer_at_us, LEASE_US); /* nothing is polled meanwhile */
    CHECK_STR(event(1000, SHIM_EVENT_TICK), "");
    CHECK_STR(stop(2000, 15, 5000000), "end-store");
    CHECK_STR(stop(2001, 15, 5000000), "");
    CHECK_STR(store(2002, SHIM_EVENT_STORE_EXITED, 0), "report(ended)");
    CHECK_STR(report(2002).cause, "");
    CHECK_EQ(report(2002).failed_rank, -1);
}

TEST(a_store_ends_with_the_lease)
{
    with_store(2);
    (void)exited(10, 0, 0, 0);
    (void)exited(11, 1, 0, 0);
    (void)event(12, SHIM_EVENT_TREE_EMPTY);
    CHECK_STR(event(LEASE_US, SHIM_EVENT_TICK), "end-store report(stopping)");
    (void)store(LEASE_US + 1, SHIM_EVENT_STORE_EXITED, 0);
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK_STR(report(LEASE_US + 1).cause, "");
}

TEST(a_store_that_dies_fails_the_generation)
{
    with_store(1);
    (void)store(10, SHIM_EVENT_STORE_EXITED, 0);
    CHECK_EQ(shim.phase, SHIM_STOPPING);
    CHECK_STR(report(10).cause,
              "the c10d store of the job ended before its ranks: process 9 was killed");
    CHECK_EQ(report(10).failed_class, FAILURE_NODE);
    CHECK_EQ(report(10).failed_rank, -1);
    (void)exited(11, 0, 0, 9);
    (void)exited(12, 1, 0, 9);
    (void)event(13, SHIM_EVENT_TREE_EMPTY);
    CHECK_EQ(shim.phase, SHIM_ENDED);

    with_store(1); /* by the job's own limits */
    (void)store(10, SHIM_EVENT_STORE_EXITED, 1);
    CHECK_EQ(report(10).failed_class, FAILURE_PROGRAM);

    with_store(2); /* while it only waits for others */
    (void)exited(10, 0, 0, 0);
    (void)exited(11, 1, 0, 0);
    (void)event(12, SHIM_EVENT_TREE_EMPTY);
    (void)store(13, SHIM_EVENT_STORE_EXITED, 0);
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK(report(13).cause[0] != '\0');
}

TEST(a_store_outlives_what_is_stopped_with_grace)
{
    with_store(2);
    (void)stop(10, 15, 5000000);
    (void)exited(11, 0, 0, 15);
    (void)exited(12, 1, 0, 15);
    CHECK_STR(event(13, SHIM_EVENT_TREE_EMPTY), "end-store");
    (void)store(14, SHIM_EVENT_STORE_EXITED, 0);
    CHECK_EQ(shim.phase, SHIM_ENDED);
    CHECK_STR(report(14).cause, "");

    with_store(2); /* and its end meanwhile is no failure */
    (void)stop(10, 15, 5000000);
    (void)store(11, SHIM_EVENT_STORE_EXITED, 0);
    CHECK_STR(report(11).cause, "");
}

TEST(a_store_outlives_a_failed_rank_until_no_process_is_left)
{
    with_store(2);
    (void)exited(10, 1, 3, 0);
    CHECK_EQ(shim.failed_rank, 1);
    (void)exited(11, 0, 0, 9);
    CHECK_EQ(shim.phase, SHIM_STOPPING);
    CHECK_STR(event(12, SHIM_EVENT_TREE_EMPTY), "end-store");
    (void)store(13, SHIM_EVENT_STORE_EXITED, 0);
    CHECK_EQ(shim.phase, SHIM_ENDED);
}

static const char *unreached(uint64_t now_us)
{
    return step(now_us, (struct shim_event){.type = SHIM_EVENT_STORE_UNREACHED,
                                            .text = "nothing answers at 10.77.0.1:4000"});
}

TEST(a_store_that_is_not_reached_fails_the_part_and_no_restart_helps)
{
    running(1);
    CHECK_STR(unreached(10), "signal(15) report(stopping)");
    CHECK_STR(report(10).cause, "nothing answers at 10.77.0.1:4000");
    CHECK_EQ(report(10).failed_errno_exit, 126);
    CHECK_EQ(report(10).failed_rank, -1);
    (void)unreached(11);
    (void)exited(12, 0, 0, 15);
    CHECK_STR(report(12).cause, "nothing answers at 10.77.0.1:4000");
}

/* All of its ranks have ended: they did not need the store. */
TEST(a_store_that_is_not_reached_is_no_cause_after_the_end)
{
    running(1);
    (void)exited(10, 0, 0, 0);
    (void)unreached(11);
    CHECK_STR(report(11).cause, "");
    ready(1);
    CHECK_STR(unreached(4), "");
    CHECK_STR(report(4).cause, "");
}

TEST_MAIN
