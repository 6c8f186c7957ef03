/* A program that fails in the same way right after each start is not tried four times. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/failure_alike.h"
#include "tests/lib/test.h"

#define USAGE "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lr0.1\n"

static uint64_t id;

static const struct rdzv_record *job(void)
{
    return rdzv_job_record(core, id);
}

static void begin_job(uint32_t max_restarts, bool is_given)
{
    begin_with(8, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .gpus = 0});
    id = step_submit((struct msg_submit){
        .nodes = 1, .nproc_per_node = 1, .max_restarts = max_restarts, .restarts_given = is_given});
}

static void begin(uint32_t max_restarts)
{
    begin_job(max_restarts, false);
}

static void pass(uint64_t us)
{
    for (; us > 0; us -= us < SECOND_US ? us : SECOND_US) {
        now_us += us < SECOND_US ? us : SECOND_US;
        wall_ms += us < SECOND_US ? (int64_t)(us / 1000) : 1000;
        step_beat(1, &(const struct part_beat_shim){id, job()->generation, SHIM_RUNNING, 1, false},
                  job()->part_count);
    }
}

static void report(enum shim_phase phase, struct rank_report report)
{
    report.job_id = id;
    report.generation = job()->generation;
    report.phase = phase;
    step_rank_report(1, report);
}

/* The next generation starts, runs for that time, and ends as `how` says. */
static void fail_after(uint64_t ran_us, struct rank_report how)
{
    for (uint32_t i = 0; i < 100 && job()->state == JOB_RESTARTING; i++)
        pass(SECOND_US);
    report(SHIM_READY, (struct rank_report){.joined = false});
    report(SHIM_RUNNING, (struct rank_report){.joined = false});
    pass(ran_us);
    if (how.cause == NULL)
        how.cause = "rank 0 has failed";
    report(SHIM_ENDED, how);
}

static void fail_by_usage(uint64_t ran_us, const char *tail)
{
    fail_after(ran_us, (struct rank_report){.exit_code = 2, .tail = tail});
}

TEST(three_times_the_same_at_the_start_is_enough)
{
    begin(3);
    fail_by_usage(SECOND_US / 2, USAGE);
    CHECK(job()->state != JOB_FAILED); /* one failure may be chance */
    fail_by_usage(SECOND_US / 2, USAGE);
    CHECK(job()->state !=
          JOB_FAILED); /* the cause of the first may still be there right after it */
    fail_by_usage(SECOND_US / 2, USAGE);
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 3);
    CHECK_EQ(job()->exit_code, 2);
    CHECK(strstr(job()->reason, "exit 2 came within 1 s of the start three times in a row") !=
          NULL);
    CHECK(strstr(job()->reason, "(--max-restarts 3)") != NULL);
}

TEST(a_long_cause_is_cut_after_a_word)
{
    begin(3);
    for (int i = 0; i < 3; i++)
        fail_after(SECOND_US / 2,
                   (struct rank_report){
                       .exit_code = 2,
                       .tail = USAGE,
                       .cause = "rank 0 exited with code 2: --epochs 100000 of 1500 steps are "
                                "150000000 steps, at most 99999999 can be counted: fewer epochs"});
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK(strstr(job()->reason, " at most 99999999 can be...: exit 2 came within 1 s") != NULL);
}

/* PyTorch's text names the rank, and which rank fails first is chance. */
TEST(the_rank_before_the_line_does_not_count)
{
    begin(3);
    fail_by_usage(0, "[rank0]: No module named 'flash_attn'");
    fail_by_usage(0, "\n[rank12]: No module named 'flash_attn'\n\n");
    fail_by_usage(0, "No module named 'flash_attn'");
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 3);
}

#define RAISED(line, function, message)                                                            \
    "  File \"/home/ada/train.py\", line " line ", in " function "\n    step(batch)\n" message "\n"

static void fail_raised(uint64_t ran_us, const char *error)
{
    fail_after(ran_us, (struct rank_report){.exit_code = 1, .error = error, .tail = "bye"});
}

