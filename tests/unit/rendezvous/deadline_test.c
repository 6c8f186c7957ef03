/* The server's core: a node that is up, and does not carry out its orders. Time passes second by second, and each
 * node beats in it, so no node is ever silent unless the test says so. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/steps.h"
#include "rendezvous/core/restart.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

#define NODES 3u
#define SECONDS(us) ((uint32_t)((us) / SECOND_US))

static const char *const names[] = {"n1", "n2", "n3"};
static struct part_beat_shim listed[NODES][2]; /* what node i lists */
static uint32_t listed_count[NODES];
static bool is_silent[NODES];
static uint64_t conns[NODES], last_conn;
static bool was_closed[NODES]; /* its connection, by the server */
static uint32_t starts[NODES]; /* start orders to node i since begin() */
static uint32_t stops[NODES];
static char cause[REASON_BYTES_MAX]; /* the newest event that names a deadline */

static uint32_t node_of(uint64_t conn)
{
    uint32_t node = 0;

    while (node + 1 < NODES && conns[node] != conn)
        node++;
    return node;
}

static void count_orders(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct rdzv_action *action = &actions.items[i];

        if (action->type == RDZV_LOG_EVENT && strstr(action->text, "although it is up") != NULL)
            (void)snprintf(cause, sizeof cause, "%s", action->text);
        starts[node_of(action->conn)] += action->type == RDZV_SEND_START;
        stops[node_of(action->conn)] += action->type == RDZV_SEND_STOP;
        if (action->type == RDZV_CLOSE_NODE)
            was_closed[node_of(action->conn)] = true;
    }
}

/* On a new connection. */
static void hello(uint32_t node)
{
    conns[node] = ++last_conn;
    was_closed[node] = false;
    step_hello(conns[node], (struct msg_node_hello){.name = names[node],
                                                    .instance = node + 1,
                                                    .slots = 1,
                                                    .shims = {listed[node], listed_count[node]}});
    count_orders();
}

static void begin(uint32_t nodes)
{
    memset(listed_count, 0, sizeof listed_count);
    memset(is_silent, 0, sizeof is_silent);
    memset(starts, 0, sizeof starts);
    memset(stops, 0, sizeof stops);
    cause[0] = '\0';
    begin_fenced(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < nodes; i++)
        hello(i);
}

static void pass(uint32_t nodes, uint32_t seconds)
{
    for (; seconds > 0; seconds--) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
        count_orders();
        for (uint32_t i = 0; i < nodes; i++) {
            if (is_silent[i])
                continue;
            if (was_closed[i])
                hello(i);
            step_beat(conns[i], listed[i], listed_count[i]);
            count_orders();
        }
    }
}

static struct part_node shown(uint32_t node)
{
    struct part_node part;

    rdzv_node_at(core, node, now_us, &part);
    return part;
}

static const struct rdzv_record *job(void)
{
    return rdzv_job_record(core, 1);
}

/* The node lists its shim of job 1 from now on. */
static void list(uint32_t node, enum shim_phase phase)
{
    listed[node][0] = (struct part_beat_shim){
        .job_id = 1, .generation = job()->generation, .phase = phase, .slot_mask = 1};
    listed_count[node] = 1;
}

static void report(uint32_t node, uint32_t rank, enum shim_phase phase, bool joined)
{
    list(node, phase);
    step_rank_report(conns[node], (struct rank_report){.job_id = 1,
                                                       .rank = rank,
                                                       .phase = phase,
                                                       .generation = job()->generation,
                                                       .joined = joined,
                                                       .is_stopped = phase == SHIM_ENDED});
    count_orders();
}

static void submit(struct msg_submit request)
{
    request.nproc_per_node = 1;
    request.max_restarts = 3;
    CHECK_EQ(step_submit(request), 1);
    count_orders();
    CHECK_EQ(job()->state, JOB_STARTING);
}

