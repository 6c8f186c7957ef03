/* Warm spares: when a node is asked to keep processes for a job, and when to end them. */
#include "tests/unit/rendezvous/core_tools.h"

#include <string.h>

#include "tests/lib/test.h"

static const char *const names[] = {"a", "b"};

static void come(uint64_t conn, uint32_t node)
{
    step_hello(conn, (struct msg_node_hello){.name = names[node], .instance = conn, .slots = 1});
}

/* What it lists: `job_id` 0: nothing. */
static void beat(uint64_t conn, uint64_t running, uint64_t job_id, enum warm_state state)
{
    const struct part_beat_shim shim = {running, 1, SHIM_RUNNING, 1, false};
    const struct part_warm_job warm = {job_id, state};
    struct msg msg = {.type = MSG_TYPE_BEAT};

    now_us += SECOND_US;
    wall_ms += 1000;
    msg.beat.sent_us = now_us;
    msg.beat.shims.items = &shim;
    msg.beat.shims.count = running != 0;
    msg.beat.warm.items = &warm;
    msg.beat.warm.count = job_id != 0;
    step_node(conn, &msg);
}

static uint32_t warm_count(uint64_t job_id)
{
    struct part_job part;

    rdzv_job_part(core, job_id, &part);
    CHECK_EQ(part.spares_held, 1);
    return part.spares_warm;
}

/* On node a; node b is its spare. */
static uint64_t run_one(void)
{
    uint64_t job_id;

    begin_with(8, 2);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    come(1, 0);
    come(2, 1);
    job_id = step_submit((struct msg_submit){
        .nodes = 1, .nproc_per_node = 1, .spares = 1, .max_restarts = 3, .grace_us = SECOND_US});
    step_rank_report(1, (struct rank_report){.job_id = job_id, .phase = SHIM_READY});
    step_rank_report(1, (struct rank_report){.job_id = job_id, .phase = SHIM_RUNNING});
    CHECK_EQ(rdzv_job_record(core, job_id)->state, JOB_RUNNING);
    CHECK_STR(rdzv_job_record(core, job_id)->parts[0].node, "a");
    return job_id;
}

TEST(a_spare_is_asked_once_for_each_connection)
{
    const uint64_t job_id = run_one();

    beat(2, 0, 0, WARM_STARTING);
    CHECK_EQ(count_of(RDZV_SEND_WARM), 1);
    CHECK_EQ(find(RDZV_SEND_WARM)->conn, 2);
    CHECK_EQ(find(RDZV_SEND_WARM)->job_id, job_id);
    CHECK_EQ(find(RDZV_SEND_WARM)->slot_mask, 1);
    beat(2, 0, 0, WARM_STARTING); /* a program that cannot wait, for example */
    CHECK_EQ(count_of(RDZV_SEND_WARM), 0);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 2});
    come(3, 1);
    beat(3, 0, 0, WARM_STARTING);
    CHECK_EQ(count_of(RDZV_SEND_WARM), 1);
    CHECK_EQ(find(RDZV_SEND_WARM)->conn, 3);
    beat(1, job_id, 0, WARM_STARTING); /* it is no spare */
    CHECK_EQ(count_of(RDZV_SEND_WARM) + count_of(RDZV_SEND_COOL), 0);
}

TEST(the_message_has_what_the_core_knows)
{
    const uint64_t job_id = run_one();
    struct msg msg;

    beat(2, 0, 0, WARM_STARTING);
    CHECK(rdzv_is_for_node(RDZV_SEND_WARM) && rdzv_is_for_node(RDZV_SEND_COOL));
    CHECK(rdzv_order(core, find(RDZV_SEND_WARM), &msg));
    CHECK_EQ(msg.type, MSG_TYPE_WARM);
    CHECK_EQ(msg.warm.job_id, job_id);
    CHECK_EQ(msg.warm.slot_mask, 1);
    CHECK_STR(msg.warm.user, rdzv_job_record(core, job_id)->user);
}

