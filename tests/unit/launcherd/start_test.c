/* The launcher's core: shims that do not go on before their ranks run, and connections to the server that do not
 * hold. */
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/launcherd/launcher_tools.h"

#define QUIET_US ((uint64_t)LAUNCHER_QUIET_US)
#define LIMIT_US (QUIET_US + LAUNCHER_ASKS_MAX * (uint64_t)LAUNCHER_ASK_US)

/* Ticks every second until that time, while the server acknowledges each beat. Counts what the shim is asked, and
 * stops when it is killed. */
static uint32_t asked;
static const char *killed_for; /* NULL: it was not killed */

static void look(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct launcher_action *action = &actions.items[i];

        asked += action->type == LAUNCHER_SEND_SHIM && action->msg.type == MSG_TYPE_REPORT_REQUEST;
        if (action->type == LAUNCHER_KILL_SHIM)
            killed_for = action->text;
    }
}

static void tick_until(uint64_t from_us, uint64_t until_us)
{
    for (uint64_t at_us = from_us; at_us <= until_us && killed_for == NULL; at_us += SECOND_US) {
        event(at_us, LAUNCHER_EVENT_TICK);
        look();
        beat_ack(at_us + 1, at_us);
    }
}

static void begin_start(void)
{
    connected();
    asked = 0;
    killed_for = NULL;
    CHECK_STR(start(10, 1, 1, 3), "spawn(1.1)");
}

TEST(a_shim_that_stops_while_it_prepares_is_killed)
{
    begin_start();
    shim_open(20, 1, 1, SHIM_PREPARING);
    shim_reports(30, 1, 1, SHIM_PREPARING);
    tick_until(SECOND_US, LIMIT_US - SECOND_US);
    CHECK(killed_for == NULL);
    CHECK_EQ(asked, LAUNCHER_ASKS_MAX);
    tick_until(LIMIT_US, LIMIT_US + 2 * SECOND_US);
    CHECK_STR(killed_for, "it has said nothing for 30 s while it prepared");
    CHECK_STR(shim_event(LIMIT_US + 3 * SECOND_US, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL,
                         "was killed (signal 9)"),
              "shim_report(1.1 ended)");
    CHECK_EQ(actions.items[actions.count - 1].msg.shim_report.failed_class, FAILURE_NODE);
    CHECK_STR(
        actions.items[actions.count - 1].msg.shim_report.cause,
        "the shim of job 1 on node0 was killed (signal 9): it has said nothing for 30 s while "
        "it prepared");
}

/* The same words after the same time: it was asked no sooner because of the stop. */
TEST(a_stop_does_not_shorten_the_limits_of_a_start)
{
    struct msg msg = {.type = MSG_TYPE_STOP};

    begin_start();
    shim_open(20, 1, 1, SHIM_PREPARING);
    shim_reports(30, 1, 1, SHIM_PREPARING);
    msg.stop = (struct msg_stop){.job_id = 1,
                                 .generation = 1,
                                 .signal = 15,
                                 .grace_us = 600 * (uint64_t)SECOND_US,
                                 .reason = ""};
    CHECK_STR(server(40, &msg), "1.1<stop");
    tick_until(SECOND_US, LIMIT_US - SECOND_US);
    CHECK(killed_for == NULL);
    tick_until(LIMIT_US, LIMIT_US + 2 * SECOND_US);
    CHECK_STR(killed_for, "it has said nothing for 30 s while it prepared");
}

/* It has never said hello: it hangs before that, or could not connect. */
TEST(a_shim_that_never_says_hello_is_killed)
{
    begin_start();
    tick_until(SECOND_US, LIMIT_US + 2 * SECOND_US);
    CHECK_EQ(asked, 0);
    CHECK_STR(killed_for, "it has said nothing for 30 s while it prepared");
}

