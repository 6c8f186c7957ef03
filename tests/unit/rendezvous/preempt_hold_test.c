/* A preempted job waits for the job that has preempted it, but not for one that would not start even if slots
 * were free. */
#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

#define SLOTS 8u

static const struct rdzv_record *job(uint64_t id)
{
    return rdzv_job_record(core, id);
}

static void hello(uint64_t conn, const char *name, uint32_t slots, uint64_t shim_of)
{
    const struct part_beat_shim shim = {shim_of, 1, SHIM_RUNNING, 0xff, false};

    step_hello(conn,
               (struct msg_node_hello){
                   .name = name, .instance = conn, .slots = slots, .shims = {&shim, shim_of != 0}});
}

static uint64_t submit_to(const char *user, uint32_t nodes, uint32_t slots, int32_t priority)
{
    now_us += 1000;
    wall_ms += 1000;
    return step_submit_as((struct msg_submit){.nodes = nodes,
                                              .nproc_per_node = slots,
                                              .max_restarts = 3,
                                              .grace_us = 30 * SECOND_US,
                                              .priority = priority,
                                              .wait_for_nodes = true},
                          user, true);
}

static uint64_t submit(const char *user, uint32_t slots, int32_t priority)
{
    return submit_to(user, 1, slots, priority);
}

/* The part of a job of one node. */
static void report(uint64_t conn, uint64_t id, enum shim_phase phase, enum rank_state state)
{
    struct part_report_rank ranks[SLOTS] = {{0}};

    for (uint32_t i = 0; i < job(id)->nproc_per_node; i++)
        ranks[i] = (struct part_report_rank){.rank = i, .state = state};
    step_part_report(conn, id, job(id)->generation, phase, ranks, job(id)->nproc_per_node);
}

static void run(uint64_t conn, uint64_t id)
{
    CHECK_EQ(job(id)->state, JOB_STARTING);
    report(conn, id, SHIM_READY, RANK_WAITING);
    report(conn, id, SHIM_RUNNING, RANK_RUNNING);
    CHECK_EQ(job(id)->state, JOB_RUNNING);
}

/* Job 1 of ann, which gives way to all others, has all slots of that node, on connection 1. */
static void begin(const char *name, uint32_t max_slots)
{
    begin_preempting_quotas(16, 4, max_slots);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    hello(1, name, SLOTS, 0);
    CHECK_EQ(submit("ann", SLOTS, -10), 1);
    run(1, 1);
}

/* A queued job of bob that wants as many slots as job 1, as it is stored. */
static struct rdzv_record queued(uint64_t id, const char *node_faults)
{
    struct rdzv_record record = *job(1);

    record.job_id = id;
    (void)snprintf(record.request_id, sizeof record.request_id, "%032u", (unsigned)(1000 + id));
    (void)snprintf(record.user, sizeof record.user, "bob");
    (void)snprintf(record.node_faults, sizeof record.node_faults, "%s", node_faults);
    record.priority = 0;
    record.state = JOB_QUEUED;
    record.planned = true; /* as after a requeue: it has run, and waits in the queue */
    record.running_ms = 0;
    record.parts = NULL;
    record.part_count = 0;
    return record;
}

/* A new server that has job 1 and these; node `name` is back, and no other will be waited for. */
static void restart_with(const char *name, const struct rdzv_record *others, uint32_t count)
{
    const struct part_beat_shim shim = {1, 1, SHIM_RUNNING, 0xff, false};
    const struct rdzv_record low = keep_record(1);

    begin_preempting(16, 4);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &low});
    for (uint32_t i = 0; i < count; i++)
        step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &others[i]});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2 + count});
    hello(2, name, SLOTS, 1);
    report(2, 1, SHIM_RUNNING, RANK_RUNNING);
    for (uint32_t i = 0; i < 16; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        step_beat(2, &shim, 1);
    }
}

