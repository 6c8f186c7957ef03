/* The shim's core: a lease that is renewed while the shim does not run. */
#include "launcherd/core/shim.h"
#include "tests/lib/test.h"

#define SECOND_US 1000000u

static struct shim shim;
static struct shim_actions actions;

static void step(uint64_t now_us, struct shim_event event)
{
    event.now_us = now_us;
    shim_step(&shim, &event, &actions);
}

static void lease(uint64_t now_us, uint64_t until_us)
{
    const struct msg msg = {.type = MSG_TYPE_LEASE, .lease = {.until_us = until_us}};

    step(now_us, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = &msg});
}

/* The shim was stopped until its lease was over, and only now reads a renewal that came before
 * that. */
TEST(a_renewal_counts_before_the_end_of_the_lease)
{
    const struct shim_options options = {.job_id = 7,
                                         .generation = 2,
                                         .rank_base = 1,
                                         .local_count = 1,
                                         .world = 2,
                                         .lease_until_us = 60u * SECOND_US,
                                         .lease_us = 60u * SECOND_US};

    shim_init(&shim, &options);
    step(1, (struct shim_event){.type = SHIM_EVENT_START});
    CHECK_EQ(shim.phase, SHIM_READY);
    lease(61u * SECOND_US, 90u * SECOND_US);
    CHECK_EQ(shim.phase, SHIM_READY);
    CHECK_EQ(shim.lease_until_us, 90u * SECOND_US);
    lease(92u * SECOND_US, 91u * SECOND_US); /* this lease is over too */
    CHECK_EQ(shim.phase, SHIM_ENDED);
}

/* Ready at 1, and the lease is over at 60 s. */
static void begin(bool has_launcher)
{
    const struct shim_options options = {.job_id = 7,
                                         .generation = 2,
                                         .rank_base = 1,
                                         .local_count = 1,
                                         .world = 2,
                                         .lease_until_us = 60u * SECOND_US,
                                         .lease_us = 60u * SECOND_US};
    const struct msg ack = {.type = MSG_TYPE_REPORT_ACK,
                            .report_ack = {.job_id = 7, .generation = 2, .revision = 2}};

    shim_init(&shim, &options);
    step(1, (struct shim_event){.type = SHIM_EVENT_START});
    if (has_launcher) {
        step(2, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_OPEN});
        step(3, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = &ack});
    }
    CHECK_EQ(shim.phase, SHIM_READY);
    CHECK_EQ(actions.timer_at_us, 60u * SECOND_US);
}

static void tick(uint64_t now_us)
{
    step(now_us, (struct shim_event){.type = SHIM_EVENT_TICK});
}

/* The shim was stopped for longer than its lease. When it goes on, its timer is due before it reads the renewals that
 * launcherd sent in the meantime. */
TEST(renewals_that_wait_are_read_before_the_lease_is_judged)
{
    begin(true);
    tick(100u * SECOND_US);
    CHECK_EQ(shim.phase, SHIM_READY);
    CHECK_EQ(actions.timer_at_us, 100u * SECOND_US + 300000u);
    lease(100u * SECOND_US + 1, 80u * SECOND_US); /* the first of them is over, too */
    CHECK_EQ(shim.phase, SHIM_READY);
    lease(100u * SECOND_US + 2, 150u * SECOND_US);
    CHECK_EQ(shim.phase, SHIM_READY);
    CHECK_EQ(actions.timer_at_us, 150u * SECOND_US);
    tick(150u * SECOND_US); /* no renewal follows, and it did run: no more time than the lease */
    CHECK_EQ(shim.phase, SHIM_ENDED);
}

/* It was stopped, and no renewal waits: the time to read them is short, and is given once. */
TEST(a_shim_that_was_stopped_ends_soon_without_a_renewal)
{
    begin(true);
    tick(100u * SECOND_US);
    lease(100u * SECOND_US + 1, 80u * SECOND_US);
    tick(100u * SECOND_US + 299999u);
    CHECK_EQ(shim.phase, SHIM_READY);
    tick(110u * SECOND_US);
    CHECK_EQ(shim.phase, SHIM_ENDED);
}

TEST(a_shim_that_was_not_stopped_ends_with_its_lease)
{
    begin(true);
    tick(60u * SECOND_US - 1);
    CHECK_EQ(shim.phase, SHIM_READY);
    tick(61u * SECOND_US); /* a loaded machine */
    CHECK_EQ(shim.phase, SHIM_ENDED);
}

/* Without a connection nothing can wait in it. */
TEST(a_stopped_shim_without_launcherd_ends_at_once)
{
    begin(false);
    tick(100u * SECOND_US);
    CHECK_EQ(shim.phase, SHIM_ENDED);
}

TEST_MAIN
