/* Nodes that know more than the server's state: it is of the past, and its numbers go on above theirs. */
#include "tests/unit/rendezvous/core_tools.h"

#include <string.h>

#include "rendezvous/core/history.h"
#include "tests/lib/test.h"

#define GAP 10u

static struct rdzv_record record;

static void hello(uint64_t conn, const char *name, const char *cluster, uint64_t job_id,
                  uint32_t generation)
{
    const struct part_cluster_seen seen[] = {
        {.cluster = "another", .job_id = 900, .generation = 9},
        {.cluster = cluster, .job_id = job_id, .generation = generation}};

    step_hello(conn, (struct msg_node_hello){
                         .name = name, .instance = conn, .slots = 1, .seen = {seen, 2}});
}

/* Whether the last step said so. */
static bool is_of_past(void)
{
    const struct rdzv_action *said = find(RDZV_LOG_EVENT);
    bool found = false;

    for (uint32_t i = 0; said != NULL && i < actions.count; i++)
        found = found || (actions.items[i].type == RDZV_LOG_EVENT &&
                          strncmp(actions.items[i].text, RDZV_OF_PAST, strlen(RDZV_OF_PAST)) == 0);
    return found;
}

static uint64_t submit(void)
{
    return step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3});
}

static void report(uint64_t job_id, enum shim_phase phase)
{
    step_rank_report(1, (struct rank_report){.job_id = job_id, .phase = phase, .cause = ""});
}

/* A server with the leases of nodes, restored with three jobs that have ended. */
static void begin(void)
{
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 4});
}

TEST(a_server_that_knows_as_much_says_nothing)
{
    begin();
    hello(1, "a", "test", 3, 1);
    CHECK(!is_of_past() && find(RDZV_PERSIST_GAP) == NULL);
    hello(2, "b", "another", 50, 1);
    CHECK(!is_of_past() && find(RDZV_PERSIST_GAP) == NULL);
    CHECK_EQ(submit(), 4);
}

TEST(one_that_knows_less_goes_on_above)
{
    begin();
    hello(1, "a", "test", 9, 1);
    CHECK(is_of_past());
    CHECK_EQ(find(RDZV_PERSIST_GAP)->job_id, 9 + GAP);
    CHECK_EQ(submit(), 10 + GAP);
    hello(2, "b", "test", 9, 1);
    CHECK(!is_of_past());
    hello(3, "c", "test", 30 + GAP, 1); /* this one knows more than the first */
    CHECK_EQ(find(RDZV_PERSIST_GAP)->job_id, 30 + 2 * GAP);
    CHECK_EQ(submit(), 31 + 2 * GAP);
}

TEST(a_number_out_of_reach_is_not_believed)
{
    begin();
    hello(1, "a", "test", 4 + (uint64_t)HISTORY_AHEAD_MAX, 1);
    CHECK(!is_of_past() && find(RDZV_PERSIST_GAP) == NULL);
    hello(2, "b", "test", JOB_ID_MAX, 1);
    CHECK(!is_of_past());
    CHECK_EQ(submit(), 4);
}

/* Job 1 is queued in the state that was put back; in truth it has run twice. */
static void put_back(void)
{
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    CHECK_EQ(submit(), 1);
    record = keep_record(1);
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
}

TEST(a_generation_goes_on_above_when_nothing_can_run_any_more)
{
    put_back();
    hello(1, "a", "test", 1, 2);
    CHECK(is_of_past());
    CHECK(find(RDZV_SEND_START) == NULL);
    CHECK(strstr(rdzv_job_record(core, 1)->reason, "leases") != NULL);
    CHECK_EQ(submit(), 2 + GAP); /* its number is new, so it may start */
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 2 + GAP);
    report(2 + GAP, SHIM_READY);
    report(2 + GAP, SHIM_RUNNING);
    report(2 + GAP, SHIM_ENDED);
    for (uint32_t i = 0; i < 59; i++) {
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
        CHECK(find(RDZV_SEND_START) == NULL);
    }
    hello(2, "b", "test", 1, 1);
    now_us += SECOND_US + LEASE_MARGIN_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 1);
    CHECK_EQ(find(RDZV_SEND_START)->generation, 3);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, 3);
    CHECK_EQ(rdzv_job_record(core, 1)->restarts, 2);
}

