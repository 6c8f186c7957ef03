/* The launcher's core: traces of events and actions. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/launcherd/launcher_tools.h"

static const struct msg_beat *last_beat(void)
{
    for (uint32_t i = actions.count; i > 0; i--)
        if (actions.items[i - 1].msg.type == MSG_TYPE_BEAT)
            return &actions.items[i - 1].msg.beat;
    return NULL;
}

static const struct msg_shim_report *last_report(void)
{
    for (uint32_t i = actions.count; i > 0; i--)
        if (actions.items[i - 1].msg.type == MSG_TYPE_SHIM_REPORT)
            return &actions.items[i - 1].msg.shim_report;
    return NULL;
}

TEST(a_job_from_start_to_forget)
{
    connected();
    CHECK_STR(start(10, 1, 1, 3), "spawn(1.1)");
    CHECK_STR(start(11, 1, 1, 3), "");           /* repeated */
    CHECK_STR(order(12, MSG_TYPE_GO, 1, 1), ""); /* not connected yet: lost, as a message can be */
    CHECK_STR(shim_open(13, 1, 1, SHIM_READY), "1.1<lease(60000002)");
    CHECK_STR(shim_reports(14, 1, 1, SHIM_READY), "shim_report(1.1 ready)");
    CHECK_STR(order(15, MSG_TYPE_REPORT_ACK, 1, 1), "1.1<report_ack");
    CHECK_STR(order(16, MSG_TYPE_GO, 1, 1), "1.1<go");
    CHECK_STR(shim_reports(17, 1, 1, SHIM_ENDED), "shim_report(1.1 ended)");
    CHECK_STR(order(18, MSG_TYPE_FORGET, 1, 1), "1.1<forget");
    CHECK_STR(shim_event(19, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "ended"), "remove(1.1)");
    CHECK(launcher_find(&launcher, 1, 1) == NULL);
    CHECK_STR(order(20, MSG_TYPE_FORGET, 1, 1), "");
}

TEST(orders_for_unknown_shims)
{
    connected();
    CHECK_STR(order(10, MSG_TYPE_GO, 9, 1), "");
    CHECK_STR(order(10, MSG_TYPE_FORGET, 9, 1), "");
    CHECK_STR(order(10, MSG_TYPE_STOP, 9, 1), "shim_report(9.1 ended)");
}

TEST(beats_and_leases)
{
    with_shim();
    CHECK_EQ(actions.timer_at_us, 3 + BEAT_US);
    CHECK_STR(event(3 + BEAT_US, LAUNCHER_EVENT_TICK), "beat(1) 1.1<report_request");
    CHECK_STR(beat_ack(4 + BEAT_US, 3 + BEAT_US), "1.1<lease(61000003)");
    CHECK_STR(beat_ack(5 + BEAT_US, 3), "");           /* an older one */
    CHECK_STR(beat_ack(5 + BEAT_US, 9 + BEAT_US), ""); /* from the future */
    CHECK_EQ(launcher.lease_until_us, 3 + BEAT_US + LEASE_US);
}

/* The server repeats orders at a beat, so launcherd sends a beat when the order can be carried
 * out. */
