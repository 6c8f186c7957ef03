/* Shims that do not answer although their ranks run. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/launcherd/launcher_tools.h"

#define TOLD_US (LAUNCHER_QUIET_US + LAUNCHER_ASKS_MAX * (uint64_t)LAUNCHER_ASK_US)
#define GRACE_US (30 * SECOND_US)

static uint32_t looks, signals, kills, lines;
static uint32_t told_count, told_pid; /* by the last beat */
static char told_state[32];

static void count(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct launcher_action *action = &actions.items[i];

        looks += action->type == LAUNCHER_LOOK_SHIM;
        signals += action->type == LAUNCHER_SIGNAL_RANKS;
        kills += action->type == LAUNCHER_KILL_SHIM;
        lines += action->type == LAUNCHER_LOG && strstr(action->text, "does not answer") != NULL;
        if (action->type != LAUNCHER_SEND_SERVER || action->msg.type != MSG_TYPE_BEAT)
            continue;
        told_count = action->msg.beat.silent.count;
        if (told_count == 0)
            continue;
        told_pid = action->msg.beat.silent.items[0].pid;
        (void)snprintf(told_state, sizeof told_state, "%s", action->msg.beat.silent.items[0].state);
    }
}

static void looked(uint64_t now_us, uint32_t ranks_left)
{
    step(now_us, (struct launcher_event){.type = LAUNCHER_EVENT_SHIM_LOOKED,
                                         .job_id = 1,
                                         .generation = 1,
                                         .pid = 77,
                                         .text = "T (stopped)",
                                         .ranks_left = ranks_left});
    count();
}

/* Ticks each half second; a look is answered. */
static void tick_until(uint64_t from_us, uint64_t until_us, uint32_t ranks_left)
{
    for (uint64_t at_us = from_us; at_us <= until_us; at_us += SECOND_US / 2) {
        const uint32_t before = looks;

        event(at_us, LAUNCHER_EVENT_TICK);
        count();
        if (looks > before)
            looked(at_us + 1, ranks_left);
        beat_ack(at_us + 2, at_us);
        count();
    }
}

static void begin_running(void)
{
    looks = signals = kills = lines = 0;
    connected();
    start(10, 1, 1, 3);
    shim_open(20, 1, 1, SHIM_RUNNING);
    shim_reports(30, 1, 1, SHIM_RUNNING);
}

static const char *stop(uint64_t now_us, uint64_t grace_us)
{
    struct msg msg = {.type = MSG_TYPE_STOP};
    const char *text;

    msg.stop = (struct msg_stop){
        .job_id = 1, .generation = 1, .signal = 15, .grace_us = grace_us, .reason = ""};
    text = server(now_us, &msg);
    count();
    return text;
}

TEST(people_are_told_once_and_each_beat_says_it)
{
    begin_running();
    tick_until(SECOND_US, TOLD_US - SECOND_US, 2);
    CHECK_EQ(lines, 0);
    CHECK_EQ(told_count, 0);
    tick_until(TOLD_US, TOLD_US + 60 * SECOND_US, 2);
    CHECK_EQ(lines, 1);
    CHECK_EQ(looks, 1);
    CHECK_EQ(kills, 0);
    CHECK_EQ(told_count, 1);
    CHECK_EQ(told_pid, 77);
    CHECK_STR(told_state, "T (stopped)");
    shim_reports(TOLD_US + 61 * SECOND_US, 1, 1, SHIM_RUNNING);
    tick_until(TOLD_US + 62 * SECOND_US, TOLD_US + 64 * SECOND_US, 2);
    CHECK_EQ(told_count, 0);
}

TEST(a_stop_ends_the_ranks_of_one_that_does_not_answer)
{
    const uint64_t stop_us = TOLD_US + 10 * SECOND_US;

    begin_running();
    tick_until(SECOND_US, stop_us - SECOND_US, 2);
    CHECK_STR(stop(stop_us, GRACE_US), "signal(1.1) look(1.1) 1.1<stop");
    CHECK(strstr(stop(stop_us + 1, GRACE_US), "signal") == NULL); /* repeated */
    tick_until(stop_us + SECOND_US / 2, stop_us + GRACE_US - SECOND_US, 2);
    CHECK_EQ(kills, 0);
    tick_until(stop_us + GRACE_US, stop_us + GRACE_US + SECOND_US, 2);
    CHECK_EQ(kills, 1);
    CHECK_EQ(signals, 1);
}

