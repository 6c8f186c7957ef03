/* Many spares of many jobs take over at the same instant: no step overflows its actions. */
#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define JOBS 10u
#define NODES 220u /* of each job, and as many spares */

static uint32_t lines; /* of the log that say that spares take over */
static char line[REASON_BYTES_MAX];

static void count_lines(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const char *text = actions.items[i].text;

        if (actions.items[i].type != RDZV_LOG_EVENT || strstr(text, " take over") == NULL)
            continue;
        lines++;
        if (actions.items[i].job_id == 1)
            (void)snprintf(line, sizeof line, "%s", text);
    }
}

/* The rest of what the core does at this instant. */
static void finish_instant(void)
{
    count_lines();
    for (uint32_t i = 0; actions.timer_at_us <= now_us; i++) {
        CHECK(i < 5000);
        step_unchecked((struct rdzv_event){.type = RDZV_EVENT_TICK});
        count_lines();
    }
}

static void hello(uint32_t node)
{
    char name[NODE_NAME_BYTES_MAX];

    (void)snprintf(name, sizeof name, "n%03u", node);
    step_hello(node + 1,
               (struct msg_node_hello){.name = name, .instance = node + 1, .slots = JOBS});
}

static void report(uint64_t job_id, enum shim_phase phase)
{
    for (uint32_t i = 0; i < NODES; i++) {
        const char *node = rdzv_job_record(core, job_id)->parts[i].node;

        step_rank_report(
            strtoull(node + 1, NULL, 10) + 1,
            (struct rank_report){.job_id = job_id, .rank = i, .phase = phase, .joined = true});
        finish_instant();
    }
}

/* Every node has a rank of every job, and there are as many nodes again, with spares. */
static void begin(void)
{
    struct part_job part;

    begin_with(JOBS, 2 * NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < NODES; i++)
        hello(i);
    for (uint32_t i = 0; i < JOBS; i++)
        CHECK_EQ(step_submit((struct msg_submit){.nodes = NODES,
                                                 .nproc_per_node = 1,
                                                 .spares = NODES,
                                                 .max_restarts = 3,
                                                 .grace_us = SECOND_US,
                                                 .wait_for_nodes = true}),
                 i + 1);
    for (uint32_t i = 0; i < NODES; i++)
        hello(NODES + i);
    finish_instant();
    for (uint32_t i = 1; i <= JOBS; i++) {
        report(i, SHIM_READY);
        report(i, SHIM_RUNNING);
        CHECK_EQ(rdzv_job_record(core, i)->state, JOB_RUNNING);
        rdzv_job_part(core, i, &part);
        CHECK_EQ(part.spares_held, NODES);
    }
}

TEST(all_nodes_are_lost_and_all_spares_take_over)
{
    begin();
    for (uint32_t i = 0; i < NODES; i++)
        step_unchecked((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = i + 1});
    lines = 0;
    for (uint32_t s = 0; s < 16; s++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        for (uint32_t i = 0; i < NODES; i++) {
            struct msg msg = {.type = MSG_TYPE_BEAT};

            step_unchecked((struct rdzv_event){
                .type = RDZV_EVENT_NODE_MSG, .conn = NODES + i + 1, .msg = &msg});
            finish_instant();
        }
    }
    rdzv_check(core);
    for (uint32_t i = 1; i <= JOBS; i++) {
        CHECK_EQ(rdzv_job_record(core, i)->generation, 2);
        CHECK_EQ(rdzv_job_record(core, i)->part_count, NODES);
    }
    CHECK_EQ(lines, JOBS);
    CHECK_STR(line, "spare nodes n220 (node rank 0), n221 (node rank 1) and 218 more take over");
}

TEST_MAIN