TEST(an_order_that_was_held_up_is_asked_for_at_once)
{
    connected();
    CHECK_STR(event(10, LAUNCHER_EVENT_START_POSSIBLE), "beat(0)");
    CHECK_EQ(actions.timer_at_us, 10 + BEAT_US);
    event(11, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_STR(event(12, LAUNCHER_EVENT_START_POSSIBLE), "");
}

TEST(silence_closes_the_connection)
{
    connected();
    CHECK_STR(event(3 + 4 * BEAT_US, LAUNCHER_EVENT_TICK), "beat(0)");
    CHECK_STR(event(3 + 5 * BEAT_US, LAUNCHER_EVENT_TICK), "close");
    CHECK_STR(event(4 + 6 * BEAT_US, LAUNCHER_EVENT_TICK), "");
    CHECK_STR(event(5 + 6 * BEAT_US, LAUNCHER_EVENT_SERVER_CLOSED), "");
    CHECK_STR(event(actions.timer_at_us, LAUNCHER_EVENT_TICK), "connect");
}

TEST(no_welcome_closes_the_connection)
{
    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    event(2, LAUNCHER_EVENT_SERVER_OPEN);
    CHECK_EQ(actions.timer_at_us, 2 + HELLO_TIMEOUT_US);
    CHECK_STR(event(2 + HELLO_TIMEOUT_US, LAUNCHER_EVENT_TICK), "close");
}

TEST(reconnects_at_once_then_backs_off)
{
    uint64_t now_us = 100;
    connected();
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_EQ(actions.timer_at_us, now_us + 5000);
    for (uint32_t i = 1; i < 30; i++) {
        uint64_t cap_us = i < 7 ? 10000ull << i : SECOND_US;
        now_us = actions.timer_at_us;
        CHECK_STR(event(now_us, LAUNCHER_EVENT_TICK), "connect");
        event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
        CHECK(actions.timer_at_us >= now_us + 1000 && actions.timer_at_us <= now_us + cap_us);
    }
    now_us = actions.timer_at_us;
    CHECK_STR(event(now_us, LAUNCHER_EVENT_TICK), "connect");
    event(now_us, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(now_us, "one");
    now_us += LAUNCHER_STEADY_US;
    beat_ack(now_us, now_us - SECOND_US);
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_EQ(actions.timer_at_us, now_us + 5000);
}

/* Welcome, a beat and its ack, and the end, again and again: the pause grows to three beats, which is less than the server
 * waits before it counts a node as silent. */
TEST(a_connection_that_does_not_last_is_a_failed_attempt)
{
    uint64_t now_us = 100;

    connected();
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    for (uint32_t i = 1; i < 20; i++) {
        const uint64_t most_us = i < 3    ? 10000ull << i
                                 : i == 3 ? SECOND_US
                                 : i == 4 ? 2 * SECOND_US
                                          : 3 * BEAT_US;
        const uint64_t least_us = i < 3 ? 1 : most_us / 2;

        now_us = actions.timer_at_us;
        CHECK_STR(event(now_us, LAUNCHER_EVENT_TICK), "connect");
        event(now_us, LAUNCHER_EVENT_SERVER_OPEN);
        welcome(now_us, "one");
        beat_ack(now_us + 1, now_us);
        CHECK_EQ(launcher.failures, i);
        event(now_us + 2, LAUNCHER_EVENT_SERVER_CLOSED);
        CHECK(actions.timer_at_us >= now_us + 2 + least_us &&
              actions.timer_at_us <= now_us + 2 + most_us);
    }
    now_us = actions.timer_at_us; /* the server is not there: it is called as often as ever */
    event(now_us, LAUNCHER_EVENT_TICK);
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK(actions.timer_at_us <= now_us + SECOND_US);
}

/* The server answers the hello with an error, and closes. */
static const char *refuse(uint64_t now_us, const char *code)
{
    struct msg msg = {.type = MSG_TYPE_ERROR, .error = {code, "not you", "do something"}};

    event(now_us, LAUNCHER_EVENT_SERVER_OPEN);
    return step(now_us, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &msg});
}

TEST(a_refused_hello_ends_a_node_without_jobs)
{
    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    CHECK_STR(refuse(2, "refused"), "end");
    CHECK_STR(actions.end_text, "the server does not take node node0: not you; do something");
    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    CHECK_STR(refuse(2, "bad_request"), "end");
    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    CHECK_STR(refuse(2, "full"), ""); /* a temporary refusal */
    event(3, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK(actions.timer_at_us < SECOND_US);
}

/* A standby answers, names another server, and closes. Returns when the next attempt is due. */
static uint64_t refer(uint64_t now_us, const char *leader)
{
    struct msg msg = {.type = MSG_TYPE_REFER, .refer = {leader, ""}};

    event(now_us, LAUNCHER_EVENT_SERVER_OPEN);
    (void)step(now_us, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &msg});
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    return actions.timer_at_us - now_us;
}

TEST(a_server_that_is_named_is_tried_at_once)
{
    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    for (uint64_t now_us = SECOND_US; now_us < 20 * SECOND_US; now_us += SECOND_US)
        event(now_us, LAUNCHER_EVENT_SERVER_CLOSED); /* the attempt has failed */
    CHECK_EQ(refer(21 * SECOND_US, "head2:7400"), 5000);
    CHECK_EQ(refer(22 * SECOND_US, "head1:7400"), 5000);
    /* Two servers that name each other: attempts become rarer, but not so rare that a new leader
     * waits long. */
    for (uint64_t i = 0; i < 50; i++)
        CHECK(refer((23 + i) * SECOND_US, "head2:7400") <= 500000);
    event(80 * SECOND_US, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(80 * SECOND_US, "one");
    event(81 * SECOND_US, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_EQ(refer(82 * SECOND_US, "head2:7400"), 5000);
}

TEST(nobody_leads)
{
    uint64_t all_us = 0;

    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    for (uint64_t i = 1; i <= 100; i++) {
        const uint64_t in_us = refer(i * SECOND_US, "");

        CHECK(in_us <= 500000);
        all_us += in_us;
    }
    CHECK(all_us > 100 * 100000); /* launcherd does not hurry */
}

static const char *key_refused(uint64_t now_us)
{
    return step(now_us, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED,
                                                .text = "the key is void"});
}

TEST(a_refused_key_ends_the_node_after_its_jobs)
{
    uint64_t now_us = 100;

    with_shim();
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    for (uint32_t i = 0; i < 5; i++) { /* the job goes on; attempts are rare */
        now_us = launcher.retry_at_us;
        CHECK(strncmp(event(now_us, LAUNCHER_EVENT_TICK), "connect", 7) == 0);
        CHECK_STR(key_refused(now_us), "");
        CHECK_EQ(actions.count, i == 0 ? 2 : 0); /* logged once */
        CHECK(launcher.retry_at_us >= now_us + 15 * SECOND_US);
        CHECK(launcher.retry_at_us < now_us + 45 * SECOND_US);
    }
    shim_event(now_us, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "ended");
    now_us = launcher.retry_at_us;
    CHECK_STR(event(now_us, LAUNCHER_EVENT_TICK), "connect");
    CHECK_STR(key_refused(now_us), "end");
    CHECK_STR(actions.end_text, "the key is void");
}

/* A service is not started again by anybody when the server has been upgraded, or has its keys again. */
TEST(a_node_that_keeps_trying_is_not_ended_by_a_refusal)
{
    uint64_t now_us = 2;

    begin();
    launcher.options.keeps_trying = true;
    event(1, LAUNCHER_EVENT_ADOPTED);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STR(refuse(now_us, "refused"), "");
        CHECK_EQ(actions.count, i == 0 ? 2 : 0); /* logged once */
        CHECK_STR(key_refused(now_us), "");
        CHECK(launcher.retry_at_us >= now_us + 15 * SECOND_US);
        CHECK(launcher.retry_at_us < now_us + 45 * SECOND_US);
        now_us = launcher.retry_at_us;
        CHECK_STR(event(now_us, LAUNCHER_EVENT_TICK), "connect");
    }
    event(now_us, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(now_us, "one");
    event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK(actions.timer_at_us <= now_us + SECOND_US);
}

TEST(a_key_that_is_taken_again_makes_a_quick_node)
{
    with_shim();
    event(100, LAUNCHER_EVENT_SERVER_CLOSED);
    key_refused(200);
    event(300, LAUNCHER_EVENT_SERVER_OPEN);
    welcome(400, "one");
    event(500, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK(actions.timer_at_us <= 500 + SECOND_US);
}

/* The server treats an earlier connection of the same node as alive until beats are missing. */
TEST(a_taken_name_is_asked_for_again_for_a_while)
{
    uint64_t now_us = 2;
    uint32_t tries = 0;

    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    while (strcmp(refuse(now_us, "busy"), "end") != 0) {
        CHECK_STR(trace, "");
        CHECK_EQ(actions.count, tries == 0 ? 2 : 0); /* logged once */
        event(now_us, LAUNCHER_EVENT_SERVER_CLOSED);
        now_us = actions.timer_at_us;
        CHECK_STR(event(now_us, LAUNCHER_EVENT_TICK), "connect");
        tries++;
        CHECK(now_us < 17 * SECOND_US);
    }
    CHECK(now_us >= 15 * SECOND_US);

    begin(); /* after another failure in between, the count starts again */
    event(1, LAUNCHER_EVENT_ADOPTED);
    CHECK_STR(refuse(2, "busy"), "");
    event(3, LAUNCHER_EVENT_SERVER_CLOSED);
    event(4, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_STR(refuse(20 * SECOND_US, "busy"), "");
}

/* An answer that waited while this process was stopped says nothing about now. */
TEST(a_taken_name_is_asked_for_again_after_a_stop)
{
    const struct msg busy = {.type = MSG_TYPE_ERROR, .error = {"busy", "not you", ""}};

    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    CHECK_STR(refuse(2, "busy"), "");
    event(3, LAUNCHER_EVENT_SERVER_CLOSED);
    event(SECOND_US, LAUNCHER_EVENT_SERVER_OPEN);
    CHECK_STR(step(20 * SECOND_US,
                   (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = &busy}),
              "");
    event(20 * SECOND_US, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_STR(refuse(21 * SECOND_US, "busy"), "end");
}

TEST(the_hello_has_the_address_on_the_way_to_the_server)
{
    begin();
    event(1, LAUNCHER_EVENT_ADOPTED);
    step(2, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN, .text = "10.0.0.7"});
    CHECK_STR(actions.items[0].msg.node_hello.address, "10.0.0.7");
    event(3, LAUNCHER_EVENT_SERVER_CLOSED);
    event(4, LAUNCHER_EVENT_SERVER_OPEN); /* no news */
    CHECK_STR(actions.items[0].msg.node_hello.address, "10.0.0.7");
}

TEST(a_new_server_gets_all_reports_again)
{
    with_shim();
    shim_reports(12, 1, 1, SHIM_RUNNING);
    event(20, LAUNCHER_EVENT_SERVER_CLOSED);
    CHECK_STR(shim_reports(21, 1, 1, SHIM_RUNNING), ""); /* there is no server to send it to */
    CHECK_STR(event(30, LAUNCHER_EVENT_SERVER_OPEN), "hello(1)");
    CHECK_STR(welcome(31, "one"), "1.1<lease(60000030) beat(1) 1.1<report_request");
    CHECK_STR(event(31 + BEAT_US, LAUNCHER_EVENT_TICK), "beat(1) 1.1<report_request");
    CHECK_STR(shim_reports(32 + BEAT_US, 1, 1, SHIM_RUNNING), "shim_report(1.1 running)");
    CHECK_STR(event(31 + 2 * BEAT_US, LAUNCHER_EVENT_TICK), "beat(1)");
}

TEST(slots_of_living_shims_are_refused)
{
    with_shim();
    CHECK_STR(start(20, 2, 1, 6), "shim_report(2.1 ended)");
    CHECK_STR(last_report()->cause, "slot 1 of node node0 is still used by job 1, generation 1");
    CHECK_EQ(last_report()->ranks.items[0].state, RANK_LOST);
    CHECK_STR(start(21, 2, 1, 6), ""); /* job 2 is in the table as ended, until it is forgotten */
    CHECK_STR(order(22, MSG_TYPE_FORGET, 2, 1), "remove(2.1)");
    CHECK_STR(start(23, 1, 2, 3), "shim_report(1.2 ended)");
    shim_reports(24, 1, 1, SHIM_ENDED);
    CHECK_STR(start(25, 1, 3, 3), "spawn(1.3)"); /* the last generation has ended */
    CHECK_STR(start(26, 4, 1, 0x100), "shim_report(4.1 ended)");
    CHECK_STR(last_report()->cause, "slots 0x100 were ordered, node node0 has 8");
}

TEST(a_dead_shim_is_reported_until_acked)
{
    with_shim();
    CHECK_STR(shim_event(20, LAUNCHER_EVENT_SHIM_CLOSED, 1, 1, NULL, NULL), "");
    CHECK_STR(shim_event(21, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "was killed (signal 9)"),
              "shim_report(1.1 ended)");
    CHECK_STR(last_report()->cause, "the shim of job 1 on node0 was killed (signal 9)");
    CHECK_EQ(last_report()->ranks.count, 2);
    CHECK_EQ(last_report()->ranks.items[1].state, RANK_LOST);
    CHECK_STR(event(3 + BEAT_US, LAUNCHER_EVENT_TICK), "beat(1) shim_report(1.1 ended)");
    CHECK_STR(order(4 + BEAT_US, MSG_TYPE_REPORT_ACK, 1, 1), "");
    CHECK_STR(event(3 + 2 * BEAT_US, LAUNCHER_EVENT_TICK), "beat(1)");
    event(4 + 2 * BEAT_US, LAUNCHER_EVENT_SERVER_CLOSED);
    event(5 + 2 * BEAT_US, LAUNCHER_EVENT_SERVER_OPEN);
    CHECK_STR(welcome(6 + 2 * BEAT_US, "one"), "beat(1) shim_report(1.1 ended)");
    CHECK_STR(order(7 + 2 * BEAT_US, MSG_TYPE_FORGET, 1, 1), "remove(1.1)");
    CHECK_STR(event(6 + 3 * BEAT_US, LAUNCHER_EVENT_TICK), "beat(0)");
}

TEST(the_last_report_of_a_dead_shim_is_sent)
{
    struct part_report_rank ranks[2] = {
        {.rank = 0, .state = RANK_EXITED, .exit_code = 3},
        {.rank = 1, .state = RANK_STOPPED, .signal = 9},
    };
    struct msg end = {.type = MSG_TYPE_SHIM_REPORT};
    end.shim_report = (struct msg_shim_report){.phase = SHIM_ENDED,
                                               .revision = 8,
                                               .failed_rank = 0,
                                               .cause = "rank 0 exited with code 3",
                                               .tail = "last words",
                                               .error = "ValueError: no",
                                               .failed_oom = true,
                                               .failed_core = "/tmp/core.7",
                                               .ranks = {.items = ranks, .count = 2}};
    with_shim();
    shim_event(20, LAUNCHER_EVENT_SHIM_GONE, 1, 1, &end, "was killed (signal 9)");
    CHECK_STR(last_report()->cause, "rank 0 exited with code 3");
    CHECK_STR(last_report()->tail, "last words");
    CHECK_STR(last_report()->error, "ValueError: no");
    CHECK(last_report()->failed_oom);
    CHECK_STR(last_report()->failed_core, "/tmp/core.7");
    CHECK_EQ(last_report()->failed_rank, 0);
    CHECK_EQ(last_report()->ranks.items[0].exit_code, 3);
    CHECK_EQ(last_report()->ranks.items[1].state, RANK_STOPPED);
    CHECK_EQ(last_report()->revision, UINT32_MAX);
}

TEST(a_shim_that_could_not_be_started)
{
    connected();
    start(10, 1, 1, 1);
    CHECK_STR(shim_event(11, LAUNCHER_EVENT_SHIM_FAILED, 1, 1, NULL, "no space left"),
              "shim_report(1.1 ended)");
    CHECK_STR(last_report()->cause, "no space left");
    CHECK_STR(start(12, 2, 1, 1), "spawn(2.1)"); /* the slot is free */
    shim_event(13, LAUNCHER_EVENT_SHIM_FAILED, 2, 1, NULL, "no folder /a\nb\xc3");
    CHECK_STR(last_report()->cause, "no folder /a?b?"); /* otherwise it could not be sent */
}

TEST(a_closed_socket_is_opened_again)
{
    with_shim();
    shim_event(20, LAUNCHER_EVENT_SHIM_CLOSED, 1, 1, NULL, NULL);
    CHECK_EQ(actions.timer_at_us, 20 + 5000);
    CHECK_STR(event(20 + 5000, LAUNCHER_EVENT_TICK), "connect(1.1)");
    shim_event(6000, LAUNCHER_EVENT_SHIM_CLOSED, 1, 1, NULL, NULL);
    CHECK_EQ(actions.timer_at_us, 6000 + 10000);
    CHECK_STR(order(6001, MSG_TYPE_FORGET, 1, 1), ""); /* sent when the socket is open again */
    event(16000, LAUNCHER_EVENT_TICK);
    CHECK_STR(shim_open(16001, 1, 1, SHIM_ENDED), "1.1<lease(60000002) 1.1<forget");
}

/* A shim that says hello and closes is called ever less often: only a report shows that the connection is of use. */
TEST(a_hello_alone_does_not_make_a_shim_called_often)
{
    uint64_t now_us = 20;

    with_shim();
    for (uint32_t i = 0; i < 12; i++) {
        shim_event(now_us, LAUNCHER_EVENT_SHIM_CLOSED, 1, 1, NULL, NULL);
        CHECK_EQ(launcher.shims[0].connect_at_us, now_us + (i < 7 ? 5000ull << i : SECOND_US));
        now_us = launcher.shims[0].connect_at_us;
        event(now_us, LAUNCHER_EVENT_TICK);
        shim_open(now_us, 1, 1, SHIM_READY);
    }
    shim_reports(now_us, 1, 1, SHIM_READY);
    shim_event(now_us, LAUNCHER_EVENT_SHIM_CLOSED, 1, 1, NULL, NULL);
    CHECK_EQ(launcher.shims[0].connect_at_us, now_us + 5000);
}

TEST(shims_of_an_earlier_launcherd_are_adopted)
{
    begin();
    CHECK_STR(adopt(1, "one", true, NULL), "connect(1.1)");
    CHECK_STR(adopt(2, "one", false, NULL), "");
    CHECK_STR(event(2, LAUNCHER_EVENT_ADOPTED), "connect");
    CHECK_STR(shim_open(3, 1, 1, SHIM_RUNNING), "");
    CHECK_STR(event(4, LAUNCHER_EVENT_SERVER_OPEN), "hello(2)");
    CHECK_STR(welcome(5, "one"), "1.1<lease(60000004) beat(2) 1.1<report_request "
                                 "shim_report(2.1 ended)");
    CHECK_STR(last_report()->cause, "the shim of job 2 on node0 ended while launcherd was away");
}

TEST(another_server_cannot_give_orders_to_these_shims)
{
    begin();
    adopt(1, "two", true, NULL);
    event(2, LAUNCHER_EVENT_ADOPTED);
    shim_open(3, 1, 1, SHIM_RUNNING);
    event(4, LAUNCHER_EVENT_SERVER_OPEN);
    CHECK_STR(welcome(5, "one"), "beat(0)");
    CHECK_EQ(last_beat()->closed.count, 1); /* so that the server gives them to no job */
    CHECK_EQ(last_beat()->closed.items[0].slot, 1);
    CHECK_EQ(last_beat()->closed.items[0].state, SLOT_QUARANTINED);
    CHECK_STR(order(6, MSG_TYPE_FORGET, 1, 1), "");
    CHECK_STR(order(6, MSG_TYPE_STOP, 1, 1), "shim_report(1.1 ended)"); /* not passed on */
    CHECK_STR(last_report()->cause, "this node does not know the job");
    CHECK_STR(shim_reports(7, 1, 1, SHIM_RUNNING), "");
    CHECK_STR(beat_ack(8, 5), "");
    CHECK_STR(start(9, 1, 1, 1), "shim_report(1.1 ended)");
    CHECK_STR(last_report()->cause,
              "another job with this number, of another server or of an earlier state of "
              "this one, runs here");
    CHECK_STR(start(9, 2, 1, 2), "shim_report(2.1 ended)");
    CHECK_STR(last_report()->cause, "slot 1 of node node0 is used by job 1 of another server "
                                    "(cluster two), until its lease ends");
    CHECK_EQ(last_report()->failed_class, FAILURE_NODE);
    order(9, MSG_TYPE_FORGET, 2, 1);
    shim_event(10, LAUNCHER_EVENT_SHIM_GONE, 1, 1, NULL, "ended");
    CHECK_STR(order(10, MSG_TYPE_STOP, 1, 1), "shim_report(1.1 ended)");
    event(BEAT_US + 10, LAUNCHER_EVENT_TICK);
    CHECK_EQ(last_beat()->closed.count, 0);
    CHECK_STR(start(BEAT_US + 11, 1, 1, 1), "remove(1.1) spawn(1.1)");
}

TEST(a_shim_that_has_ended_never_gets_its_slot_back)
{
    with_shim();
    shim_reports(12, 1, 1, SHIM_ENDED);
    CHECK_STR(start(13, 2, 1, 3), "spawn(2.1)"); /* on the same slots */
    shim_reports(14, 1, 1, SHIM_RUNNING);
    CHECK_EQ(launcher_find(&launcher, 1, 1)->phase, SHIM_ENDED);
}

TEST(a_full_table_refuses)
{
    connected();
    for (uint32_t i = 1; i <= SHIMS_PER_NODE_MAX; i++) {
        start(10, i, 1, 1);
        shim_reports(11, i, 1, SHIM_ENDED);
    }
    CHECK_STR(start(12, 1000, 1, 1), "shim_report(1000.1 ended)");
    CHECK_STR(last_report()->cause, "this node has all the shims it can have");
    CHECK_STR(event(3 + BEAT_US, LAUNCHER_EVENT_TICK), "beat(128)");
}

TEST_MAIN