/* A hello comes before the welcome: its shims may be of another cluster. */
TEST(shims_count_once_the_node_knows_the_cluster)
{
    const struct part_beat_shim shim = {7, 1, SHIM_RUNNING, 1, false};

    begin();
    step_hello(
        1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .shims = {&shim, 1}});
    CHECK(!is_of_past());
    step_beat(1, &shim, 1);
    CHECK(is_of_past());
    CHECK_EQ(find(RDZV_PERSIST_GAP)->job_id, 7 + GAP);
    CHECK_EQ(find(RDZV_SEND_STOP)->job_id, 7);
}

/* A part of a running job is gone, and the state is of the past: the job has gone on since, which is no
 * failure of it. */
TEST(what_went_on_is_no_failure)
{
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a", "test", 1, 1);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1}), 1 + 1 + GAP);
    record = keep_record(2 + GAP);
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3 + GAP});
    hello(1, "a", "test", 5 + GAP, 1);
    CHECK(is_of_past());
    CHECK_EQ(rdzv_job_record(core, 2 + GAP)->state, JOB_RESTARTING);
    CHECK(rdzv_job_record(core, 2 + GAP)->planned);
}

/* A backup is restored, and the clock is set forward before the server starts: a job may still run with a lease of
 * before, also one that was queued when the backup was made. */
TEST(jobs_of_a_restored_copy_wait_for_a_whole_lease_by_no_clock_that_can_be_set)
{
    put_back();
    begin_copy(8, 4);
    record.state = JOB_RESTARTING;
    record.generation = 1;
    record.planned = true;
    record.retry_at_ms = wall_ms + 60000;
    wall_ms += 24 * 3600 * 1000;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2 + GAP});
    hello(1, "a", "other", 1, 1);
    CHECK(find(RDZV_SEND_START) == NULL);
    CHECK_EQ(submit(), 2 + GAP); /* what is new starts at once */
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 2 + GAP);
    report(2 + GAP, SHIM_READY);
    report(2 + GAP, SHIM_RUNNING);
    report(2 + GAP, SHIM_ENDED);
    for (uint32_t i = 0; i < 59; i++) {
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
        CHECK(find(RDZV_SEND_START) == NULL);
    }
    now_us += SECOND_US + LEASE_MARGIN_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 1);
}

/* Job 1 is cancelled, with its ranks in their grace period or in a later generation on a node that is not heard, and the
 * next job is to start after it. */
static void follow_cancelled(void)
{
    struct msg cancel = {.type = MSG_TYPE_CANCEL, .cancel = {.signal = 15, .grace_us = -1}};
    struct msg msg = {.type = MSG_TYPE_SUBMIT,
                      .submit = {.request_id = "f",
                                 .name = "follower",
                                 .cwd = "/",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .max_restarts = 3}};

    step((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &cancel, .user = "ann"});
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_CANCELLED);
    step((struct rdzv_event){.type = RDZV_EVENT_SUBMIT,
                             .client = 7,
                             .msg = &msg,
                             .user = "ann",
                             .after = {.count = 1, .items = {{1, 1, true}}}});
    CHECK_EQ(find(RDZV_REPLY_SUBMITTED)->job_id, 2);
}