TEST(how_far_it_is_is_told)
{
    const uint64_t job_id = run_one();

    beat(2, 0, job_id, WARM_STARTING);
    CHECK_EQ(warm_count(job_id), 0);
    beat(2, 0, job_id, WARM_READY);
    CHECK_EQ(warm_count(job_id), 1);
    CHECK_EQ(count_of(RDZV_SEND_WARM) + count_of(RDZV_SEND_COOL), 0);
    CHECK_STR(find(RDZV_LOG_EVENT)->text,
              "spare node b is warm: its processes wait for their ranks");
    CHECK_EQ(count_of(RDZV_JOB_CHANGED), 1);
    beat(2, 0, job_id, WARM_READY);
    CHECK_EQ(count_of(RDZV_LOG_EVENT) + count_of(RDZV_JOB_CHANGED), 0);
    beat(2, 0, job_id, WARM_FAILED);
    CHECK_EQ(warm_count(job_id), 0);
    CHECK(strstr(find(RDZV_LOG_EVENT)->text, "spare node b is not warm: ") != NULL);
    CHECK_EQ(count_of(RDZV_SEND_WARM), 0);
    beat(2, 0, job_id, WARM_READY);
    beat(2, 0, 0, WARM_READY); /* they are gone */
    CHECK_EQ(warm_count(job_id), 0);
}

TEST(what_does_not_take_its_ranks_is_an_event)
{
    const uint64_t job_id = run_one();
    const struct rank_report late = {
        .job_id = job_id, .phase = SHIM_RUNNING, .joined = true, .warm_late = true};

    step_rank_report(1, late);
    CHECK_STR(find(RDZV_LOG_EVENT)->text,
              "node a: processes that waited for their ranks have not taken them within 5 s, or "
              "have ended: others are started");
    step_rank_report(1, late);
    CHECK_EQ(count_of(RDZV_LOG_EVENT), 0);
}

TEST(what_is_no_spare_any_more_is_cooled)
{
    const uint64_t job_id = run_one();
    const struct msg cancel = {.type = MSG_TYPE_CANCEL, .cancel = {.signal = 15, .grace_us = -1}};

    beat(2, 0, 77, WARM_READY); /* of no job */
    CHECK_EQ(count_of(RDZV_SEND_COOL), 1);
    CHECK_EQ(find(RDZV_SEND_COOL)->conn, 2);
    CHECK_EQ(find(RDZV_SEND_COOL)->job_id, 77);
    beat(2, 0, 77, WARM_ENDING); /* it knows */
    CHECK_EQ(count_of(RDZV_SEND_COOL), 0);
    beat(2, 0, job_id, WARM_READY);
    CHECK_EQ(count_of(RDZV_SEND_COOL), 0);
    step((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = 9, .job_id = job_id, .msg = &cancel, .user = "ann"});
    step_rank_report(
        1, (struct rank_report){.job_id = job_id, .phase = SHIM_ENDED, .is_stopped = true});
    beat(2, 0, job_id, WARM_READY);
    CHECK_EQ(count_of(RDZV_SEND_COOL), 1);
    beat(2, 0, job_id, WARM_FAILED); /* so that it is forgotten */
    CHECK_EQ(count_of(RDZV_SEND_COOL), 1);
}

/* The beat may have left the node before the start order came. */
TEST(what_a_start_order_takes_is_not_cooled)
{
    const uint64_t job_id = run_one();

    beat(2, 0, job_id, WARM_READY);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 1});
    for (uint32_t i = 0; i < 40 && rdzv_job_record(core, job_id)->generation == 1; i++)
        beat(2, 0, job_id, WARM_READY);
    CHECK_EQ(rdzv_job_record(core, job_id)->generation, 2);
    CHECK_STR(rdzv_job_record(core, job_id)->parts[0].node, "b");
    beat(2, 0, job_id, WARM_READY);
    CHECK_EQ(count_of(RDZV_SEND_COOL), 0);
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
}

TEST_MAIN
