/* A node cannot have the staged directory of a job, and never will. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

static void begin(uint64_t nodes)
{
    begin_with(4, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint64_t conn = 1; conn <= nodes; conn++) {
        char name[16];

        (void)snprintf(name, sizeof name, "node%d", (int)conn);
        step_hello(conn, (struct msg_node_hello){.name = name, .instance = conn, .slots = 1});
    }
}

static uint64_t submit(uint32_t max_restarts)
{
    return step_submit((struct msg_submit){
        .nodes = 1, .nproc_per_node = 1, .max_restarts = max_restarts, .grace_us = SECOND_US});
}

static void stage_lost(uint64_t conn, uint64_t id)
{
    step((struct rdzv_event){
        .type = RDZV_EVENT_STAGE_LOST, .conn = conn, .job_id = id, .text = "it is damaged"});
}

/* launcherd ends the part, since it does not get the directory. */
static void end_part(uint64_t conn, uint64_t id, uint32_t generation)
{
    step_rank_report(conn, (struct rank_report){.job_id = id,
                                                .phase = SHIM_ENDED,
                                                .generation = generation,
                                                .is_lost = true,
                                                .failed_class = FAILURE_NODE,
                                                .cause = "the node says it, too"});
}

static void check_failed(uint64_t id, uint32_t restarts)
{
    const struct rdzv_record *record = rdzv_job_record(core, id);

    CHECK_EQ(record->state, JOB_FAILED);
    CHECK_EQ(record->exit_code, 125);
    CHECK(record->exit_is_ours);
    CHECK_EQ(record->restarts, restarts);
    CHECK_STR(record->reason, "it is damaged");
}

TEST(it_ends_a_job_that_has_no_other_node)
{
    uint64_t id;

    begin(1);
    id = submit(3);
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
    stage_lost(1, id);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1); /* the node may begin yet */
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_STARTING);
    stage_lost(1, id);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 0);
    end_part(1, id, 1);
    check_failed(id, 0);
}

/* Another node may have the directory from before. */
TEST(one_other_node_is_tried)
{
    uint64_t id, conn;

    begin(3);
    id = submit(3);
    conn = find(RDZV_SEND_START)->conn;
    stage_lost(conn, id);
    end_part(conn, id, 1);
    for (int i = 0; i < 10 && rdzv_job_record(core, id)->generation == 1; i++) {
        now_us += SECOND_US;
        step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    }
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);
    CHECK(find(RDZV_SEND_START) != NULL && find(RDZV_SEND_START)->conn != conn);
    conn = find(RDZV_SEND_START)->conn;
    stage_lost(conn, id);
    end_part(conn, id, 2);
    check_failed(id, 1);
}

TEST(none_is_tried_without_restarts)
{
    uint64_t id, conn;

    begin(2);
    id = submit(0);
    conn = find(RDZV_SEND_START)->conn;
    stage_lost(conn, id);
    end_part(conn, id, 1);
    check_failed(id, 0);
}

/* The node asks for another job. */
TEST(a_part_that_has_begun_has_its_directory)
{
    uint64_t id;

    begin(2);
    id = submit(3);
    step_rank_report(find(RDZV_SEND_START)->conn,
                     (struct rank_report){.job_id = id, .phase = SHIM_READY});
    for (uint64_t conn = 1; conn <= 3; conn++) { /* 3: there is none */
        stage_lost(conn, id);
        stage_lost(conn, id + 1);
        CHECK_EQ(count_of(RDZV_SEND_STOP), 0);
    }
    CHECK_EQ(rdzv_job_record(core, id)->state, JOB_STARTING);
}

TEST_MAIN
