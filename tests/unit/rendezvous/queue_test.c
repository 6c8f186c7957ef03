/* Scenarios of the queue: what is refused at submit, places, quotas, reservations, restarts of the
 * server. sched_test.c has the properties. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

#define JOBS_MAX 16u
#define NODES 8u

struct asked {
    uint32_t nodes, nproc;
    int32_t priority;
    uint64_t limit_us;
    const char *user;
    bool is_admin, waits;
};

static uint64_t ask(struct asked asked)
{
    return step_submit_as((struct msg_submit){.nodes = asked.nodes,
                                              .nproc_per_node = asked.nproc,
                                              .max_restarts = 3,
                                              .time_limit_us = asked.limit_us,
                                              .priority = asked.priority,
                                              .wait_for_nodes = asked.waits},
                          asked.user != NULL ? asked.user : "ann", asked.is_admin);
}

static void hello(uint64_t conn, const char *name, uint32_t slots)
{
    step_hello(conn, (struct msg_node_hello){.name = name, .instance = conn, .slots = slots});
}

static void beat(uint64_t conn)
{
    struct msg msg = {.type = MSG_TYPE_BEAT, .beat.sent_us = now_us};

    step_node(conn, &msg);
}

static void cancel(uint64_t job_id)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};

    step(
        (struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = job_id, .msg = &msg});
}

static void report(uint64_t conn, uint64_t job_id, enum shim_phase phase)
{
    struct part_report_rank rank = {.state = phase == SHIM_ENDED ? RANK_EXITED : RANK_RUNNING};

    step_part_report(conn, job_id, rdzv_job_record(core, job_id)->generation, phase, &rank, 1);
}

static enum job_state state_of(uint64_t job_id)
{
    return rdzv_job_record(core, job_id)->state;
}

static const char *reason_of(uint64_t job_id)
{
    return rdzv_job_record(core, job_id)->reason;
}

static void begin(uint32_t max_slots, uint32_t max_queued)
{
    begin_quotas(JOBS_MAX, NODES, max_slots, max_queued);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
}

TEST(a_job_that_no_known_node_can_run_is_refused)
{
    uint64_t id;

    begin(0, 0);
    CHECK(ask((struct asked){.nodes = 2, .nproc = 8}) != 0); /* no node was ever there */
    cancel(1);
    hello(1, "gpu1", 4);
    hello(2, "gpu2", 8);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED,
                             .conn = 2}); /* it counts all the same */
    CHECK_EQ(ask((struct asked){.nodes = 3, .nproc = 1}), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_UNSUPPORTED);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text,
              "it wants 1 slot on each of 3 nodes, and the server knows 2 nodes: ask for fewer, or "
              "add --wait-for-nodes to queue it until they are there");
    CHECK_EQ(ask((struct asked){.nodes = 2, .nproc = 8}), 0);
    CHECK_STR(find(RDZV_REPLY_ERROR)->text,
              "it wants 8 slots on each of 2 nodes, and 1 of the 2 nodes that the server knows has "
              "that many (the most is 8): ask for fewer, or add --wait-for-nodes");
    CHECK(ask((struct asked){.nodes = 1, .nproc = 8}) != 0);
    id = ask((struct asked){.nodes = 2, .nproc = 8, .waits = true});
    CHECK_EQ(state_of(id), JOB_QUEUED);
    /* the waiting job does not hold up others */
    CHECK_EQ(state_of(ask((struct asked){.nodes = 1, .nproc = 4})), JOB_STARTING);
    hello(3, "gpu3", 8);
    hello(4, "gpu4", 8);
    hello(5, "gpu5", 8); /* one of them is for the job before it */
    CHECK_EQ(state_of(id), JOB_STARTING);
}

TEST(a_restarted_server_waits_for_its_nodes)
{
    struct rdzv_record record = {.job_id = 1,
                                 .name = "stored",
                                 .user = "ann",
                                 .nodes = 2,
                                 .nproc_per_node = 1,
                                 .failed_rank = -1,
                                 .state = JOB_QUEUED};
    uint64_t id;

    begin_quotas(JOBS_MAX, NODES, 0, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "gpu1", 1);
    id = ask((struct asked){.nodes = 1, .nproc = 1}); /* would fit, but gpu2 may come */
    CHECK_STR(reason_of(id), "the server has just started, and waits for its nodes to connect");
    CHECK(ask((struct asked){.nodes = 9, .nproc = 1}) != 0);
    hello(2, "gpu2", 1);
    CHECK_EQ(state_of(1), JOB_STARTING);

    begin_quotas(JOBS_MAX, NODES, 0, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, "gpu1", 1);
    id = ask((struct asked){.nodes = 1, .nproc = 1});
    CHECK_EQ(state_of(id), JOB_QUEUED);
    now_us += 14 * SECOND_US;
    beat(1);
    CHECK(actions.timer_at_us <= now_us + SECOND_US);
    now_us += SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(state_of(id), JOB_STARTING);
}

