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

/* The same with the renewal on its page: it needs no message. */
TEST(a_renewal_on_the_page_counts_without_a_message)
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
    step(100u * SECOND_US,
         (struct shim_event){.type = SHIM_EVENT_TICK, .lease_until_us = 150u * SECOND_US});
    CHECK_EQ(shim.phase, SHIM_READY);
    CHECK_EQ(actions.timer_at_us, 150u * SECOND_US);
    CHECK(!shim.lease_over);
    step(160u * SECOND_US,
         (struct shim_event){.type = SHIM_EVENT_TICK, .lease_until_us = 155u * SECOND_US});
    CHECK_EQ(shim.phase, SHIM_ENDED); /* that renewal is over, too */
    CHECK(shim.lease_over);
}

TEST_MAIN
