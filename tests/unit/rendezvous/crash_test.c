/* Programs that crash repeatedly: on one node although others could run them, or at one step. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "tests/lib/test.h"

static const char *const names[] = {"a", "b", "c"};
static uint64_t id;

static const struct rdzv_record *job(void)
{
    return rdzv_job_record(core, id);
}

static uint64_t conn(void)
{
    for (uint64_t i = 0; job()->part_count > 0 && i < 3; i++)
        if (strcmp(job()->parts[0].node, names[i]) == 0)
            return i + 1;
    return 0;
}

static void begin(uint32_t nodes, uint32_t max_restarts)
{
    begin_with(8, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint64_t i = 0; i < nodes; i++)
        step_hello(i + 1, (struct msg_node_hello){
                              .name = names[i], .instance = (uint32_t)i + 1, .slots = 1});
    id = step_submit(
        (struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = max_restarts});
    CHECK_EQ(conn(), 1);
}

static void pass(uint64_t seconds)
{
    for (; seconds > 0; seconds--) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
        for (uint64_t i = 1; i <= 3; i++) {
            const struct part_beat_shim shim = {id, job()->generation, SHIM_RUNNING, 1, false};

            step_beat(i, &shim, conn() == i && job()->state == JOB_RUNNING);
        }
    }
}

static void report(enum shim_phase phase, struct rank_report report)
{
    report.job_id = id;
    report.generation = job()->generation;
    report.phase = phase;
    step_rank_report(conn(), report);
}

/* The generation runs, reports this step (0: none), and fails as `how` says; the next generation
 * starts, if there is one. */
static void fail_at(uint64_t at_step, struct rank_report how)
{
    const struct msg msg = {
        .type = MSG_TYPE_PROGRESS,
        .progress = {.job_id = 1, .generation = job()->generation, .step = at_step, .doing = ""}};

    CHECK_EQ(job()->state, JOB_STARTING);
    report(SHIM_READY, (struct rank_report){.joined = false});
    report(SHIM_RUNNING, (struct rank_report){.joined = false});
    CHECK_EQ(job()->state, JOB_RUNNING);
    pass(EARLY_US / SECOND_US + 1); /* failures right at the start are another rule */
    if (at_step > 0)
        step_node(conn(), &msg);
    how.cause = how.cause != NULL ? how.cause : "rank 0 has failed";
    report(SHIM_ENDED, how);
    for (uint32_t i = 0; i < 100 && job()->state == JOB_RESTARTING; i++)
        pass(1);
}

static void crash(uint64_t at_step)
{
    fail_at(at_step, (struct rank_report){.signal = SIGSEGV});
}

/* -- on one node ------------------------------------------------------------------------------- */

TEST(two_crashes_on_one_node_exclude_it)
{
    begin(2, 5);
    crash(100);
    CHECK_EQ(conn(), 1); /* one crash may be chance */
    CHECK_STR(job()->node_faults, "a 1");
    CHECK_EQ(job()->restarts_without_progress, 1); /* it still counts as the program's failure */
    crash(500);
    CHECK_EQ(conn(), 2);
    CHECK_STR(job()->node_faults, "a 2");
    CHECK_EQ(job()->restarts_without_progress, 2);
}

TEST(an_error_of_cuda_is_a_crash)
{
    begin(2, 5);
    for (uint32_t i = 0; i < 2; i++)
        fail_at(100 + 100 * i,
                (struct rank_report){.exit_code = 1,
                                     .tail = "RuntimeError: CUDA error: misaligned address\n"});
    CHECK_EQ(conn(), 2);
}

/* An exception of the program says nothing about the node, nor does an assertion or a kill from
 * outside. */
TEST(other_failures_of_the_program_exclude_nothing)
{
    static const uint32_t signals[] = {SIGABRT, SIGKILL, SIGTERM};

    begin(2, 5);
    for (uint32_t i = 0; i < 3; i++) {
        fail_at(100 + 100 * i, (struct rank_report){.exit_code = 1, .tail = "ValueError: x\n"});
        CHECK_EQ(conn(), 1);
    }
    for (uint32_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        begin(2, 5);
        for (uint32_t k = 0; k < 2; k++)
            fail_at(100 + 100 * k, (struct rank_report){.signal = signals[i]});
        CHECK_EQ(conn(), 1);
    }
    CHECK_STR(job()->node_faults, "");
}