TEST(a_point_of_priority_is_a_minute)
{
    uint64_t plain, low, high;

    begin(0, 0);
    hello(1, "gpu1", 1);
    (void)ask((struct asked){.nodes = 1, .nproc = 1}); /* the slot is taken */
    CHECK_EQ(ask((struct asked){.nodes = 1, .nproc = 1, .priority = 1}), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_REFUSED);
    plain = ask((struct asked){.nodes = 1, .nproc = 1});
    low = ask((struct asked){.nodes = 1, .nproc = 1, .priority = -1});
    high = ask((struct asked){.nodes = 1, .nproc = 1, .priority = 1, .is_admin = true});
    CHECK(strstr(reason_of(plain), "behind job 4 (job)") != NULL);
    CHECK(strstr(reason_of(low), "behind job 4 (job)") != NULL);
    CHECK(strstr(reason_of(high), "wants 1 slot") != NULL);
    cancel(high);
    CHECK(strstr(reason_of(low), "behind job 2 (job)") != NULL);
    wall_ms += 61000; /* a job that comes a minute later with one point less is behind */
    high = ask((struct asked){.nodes = 1, .nproc = 1});
    cancel(plain);
    CHECK(strstr(reason_of(high), "behind job 3 (job)") != NULL);
}

/* A user sees that jobs of others are before the own one, and not what they are called. */
TEST(the_name_of_another_users_job_is_not_told)
{
    uint64_t other, own;

    begin(0, 0);
    hello(1, "gpu1", 1);
    (void)ask((struct asked){.nodes = 1, .nproc = 1});
    (void)ask((struct asked){.nodes = 1, .nproc = 1});
    other = ask((struct asked){.nodes = 1, .nproc = 1, .user = "bob"});
    own = ask((struct asked){.nodes = 1, .nproc = 1});
    CHECK_STR(reason_of(other), "behind job 2: it waits for 1 slot on gpu1, reserved");
    CHECK_STR(reason_of(own), "behind job 2 (job): it waits for 1 slot on gpu1, reserved");
}

TEST(quotas_hold_up_their_user_alone)
{
    uint64_t first, second, other;

    begin(2, 2);
    hello(1, "gpu1", 8);
    CHECK_EQ(ask((struct asked){.nodes = 1, .nproc = 3}), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_REFUSED); /* it never can be taken */
    first = ask((struct asked){.nodes = 1, .nproc = 2});
    CHECK_EQ(state_of(first), JOB_STARTING);
    second = ask((struct asked){.nodes = 1, .nproc = 1});
    CHECK_STR(reason_of(second), "waits for other jobs of ann to end: a user may have 2 slots at a "
                                 "time (--max-slots-per-user of the server)");
    other = ask((struct asked){.nodes = 1, .nproc = 2, .user = "bob"});
    CHECK_EQ(state_of(other), JOB_STARTING);
    CHECK(ask((struct asked){.nodes = 1, .nproc = 1}) != 0);
    CHECK_EQ(ask((struct asked){.nodes = 1, .nproc = 1}), 0); /* two wait already */
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_TOO_BIG); /* it can later */
    cancel(second);
    CHECK(ask((struct asked){.nodes = 1, .nproc = 1}) != 0);
}

/* gpu1 is taken for an hour; job 2 waits for it and for gpu2. */
TEST(a_job_with_a_time_limit_uses_what_is_reserved_for_later)
{
    const uint64_t hour_us = 3600 * SECOND_US;
    uint64_t id;

    begin(0, 0);
    hello(2, "gpu2", 1);
    hello(1, "gpu1", 1); /* nodes are taken and named by name */
    (void)ask((struct asked){.nodes = 1, .nproc = 1, .limit_us = hour_us});
    report(1, 1, SHIM_READY);
    report(1, 1, SHIM_RUNNING);
    (void)ask((struct asked){.nodes = 2, .nproc = 1});
    id = ask((struct asked){.nodes = 1, .nproc = 1});
    CHECK_STR(reason_of(id), "behind job 2 (job): it waits for 2 slots on gpu[1-2], reserved");
    id = ask((struct asked){.nodes = 1, .nproc = 1, .limit_us = hour_us});
    CHECK_EQ(state_of(id), JOB_QUEUED);
    id = ask((struct asked){.nodes = 1, .nproc = 1, .limit_us = hour_us - 60 * SECOND_US});
    CHECK_EQ(state_of(id), JOB_STARTING);
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "gpu2");
    CHECK_EQ(rdzv_job_record(core, id)->limit_at_ms, wall_ms + 3600000); /* even if it never runs */
    report(2, id, SHIM_READY);
    now_us += 10 * SECOND_US;
    beat(1);
    report(2, id, SHIM_RUNNING);
    CHECK_EQ(rdzv_job_record(core, id)->limit_at_ms, wall_ms + 3540000);
}

