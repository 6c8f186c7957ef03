/* Shims that do not obey: launcherd enforces stops and leases. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/launcherd/launcher_tools.h"

/* Beats until `at_us`, so that the lease does not end. */
static void beat_until(uint64_t from_us, uint64_t at_us)
{
    for (uint64_t now_us = from_us; now_us < at_us; now_us += BEAT_US)
        beat_ack(now_us, now_us);
}

TEST(a_shim_that_does_not_stop_is_killed)
{
    struct msg stop = {.type = MSG_TYPE_STOP};
    const uint64_t due_us = 20 + 3 * BEAT_US + LAUNCHER_STOP_SLACK_US;

    with_shim();
    stop.stop = (struct msg_stop){
        .job_id = 1, .generation = 1, .signal = 15, .grace_us = 3 * BEAT_US, .reason = ""};
    CHECK_STR(server(20, &stop), "1.1<stop");
    CHECK_STR(server(20 + BEAT_US, &stop), "1.1<stop"); /* repeated: the first deadline counts */
    beat_until(20 + BEAT_US, due_us);
    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
    CHECK(strstr(event(due_us + 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK_STR(shim_event(due_us + 2, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "was killed (signal 9)"),
              "shim_report(1.1 ended)");
}

TEST(a_shim_that_has_stopped_is_killed_only_if_it_stays_when_forgotten)
{
    const uint64_t forget_us = 30 + LAUNCHER_STOP_SLACK_US;

    with_shim();
    CHECK_STR(order(20, MSG_TYPE_STOP, 1, 1), "1.1<stop");
    CHECK_STR(shim_reports(21, 1, 1, SHIM_ENDED), "shim_report(1.1 ended)");
    beat_until(21, forget_us);
    CHECK(strstr(event(forget_us, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK_STR(order(forget_us, MSG_TYPE_FORGET, 1, 1), "1.1<forget");
    beat_until(forget_us, forget_us + LAUNCHER_STOP_SLACK_US);
    CHECK_STR(event(launcher.shims[0].end_by_us, LAUNCHER_EVENT_TICK), "beat(1) kill(1.1)");
}

TEST(a_shim_that_ignores_the_end_of_its_lease_is_killed)
{
    const uint64_t due_us = 2 + LEASE_US + LEASE_LAUNCHER_US;

    with_shim();
    event(10 * BEAT_US, LAUNCHER_EVENT_TICK); /* silence: the connection is closed */
    event(11 * BEAT_US, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
}

/* The shim, cut off, says hello at the end of its lease, or a moment before it is stopped. */
static uint64_t say_at_the_end(bool lease_over)
{
    const struct msg hello = {
        .type = MSG_TYPE_SHIM_HELLO,
        .shim_hello = {
            .job_id = 1, .generation = 1, .phase = SHIM_RUNNING, .lease_over = lease_over}};

    with_shim();
    event(10 * BEAT_US, LAUNCHER_EVENT_TICK);
    event(11 * BEAT_US, LAUNCHER_EVENT_SERVER_CLOSED);
    (void)shim_event(2 + LEASE_US, LAUNCHER_EVENT_SHIM_MSG, 1, 1, &hello, NULL);
    return 2 + LEASE_US;
}

/* What it kills may take its time, and its report must not be lost. */
TEST(one_that_ends_its_ranks_with_its_lease_has_time_for_it)
{
    const uint64_t due_us = say_at_the_end(true) + LAUNCHER_LEASE_SLACK_US;

    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
}

TEST(one_that_only_goes_on_has_not)
{
    const uint64_t due_us = say_at_the_end(false) + LEASE_LAUNCHER_US;

    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
}

/* launcherd was started again, there is no server, and the shim is stopped. */
static void adopt_until(uint64_t until_us)
{
    struct launcher_shim shim = {
        .job_id = 1, .generation = 1, .slot_mask = 1, .local_count = 1, .lease_until_us = until_us};

    begin();
    (void)snprintf(shim.cluster, sizeof shim.cluster, "one");
    (void)step(1, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPT,
                                          .job_id = 1,
                                          .generation = 1,
                                          .shim = &shim,
                                          .alive = true});
    (void)event(1, LAUNCHER_EVENT_ADOPTED);
    (void)event(2, LAUNCHER_EVENT_SERVER_CLOSED);
}

TEST(a_new_launcherd_ends_an_adopted_shim_with_the_lease_that_it_has)
{
    const uint64_t due_us = 20 * BEAT_US + LEASE_LAUNCHER_US;

    adopt_until(20 * BEAT_US);
    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);

    adopt_until(1); /* it was over before */
    CHECK(strstr(event(LEASE_LAUNCHER_US + 1, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
}

TEST(a_renewed_lease_is_that_of_an_adopted_shim_that_is_not_connected)
{
    adopt_until(20 * BEAT_US);
    event(21, LAUNCHER_EVENT_SERVER_OPEN);
    CHECK(strstr(welcome(22, "one"), "1.1<lease(") != NULL);
    beat_until(23, 21 * BEAT_US);
    CHECK(strstr(event(21 * BEAT_US, LAUNCHER_EVENT_TICK), "kill") == NULL);
}

TEST(an_adopted_shim_of_a_lease_that_nobody_knows_must_answer)
{
    adopt_until(0);
    CHECK(strstr(event(LAUNCHER_UNKNOWN_US, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(LAUNCHER_UNKNOWN_US + 1, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);

    adopt_until(0);
    (void)shim_open(10, 1, 1, SHIM_RUNNING);
    CHECK(strstr(event(LAUNCHER_UNKNOWN_US + 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
}

TEST(a_shim_of_the_server_before_keeps_its_lease)
{
    const uint64_t due_us = 3 + LEASE_US + LEASE_LAUNCHER_US;

    with_shim();
    event(20, LAUNCHER_EVENT_SERVER_CLOSED);
    event(21, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(22, "two");
    beat_until(23, due_us);
    CHECK(strstr(event(due_us - 2, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
}

TEST(a_shim_that_never_gets_ready_is_killed)
{
    const uint64_t due_us = 10 + LAUNCHER_PREPARE_US;

    connected();
    CHECK_STR(start(10, 1, 1, 3), "spawn(1.1)");
    beat_until(11, due_us);
    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
}

/* The shim's processes hang in the kernel: the server must not wait for them. */
static bool last_is_late(void)
{
    const struct launcher_action *last = &actions.items[actions.count - 1];

    CHECK_EQ(last->msg.type, MSG_TYPE_SHIM_REPORT);
    return last->msg.shim_report.warm_late;
}

/* From time 10 on, a warm process has the start order. */
static void warm_shim(void)
{
    connected();
    CHECK_STR(start(10, 1, 1, 3), "spawn(1.1)");
    CHECK_STR(shim_event(10, LAUNCHER_EVENT_SHIM_WARM, 1, 1, NULL, NULL), "");
}

TEST(one_that_was_warm_and_does_not_take_the_order_is_killed_and_another_one_started)
{
    const uint64_t due_us = 10 + LAUNCHER_TAKE_US;

    warm_shim();
    beat_until(11, due_us);
    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "kill(1.1)") != NULL);
    (void)shim_event(due_us + 1, LAUNCHER_EVENT_SHIM_CLOSED, 1, 1, NULL, NULL);
    CHECK_STR(shim_event(due_us + 2, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "was killed (signal 9)"),
              "spawn-again(1.1)");
    CHECK(strstr(event(due_us + LAUNCHER_TAKE_US, LAUNCHER_EVENT_TICK), "kill") == NULL);
    (void)shim_open(due_us + LAUNCHER_TAKE_US, 1, 1, SHIM_PREPARING);
    CHECK_STR(shim_reports(due_us + LAUNCHER_TAKE_US, 1, 1, SHIM_READY), "shim_report(1.1 ready)");
    CHECK(last_is_late());
    CHECK_STR(shim_event(due_us + LAUNCHER_TAKE_US + 1, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL,
                         "was killed (signal 9)"),
              "shim_report(1.1 ended)"); /* once only */
}

TEST(one_that_was_warm_and_takes_the_order_is_a_shim_as_any_other)
{
    warm_shim();
    (void)shim_open(11, 1, 1, SHIM_PREPARING);
    beat_until(12, 10 + 2 * LAUNCHER_TAKE_US);
    CHECK(strstr(event(10 + 2 * LAUNCHER_TAKE_US, LAUNCHER_EVENT_TICK), "kill") == NULL);
    CHECK_STR(shim_event(11 + 2 * LAUNCHER_TAKE_US, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL,
                         "was killed (signal 9)"),
              "shim_report(1.1 ended)");
    CHECK(!last_is_late());
}

TEST(what_cannot_be_killed_is_given_up)
{
    const uint64_t due_us = 30 + LAUNCHER_UNKILLABLE_US;

    with_shim();
    CHECK_STR(shim_event(30, LAUNCHER_EVENT_SHIM_EXITED, 1, 1, NULL, NULL), "");
    beat_until(31, due_us);
    CHECK(strstr(event(due_us - 1, LAUNCHER_EVENT_TICK), "shim_report") == NULL);
    CHECK(strstr(event(due_us, LAUNCHER_EVENT_TICK), "shim_report(1.1 ended)") != NULL);
    CHECK(launcher_find(&launcher, 1, 1)->dead);
    CHECK(strstr(launcher_find(&launcher, 1, 1)->cause, "do not die of SIGKILL") != NULL);
    CHECK_STR(order(due_us + 1, MSG_TYPE_FORGET, 1, 1), "remove(1.1)");
}

TEST_MAIN
