/* What the core keeps of a failed generation, for `ddpctl why`. */
#include "tests/unit/rendezvous/core_tools.h"

#include <string.h>

#include "tests/lib/test.h"

static void report(uint64_t conn, uint32_t generation, enum shim_phase phase, int32_t exit_code,
                   uint64_t age_us)
{
    step_rank_report(conn, (struct rank_report){.job_id = 1,
                                                .rank = (uint32_t)conn - 1,
                                                .generation = generation,
                                                .phase = phase,
                                                .exit_code = exit_code,
                                                .failed_age_us = age_us,
                                                .cause = exit_code != 0 ? "it exited" : ""});
}

static void run_on(uint32_t generation, uint32_t node_count)
{
    for (uint64_t conn = 1; conn <= node_count; conn++)
        report(conn, generation, SHIM_READY, 0, 0);
    for (uint64_t conn = 1; conn <= node_count; conn++)
        report(conn, generation, SHIM_RUNNING, 0, 0);
}

static void submit_on(uint32_t node_count, uint32_t max_restarts)
{
    static const char *const names[] = {"a", "b", "c"};

    begin_with(4, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint64_t conn = 1; conn <= node_count; conn++)
        step_hello(conn,
                   (struct msg_node_hello){.name = names[conn - 1], .instance = conn, .slots = 1});
    CHECK_EQ(step_submit((struct msg_submit){
                 .nodes = node_count, .nproc_per_node = 1, .max_restarts = max_restarts}),
             1);
}

static void begin(uint32_t node_count, uint32_t max_restarts)
{
    submit_on(node_count, max_restarts);
    run_on(1, node_count);
}

/* The failure that the last step stores; there must be one. */
static const struct part_failure *stored(bool is_restored)
{
    const struct rdzv_action *action = find(RDZV_PERSIST_FAILURE);
    const struct part_failure *failure;
    bool is;

    CHECK_EQ(count_of(RDZV_PERSIST_FAILURE), 1);
    failure = rdzv_failure(core, action->job_id, &is);
    CHECK_EQ(action->generation, failure->generation);
    CHECK_EQ(is, is_restored);
    return failure;
}

TEST(a_failure_is_noted_at_once_and_again_at_its_end)
{
    const struct part_failure *failure;

    begin(3, 0);
    now_us += 5 * SECOND_US;
    wall_ms += 5000;
    report(2, 1, SHIM_STOPPING, 7, 200000);
    failure = stored(false);
    CHECK_EQ(failure->generation, 1);
    CHECK_EQ(failure->rank, 1);
    CHECK_EQ(failure->exit_code, 7);
    CHECK_EQ(failure->class, FAILURE_PROGRAM);
    CHECK_EQ(failure->world, 3);
    CHECK_EQ(failure->ran_us, 4800000);
    CHECK_EQ(failure->failed_ms, wall_ms - 200);
    CHECK_STR(failure->node, "b");
    CHECK_STR(failure->cause, "it exited");
    CHECK_STR(failure->decision, "");
    now_us += SECOND_US;
    report(1, 1, SHIM_ENDED, 3, 200000); /* ended by itself, a second after the first */
    CHECK_EQ(count_of(RDZV_PERSIST_FAILURE), 0);
    report(2, 1, SHIM_ENDED, 7, 1200000);
    step_rank_report(
        3, (struct rank_report){.job_id = 1, .rank = 2, .phase = SHIM_ENDED, .is_lost = true});
    failure = stored(false);
    CHECK_EQ(failure->failed_too, 1);
    CHECK_EQ(failure->lost, 1);
    CHECK_EQ(failure->alone_us, 1000000);
    CHECK_STR(failure->decision, "not restarted: restarts are off (--max-restarts 0)");
    CHECK_EQ(rdzv_ended_ranks(core, 1)[0].failed_ms, (uint32_t)((now_us - 200000) / 1000));
}

/* Node b fails its start, in whatever way: no rank began, so none was on a lost node. */
TEST(ranks_that_never_began_are_not_lost)
{
    submit_on(2, 0);
    report(1, 1, SHIM_READY, 0, 0);
    step_rank_report(2, (struct rank_report){.job_id = 1,
                                             .rank = 1,
                                             .generation = 1,
                                             .phase = SHIM_ENDED,
                                             .is_lost = true,
                                             .cause = "the disk is full"});
    report(1, 1, SHIM_ENDED, 0, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_FAILED);
    CHECK_EQ(stored(false)->lost, 0);
    CHECK_STR(stored(false)->cause, "the disk is full");
}

TEST(ranks_that_had_ended_well_are_counted)
{
    begin(3, 0);
    report(2, 1, SHIM_ENDED, 0, 0);
    report(1, 1, SHIM_ENDED, 7, 0);
    step_rank_report(
        3, (struct rank_report){.job_id = 1, .rank = 2, .phase = SHIM_ENDED, .is_lost = true});
    CHECK_EQ(stored(false)->left, 1);
    CHECK_EQ(stored(false)->left_rank, 1);
    CHECK_EQ(stored(false)->failed_too, 0);
    CHECK_EQ(stored(false)->lost, 1);
}

