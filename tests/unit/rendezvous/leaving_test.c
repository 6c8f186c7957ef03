/* A node that leaves (launcherd --drain-on-term): its jobs are stopped with their grace and go on elsewhere. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <string.h>

#include "tests/lib/test.h"

#define GRACE_US (7 * SECOND_US)

static const char *const names[] = {"a", "b"};

static const struct rdzv_record *job(void)
{
    return rdzv_job_record(core, 1);
}

static void come(uint32_t node, uint64_t instance)
{
    step_hello(node + 1,
               (struct msg_node_hello){.name = names[node], .instance = instance, .slots = 1});
}

static void begin(uint32_t nodes)
{
    begin_fenced(8, 2);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    come(0, 1);
    if (nodes > 1)
        come(1, 2);
}

static void submit(uint32_t nodes)
{
    CHECK_EQ(step_submit((struct msg_submit){.nodes = nodes,
                                             .nproc_per_node = 1,
                                             .max_restarts = 1,
                                             .grace_us = GRACE_US,
                                             .wait_for_nodes = true}),
             1);
}

static void report(uint32_t node, uint32_t rank, enum shim_phase phase)
{
    step_rank_report(node + 1, (struct rank_report){.job_id = 1,
                                                    .generation = job()->generation,
                                                    .rank = rank,
                                                    .phase = phase,
                                                    .is_stopped = phase == SHIM_ENDED});
}

/* `has_job`: it lists the shim of the job's current generation. */
static void beat(uint32_t node, bool has_job, bool leaving)
{
    const struct part_beat_shim shim = {1, has_job ? job()->generation : 1, SHIM_RUNNING, 1, false};
    struct msg msg = {.type = MSG_TYPE_BEAT,
                      .beat = {.sent_us = now_us,
                               .shims = {.items = &shim, .count = has_job},
                               .leaving = leaving}};

    step_node(node + 1, &msg);
}

static struct part_node view(uint32_t node)
{
    struct part_node out;

    rdzv_node_at(core, node, now_us, &out);
    return out;
}

TEST(its_job_is_stopped_with_its_grace_and_goes_on_elsewhere)
{
    begin(2);
    submit(1);
    CHECK_STR(job()->parts[0].node, "a");
    report(0, 0, SHIM_READY);
    report(0, 0, SHIM_RUNNING);
    beat(0, true, true);
    CHECK(find(RDZV_SEND_STOP) != NULL && find(RDZV_SEND_STOP)->signal == SIGTERM &&
          find(RDZV_SEND_STOP)->grace_us == GRACE_US);
    CHECK(strstr(job()->reason, "it leaves node a, whose launcherd was told to end") != NULL);
    report(0, 0, SHIM_ENDED);
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->parts[0].node, "b");
    CHECK_EQ(job()->restarts_without_progress, 0);
    CHECK_EQ(job()->node_failures, 0);
}

TEST(a_job_that_fits_nowhere_else_waits_for_the_node)
{
    begin(2);
    submit(2);
    for (uint32_t i = 0; i < 2; i++)
        report(i, i, SHIM_READY);
    for (uint32_t i = 0; i < 2; i++)
        report(i, i, SHIM_RUNNING);
    beat(0, true, true);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 2);
    report(0, 0, SHIM_ENDED);
    report(1, 1, SHIM_ENDED);
    CHECK_EQ(job()->state, JOB_RESTARTING);
    beat(0, false, true);
    CHECK_EQ(count_of(RDZV_SEND_START), 0);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 1});
    come(0, 3); /* a new process */
    CHECK_EQ(job()->generation, 2);
    CHECK_STR(job()->parts[0].node, "a");
}

TEST(it_is_shown_as_drained_by_its_launcherd_and_gets_nothing)
{
    begin(1);
    beat(0, false, true);
    CHECK(view(0).drained && view(0).slots_closed == 1);
    CHECK_STR(view(0).drained_by, "its launcherd");
    submit(1);
    CHECK_EQ(job()->part_count, 0);
    CHECK(strstr(job()->reason, "node a leaves: its launcherd was told to end") != NULL);
    beat(0, false, false); /* the node no longer leaves */
    CHECK(!view(0).drained);
    CHECK_EQ(job()->part_count, 1);
}

TEST(a_generation_that_has_not_run_yet_is_stopped_too)
{
    begin(2);
    submit(1);
    beat(0, true, true);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    report(0, 0, SHIM_ENDED);
    CHECK_STR(job()->parts[0].node, "b");
}

/* No server answered, so launcherd stopped the shim and ended; the next launcherd reports that. */
TEST(one_that_was_stopped_from_its_node_says_so_and_uses_none_of_its_restarts)
{
    begin(2);
    submit(1);
    report(0, 0, SHIM_READY);
    report(0, 0, SHIM_RUNNING);
    report(0, 0, SHIM_ENDED);
    CHECK(strstr(job()->reason, "node a stopped its part of the job, and this server did not order "
                                "that: its launcherd was told to leave") != NULL);
    CHECK_EQ(job()->state, JOB_RESTARTING);
    now_us += 2 * SECOND_US; /* the back-off */
    beat(0, false, false);
    CHECK_EQ(job()->generation, 2);
    CHECK_EQ(job()->restarts_without_progress, 0);
    CHECK_EQ(job()->node_failures,
             1); /* a program that stops its shim repeatedly runs out of restarts */
}

TEST_MAIN
