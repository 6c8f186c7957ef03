/* The server's core: the start of a generation, and nodes that cannot run it, or not yet. */
#include <string.h>

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
        .error = "",
        .failed_core = "",
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

TEST(the_first_node_is_told_all_addresses_once_they_are_known)
{
    struct msg_pair nodes[4];
    struct rdzv_record stored;
    struct rdzv_part parts[2];
    uint64_t id;

    begin_with(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, "node0");
    hello(2, "node1");
    CHECK_EQ(rdzv_job_nodes(core, 1, nodes), 0);
    id = step_submit((struct msg_submit){.nodes = 2, .nproc_per_node = 1, .max_restarts = 3});
    CHECK_EQ(count_of(RDZV_SEND_START), 2);
    CHECK_EQ(rdzv_job_nodes(core, id, nodes), 2);
    CHECK_STR(nodes[0].name, "node0");
    CHECK_STR(nodes[1].name, "node1");
    CHECK_STR(nodes[0].value, "127.0.0.1");
    CHECK_STR(nodes[1].value, "127.0.0.1");

    stored = *rdzv_job_record(core, id);
    memcpy(parts, stored.parts, sizeof parts);
    stored.parts = parts;
    begin_with(4, 4); /* a server that was started again */
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &stored});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "node0");
    CHECK_EQ(rdzv_job_nodes(core, id, nodes), 0);
    hello(2, "node1");
    CHECK_EQ(rdzv_job_nodes(core, id, nodes), 2);
}

/* Another machine may have had the node's name when its slots were assigned, or the node was
 * thought empty. An older shim on the slot is stopped first; the start is not refused because of
 * it. */
TEST(a_start_waits_for_an_older_shim_to_leave_the_slot)
{
    struct part_beat_shim shims[] = {
        {.job_id = 1, .generation = 1, .phase = SHIM_RUNNING, .slot_mask = 1}};
    uint64_t id;

    begin_with(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "node0");
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
    step_beat(1, shims, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->job_id, 1);
    CHECK_EQ(count_of(RDZV_SEND_START), 0);
    shims[0].phase = SHIM_STOPPING;
    step_beat(1, shims, 1);
    CHECK_EQ(count_of(RDZV_SEND_START), 0);
    step_beat(1, NULL, 0);
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
    CHECK_EQ(find(RDZV_SEND_START)->job_id, id);
}

TEST_MAIN
