/* The server's core: a node says, before anything was started, that it cannot run the job. */
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

static const char *const cause = "node node1: working directory /x does not exist";

static void hello(uint64_t conn, const char *name)
{
    step_hello(conn, (struct msg_node_hello){.name = name, .instance = conn, .slots = 1});
}

static void report(uint64_t conn, uint64_t job_id, enum shim_phase phase, int32_t errno_exit)
{
    const struct part_report_rank rank = {.rank = (uint32_t)conn - 1, .state = RANK_WAITING};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    msg.shim_report = (struct msg_shim_report){
        .job_id = job_id,
        .generation = 1,
        .revision = 1,
        .phase = phase,
        .master_port = conn == 1 ? 4000 : 0,
        .failed_rank = -1,
        .failed_errno_exit = errno_exit,
        .cause = errno_exit != 0 ? cause : "",
        .tail = "",
    };
    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step_node(conn, &msg);
}

TEST(a_node_that_cannot_run_the_job_fails_it_once)
{
    const struct rdzv_record *record;
    uint64_t id;

    begin_with(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "node0");
    hello(2, "node1");
    id = step_submit((struct msg_submit){.nodes = 2, .nproc_per_node = 1, .max_restarts = 3});
    report(1, id, SHIM_READY, 0);
    report(2, id, SHIM_ENDED, 126);
    CHECK_EQ(count_of(RDZV_SEND_GO), 0);
    report(1, id, SHIM_ENDED, 0);
    record = rdzv_job_record(core, id);
    CHECK_EQ(record->state, JOB_FAILED);
    CHECK_EQ(record->restarts, 0);
    CHECK_EQ(record->exit_code, 126);
    CHECK_EQ(record->failed_rank, -1);
    CHECK(record->exit_is_ours);
    CHECK_STR(record->reason, cause);
}

TEST_MAIN
