/* A job that has ended while one of its nodes was lost: what follows it waits until its ranks must have ended. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <string.h>

#include "rendezvous/core/after_list.h"
#include "tests/lib/test.h"

#define LEASE_US (60 * SECOND_US - LEASE_MARGIN_US)

static void hello(uint64_t conn, const char *name, const struct part_beat_shim *shims,
                  uint32_t count)
{
    step_hello(conn, (struct msg_node_hello){
                         .name = name, .instance = conn, .slots = 1, .shims = {shims, count}});
}

/* Node a has run them, under the same process as before. */
static void back(const struct part_beat_shim *shims, uint32_t count)
{
    step_hello(4, (struct msg_node_hello){
                      .name = "a", .instance = 1, .slots = 1, .shims = {shims, count}});
}

static void report(uint64_t conn, uint32_t generation, enum shim_phase phase, bool joined)
{
    step_rank_report(conn,
                     (struct rank_report){
                         .job_id = 1, .generation = generation, .phase = phase, .joined = joined});
}

static struct msg_submit one(void)
{
    return (struct msg_submit){.request_id = "0",
                               .name = "job",
                               .cwd = "/",
                               .nodes = 1,
                               .nproc_per_node = 1,
                               .max_restarts = 3};
}

/* Job 1 runs on node a. */
static void run_on_a(bool joined)
{
    report(1, 1, SHIM_READY, false);
    report(1, 1, SHIM_RUNNING, joined);
}

static void submit_to_a(struct msg_submit submit, bool joined)
{
    begin_leased(8, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a", NULL, 0);
    CHECK_EQ(step_submit(submit), 1);
    run_on_a(joined);
}

/* Job 2, after job 1. */
static void follow(bool any)
{
    struct msg msg = {.type = MSG_TYPE_SUBMIT, .submit = one()};

    step((struct rdzv_event){.type = RDZV_EVENT_SUBMIT,
                             .client = 7,
                             .msg = &msg,
                             .user = "ann",
                             .after = {.count = 1, .items = {{1, 1, any}}}});
    CHECK_EQ(count_of(RDZV_REPLY_SUBMITTED), 1);
}

/* The jobs 1 and 2 of an array, of which one runs at a time. */
static void submit_array(void)
{
    static struct array_spec array;
    struct msg msg = {.type = MSG_TYPE_SUBMIT, .submit = one()};
    struct err err;

    begin_leased(8, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "a", NULL, 0);
    CHECK_EQ(array_spec_parse("0-1%1", &array, &err), STATUS_OK);
    for (uint32_t i = 0; i < 2; i++)
        step((struct rdzv_event){.type = RDZV_EVENT_SUBMIT,
                                 .client = 7,
                                 .msg = &msg,
                                 .user = "ann",
                                 .array = &array,
                                 .array_place = i});
    run_on_a(false);
}

static void cancel(void)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = 0}};

    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
}

static void pass(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step_beat(2, NULL, 0);
        step_beat(3, NULL, 0);
    }
}

/* Node a is silent, and lost after 15 s; b and c have a free slot each. */
static void lose_a(void)
{
    hello(2, "b", NULL, 0);
    hello(3, "c", NULL, 0);
    pass(14);
    CHECK(rdzv_node_conn(core, "a") != 0);
    pass(1);
    CHECK_EQ(rdzv_node_conn(core, "a"), 0);
}

static enum job_state state_of(uint64_t id)
{
    return rdzv_job_record(core, id)->state;
}

static void check_waits(const char *why)
{
    CHECK_EQ(state_of(2), JOB_QUEUED);
    CHECK(strstr(rdzv_job_record(core, 2)->reason, why) != NULL);
}

#define RANKS_OF_1 "job 1 has ended, but its ranks on node a may still run: it waits until "

/* 45 s after the loss of node a, and not before. */
static void check_until_lease(void)
{
    check_waits(RANKS_OF_1);
    check_waits(" UTC, or until a is back");
    pass(44);
    check_waits(RANKS_OF_1);
    pass(1);
    CHECK_EQ(state_of(2), JOB_STARTING);
    pass(1);
    CHECK(rdzv_job_record(core, 1) == NULL);
}

/* Its outcome is known at once, and it says what may still run. */
static void check_ended(enum job_state state, const char *reason)
{
    CHECK_EQ(state_of(1), state);
    CHECK(strstr(rdzv_job_record(core, 1)->reason, reason) == rdzv_job_record(core, 1)->reason);
    CHECK(strstr(rdzv_job_record(core, 1)->reason,
                 "; its ranks on node a may still run for up to 45 s, until ") != NULL);
}

TEST(a_follower_of_a_cancelled_job_waits_for_the_lease_of_its_lost_node)
{
    submit_to_a(one(), false);
    follow(true);
    cancel();
    lose_a();
    check_ended(JOB_CANCELLED, "cancelled; ");
    check_until_lease();
}

/* The same if the ranks have a fence of their own: that is one against their own job alone. */
TEST(with_joined_ranks_too)
{
    submit_to_a(one(), true);
    follow(true);
    cancel();
    lose_a();
    check_until_lease();
}

TEST(an_array_counts_it_until_then)
{
    submit_array();
    cancel();
    lose_a();
    check_until_lease();
}