/* The case: n1 beats, and the start order never arrives. */
TEST(a_node_that_does_not_take_its_start_order_has_failed_the_job)
{
    begin(2);
    submit((struct msg_submit){.nodes = 1});
    CHECK_STR(job()->where, "n1");
    pass(2, SECONDS(STEP_TAKE_US) - 1);
    CHECK_EQ(job()->generation, 1);
    CHECK_EQ(job()->state, JOB_STARTING);
    pass(2, 3);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n2");
    CHECK_EQ(job()->node_failures, 1);
    CHECK_EQ(job()->restarts_without_progress, 0);
    CHECK_STR(job()->failed_node, "n1");
    CHECK_EQ(job()->failed_class, FAILURE_PROGRAM); /* of the new generation: none yet */
    report(1, 0, SHIM_READY, false);
    report(1, 0, SHIM_RUNNING, false);
    CHECK_EQ(job()->state, JOB_RUNNING);
}

TEST(the_cause_names_the_node_the_step_and_the_time)
{
    begin(2);
    submit((struct msg_submit){.nodes = 2});
    list(0, SHIM_PREPARING);
    report(0, 0, SHIM_READY, false);
    pass(2, SECONDS(STEP_TAKE_US) + 1);
    CHECK_EQ(job()->stopping, 1);
    CHECK_EQ(job()->failed_class, FAILURE_NODE);
    CHECK_STR(job()->failed_node, "n2");
    CHECK_STR(job()->reason, "node n2 did not take its start order within 30 s, although it is up");
    CHECK(stops[0] > 0);
}

TEST(a_node_that_does_not_prepare_its_part_has_failed_the_job)
{
    begin(2);
    submit((struct msg_submit){.nodes = 1});
    pass(2, 20);
    list(0, SHIM_PREPARING);
    pass(2, SECONDS(STEP_PREPARE_US)); /* counts from the first list */
    CHECK_EQ(job()->generation, 1);
    pass(2, 3);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n2");
    CHECK(stops[0] > 0); /* what is left there is stopped */
}

/* An archive of 64 MiB may take ten minutes on a slow line, and the node watches over it. */
TEST(a_staged_folder_may_take_ten_minutes)
{
    begin(2);
    submit((struct msg_submit){
        .nodes = 1,
        .cwd = "stage:0123456789012345678901234567890123456789012345678901234567890123"});
    list(0, SHIM_PREPARING);
    pass(2, 620);
    CHECK_EQ(job()->generation, 1);
    CHECK_EQ(job()->state, JOB_STARTING);
    pass(2, 15);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n2");
}

/* One is ready and waits for the other: it is not overdue. */
TEST(who_waits_for_others_is_not_late)
{
    begin(2);
    submit((struct msg_submit){
        .nodes = 2,
        .cwd = "stage:0123456789012345678901234567890123456789012345678901234567890123"});
    report(0, 0, SHIM_READY, false);
    list(1, SHIM_PREPARING);
    pass(2, 400);
    CHECK_EQ(job()->state, JOB_STARTING);
    CHECK_EQ(job()->stopping, 0);
    report(1, 1, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, false);
    report(1, 1, SHIM_RUNNING, false);
    CHECK_EQ(job()->state, JOB_RUNNING);
    pass(2, 700);
    CHECK_EQ(job()->state, JOB_RUNNING);
    CHECK_EQ(job()->stopping, 0);
}

/* After the go a rank may run: the part is stopped, and waited for. */
TEST(a_go_that_is_not_carried_out)
{
    begin(3);
    submit((struct msg_submit){.nodes = 2});
    report(0, 0, SHIM_READY, false);
    report(1, 1, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, false);
    pass(3, SECONDS(STEP_RUN_US) + 1);
    CHECK_EQ(job()->stopping, 1);
    CHECK_STR(job()->reason,
              "node n2 did not start its ranks after the go within 75 s, although it is up");
    report(0, 0, SHIM_ENDED, false);
    pass(3, 20);
    CHECK_EQ(job()->generation, 1);
    report(1, 1, SHIM_ENDED, false);
    listed_count[0] = listed_count[1] = 0;
    pass(3, 2);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n1,n3");
}