/* A slow check of the job's folder is a child of the shim: the shim itself answers. */
TEST(one_that_answers_may_take_its_time)
{
    begin_start();
    shim_open(20, 1, 1, SHIM_PREPARING);
    for (uint64_t at_us = SECOND_US; at_us < 500 * SECOND_US; at_us += SECOND_US) {
        uint32_t before = asked;

        tick_until(at_us, at_us);
        if (asked > before)
            shim_reports(at_us + 2, 1, 1, SHIM_PREPARING);
    }
    CHECK(killed_for == NULL);
    CHECK(asked > 40);
    tick_until(500 * SECOND_US, 620 * SECOND_US); /* but no longer than ten minutes in all */
    CHECK(killed_for != NULL);
}

/* It may wait for other nodes for long; after the go it has a minute. */
TEST(after_the_go_it_has_more_time)
{
    const uint64_t go_us = 200 * SECOND_US;

    begin_start();
    shim_open(20, 1, 1, SHIM_READY);
    for (uint64_t at_us = SECOND_US; at_us < go_us; at_us += SECOND_US) {
        tick_until(at_us, at_us);
        shim_reports(at_us + 2, 1, 1, SHIM_READY);
    }
    CHECK_STR(order(go_us, MSG_TYPE_GO, 1, 1), "1.1<go");
    tick_until(go_us, go_us + 55 * SECOND_US);
    CHECK(killed_for == NULL);
    tick_until(go_us + 56 * SECOND_US, go_us + 70 * SECOND_US);
    CHECK_STR(killed_for, "it has said nothing for 60 s while it started the ranks");
}

TEST(one_that_runs_is_asked_and_not_killed)
{
    begin_start();
    shim_open(20, 1, 1, SHIM_RUNNING);
    shim_reports(30, 1, 1, SHIM_RUNNING);
    tick_until(SECOND_US, 900 * SECOND_US);
    CHECK_EQ(asked, LAUNCHER_ASKS_MAX);
    CHECK(launcher.shims[0].is_silent);
    CHECK(killed_for == NULL);
}

/* Pieces of an archive count, also of one that comes before. */
TEST(an_archive_that_still_moves_counts)
{
    begin_start();
    for (uint64_t at_us = SECOND_US; at_us < 500 * SECOND_US; at_us += SECOND_US) {
        if (at_us / SECOND_US % 50 == 1)
            shim_event(at_us, LAUNCHER_EVENT_SHIM_HELD, 1, 1, NULL, NULL);
        tick_until(at_us + 1, at_us + 1);
    }
    CHECK(killed_for == NULL);
    tick_until(500 * SECOND_US, 560 * SECOND_US);
    CHECK_STR(killed_for, "its folder has not come further for 80 s");
}

/* Nobody knows the phase of a shim that was found and has not said hello: its ranks may run. */
TEST(a_shim_that_was_found_is_asked_only_after_its_hello)
{
    begin();
    asked = 0;
    killed_for = NULL;
    adopt(1, "one", true, NULL);
    event(2, LAUNCHER_EVENT_ADOPTED);
    event(3, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(4, "one");
    tick_until(SECOND_US, 300 * SECOND_US);
    CHECK(killed_for == NULL);
    shim_open(301 * SECOND_US, 1, 1, SHIM_PREPARING);
    tick_until(302 * SECOND_US, 340 * SECOND_US);
    CHECK_STR(killed_for, "it has said nothing for 30 s while it prepared");
}

/* launcherd was stopped itself: the answers are there, but it has not read them yet. */
TEST(time_in_which_launcherd_stood_still_is_not_the_shims)
{
    begin_start();
    shim_open(20, 1, 1, SHIM_PREPARING);
    tick_until(SECOND_US, 12 * SECOND_US); /* it was asked once */
    tick_until(52 * SECOND_US, 52 * SECOND_US);
    CHECK(killed_for == NULL);
    shim_reports(52 * SECOND_US + 5, 1, 1, SHIM_PREPARING);
    tick_until(53 * SECOND_US, 70 * SECOND_US);
    CHECK(killed_for == NULL);
}

static uint32_t lines_of(const char *text)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < actions.count; i++)
        count +=
            actions.items[i].type == LAUNCHER_LOG && strstr(actions.items[i].text, text) != NULL;
    return count;
}