/* Without that node the job could not run: it does not wait ten minutes for it. */
TEST(the_only_node_is_not_excluded)
{
    begin(1, 5);
    crash(100);
    crash(500);
    CHECK_EQ(conn(), 1);
    CHECK_STR(job()->node_faults, "");
}

TEST(a_drained_node_is_no_other_node)
{
    const struct msg drain = {.type = MSG_TYPE_NODE_DRAIN,
                              .node_drain = {.name = "b", .reason = "x"}};

    begin(2, 5);
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_DRAIN, .client = 3, .msg = &drain, .user = "ann"});
    crash(100);
    crash(500);
    CHECK_EQ(conn(), 1);
}

/* The program crashes on every node, but the last node is not excluded. */
TEST(the_last_node_that_is_left_stays)
{
    begin(2, 9);
    for (uint32_t i = 0; i < 4; i++)
        crash(100 + 100 * i);
    CHECK_EQ(conn(), 2);
    CHECK_STR(job()->node_faults, "a 2");
}

/* -- at one step ------------------------------------------------------------------------------- */

TEST(three_crashes_at_one_step_end_the_job)
{
    begin(2, 9);
    crash(100);
    crash(100);
    CHECK(job()->state != JOB_FAILED);
    CHECK_EQ(conn(), 2); /* on another node too, so the node is not the reason */
    crash(100);
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 3);
    CHECK(strstr(job()->reason, "rank 0 failed at step 100 in the same way three times in a row: "
                                "not tried again") != NULL);
}

TEST(three_exceptions_alike_at_one_step_end_it_too)
{
    begin(1, 9);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(job()->state != JOB_FAILED);
        fail_at(100, (struct rank_report){.exit_code = 1, .tail = "KeyError: 'img_100'\n"});
    }
    CHECK_EQ(job()->state, JOB_FAILED);
}

/* Each of these fails four times at about the same place, but not in the same way. */
TEST(what_differs_does_not_count)
{
    begin(1, 9);
    for (uint32_t i = 0; i < 4; i++) /* different steps: it makes progress */
        fail_at(100 + i * 50, (struct rank_report){.exit_code = 1, .tail = "KeyError: 'x'\n"});
    CHECK(job()->state != JOB_FAILED);
    begin(1, 9);
    for (uint32_t i = 0; i < 4; i++) /* different error texts */
        fail_at(100,
                (struct rank_report){.exit_code = 1,
                                     .tail = i % 2 == 0 ? "KeyError: 'x'\n" : "KeyError: 'y'\n"});
    CHECK(job()->state != JOB_FAILED);
    begin(1, 9);
    for (uint32_t i = 0; i < 4; i++) /* killed from outside */
        fail_at(100, (struct rank_report){.signal = SIGKILL, .tail = "Killed\n"});
    CHECK(job()->state != JOB_FAILED);
    begin(1, 9);
    for (uint32_t i = 0; i < 4; i++) /* it has reported no step */
        fail_at(0, (struct rank_report){.exit_code = 1, .tail = "KeyError: 'x'\n"});
    CHECK(job()->state != JOB_FAILED);
    begin(1, 9);
    for (uint32_t i = 0; i < 4; i++) /* no error text by which failures could be compared */
        fail_at(100, (struct rank_report){.exit_code = 1});
    CHECK(job()->state != JOB_FAILED);
}

TEST(another_failure_between_them_begins_anew)
{
    begin(1, 9);
    crash(100);
    crash(100);
    fail_at(100, (struct rank_report){.exit_code = 1, .tail = "KeyError: 'x'\n"});
    crash(100);
    crash(100);
    CHECK(job()->state != JOB_FAILED);
    crash(100);
    CHECK_EQ(job()->state, JOB_FAILED);
}

/* A server that was restarted remembers two of the three. */
TEST(a_restart_of_the_server_keeps_the_count)
{
    static struct rdzv_record record;

    begin(1, 9);
    crash(100);
    crash(100);
    record = keep_record(id);
    CHECK_EQ(record.same_count, 2);
    begin_with(8, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = id + 1});
    CHECK_EQ(job()->same_count, 2);
    CHECK(job()->same_failure != 0);
    CHECK_EQ(job()->same_step, 100);
}

TEST(the_mark_is_the_number_that_all_versions_store)
{
    begin(1, 9);
    fail_at(100, (struct rank_report){.exit_code = 1, .tail = "KeyError: 'x'\n"});
    CHECK_EQ(job()->same_failure, UINT64_C(8096840931170181601));
}

TEST_MAIN
