/* Which of several failures is the cause of a generation's end: the first by true time. */
#include "tests/unit/rendezvous/core_tools.h"

#include "tests/lib/test.h"

static void report(uint64_t conn, enum shim_phase phase, int32_t exit_code, uint64_t age_us,
                   const char *cause)
{
    step_rank_report(conn, (struct rank_report){.job_id = 1,
                                                .rank = (uint32_t)conn - 1,
                                                .phase = phase,
                                                .exit_code = exit_code,
                                                .failed_age_us = age_us,
                                                .cause = cause});
}

static void begin(void)
{
    begin_with(4, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint64_t conn = 1; conn <= 3; conn++)
        step_hello(conn,
                   (struct msg_node_hello){.name = (const char *const[]){"a", "b", "c"}[conn - 1],
                                           .instance = conn,
                                           .slots = 1});
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 3, .nproc_per_node = 1}), 1);
    for (uint64_t conn = 1; conn <= 3; conn++)
        report(conn, SHIM_READY, 0, 0, "");
    for (uint64_t conn = 1; conn <= 3; conn++)
        report(conn, SHIM_RUNNING, 0, 0, "");
}

static void check_end(int32_t rank, int32_t exit_code, const char *node, const char *reason)
{
    const struct rdzv_record *record = rdzv_job_record(core, 1);

    CHECK_EQ(record->state, JOB_FAILED);
    CHECK_EQ(record->failed_rank, rank);
    CHECK_EQ(record->exit_code, exit_code);
    CHECK_STR(record->failed_node, node);
    CHECK_STR(record->reason, reason);
}

TEST(the_first_by_true_time)
{
    begin();
    now_us += SECOND_US;
    report(1, SHIM_ENDED, 1, 10000, "connection reset by peer");
    report(2, SHIM_ENDED, 7, 200000, "CUDA out of memory"); /* its report was slower */
    report(3, SHIM_ENDED, 2, 5000, "another consequence");
    check_end(1, 7, "b", "CUDA out of memory");
}

TEST(a_later_failure_changes_nothing)
{
    begin();
    now_us += SECOND_US;
    report(1, SHIM_ENDED, 1, 200000, "the first");
    report(2, SHIM_ENDED, 7, 100000, "the second");
    report(3, SHIM_ENDED, 0, 0, "");
    check_end(0, 1, "a", "the first");
}

TEST(the_age_counts_from_the_report)
{
    begin();
    now_us += SECOND_US;
    report(1, SHIM_ENDED, 1, 100000, "the first");
    now_us += SECOND_US;
    report(2, SHIM_ENDED, 7, 1050000, "50 ms after it");
    report(3, SHIM_ENDED, 8, 1150000, "50 ms before it");
    check_end(2, 8, "c", "50 ms before it");
}

static void report_lost(uint64_t conn, int32_t exit_code, uint64_t age_us, const char *cause)
{
    step_rank_report(conn, (struct rank_report){.job_id = 1,
                                                .rank = (uint32_t)conn - 1,
                                                .phase = SHIM_ENDED,
                                                .exit_code = exit_code,
                                                .failed_age_us = age_us,
                                                .by_peer = true,
                                                .cause = cause});
}

/* The rank that is the cause may take longer to end than those that lost it. */
TEST(a_failure_of_its_own_comes_before_a_lost_peer)
{
    begin();
    now_us += SECOND_US;
    report_lost(1, 1, 200000, "Connection reset by peer");
    report_lost(3, 1, 300000, "Connection reset by peer, earlier");
    report(2, SHIM_ENDED, 7, 1000, "KeyError: 'a'");
    check_end(1, 7, "b", "KeyError: 'a'");
    begin();
    now_us += SECOND_US;
    report(2, SHIM_ENDED, 7, 1000, "KeyError: 'a'");
    report_lost(1, 1, 200000, "Connection reset by peer");
    report(3, SHIM_ENDED, 0, 0, "");
    check_end(1, 7, "b", "KeyError: 'a'");
    begin();
    now_us += SECOND_US;
    report_lost(1, 1, 100000, "Connection reset by peer");
    report_lost(2, 1, 200000, "Broken pipe");
    report(3, SHIM_ENDED, 0, 0, "");
    check_end(1, 1, "b", "Broken pipe");
}

/* The first report of the failure was long in flight, so the failure looked later than it was. */
TEST(a_later_report_of_the_same_failure_says_when_it_was)
{
    begin();
    now_us += SECOND_US;
    report(1, SHIM_STOPPING, 1, 0, "the first");
    report(1, SHIM_STOPPING, 1, 200000, "the first");
    report(2, SHIM_ENDED, 7, 100000, "100 ms after it");
    report(1, SHIM_ENDED, 1, 0, "the first");
    report(3, SHIM_ENDED, 0, 0, "");
    check_end(0, 1, "a", "the first");
}

TEST(an_age_before_the_boot_is_no_cause)
{
    begin();
    report(1, SHIM_ENDED, 1, 0, "the first");
    report(2, SHIM_ENDED, 7, UINT64_C(1) << 50, "a lie");
    report(3, SHIM_ENDED, 0, 0, "");
    check_end(0, 1, "a", "the first");
}

/* If an operator or a limit ended the generation, no rank is the cause. */
TEST(a_stop_that_is_no_failure_keeps_its_reason)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.job = "1", .signal = 15, .grace_us = 0}};

    begin();
    now_us += SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 5, .job_id = 1, .msg = &msg});
    for (uint64_t conn = 1; conn <= 3; conn++)
        report(conn, SHIM_ENDED, 9, 500000, "killed");
    CHECK_EQ(rdzv_job_record(core, 1)->state, JOB_CANCELLED);
    CHECK_STR(rdzv_job_record(core, 1)->reason, "cancelled");
}

TEST_MAIN