TEST(no_grace_is_waited_for_when_no_rank_is_left)
{
    const uint64_t stop_us = TOLD_US + 10 * SECOND_US;

    begin_running();
    tick_until(SECOND_US, stop_us - SECOND_US, 2);
    stop(stop_us, GRACE_US);
    tick_until(stop_us + SECOND_US / 2, stop_us + 3 * SECOND_US, 0);
    CHECK_EQ(kills, 1);
}

/* Nobody knew of its silence before: it is asked, and its ranks get the signal a few seconds later. */
TEST(one_that_does_not_answer_a_stop_is_found_soon)
{
    const uint64_t stop_us = 2 * SECOND_US;

    begin_running();
    stop(stop_us, GRACE_US);
    tick_until(stop_us + SECOND_US / 2, stop_us + 5 * SECOND_US, 2);
    CHECK_EQ(signals, 1);
    CHECK_EQ(kills, 0);
    tick_until(stop_us + 6 * SECOND_US, stop_us + GRACE_US + SECOND_US, 2);
    CHECK_EQ(kills, 1);
}

TEST(one_that_answers_a_stop_has_its_time)
{
    const uint64_t stop_us = 2 * SECOND_US;

    begin_running();
    stop(stop_us, GRACE_US);
    for (uint64_t at_us = stop_us; at_us < stop_us + GRACE_US + 5 * SECOND_US; at_us += SECOND_US) {
        shim_reports(at_us + 5, 1, 1, SHIM_STOPPING);
        tick_until(at_us + 10, at_us + 10, 2);
    }
    CHECK_EQ(signals + kills, 0);
}

/* Its connection is accepted by the kernel, and nobody says hello. */
TEST(one_that_was_found_and_says_no_hello_is_told_of)
{
    looks = signals = kills = lines = 0;
    begin();
    adopt(1, "one", true, NULL);
    event(2, LAUNCHER_EVENT_ADOPTED);
    event(3, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(4, "one");
    tick_until(SECOND_US, 300 * SECOND_US, UINT32_MAX);
    CHECK_EQ(lines, 1);
    CHECK_EQ(kills, 0);
    stop(301 * SECOND_US, GRACE_US);
    tick_until(302 * SECOND_US, 332 * SECOND_US, UINT32_MAX);
    CHECK_EQ(kills, 1);
}

/* Its ranks have ended, and only it could say so: the job waits for that. */
TEST(one_that_has_ended_and_does_not_say_so_is_killed)
{
    begin_running();
    event(SECOND_US, LAUNCHER_EVENT_SERVER_CLOSED);
    shim_reports(SECOND_US + 1, 1, 1, SHIM_ENDED);
    tick_until(2 * SECOND_US, 90 * SECOND_US, 0); /* without a server nobody waits */
    CHECK_EQ(kills, 0);
    event(91 * SECOND_US, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(91 * SECOND_US, "one");
    tick_until(91 * SECOND_US, 90 * SECOND_US + TOLD_US - LAUNCHER_QUIET_US, 0);
    CHECK_EQ(kills, 0);
    tick_until(91 * SECOND_US + TOLD_US - LAUNCHER_QUIET_US, 92 * SECOND_US + TOLD_US, 0);
    CHECK_EQ(kills, 1);
    CHECK_EQ(lines, 0); /* nobody is told: there is nothing to do */

    begin_running(); /* one that says so is left alone */
    shim_reports(SECOND_US + 1, 1, 1, SHIM_ENDED);
    tick_until(2 * SECOND_US, 90 * SECOND_US, 0);
    CHECK_EQ(kills, 0);
}

TEST_MAIN