TEST(a_world_that_does_not_arrive)
{
    begin(3);
    submit((struct msg_submit){.nodes = 2});
    report(0, 0, SHIM_READY, false);
    report(1, 1, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, true);
    report(1, 1, SHIM_RUNNING, true);
    CHECK_EQ(job()->state, JOB_RUNNING);
    pass(3, SECONDS(STEP_WORLD_US) - 1);
    CHECK_EQ(job()->stopping, 0);
    pass(3, 2);
    CHECK_EQ(job()->stopping, 1);
    CHECK_STR(job()->reason,
              "node n1, and 1 more nodes, did not pass on to its ranks where rank 0 is "
              "within 20 s, although it is up");
}

/* Nothing has begun, so a cancel need not wait for a node that does not answer it. */
TEST(a_cancelled_start_ends_although_the_stop_does_not_arrive)
{
    struct msg cancel = {.type = MSG_TYPE_CANCEL, .cancel = {.signal = SIGTERM, .grace_us = -1}};

    begin(1);
    submit((struct msg_submit){.nodes = 1, .grace_us = 600 * SECOND_US});
    list(0, SHIM_PREPARING);
    pass(1, 2);
    step((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = 1, .job_id = 1, .msg = &cancel, .user = "ann"});
    pass(1, SECONDS(STEP_STOP_IDLE_US) - 1);
    CHECK_EQ(job()->state, JOB_STARTING);
    pass(1, 2);
    CHECK(job() == NULL || job()->state == JOB_CANCELLED);
}

/* Ranks may run there: the job waits, and its events say so, once. */
TEST(a_stop_that_is_not_carried_out_is_told_and_waited_for)
{
    struct msg cancel = {.type = MSG_TYPE_CANCEL, .cancel = {.signal = SIGTERM, .grace_us = -1}};
    struct part_job shown;
    uint32_t told = 0;

    begin(1);
    submit((struct msg_submit){.nodes = 1, .grace_us = 5 * SECOND_US});
    report(0, 0, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, false);
    step((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = 1, .job_id = 1, .msg = &cancel, .user = "ann"});
    for (uint32_t i = 0; i < 600; i++) {
        now_us += SECOND_US;
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
        for (uint32_t k = 0; k < actions.count; k++)
            told += actions.items[k].type == RDZV_LOG_EVENT &&
                    strstr(actions.items[k].text, "node n1 did not carry out a stop") != NULL;
        step_beat(conns[0], listed[0], 1);
        if (i == 90)
            CHECK_EQ(told, 0);
    }
    CHECK_EQ(told, 1);
    CHECK_EQ(job()->state, JOB_RUNNING);
    rdzv_job_part(core, 1, &shown);
    CHECK_STR(shown.reason,
              "node n1 did not carry out a stop within 95 s, although it is up: the job waits, as "
              "ranks may run there; ending its launcherd lets the node count as lost");
    report(0, 0, SHIM_ENDED, false);
    CHECK(job() == NULL || job()->state == JOB_CANCELLED);
}

/* Time in which the server was stopped, or the node was silent, does not count. */
TEST(only_time_in_which_both_could_act_counts)
{
    begin(1);
    submit((struct msg_submit){.nodes = 1});
    list(0, SHIM_PREPARING);
    pass(1, 30);
    now_us += 100 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK, .paused_us = 100 * SECOND_US});
    pass(1, 10);
    is_silent[0] = true;
    pass(1, 13); /* 5 of them count: silent for longer means suspect */
    is_silent[0] = false;
    CHECK_EQ(job()->generation, 1);
    pass(1, 1);
    CHECK_EQ(job()->state, JOB_STARTING);
    CHECK_EQ(job()->stopping, 0);
    pass(1, 4);
    CHECK(job()->generation == 2 || job()->state == JOB_RESTARTING);
}

/* A server that was started again cannot know when a part began its step, so it gives each its whole time, from
 * when its node is heard first. */
TEST(a_new_server_gives_the_whole_time_again)
{
    struct rdzv_record stored;

    begin(2);
    submit((struct msg_submit){.nodes = 1});
    pass(2, 20);
    stored = keep_record(1);
    begin_fenced(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &stored});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    now_us += 50 * SECOND_US;
    hello(0);
    hello(1);
    pass(2, SECONDS(STEP_TAKE_US) - 1);
    CHECK_EQ(job()->generation, 1);
    CHECK_EQ(job()->state, JOB_STARTING);
    CHECK_EQ(job()->stopping, 0);
    pass(2, 2);
    CHECK_STR(cause, "node n1 did not take its start order within 30 s, although it is up");
    CHECK_STR(job()->where, "n2");
}