TEST(a_time_limit_that_is_over_is_no_end_either)
{
    struct msg_submit limited = one();

    limited.time_limit_us = 3 * SECOND_US;
    submit_to_a(limited, false);
    follow(true);
    lose_a();
    check_ended(JOB_FAILED, "the time limit of 3 s is over; ");
    check_until_lease();
}

/* What `ddpctl why` shows of the failure says it too. */
TEST(a_job_without_a_restart_left_is_no_end_either)
{
    struct msg_submit submit = one();
    bool is_restored;

    submit.max_restarts = 0;
    submit.restarts_given = true;
    submit_to_a(submit, false);
    follow(true);
    step_rank_report(1, (struct rank_report){.job_id = 1,
                                             .phase = SHIM_STOPPING,
                                             .exit_code = 3,
                                             .failed_class = FAILURE_PROGRAM,
                                             .cause = "rank 0 exited with code 3"});
    hello(2, "b", NULL, 0);
    hello(3, "c", NULL, 0);
    pass(15);
    CHECK_EQ(state_of(1), JOB_FAILED);
    CHECK_EQ(rdzv_node_conn(core, "a"), 0);
    CHECK(strstr(rdzv_failure(core, 1, &is_restored)->decision,
                 "; its ranks on node a may still run for up to 45 s, until ") != NULL);
    check_until_lease();
}

/* It waits for its restart when it is cancelled. */
TEST(a_cancelled_wait_for_a_lease_is_kept_for_followers)
{
    submit_to_a(one(), false);
    follow(true);
    lose_a();
    CHECK_EQ(state_of(1), JOB_RESTARTING);
    cancel();
    CHECK_EQ(state_of(1), JOB_CANCELLED);
    check_until_lease();
}

/* Submitted after the end of the job. */
TEST(a_late_follower_waits_too)
{
    submit_to_a(one(), false);
    cancel();
    lose_a();
    follow(true);
    check_until_lease();
}

/* With a fence of its own it starts again at once on b, and succeeds there. */
TEST(an_earlier_generation_may_be_what_still_runs)
{
    submit_to_a(one(), true);
    follow(false);
    lose_a();
    CHECK_EQ(rdzv_job_record(core, 1)->generation, 2);
    report(2, 2, SHIM_READY, false);
    report(2, 2, SHIM_RUNNING, true);
    report(2, 2, SHIM_ENDED, true);
    CHECK_EQ(state_of(1), JOB_SUCCEEDED);
    check_until_lease();
}

TEST(the_node_that_is_back_without_its_ranks_is_a_proof)
{
    submit_to_a(one(), false);
    follow(true);
    cancel();
    lose_a();
    pass(5);
    back(NULL, 0);
    CHECK_EQ(state_of(2), JOB_STARTING);
}

TEST(the_node_that_is_back_with_its_ranks_is_none)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false},
                                ended = {1, 1, SHIM_ENDED, 1, false};

    submit_to_a(one(), false);
    follow(true);
    cancel();
    lose_a();
    pass(40);
    back(&shim, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    for (uint32_t i = 0; i < 30; i++) {
        pass(1);
        step_beat(4, &shim, 1);
        check_waits(RANKS_OF_1);
    }
    step_beat(4, &ended, 1);
    CHECK_EQ(state_of(2), JOB_STARTING);
}

/* A new server has the stored job 2, and what is held on node a. */
static void restart(void)
{
    struct rdzv_record record = *rdzv_job_record(core, 2);
    struct rdzv_hold hold;

    rdzv_hold(core, "a", &hold);
    CHECK_EQ(hold.slot_mask, 1);
    begin_leased(8, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    hello(2, "b", NULL, 0);
    hello(3, "c", NULL, 0);
}

#define RANKS_OF_BEFORE                                                                            \
    "ranks of a job that ended before the server started may still run on node a: it waits until "

static void check_restarted(void)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 1, false};

    restart();
    check_waits(RANKS_OF_BEFORE);
    pass(59);
    check_waits(RANKS_OF_BEFORE);
    restart();
    pass(30);
    back(&shim, 1);
    check_waits(RANKS_OF_BEFORE);
    restart();
    pass(59);
    check_waits(RANKS_OF_BEFORE);
    pass(1);
    CHECK_EQ(state_of(2), JOB_STARTING);
}

TEST(a_server_that_starts_waits_for_a_whole_lease)
{
    submit_to_a(one(), false);
    follow(true);
    cancel();
    lose_a();
    check_restarted();

    submit_array();
    cancel();
    lose_a();
    check_restarted();
}

TEST(or_until_the_node_is_back)
{
    submit_to_a(one(), false);
    follow(true);
    cancel();
    lose_a();
    restart();
    pass(5);
    back(NULL, 0);
    CHECK_EQ(state_of(2), JOB_STARTING);
}

/* Nothing that ended lingers: the jobs of an array that are all there start at once. */
TEST(an_array_of_which_none_has_ended_need_not_wait)
{
    struct rdzv_record first, second;
    struct rdzv_hold hold = {.node = "x", .slot_mask = 1};

    submit_array();
    lose_a();
    first = *rdzv_job_record(core, 1);
    second = *rdzv_job_record(core, 2);
    first.state = JOB_QUEUED;
    first.generation = 0;
    first.over_generation = 0;
    begin_leased(8, 3, LEASE_US);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &first});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &second});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 3});
    hello(2, "b", NULL, 0);
    CHECK_EQ(state_of(1), JOB_STARTING);
}

TEST_MAIN