/* Small messages pass, so each connection is welcomed; a large one holds it up until it is closed. */
TEST(connections_that_do_not_hold_are_counted_and_told_once)
{
    uint64_t at_us = 10;
    uint32_t told = 0;

    connected();
    for (uint32_t i = 0; i < 18; i++) {
        at_us += 5 * SECOND_US;
        event(at_us, LAUNCHER_EVENT_SERVER_CLOSED);
        event(at_us + 1, LAUNCHER_EVENT_SERVER_OPEN);
        welcome(at_us + 2, "one");
        told += lines_of("it does not hold");
    }
    CHECK_EQ(told, 1);
    CHECK_EQ(launcher.short_count, 18);
    beat_ack(at_us + 31 * SECOND_US, at_us + 30 * SECOND_US);
    CHECK_EQ(lines_of("holds again"), 1);
    CHECK_EQ(launcher.short_count, 0);
}

/* The server was started again, or another one leads: that says nothing of the connection. */
TEST(a_server_that_was_gone_or_is_another_one_is_no_trouble)
{
    const struct msg refer = {.type = MSG_TYPE_REFER, .refer = {"", ""}};
    uint64_t at_us = 10;

    connected();
    for (uint32_t i = 0; i < 12; i++) {
        at_us += 5 * SECOND_US;
        event(at_us, LAUNCHER_EVENT_SERVER_CLOSED);
        if (i % 3 == 0)
            event(at_us + 1, LAUNCHER_EVENT_SERVER_CLOSED); /* nobody listens there */
        if (i % 3 == 1) {
            event(at_us + 1, LAUNCHER_EVENT_SERVER_OPEN);
            (void)step(at_us + 2,
                       (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &refer});
            event(at_us + 3, LAUNCHER_EVENT_SERVER_CLOSED);
        }
        (void)step(at_us + 4, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN,
                                                      .is_other_server = i % 3 == 2});
        welcome(at_us + 5, "one");
        CHECK_EQ(launcher.short_count, 0);
    }
}

/* It is also what makes the next attempts come more slowly: there is one measure. */
TEST(a_connection_of_less_than_thirty_seconds_is_a_failed_attempt)
{
    connected();
    event(10, LAUNCHER_EVENT_SERVER_CLOSED);
    event(11, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(12, "one");
    beat_ack(12 + 29 * SECOND_US, 11 + 29 * SECOND_US);
    CHECK_EQ(launcher.failures, 1);
    beat_ack(12 + 30 * SECOND_US, 11 + 30 * SECOND_US);
    CHECK_EQ(launcher.failures, 0);
}

/* Its shim is gone without a trace, and a server that was started again does not know whether the first order arrived: a
 * rank is started once in a generation. */
TEST(a_part_that_was_started_here_is_not_started_again)
{
    struct seen_record seen = {.count = 1,
                               .jobs = {{.cluster = "one", .job_id = 7, .generation = 2}}};

    begin();
    step(0, (struct launcher_event){.type = LAUNCHER_EVENT_SEEN_LOADED, .seen = &seen});
    event(0, LAUNCHER_EVENT_ADOPTED);
    event(1, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(2, "one");
    CHECK(strstr(start(10, 7, 2, 1), "spawn") == NULL);
    CHECK_EQ(actions.count, 1);
    CHECK_EQ(actions.items[0].msg.type, MSG_TYPE_SHIM_REPORT);
    CHECK_EQ(actions.items[0].msg.shim_report.phase, SHIM_ENDED);
    CHECK(strstr(start(11, 7, 3, 1), "spawn(7.3)") != NULL);
}

TEST_MAIN