/* With one node only there is nowhere else: it is tried there again, as after other failures that may pass, and then
 * the job has failed, with that reason. */
TEST(the_only_node_is_tried_again)
{
    uint32_t generation = 0;

    begin(1);
    submit((struct msg_submit){.nodes = 1});
    for (uint32_t s = 0; s < 1000 && job() != NULL && job()->state != JOB_FAILED; s++) {
        generation = job()->generation;
        pass(1, 1);
    }
    CHECK(job() == NULL || job()->state == JOB_FAILED);
    CHECK_EQ(generation, RESTART_ALONE + 1);
    CHECK_EQ(starts[0] > 40, true); /* the order was repeated all the time */
    CHECK_STR(cause, "node n1 did not take its start order within 30 s, although it is up");
}

/* It ran there in the end, since it had to; when its program fails, another node is there. */
TEST(a_node_that_was_late_is_chosen_last_for_ten_minutes)
{
    begin(1);
    submit((struct msg_submit){.nodes = 1});
    while (job()->generation < 2)
        pass(1, 1);
    CHECK_STR(job()->where, "n1");
    report(0, 0, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, false);
    CHECK_EQ(job()->state, JOB_RUNNING);
    hello(1);
    step_rank_report(
        conns[0],
        (struct rank_report){.job_id = 1, .phase = SHIM_ENDED, .generation = 2, .exit_code = 3});
    listed_count[0] = 0;
    pass(2, 5);
    CHECK_EQ(job()->generation, 3);
    CHECK_STR(job()->where, "n2");
}

/* A launcherd that comes and goes, and lists the shim now and then, gets no new time with each list. */
TEST(a_list_that_comes_and_goes_is_no_progress)
{
    begin(2);
    submit((struct msg_submit){.nodes = 1});
    for (uint32_t i = 0; i < 6 && job()->generation == 1; i++) {
        list(0, SHIM_PREPARING);
        pass(2, 5);
        listed_count[0] = 0;
        pass(2, 5);
    }
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n2");
}

TEST(what_a_node_has_not_done_is_shown_until_a_start_goes_on)
{
    begin(1);
    submit((struct msg_submit){.nodes = 1});
    CHECK_STR(shown(0).notice, "");
    pass(1, SECONDS(STEP_TAKE_US) + 2);
    CHECK_STR(shown(0).notice, "job 1: it did not take its start order within 30 s");
    pass(1, 3);
    report(0, 0, SHIM_READY, false);
    CHECK_STR(shown(0).notice, "job 1: it did not take its start order within 30 s");
    report(0, 0, SHIM_RUNNING, false);
    CHECK_STR(shown(0).notice, "");
}

/* Small messages pass, large ones do not: the node says hello every two seconds. */
TEST(reconnects_are_counted_told_once_and_named)
{
    uint32_t told = 0;

    begin(1);
    submit((struct msg_submit){.nodes = 1});
    for (uint32_t i = 0; i < 14; i++) {
        pass(0, 2);
        hello(0);
        for (uint32_t k = 0; k < actions.count; k++)
            told += actions.items[k].type == RDZV_LOG_EVENT &&
                    strstr(actions.items[k].text, "node n1 has connected again 3 times") != NULL;
    }
    CHECK_EQ(told, 1);
    CHECK_EQ(shown(0).reconnects, 14);
    CHECK(strstr(shown(0).notice, "has connected again 14 times within 28 s: its connection does "
                                  "not hold.") == shown(0).notice);
    for (uint32_t i = 0; i < 4; i++) {
        pass(0, 1);
        step_beat(conns[0], NULL, 0);
        count_orders();
    }
    CHECK_STR(cause, "node n1 did not take its start order within 30 s, although it is up, and has "
                     "connected again 14 times: small messages arrive, large ones may be lost on "
                     "the way");
}

