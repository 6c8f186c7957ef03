/* A leaving node: what it sends, what it waits for, and what it does without a server. */
#include <signal.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/launcherd/launcher_tools.h"

#define TOLD_US (100 * SECOND_US)
#define ALONE_US (TOLD_US + LAUNCHER_ALONE_US)

static const char *leave(uint64_t now_us)
{
    return event(now_us, LAUNCHER_EVENT_LEAVE);
}

/* Up to `now_us` with a server that acknowledges every beat. */
static void beat_until(uint64_t now_us)
{
    while (launcher.beat_at_us < now_us) {
        const uint64_t at_us = launcher.beat_at_us;

        event(at_us, LAUNCHER_EVENT_TICK);
        beat_ack(at_us, at_us);
    }
}

static const struct msg_stop *sent_stop(void)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == LAUNCHER_SEND_SHIM &&
            actions.items[i].msg.type == MSG_TYPE_STOP)
            return &actions.items[i].msg.stop;
    return NULL;
}

static void with_running_shim(void)
{
    with_shim();
    shim_open(12, 1, 1, SHIM_RUNNING);
}

TEST(a_node_without_jobs_leaves_once_the_server_knows)
{
    connected();
    beat_until(TOLD_US);
    CHECK_STR(leave(TOLD_US), "beat(0 leaving)");
    CHECK_STR(leave(TOLD_US + 1), ""); /* again */
    CHECK_STR(beat_ack(TOLD_US + 2, TOLD_US - 1), "");
    CHECK_STR(beat_ack(TOLD_US + 3, TOLD_US), "left");
    CHECK_STR(beat_ack(TOLD_US + 4, TOLD_US), ""); /* once */
}

TEST(it_waits_until_the_server_has_its_jobs_forgotten)
{
    with_running_shim();
    beat_until(TOLD_US);
    CHECK_STR(leave(TOLD_US), "beat(1 leaving) 1.1<report_request");
    beat_ack(TOLD_US + 1, TOLD_US);
    CHECK_STR(order(TOLD_US + 2, MSG_TYPE_STOP, 1, 1), "1.1<stop");
    CHECK_STR(shim_reports(TOLD_US + 3, 1, 1, SHIM_ENDED), "shim_report(1.1 ended)");
    CHECK_STR(order(TOLD_US + 4, MSG_TYPE_FORGET, 1, 1), "1.1<forget");
    CHECK_STR(shim_event(TOLD_US + 5, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "ended"),
              "remove(1.1) left");
}

/* The server had ordered a start before it knew of the leave. The server stops that job too. */
TEST(a_start_that_was_on_its_way_is_waited_for)
{
    connected();
    beat_until(TOLD_US);
    leave(TOLD_US);
    CHECK_STR(start(TOLD_US + 1, 1, 1, 1), "spawn(1.1)");
    CHECK_STR(beat_ack(TOLD_US + 2, TOLD_US), "1.1<lease(160000000)");
    CHECK_STR(shim_event(TOLD_US + 3, LAUNCHER_EVENT_SHIM_FAILED, 1, 1, NULL, "no room"),
              "shim_report(1.1 ended)");
    CHECK_STR(order(TOLD_US + 4, MSG_TYPE_FORGET, 1, 1), "remove(1.1) left");
}

TEST(a_new_server_is_told_again)
{
    connected();
    beat_until(TOLD_US);
    leave(TOLD_US);
    event(TOLD_US + 1, LAUNCHER_EVENT_SERVER_CLOSED);
    event(actions.timer_at_us, LAUNCHER_EVENT_TICK);
    event(TOLD_US + SECOND_US, LAUNCHER_EVENT_SERVER_OPEN);
    CHECK_STR(welcome(TOLD_US + SECOND_US + 1, "one"), "beat(0 leaving)");
    CHECK_STR(beat_ack(TOLD_US + SECOND_US + 2, TOLD_US), ""); /* of the old connection */
    CHECK_STR(beat_ack(TOLD_US + SECOND_US + 3, TOLD_US + SECOND_US + 1), "left");
}