/* Also long after the start, and whatever rank or number the message names. */
TEST(the_same_exception_at_the_same_line_is_not_tried_a_third_time)
{
    begin(3);
    fail_raised(100 * SECOND_US, RAISED("9", "main", "ValueError: batch 17 of rank 3 at 0x7f11ab"));
    CHECK(job()->state != JOB_FAILED);
    fail_raised(90 * SECOND_US, RAISED("9", "main", "ValueError: batch 23 of rank 0 at 0x7e"));
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 2);
    CHECK(strstr(job()->reason, "rank 0 has failed: the same exception came at the same line twice "
                                "in a row: not tried again (--max-restarts 3)") != NULL);
}

/* Each of the two in turn, until the budget is used up. */
static void expect_all_tries(const char *odd, const char *even, uint64_t ran_us)
{
    begin(3);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(job()->state != JOB_FAILED);
        fail_raised(ran_us, i % 2 == 0 ? odd : even);
    }
    CHECK_EQ(job()->generation, 4);
    CHECK_EQ(job()->state, JOB_FAILED);
}

TEST(another_place_or_exception_is_tried_again)
{
    const char *const one = RAISED("9", "main", "ValueError: no");

    expect_all_tries(one, RAISED("10", "main", "ValueError: no"), 100 * SECOND_US);
    expect_all_tries(one, RAISED("9", "load", "ValueError: no"), 100 * SECOND_US);
    expect_all_tries(one, RAISED("9", "main", "KeyError: no"), 100 * SECOND_US);
    expect_all_tries(one, RAISED("9", "main", "ValueError: not"), 100 * SECOND_US);
}

/* A machine or a network that lacks something may have it a minute later. */
TEST(what_may_pass_is_tried_again)
{
    const char *const refused =
        RAISED("9", "main", "ConnectionRefusedError: [Errno 111] Connection refused");
    const char *const memory = RAISED("9", "main", "OSError: [Errno 12] Cannot allocate memory");

    expect_all_tries(refused, refused, 100 * SECOND_US);
    expect_all_tries(memory, memory, 100 * SECOND_US);
}

TEST(an_exception_for_a_lost_rank_is_tried_again)
{
    begin(3);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(job()->state != JOB_FAILED);
        fail_after(100 * SECOND_US, (struct rank_report){.exit_code = 1,
                                                         .by_peer = true,
                                                         .error = RAISED("9", "main", "E: gone"),
                                                         .tail = "bye"});
    }
    CHECK_EQ(job()->generation, 4);
}

/* It comes back after an hour: whatever makes it fail is rare, and the script may have checkpoints of its own. */
TEST(an_exception_after_an_hour_is_tried_again)
{
    begin(3);
    for (uint32_t i = 0; i < 6; i++)
        fail_raised(RESTARTS_RENEWED_US + SECOND_US, RAISED("9", "main", "E: no"));
    CHECK(job()->state != JOB_FAILED);
}

TEST(a_checkpoint_between_two_equal_exceptions_counts)
{
    begin(3);
    for (uint32_t i = 1; i < 5; i++) {
        struct msg msg = {.type = MSG_TYPE_PROGRESS,
                          .progress = {.rank = 0, .step = i, .epochs = 1, .checkpoint_step = i}};

        for (uint32_t k = 0; k < 100 && job()->state == JOB_RESTARTING; k++)
            pass(SECOND_US);
        report(SHIM_READY, (struct rank_report){.joined = true});
        report(SHIM_RUNNING, (struct rank_report){.joined = true});
        msg.progress.job_id = id;
        msg.progress.generation = job()->generation;
        step_node(1, &msg);
        report(SHIM_ENDED, (struct rank_report){.exit_code = 1,
                                                .cause = "no",
                                                .joined = true,
                                                .error = RAISED("9", "main", "E: no")});
        CHECK(job()->state != JOB_FAILED);
    }
    CHECK_EQ(job()->checkpoint_step, 4);
}

TEST(a_given_number_of_restarts_is_kept_for_exceptions)
{
    begin_job(2, true);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(job()->state != JOB_FAILED);
        fail_raised(SECOND_US, RAISED("9", "main", "E: no"));
        CHECK(i == 2 || strstr(job()->reason, "in a row") == NULL);
    }
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 3);
}