/* The next generation begins in the same step and must not be confused with the failed one. */
TEST(a_restart_at_once_keeps_the_note_of_the_failed_generation)
{
    const struct part_failure *failure;

    begin(1, 2);
    report(1, 1, SHIM_ENDED, 7, 0);
    CHECK_EQ(rdzv_job_record(core, 1)->generation, 2);
    failure = stored(false);
    CHECK_EQ(failure->generation, 1);
    CHECK_STR(failure->cause, "it exited");
    CHECK_STR(failure->decision, "restarted at once (restart 1 of 2)");
    run_on(2, 1);
    report(1, 2, SHIM_ENDED, 8, 0);
    CHECK_EQ(stored(false)->generation, 2);
    CHECK_EQ(stored(false)->exit_code, 8);
    CHECK_EQ(strncmp(stored(false)->decision, "restarted after ", 16), 0);
}

TEST(the_step_that_a_generation_began_from_is_noted)
{
    struct msg msg = {
        .type = MSG_TYPE_PROGRESS,
        .progress = {.job_id = 1, .generation = 1, .step = 70, .checkpoint_step = 60}};

    begin(1, 5);
    now_us += SECOND_US;
    step_node(1, &msg);
    report(1, 1, SHIM_ENDED, 7, 0);
    CHECK_EQ(stored(false)->step, 70);
    CHECK_EQ(stored(false)->resumed_step, 0);
    CHECK_EQ(stored(false)->checkpoint_step, 60);
    run_on(2, 1);
    report(1, 2, SHIM_ENDED, 7, 0);
    CHECK_EQ(stored(false)->resumed_step, 60);
}

TEST(a_cancel_of_a_failing_job_is_the_decision)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.job = "1", .signal = 15, .grace_us = 0}};

    begin(2, 2);
    report(1, 1, SHIM_ENDED, 7, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    step_rank_report(
        2, (struct rank_report){.job_id = 1, .rank = 1, .phase = SHIM_ENDED, .is_lost = true});
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_CANCELLED);
    CHECK_STR(stored(false)->decision, "not restarted: the job was cancelled");
}

/* The error file may be read only after the first report; a later report without it removes
 * nothing. */
TEST(the_exception_of_a_later_report_is_added)
{
    struct rank_report first = {
        .job_id = 1, .phase = SHIM_STOPPING, .exit_code = 1, .cause = "rank 0 exited"};
    struct rank_report later = first;

    begin(2, 0);
    step_rank_report(1, first);
    CHECK_STR(stored(false)->error, "");
    CHECK(!stored(false)->oom);
    later.error = "ValueError: no";
    step_rank_report(1, later);
    CHECK_STR(stored(false)->error, "ValueError: no");
    CHECK(stored(false)->oom);
    step_rank_report(1, first);
    CHECK(stored(false)->error == NULL); /* as it is stored */
    CHECK(stored(false)->oom);
}

/* The cause is found later than a consequence; the consequence's exception must not be shown for
 * the cause. */
TEST(an_earlier_failure_brings_its_own_exception)
{
    struct rank_report one = {
        .job_id = 1, .phase = SHIM_STOPPING, .exit_code = 1, .error = "reset"};
    struct rank_report two = {.job_id = 1, .rank = 1, .phase = SHIM_STOPPING, .exit_code = 3};

    begin(2, 0);
    now_us += SECOND_US;
    step_rank_report(1, one);
    CHECK_STR(stored(false)->error, "reset");
    two.failed_age_us = 500000;
    step_rank_report(2, two);
    CHECK_EQ(stored(false)->rank, 1);
    CHECK_STR(stored(false)->error, "");
}

/* A cancel alone is no failure. */
TEST(a_cancelled_job_has_no_failure)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.job = "1", .signal = 15, .grace_us = 0}};

    begin(1, 2);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    report(1, 1, SHIM_ENDED, 9, 500000);
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_CANCELLED);
    CHECK_EQ(count_of(RDZV_PERSIST_FAILURE), 0);
}

/* A server that starts in the middle of the stop has not seen the failure: it says so, and the store
 * keeps what it has of the beginning. */
TEST(a_restored_failure_is_the_end_of_the_stored_one)
{
    struct rdzv_record record;

    begin(2, 0);
    report(1, 1, SHIM_ENDED, 7, 0);
    record = keep_record(1);
    begin_with(4, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .job_id = 1, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1});
    step_hello(2, (struct msg_node_hello){.name = "b", .instance = 2, .slots = 1});
    step_rank_report(
        1, (struct rank_report){.job_id = 1, .rank = 0, .phase = SHIM_ENDED, .exit_code = 7});
    step_rank_report(
        2, (struct rank_report){.job_id = 1, .rank = 1, .phase = SHIM_ENDED, .is_lost = true});
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_FAILED);
    CHECK_EQ(stored(true)->rank, 0);
    CHECK_EQ(stored(true)->lost, 1);
    CHECK(stored(true)->error == NULL);
}

TEST_MAIN
