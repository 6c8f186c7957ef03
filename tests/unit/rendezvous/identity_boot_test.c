/* Another boot of a node's machine, and what only looks like one: ids of machines are copied with disks and containers,
 * and a container may have a boot's id of its own. */
#include "tests/unit/rendezvous/identity_tools.h"

#define HOUR_US (3600 * SECOND_US)

static struct who up_for(uint64_t us)
{
    return (struct who){"m1", "s2", "b2", us};
}

/* Node a was last heard 10 s ago. */
TEST(a_kernel_that_ran_already_is_not_the_next_boot)
{
    run_as(first, false);
    close_a();
    pass(10);
    hello_as(3, up_for(HOUR_US), NULL, 0);
    CHECK(has_to_wait());
    check(JOB_RUNNING, 1);
    hello_as(4, up_for(10 * SECOND_US), NULL, 0);
    CHECK(has_to_wait());
    hello_as(5, up_for(10 * SECOND_US - 1), NULL, 0);
    check_gone();
}

/* Its disk was copied with the state directory, and has the machine's id; it ran before node a was cut off. */
TEST(nor_is_a_copy_of_the_disk_that_ran_already)
{
    run_as(first, false);
    close_a();
    pass(10);
    hello_as(5, (struct who){"m1", "s1", "b2", HOUR_US}, NULL, 0);
    CHECK(has_to_wait());
    check(JOB_RUNNING, 1);
    hello_as(3, (struct who){"m1", "s1", "b2", 0}, NULL, 0); /* one that does not say it */
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
    runs_until_beat(50);
}

TEST(one_that_does_not_say_how_long_it_runs_proves_nothing)
{
    run_as(first, false);
    close_a();
    pass(10);
    hello_as(3, up_for(0), NULL, 0);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
    runs_until_beat(50);
}

/* It does not know when the node was last heard. */
TEST(a_restarted_server_takes_no_boot_for_a_later_one)
{
    run_as(first, false);
    pass(10);
    restart();
    hello_as(3, up_for(1), NULL, 0);
    CHECK(is_welcome());
    check(JOB_RUNNING, 1);
    runs_until_beat(60);
}

/* The same for slots that are held. */
TEST(a_restarted_server_keeps_what_is_held)
{
    struct rdzv_hold hold;

    run_as(first, true);
    pass(16);
    check(JOB_STARTING, 2);
    rdzv_hold(core, "a", &hold);
    begin_leased(4, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello_as(3, up_for(1), NULL, 0);
    CHECK(is_welcome());
    CHECK_EQ(node_a().slots_free, 0);
    for (uint32_t i = 0; i < 60; i++) {
        CHECK_EQ(node_a().slots_free, 0);
        now_us += SECOND_US;
        step_beat(3, NULL, 0);
    }
    CHECK_EQ(node_a().slots_free, 1);
}

TEST_MAIN