TEST(a_program_that_does_not_exist_is_not_tried_again)
{
    static const struct rank_report none[] = {
        {.exit_code = 2,
         .tail = "python3: can't open file '/home/ada/trian.py': [Errno 2] No such file or "
                 "directory\n"},
        {.exit_code = 1, .tail = "/usr/bin/python3: No module named trian\n"},
        {.exit_code = 127, .tail = "bash: trian.sh: No such file or directory\n"},
        {.exit_code = 127,
         .cause = "rank 0 exited with code 127: run.sh: line 3: nvcc: command not found"},
    };
    static const struct rank_report others[] = {
        {.exit_code = 1, .tail = "ModuleNotFoundError: No module named 'trian'\n"},
        {.exit_code = 2, .tail = "No such file or directory\n"},
        {.exit_code = 3, .tail = "can't open file 'x': No such file or directory\n"},
        {.exit_code = 127, .tail = "bye\n"},
    };

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        begin_job(3, i == 0); /* no number of tries will find it */
        fail_after(0, none[i]);
        CHECK_EQ(job()->state, JOB_FAILED);
        CHECK_EQ(job()->generation, 1);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        begin(3);
        fail_after(0, others[i]);
        CHECK(job()->state != JOB_FAILED);
    }
}

TEST(a_missing_file_of_a_single_rank_is_not_tried_again)
{
    const struct rank_report missing = {.exit_code = 1,
                                        .tail = "bye",
                                        .cause = "rank 0 exited with code 1: FileNotFoundError: "
                                                 "[Errno 2] No such file or directory: 'x'"};

    begin(3);
    fail_after(SECOND_US, missing);
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK(strstr(job()->reason, "no file of that name exists: not tried again") != NULL);
    begin(3);
    fail_after(EARLY_US + SECOND_US, missing); /* it was there, or is made by somebody */
    CHECK(job()->state != JOB_FAILED);
}

/* Each of these uses the whole budget of 3. */
static void expect_four(const struct rank_report *odd, const struct rank_report *even,
                        uint64_t ran_us)
{
    begin(3);
    for (uint32_t i = 0; i < 4; i++) {
        fail_after(ran_us, i % 2 == 0 ? *odd : *even);
        CHECK_EQ(job()->state == JOB_FAILED, i == 3);
    }
    CHECK_EQ(job()->generation, 4);
}

/* After two equal failures and a different one, the count starts again. */
TEST(another_failure_between_begins_anew)
{
    begin(5);
    fail_by_usage(0, USAGE);
    fail_by_usage(0, USAGE);
    fail_by_usage(0, "connect to port 4711: refused");
    fail_by_usage(0, USAGE);
    fail_by_usage(0, USAGE);
    CHECK(job()->state != JOB_FAILED);
    fail_by_usage(0, USAGE);
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 6);
}

TEST(what_differs_is_tried_again)
{
    const struct rank_report usage = {.exit_code = 2, .tail = USAGE};
    const struct rank_report code = {.exit_code = 1, .tail = USAGE};
    const struct rank_report line = {.exit_code = 2, .tail = "connect to port 4711: refused"};
    const struct rank_report mute = {.exit_code = 2, .tail = ""};
    const struct rank_report blank = {.exit_code = 2, .tail = " \n\n"};
    const struct rank_report shell = {.exit_code = 128 + SIGKILL, .tail = USAGE};

    expect_four(&usage, &code, 0);
    expect_four(&usage, &line, 0);
    expect_four(&mute, &mute, 0);
    expect_four(&blank, &blank, 0);
    expect_four(&shell, &shell, 0);
    expect_four(&usage, &usage, EARLY_US + SECOND_US);
}

/* The program has worked once, so the present failure may be temporary. */
TEST(a_program_that_has_run_once_is_tried_again)
{
    begin(3);
    fail_by_usage(EARLY_US + SECOND_US, USAGE);
    for (uint32_t i = 2; i <= 4; i++) {
        fail_by_usage(0, USAGE);
        CHECK_EQ(job()->state == JOB_FAILED, i == 4);
    }
    CHECK_EQ(job()->generation, 4);
    CHECK(strstr(job()->reason, "in a row") == NULL);
}