/* It is unknown when slots become free. A reservation is kept even if another node looks better for
 * a while: the job starts when everything that ran before it has ended. */
TEST(a_reservation_without_a_time_is_kept)
{
    uint64_t whole, id;

    begin(0, 0);
    hello(1, "gpu1", 4);
    hello(2, "gpu2", 4);
    (void)ask((struct asked){.nodes = 1, .nproc = 2}); /* gpu1 */
    (void)ask((struct asked){.nodes = 1, .nproc = 3}); /* gpu2 */
    whole = ask((struct asked){.nodes = 1, .nproc = 4});
    id = ask((struct asked){.nodes = 1, .nproc = 1});
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "gpu2");
    id = ask((struct asked){.nodes = 1, .nproc = 2});
    CHECK_STR(reason_of(id), "behind job 3 (job): it waits for 4 slots on gpu1, reserved");
    cancel(2);
    report(2, 2, SHIM_ENDED);
    CHECK_STR(rdzv_job_record(core, id)->parts[0].node, "gpu2");
    cancel(1);
    report(1, 1, SHIM_ENDED);
    CHECK_EQ(state_of(whole), JOB_STARTING);
}

TEST(a_time_limit_goes_on_while_the_server_is_away)
{
    struct rdzv_record record;

    begin(0, 0);
    hello(1, "gpu1", 1);
    (void)ask((struct asked){.nodes = 1, .nproc = 1, .limit_us = 100 * SECOND_US});
    report(1, 1, SHIM_READY);
    report(1, 1, SHIM_RUNNING);
    record = keep_record(1);
    CHECK_EQ(record.limit_at_ms, wall_ms + 100000);
    begin_quotas(JOBS_MAX, NODES, 0, 0);
    wall_ms += 90000;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    CHECK(actions.timer_at_us <= now_us + 10 * SECOND_US);
    now_us += 10 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_STR(reason_of(1), "the time limit of 100 s is over");
}

#define MIB ((uint64_t)1 << 20)

static uint64_t submit_stored(const char *user, uint64_t has, uint64_t adds, uint64_t free_bytes)
{
    return step_submit_stored(
        (struct msg_submit){.nodes = 1, .nproc_per_node = 1, .wait_for_nodes = true}, user,
        (struct rdzv_stored){has, adds, free_bytes});
}

TEST(what_a_user_has_in_the_store_is_limited)
{
    begin_store_quota(JOBS_MAX, NODES, 10 * MIB);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    CHECK(submit_stored("ann", 9 * MIB, MIB, UINT64_MAX) != 0);
    CHECK_EQ(submit_stored("ann", 9 * MIB + 1, MIB, UINT64_MAX), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_TOO_BIG);
    CHECK_STR(
        find(RDZV_REPLY_ERROR)->text,
        "ann has 9.0 MiB in the server's store and would have 10.0 with this: a user may have "
        "10.0 (--max-stored-per-user of the server); ended jobs count for --keep-jobs");
    CHECK(submit_stored("bob", 0, MIB, UINT64_MAX) != 0);
    begin_store_quota(JOBS_MAX, NODES, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    CHECK(submit_stored("ann", 1000 * MIB, MIB, UINT64_MAX) != 0);
}

/* However small the disk is, one user leaves room for the next. */
TEST(a_user_may_have_half_of_what_the_store_can_take)
{
    uint64_t free_bytes = 64 * MIB, has = 0;

    begin_store_quota(JOBS_MAX, NODES, 256 * MIB);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (; submit_stored("ann", has, 4 * MIB, free_bytes) != 0; has += 4 * MIB)
        free_bytes -= 4 * MIB;
    CHECK_EQ(has, 32 * MIB);
    CHECK_STR(
        find(RDZV_REPLY_ERROR)->text,
        "the server's store has room for 32.0 MiB more, and ann has 32.0: a user may have half "
        "of both together, and with this would have 36.0");
    for (has = 0; submit_stored("bob", has, 4 * MIB, free_bytes) != 0; has += 4 * MIB)
        free_bytes -= 4 * MIB;
    CHECK_EQ(has, 16 * MIB);
}

TEST_MAIN