static void beat_silent(uint32_t node, uint32_t count)
{
    const struct part_shim_silent shim = {.job_id = 1,
                                          .generation = job()->generation,
                                          .pid = 77,
                                          .silent_us = 31 * SECOND_US,
                                          .state = "T (stopped)"};
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.shims.items = listed[node];
    msg.beat.shims.count = listed_count[node];
    msg.beat.silent.items = &shim;
    msg.beat.silent.count = count;
    step_node(conns[node], &msg);
}

TEST(a_shim_that_does_not_answer_is_shown_with_its_job_and_its_node)
{
    struct part_job shown;
    struct part_node at;

    begin(1);
    submit((struct msg_submit){.nodes = 1});
    report(0, 0, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, false);
    beat_silent(0, 1);
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 1);
    rdzv_job_part(core, 1, &shown);
    rdzv_node_at(core, 0, now_us, &at);
    CHECK(strstr(shown.reason, "the shim of job 1 on node n1, pid 77, does not answer since ") !=
          NULL);
    CHECK(strstr(shown.reason, " UTC: state T (stopped)") != NULL);
    CHECK_STR(at.notice, shown.reason);
    beat_silent(0, 1);
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 0); /* once */
    CHECK_EQ(job()->state, JOB_RUNNING);
    beat_silent(0, 0);
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 1);
    rdzv_job_part(core, 1, &shown);
    rdzv_node_at(core, 0, now_us, &at);
    CHECK_STR(shown.reason, "");
    CHECK_STR(at.notice, "");
}

/* A launcherd that was started again does not know whether the shim waits for a folder, and so does not kill it; one that
 * stages a folder answers. */
TEST(a_shim_that_prepares_and_does_not_answer_gets_no_ten_minutes)
{
    begin(2);
    submit((struct msg_submit){
        .nodes = 1,
        .cwd = "stage:0123456789012345678901234567890123456789012345678901234567890123"});
    list(0, SHIM_PREPARING);
    pass(2, 2);
    for (uint32_t i = 0; i < 50 && job()->generation == 1; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step_beat(conns[1], NULL, 0);
        count_orders();
        beat_silent(0, i >= 30);
        count_orders();
    }
    CHECK_STR(cause, "node n1 did not prepare its part within 45 s, although it is up");
    pass(2, 2);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->where, "n2");
}

/* The server before may have sent it a go: ranks that may run have their grace. */
TEST(a_part_that_may_have_begun_is_stopped_with_grace)
{
    static struct rdzv_part part;
    struct rdzv_record record;
    const struct rdzv_action *stop = NULL;

    begin(2);
    submit((struct msg_submit){.nodes = 1, .grace_us = 7 * SECOND_US});
    record = keep_record(1);
    part = record.parts[0];
    record.parts = &part;
    begin_fenced(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    list(0, SHIM_PREPARING);
    hello(0);
    for (uint32_t i = 0; i < 50 && stop == NULL; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        beat_silent(0, 1);
        stop = count_of(RDZV_SEND_STOP) > 0 ? find(RDZV_SEND_STOP) : NULL;
    }
    CHECK(stop != NULL && stop->signal == SIGTERM && stop->grace_us == 7 * SECOND_US);
    CHECK_EQ(job()->generation, 1);
    report(0, 0, SHIM_ENDED, false);
    CHECK_EQ(job()->state, JOB_RESTARTING);
}

TEST(an_end_that_is_not_stored_counts_and_is_shown)
{
    struct part_report_rank rank = {.rank = 0, .state = RANK_EXITED};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};
    struct part_node at;

    begin(1);
    submit((struct msg_submit){.nodes = 1});
    report(0, 0, SHIM_READY, false);
    report(0, 0, SHIM_RUNNING, false);
    msg.shim_report = (struct msg_shim_report){.job_id = 1,
                                               .generation = 1,
                                               .revision = 9,
                                               .phase = SHIM_ENDED,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = "",
                                               .notice = "the end of job 1 is not stored: a disk"};
    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step_node(conns[0], &msg);
    CHECK_EQ(find(RDZV_LOG_EVENT) != NULL, true);
    CHECK_STR(find(RDZV_LOG_EVENT)->text, "node n1: the end of job 1 is not stored: a disk");
    rdzv_node_at(core, 0, now_us, &at);
    CHECK_STR(at.notice, "the end of job 1 is not stored: a disk");
}

TEST_MAIN