TEST(not_for_a_job_whose_user_has_all_slots_of_the_quota)
{
    uint64_t high, other;

    begin("a", SLOTS);
    hello(2, "b", SLOTS / 2, 0);
    high = submit("bob", SLOTS, 0);
    CHECK_EQ(job(1)->preempted_by, high);
    other = submit("bob", SLOTS / 2, 5);
    run(2, other);
    report(1, 1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(job(1)->state, JOB_STARTING);
    CHECK_EQ(job(high)->state, JOB_QUEUED);

    run(1, 1); /* once the quota has room, it gives way again */
    report(2, other, SHIM_ENDED, RANK_EXITED);
    CHECK_EQ(job(1)->preempted_by, high);
    report(1, 1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(job(1)->state, JOB_QUEUED);
    run(1, high);
}

/* Job 1 waits already when the quota is used up. */
TEST(nor_when_the_quota_is_used_up_later)
{
    uint64_t low, high, other;

    begin("a", 2 * SLOTS);
    hello(2, "b", SLOTS, 0);
    low = submit("ann", SLOTS, -10);
    run(2, low);
    high = submit_to("bob", 2, SLOTS, 0);
    CHECK_EQ(job(1)->preempted_by, high);
    CHECK_EQ(job(low)->preempted_by, high);
    report(1, 1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(job(1)->state, JOB_QUEUED); /* the other one has not ended yet */
    hello(3, "c", SLOTS / 2, 0);
    CHECK_EQ(job(1)->state, JOB_QUEUED);
    other = submit("bob", SLOTS / 2, 5);
    CHECK_EQ(job(other)->state, JOB_STARTING);
    CHECK_EQ(job(1)->state, JOB_STARTING);
}

/* Job 2 cannot use node a, so job 3 is the first of the array that waits, and preempts. */
TEST(not_for_a_job_whose_array_has_as_many_as_it_may)
{
    struct rdzv_record others[2];

    begin("a", 0);
    for (uint32_t i = 0; i < 2; i++) {
        others[i] = queued(2 + i, i == 0 ? "a 2" : "");
        others[i].array_job = 2;
        others[i].array_index = i;
        others[i].array_max = 1;
        others[i].array_count = 2;
        others[i].array_at_most = 1;
    }
    restart_with("a", others, 2);
    CHECK_EQ(job(1)->preempted_by, 3);
    hello(3, "b", SLOTS, 0);
    CHECK_EQ(job(2)->state, JOB_STARTING);
    report(2, 1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(job(3)->state, JOB_QUEUED);
    CHECK_EQ(job(1)->state, JOB_STARTING);
}

TEST(not_for_a_job_that_does_not_use_the_nodes_there_are)
{
    const struct msg drain = {.type = MSG_TYPE_NODE_DRAIN,
                              .node_drain = {.name = "b", .reason = "x"}};
    struct rdzv_record other;

    begin("b", 0);
    other = queued(2, "a 2");
    restart_with("b", &other, 1);
    CHECK_EQ(job(1)->preempted_by, 2);
    hello(3, "a", SLOTS, 0);
    CHECK_EQ(job(2)->state, JOB_QUEUED);
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_DRAIN, .client = 5, .msg = &drain, .user = "root"});
    report(2, 1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(job(2)->state, JOB_QUEUED);
    CHECK_EQ(job(1)->state, JOB_STARTING);
    CHECK_STR(job(1)->parts[0].node, "a");
}

/* Node b was lost with a job on it, and is back with a shim of it: its slots are free soon. The first job waits for that
 * shim with half of each node reserved, so another may have the rest. */
TEST(a_node_with_a_shim_of_an_ended_job_is_free_soon)
{
    uint64_t first, behind;

    begin("a", 0);
    hello(2, "b", SLOTS, 9);
    first = submit_to("bob", 2, SLOTS / 2, 0);
    CHECK_EQ(job(1)->preempted_by, first);
    behind = submit_to("eve", 1, SLOTS / 2, -20);
    CHECK_EQ(job(behind)->state, JOB_QUEUED);
    report(1, 1, SHIM_ENDED, RANK_STOPPED);
    CHECK_EQ(job(first)->state, JOB_QUEUED);
    CHECK_EQ(job(1)->state, JOB_QUEUED);
    CHECK_EQ(job(behind)->state, JOB_STARTING);
    step_beat(2, NULL, 0);
    CHECK_EQ(job(first)->state, JOB_STARTING);
}

TEST_MAIN