TEST(without_a_server_it_stops_its_shims_itself)
{
    with_running_shim();
    beat_until(TOLD_US);
    event(TOLD_US - 1, LAUNCHER_EVENT_SERVER_CLOSED);
    leave(TOLD_US);
    launcher.retry_at_us = UINT64_MAX; /* the edge is connecting */
    CHECK_STR(event(ALONE_US - 1, LAUNCHER_EVENT_TICK), "");
    CHECK_STR(event(ALONE_US, LAUNCHER_EVENT_TICK), "1.1<stop");
    CHECK(sent_stop() != NULL && sent_stop()->signal == SIGTERM &&
          sent_stop()->grace_us == JOB_GRACE_US);
    CHECK_STR(shim_reports(ALONE_US + 1, 1, 1, SHIM_ENDED), "left");
}

TEST(without_a_server_one_that_is_stuck_is_killed)
{
    uint64_t end_us = ALONE_US + JOB_GRACE_US + LAUNCHER_STOP_SLACK_US;

    with_running_shim();
    beat_until(TOLD_US);
    event(TOLD_US - 1, LAUNCHER_EVENT_SERVER_CLOSED);
    leave(TOLD_US);
    launcher.retry_at_us = UINT64_MAX;
    for (uint64_t at_us = ALONE_US; at_us < end_us; at_us = actions.timer_at_us)
        CHECK_STR(event(at_us, LAUNCHER_EVENT_TICK), "1.1<stop");
    CHECK_STR(event(end_us, LAUNCHER_EVENT_TICK), "kill(1.1)");
    CHECK_STR(shim_event(end_us + 2, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "was killed"), "left");
}

/* The server beats and acknowledges, and its stop is lost on the way. */
TEST(a_shim_whose_stop_does_not_come_is_stopped_from_here)
{
    with_running_shim();
    beat_until(TOLD_US);
    leave(TOLD_US);
    beat_ack(TOLD_US + 1, TOLD_US);
    beat_until(ALONE_US);
    CHECK(sent_stop() == NULL);
    event(ALONE_US, LAUNCHER_EVENT_TICK);
    CHECK(sent_stop() != NULL && sent_stop()->signal == SIGTERM &&
          sent_stop()->grace_us == JOB_GRACE_US);
    CHECK_STR(shim_reports(ALONE_US + 1, 1, 1, SHIM_ENDED), "shim_report(1.1 ended)");
    CHECK_STR(order(ALONE_US + 2, MSG_TYPE_FORGET, 1, 1), "1.1<forget");
    CHECK_STR(shim_event(ALONE_US + 3, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "ended"),
              "remove(1.1) left");
}

/* A stop that has come holds, however long its grace is. */
TEST(a_shim_that_was_stopped_is_not_stopped_again)
{
    with_running_shim();
    beat_until(TOLD_US);
    leave(TOLD_US);
    beat_ack(TOLD_US + 1, TOLD_US);
    order(TOLD_US + 2, MSG_TYPE_STOP, 1, 1);
    beat_until(ALONE_US);
    event(ALONE_US, LAUNCHER_EVENT_TICK);
    CHECK(sent_stop() == NULL);
}

/* Its end does not reach the server, or the answer to it is lost. */
TEST(a_server_that_does_not_record_the_end_is_waited_for_ten_seconds)
{
    const uint64_t ended_us = TOLD_US + 3 * SECOND_US / 2;
    bool has_left = false;

    with_running_shim();
    beat_until(TOLD_US);
    leave(TOLD_US);
    beat_ack(TOLD_US + 1, TOLD_US);
    order(TOLD_US + 2, MSG_TYPE_STOP, 1, 1);
    beat_until(ended_us);
    CHECK_STR(shim_reports(ended_us, 1, 1, SHIM_ENDED), "shim_report(1.1 ended)");
    while (!has_left && actions.timer_at_us <= ended_us + LAUNCHER_ALONE_US) {
        const uint64_t at_us = actions.timer_at_us;

        has_left = strstr(event(at_us, LAUNCHER_EVENT_TICK), "left") != NULL;
        CHECK_EQ(has_left, at_us == ended_us + LAUNCHER_ALONE_US);
        if (!has_left && strstr(trace, "beat") != NULL)
            has_left = strstr(beat_ack(at_us, at_us), "left") != NULL;
    }
    CHECK(has_left);
}

TEST_MAIN