TEST(a_program_that_made_a_step_is_tried_again)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.generation = 1, .rank = 0, .step = 1, .epochs = 1}};

    begin(3);
    report(SHIM_READY, (struct rank_report){.joined = false});
    report(SHIM_RUNNING, (struct rank_report){.joined = false});
    msg.progress.job_id = id;
    step_node(1, &msg);
    report(SHIM_ENDED, (struct rank_report){.exit_code = 2, .tail = USAGE, .cause = "no"});
    for (uint32_t i = 2; i <= 4; i++)
        fail_by_usage(0, USAGE);
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 4);
}

/* A failure of the node between two equal failures of the program does not reset the count. */
TEST(a_failure_of_the_node_is_passed_over)
{
    begin(3);
    fail_by_usage(0, USAGE);
    fail_after(0, (struct rank_report){.is_lost = true});
    CHECK(job()->state != JOB_FAILED);
    fail_by_usage(0, USAGE);
    CHECK(job()->state != JOB_FAILED);
    fail_by_usage(0, USAGE);
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, 4);
}

/* Fails in the same way until the job ends. Returns from when to when it was started again. */
static uint64_t fail_to_the_end(uint32_t max_restarts)
{
    uint64_t from_us = now_us;

    begin_job(max_restarts, true);
    for (uint32_t i = 0; i <= max_restarts; i++) {
        CHECK(job()->state != JOB_FAILED);
        for (uint32_t k = 0; k < 10000 && job()->state == JOB_RESTARTING; k++)
            pass(SECOND_US / 100);
        fail_by_usage(0, USAGE);
        if (i == 0)
            from_us = now_us;
    }
    CHECK_EQ(job()->state, JOB_FAILED);
    CHECK_EQ(job()->generation, max_restarts + 1);
    CHECK_EQ(job()->exit_code, 2);
    CHECK(strstr(job()->reason, "in a row") == NULL); /* all were made */
    return now_us - from_us;
}

/* The user has said how often to try. */
TEST(a_given_number_of_restarts_is_kept)
{
    CHECK(fail_to_the_end(2) < 10 * SECOND_US); /* three in all: the rule has nothing to say */
    for (uint32_t n = 3; n <= 10; n++)
        CHECK(fail_to_the_end(n) >= 60 * SECOND_US);
    CHECK(fail_to_the_end(3) < 70 * SECOND_US);
}

TEST(the_reason_says_when_it_is_tried_again)
{
    begin_job(4, true);
    for (uint32_t i = 0; i < 3; i++)
        fail_by_usage(0, USAGE);
    CHECK_EQ(job()->state, JOB_RESTARTING);
    CHECK(strstr(job()->reason, "rank 0 has failed: three times in a row the same: restart 3 of "
                                "--max-restarts 4 follows after ") != NULL);
    CHECK(strstr(job()->reason, " s, since they are spread over a minute") != NULL);
}

/* Where the back-off takes long enough, the first of many tries come as soon as ever. */
TEST(many_restarts_begin_soon)
{
    uint64_t from_us;

    begin_job(10, true);
    fail_by_usage(0, USAGE);
    from_us = now_us;
    for (uint32_t i = 1; i < 5; i++) {
        for (uint32_t k = 0; k < 10000 && job()->state == JOB_RESTARTING; k++)
            pass(SECOND_US / 100);
        fail_by_usage(0, USAGE);
    }
    CHECK(now_us - from_us <= 8 * SECOND_US);
}

TEST(the_spread_goes_on_after_a_restart_of_the_server)
{
    static struct rdzv_record record;

    begin_job(3, true);
    for (uint32_t i = 0; i < 3; i++)
        fail_by_usage(0, USAGE);
    record = keep_record(id);
    CHECK(record.restarts_given && record.alike_ms > 0);
    CHECK(record.retry_at_ms >= wall_ms + 50000);
}

/* A server that restarts in between remembers. */
TEST(it_is_stored)
{
    struct rdzv_record record;

    begin(3);
    fail_by_usage(0, USAGE);
    record = *job();
    CHECK(record.early_failure > 2 && record.early_failure <= INT64_MAX);
    /* Servers of all versions since 0.3 store this number. */
    CHECK_EQ(record.early_failure, UINT64_C(8743627820207037737));
}

TEST_MAIN