TEST(what_follows_a_job_of_a_copy_waits_too_although_that_has_ended_here)
{
    for (uint32_t is_copy = 0; is_copy < 2; is_copy++) {
        put_back();
        if (is_copy == 1)
            begin_copy(8, 4);
        else
            begin_unsure(8, 4);
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
        hello(1, "a", "other", 1, 1);
        follow_cancelled();
        for (uint32_t i = 0; i < 59; i++) {
            now_us += SECOND_US;
            step_beat(1, NULL, 0);
            CHECK(find(RDZV_SEND_START) == NULL);
            CHECK(strstr(rdzv_job_record(core, 2)->reason, "leases") != NULL);
        }
        now_us += SECOND_US + LEASE_MARGIN_US;
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
        CHECK_EQ(find(RDZV_SEND_START)->job_id, 2);
    }
}

/* The same state again, by a server that cannot know that it is the newest. */
static void put_back_unsure(void)
{
    put_back();
    begin_unsure(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
}

/* In truth job 1 runs on node a, which is cut off. */
TEST(a_job_waits_for_a_node_that_may_run_it)
{
    put_back_unsure();
    hello(1, "b", "test", 0, 0);
    CHECK(find(RDZV_SEND_START) == NULL);
    CHECK(strstr(rdzv_job_record(core, 1)->reason, "the newest is not known") != NULL);
    CHECK_EQ(submit(), 2); /* what is new starts at once */
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 2);
    report(2, SHIM_READY);
    report(2, SHIM_RUNNING);
    report(2, SHIM_ENDED);
    for (uint32_t i = 0; i < 59; i++) {
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
        CHECK(find(RDZV_SEND_START) == NULL);
    }
    now_us += SECOND_US + LEASE_MARGIN_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 1);
}

/* The part of a running job is not on its node: it may have gone on elsewhere, in a later generation. */
TEST(nor_does_a_restart_begin_beside_what_an_unheard_node_may_run)
{
    bool is_restored = false;

    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a", "test", 0, 0);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3}),
             1);
    report(1, SHIM_READY);
    report(1, SHIM_RUNNING);
    record = keep_record(1);
    begin_unsure(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "a", "test", 0, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_RESTARTING);
    CHECK_STR(
        rdzv_failure(core, 1, &is_restored)->decision,
        "restarted when earlier leases are over: 62 s at most (--max-restarts does not count it)");
    for (uint32_t i = 0; i < 59; i++) {
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
        CHECK(find(RDZV_SEND_START) == NULL);
    }
    hello(
        2, "b", "test", 0,
        0); /* that all nodes of this state have called is no proof: others may have joined since */
    CHECK(find(RDZV_SEND_START) == NULL);
    now_us += SECOND_US + LEASE_MARGIN_US;
    step_beat(1, NULL, 0);
    CHECK_EQ(find(RDZV_SEND_START)->generation, 2);
}

/* Nor a start that this state was about to order: the job may be further, and run on the node that is not heard. */
TEST(nor_is_a_start_ordered_again_beside_that)
{
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a", "test", 0, 0);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3}),
             1);
    record = keep_record(1);
    CHECK_EQ(record.state, JOB_STARTING);
    begin_unsure(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "a", "test", 0, 0);
    for (uint32_t i = 0; i < 50; i++) {
        CHECK(find(RDZV_SEND_START) == NULL);
        CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_STARTING); /* and nobody is late */
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
    }
    now_us += 10 * SECOND_US + LEASE_MARGIN_US;
    step_beat(1, NULL, 0);
    CHECK_EQ(find(RDZV_SEND_START)->generation, 1);
    now_us += 20 * SECOND_US;
    step_beat(1, NULL, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, 1);
}

/* A node that cannot say which machine it is, as in some containers, is not known to be the same after a restart of the
 * server. Job 1 was starting there. */
static void restart_with_unknown(uint32_t max_restarts)
{
    const struct msg_node_hello unknown = {
        .name = "a", .machine_id = "", .boot_id = BOOT_ID_UNKNOWN, .instance = 1, .slots = 1};

    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, unknown);
    CHECK_EQ(step_submit((struct msg_submit){
                 .nodes = 1, .nproc_per_node = 1, .max_restarts = max_restarts}),
             1);
    record = keep_record(1);
    begin_fenced(8, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    step_hello(1, unknown);
    CHECK(strstr(find(RDZV_LOG_EVENT)->text, "is up") != NULL);
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 2); /* and that the job waits */
    for (uint32_t i = 0; i < 59; i++) {
        CHECK(find(RDZV_SEND_START) == NULL);
        CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_STARTING);
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
    }
    now_us += 2 * SECOND_US + LEASE_MARGIN_US;
    step_beat(1, NULL, 0);
}

TEST(a_start_that_may_have_been_lost_is_no_failure_of_its_node)
{
    restart_with_unknown(3);
    CHECK_EQ(find(RDZV_SEND_START)->generation, 2);
    CHECK_EQ(rdzv_job_record(core, 1)->node_failures, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->restarts_without_progress, 0);
}

/* The user wants it to run once at most, and it may have. */
TEST(nor_does_it_begin_again_without_restarts)
{
    restart_with_unknown(0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_FAILED);
    CHECK(strstr(rdzv_job_record(core, 1)->reason, "whether its ranks began") != NULL);
}

static void hello_seen(uint64_t conn, const char *name, const char *cluster, uint64_t job_id,
                       uint64_t lease_us)
{
    const struct part_cluster_seen seen = {
        .cluster = cluster, .job_id = job_id, .generation = 0, .lease_us = lease_us};

    step_hello(conn, (struct msg_node_hello){
                         .name = name, .instance = conn, .slots = 1, .seen = {&seen, 1}});
}

static void hello_leased(uint64_t conn, const char *name, const char *cluster, uint64_t lease_us)
{
    hello_seen(conn, name, cluster, 1, lease_us);
}

static void starts_after(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds - 1; i++) {
        now_us += SECOND_US;
        step_beat(1, NULL, 0);
        CHECK(find(RDZV_SEND_START) == NULL);
    }
    now_us += SECOND_US + LEASE_MARGIN_US;
    step_beat(1, NULL, 0);
    CHECK_EQ(find(RDZV_SEND_START)->job_id, 1);
}

/* Node a, which is cut off, has a lease that was given after this state, as node b has. */
TEST(a_lease_of_later_is_told_by_nodes)
{
    put_back_unsure();
    hello_leased(1, "b", "test", 100 * SECOND_US);
    starts_after(100);
    put_back_unsure();
    hello_leased(1, "b", "test", 100 * SECOND_US);
    CHECK_EQ(find(RDZV_PERSIST_LEASE)->lease_us,
             100 * SECOND_US); /* for a server that starts meanwhile */
    hello_leased(1, "b", "test", 100 * SECOND_US);
    CHECK(find(RDZV_PERSIST_LEASE) == NULL);
    put_back_unsure();
    hello_leased(1, "b", "another", 100 * SECOND_US);
    starts_after(60);
    put_back_unsure();
    hello_leased(1, "b", "test", DURATION_US_MAX); /* no server gives that */
    starts_after(60);
    put_back();
    begin_copy(8, 4); /* it has a cluster id of its own */
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello_leased(1, "b", "another", 100 * SECOND_US);
    starts_after(100);
}

/* The lease that was known is over when it calls. */
TEST(a_node_that_calls_late_tells_it_too)
{
    put_back_unsure();
    now_us += 70 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    hello_leased(1, "b", "test", 100 * SECOND_US);
    CHECK(find(RDZV_SEND_START) == NULL);
    starts_after(30);
    now_us += 5 * SECOND_US;
    hello_leased(2, "c", "test", 101 * SECOND_US); /* this one is over */
    CHECK(find(RDZV_PERSIST_LEASE) == NULL);
}

/* Nothing was in doubt until this hello, which says both. */
TEST(the_node_that_shows_the_past_tells_the_lease_too)
{
    put_back();
    hello_seen(1, "b", "test", 9, 100 * SECOND_US);
    CHECK(is_of_past());
    starts_after(100);
}

TEST_MAIN
