/* What kind of failure ended a generation, what it costs the job, and which nodes it excludes. */
#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/failure.h"
#include "rendezvous/core/restart.h"
#include "tests/lib/test.h"

#define DISK_FULL "cannot make the run directory: No space left on device"

static const char *const names[] = {"a", "b", "c"};

static void hello(uint64_t conn, uint32_t slots)
{
    step_hello(conn, (struct msg_node_hello){
                         .name = names[conn - 1], .instance = conn, .slots = slots, .gpus = 0});
}

static void begin(uint32_t nodes, uint32_t slots)
{
    begin_with(8, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint64_t conn = 1; conn <= nodes; conn++)
        hello(conn, slots);
}

static void tick(uint64_t later_us)
{
    now_us += later_us;
    wall_ms += (int64_t)(later_us / 1000);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
}

/* What has been started gets ready, and no further. */
static void get_ready(void)
{
    for (uint32_t i = 0; i < rdzv_job_count(core); i++) {
        const struct rdzv_record *record = rdzv_job_record(core, rdzv_job_at(core, i));

        if (record->state != JOB_STARTING || record->part_count != 1)
            continue;
        for (uint64_t conn = 1; conn <= 3; conn++)
            if (strcmp(record->parts[0].node, names[conn - 1]) == 0)
                step_rank_report(conn, (struct rank_report){.job_id = record->job_id,
                                                            .generation = record->generation,
                                                            .phase = SHIM_READY});
    }
}

static bool is_one_restarting(void)
{
    for (uint32_t i = 0; i < rdzv_job_count(core); i++)
        if (rdzv_job_record(core, rdzv_job_at(core, i))->state == JOB_RESTARTING)
            return true;
    return false;
}

/* Until no job waits for its next try, at most for longer than any back-off. The nodes send beats. */
static void wait_for_retry(uint32_t nodes)
{
    for (uint32_t i = 0; i < 62 && is_one_restarting(); i++) {
        struct part_beat_shim shims[3][8];
        uint32_t counts[3] = {0};

        tick(SECOND_US);
        get_ready();
        for (uint32_t k = 0; k < rdzv_job_count(core); k++) {
            const struct rdzv_record *record = rdzv_job_record(core, rdzv_job_at(core, k));

            for (uint64_t conn = 1; conn <= 3 && record->state == JOB_STARTING; conn++)
                if (strcmp(record->parts[0].node, names[conn - 1]) == 0)
                    shims[conn - 1][counts[conn - 1]++] =
                        (struct part_beat_shim){.job_id = record->job_id,
                                                .generation = record->generation,
                                                .phase = SHIM_READY,
                                                .slot_mask = record->parts[0].slot_mask};
        }
        for (uint64_t conn = 1; conn <= nodes; conn++)
            step_beat(conn, shims[conn - 1], counts[conn - 1]);
    }
}

static const struct rdzv_record *job(uint64_t id)
{
    return rdzv_job_record(core, id);
}

/* The node of a job of one part; 0: it has none now. */
static uint64_t conn_of(uint64_t id)
{
    if (job(id)->part_count == 0)
        return 0;
    for (uint64_t conn = 1; conn <= 3; conn++)
        if (strcmp(job(id)->parts[0].node, names[conn - 1]) == 0)
            return conn;
    return 0;
}

static void end_by_node(uint64_t id, const char *cause)
{
    step_rank_report(conn_of(id), (struct rank_report){.job_id = id,
                                                       .generation = job(id)->generation,
                                                       .phase = SHIM_ENDED,
                                                       .is_lost = true,
                                                       .cause = cause});
}

static void end_by_program(uint64_t id)
{
    step_rank_report(conn_of(id), (struct rank_report){.job_id = id,
                                                       .generation = job(id)->generation,
                                                       .phase = SHIM_ENDED,
                                                       .exit_code = 1,
                                                       .cause = "rank 0 exited with code 1"});
}

static void run(uint64_t id)
{
    for (enum shim_phase phase = SHIM_READY; phase <= SHIM_RUNNING; phase++)
        step_rank_report(conn_of(id), (struct rank_report){.job_id = id,
                                                           .generation = job(id)->generation,
                                                           .phase = phase,
                                                           .joined = false});
}

/* Each time the job goes to the other node, until a has failed it twice. */
static void fail_until_a_is_excluded(uint64_t id)
{
    static const uint64_t conns[] = {1, 2, 1};

    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(conn_of(id), conns[i]);
        end_by_node(id, DISK_FULL);
        CHECK(says(i < 2 ? "has failed the job once; --max-restarts does not count that"
                         : "node a has failed the job again: the job does not use it for"));
        CHECK_EQ(job(id)->state, JOB_RESTARTING);
        CHECK_STR(job(id)->reason, DISK_FULL);
        if (i < 2)
            wait_for_retry(2);
    }
    CHECK_STR(job(id)->node_faults, "b 1 a 2");
}

/* The disk of node a is full: the job goes to b, and no restart is counted. b has failed it last when
 * the job comes back to a. */
TEST(a_node_that_fails_twice_is_excluded)
{
    uint64_t id;

    begin(2, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    fail_until_a_is_excluded(id);
    wait_for_retry(2);
    CHECK_EQ(conn_of(id), 2);
    CHECK_EQ(job(id)->generation, 4);
    CHECK_EQ(job(id)->restarts_without_progress, 0);
    CHECK_EQ(job(id)->node_failures, 3);
    end_by_program(id); /* its own restart is still available */
    CHECK_EQ(job(id)->state, JOB_STARTING);
    CHECK_EQ(conn_of(id), 2);
    CHECK_EQ(job(id)->restarts_without_progress, 1);
    end_by_program(id);
    CHECK_EQ(job(id)->state, JOB_FAILED);
    CHECK_EQ(job(id)->exit_code, 1);
}

/* Other jobs use the node that one job excludes. */
TEST(only_that_job_excludes_it)
{
    uint64_t id, other;
    char avoided[AVOIDED_BYTES_MAX];

    begin(2, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    end_by_node(id, DISK_FULL);
    CHECK_EQ(job(id)->state, JOB_FAILED); /* without restarts, nothing is tried again */
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    fail_until_a_is_excluded(id);
    wait_for_retry(2);
    CHECK_EQ(conn_of(id), 2);
    other = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(conn_of(other), 1);
    rdzv_avoided(core, id, avoided); /* for ddpctl why */
    CHECK_STR(avoided, "a");
    rdzv_avoided(core, other, avoided);
    CHECK_STR(avoided, "");
}

/* The job fails on its only node until that one is excluded. Returns how long that took, without the
 * time in which it was on the node. */
static uint64_t fail_until_excluded(uint64_t id, uint32_t nodes, uint32_t tries)
{
    uint64_t us = 0;

    for (uint32_t i = 0; i <= tries; i++) {
        while (conn_of(id) == 0 && us < 1000 * SECOND_US) {
            tick(SECOND_US / 10);
            us += SECOND_US / 10;
            for (uint64_t conn = 1; conn <= nodes; conn++)
                step_beat(conn, NULL, 0);
        }
        CHECK_EQ(conn_of(id), 1);
        end_by_node(id, DISK_FULL);
        if (i < tries)
            CHECK(strstr(job(id)->reason, DISK_FULL ": no other node can run it: it is tried again "
                                                    "after ") != NULL);
    }
    CHECK_STR(job(id)->node_faults, "a 2");
    return us;
}

/* A shortage of processes or memory passes: there are tries for a minute. */
TEST(a_job_that_has_never_run_and_has_no_other_node_fails)
{
    uint64_t id;

    begin(1, 2);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3});
    CHECK(fail_until_excluded(id, 1, RESTART_ALONE) >= 60 * SECOND_US);
    CHECK_EQ(job(id)->state, JOB_FAILED);
    CHECK_EQ(job(id)->restarts_without_progress, 0);
    CHECK_STR(job(id)->reason, DISK_FULL);
    CHECK_EQ(job(id)->exit_code, 125);
}

/* Other nodes may come back: one is drained, or the user has asked to wait for nodes. */
TEST(a_job_waits_for_nodes_that_may_come_back)
{
    struct msg drain = {.type = MSG_TYPE_NODE_DRAIN, .node_drain = {.name = "b", .reason = "x"}};
    uint64_t id;

    begin(2, 1);
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_DRAIN, .client = 3, .msg = &drain, .user = "ann"});
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3});
    (void)fail_until_excluded(id, 2, RESTART_ALONE);
    CHECK_EQ(job(id)->state, JOB_RESTARTING);
    wait_for_retry(2);
    CHECK_EQ(conn_of(id), 0);
    drain.type = MSG_TYPE_NODE_RESUME;
    drain.node_resume = (struct msg_node_resume){.name = "b"};
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_RESUME, .client = 3, .msg = &drain, .user = "ann"});
    CHECK_EQ(conn_of(id), 2);

    begin(1, 1);
    id = step_submit((struct msg_submit){
        .nodes = 1, .nproc_per_node = 1, .max_restarts = 3, .wait_for_nodes = true});
    (void)fail_until_excluded(id, 1, RESTART_ALONE);
    CHECK_EQ(job(id)->state, JOB_RESTARTING);
    wait_for_retry(1);
    hello(2, 1);
    CHECK_EQ(conn_of(id), 2);
}

/* No other node can come, also to a job that was to wait for the machine's own nodes. With a spare, too. */
TEST(one_machine_has_no_elsewhere)
{
    for (uint64_t nodes = 1; nodes <= 2; nodes++) {
        uint64_t id;

        begin_one_machine(8, 3);
        for (uint64_t conn = 1; conn <= nodes; conn++)
            hello(conn, 1);
        id = step_submit((struct msg_submit){
            .nodes = 1, .nproc_per_node = 1, .max_restarts = 3, .wait_for_nodes = true});
        if (nodes == 1)
            CHECK(fail_until_excluded(id, 1, RESTART_ONE_MACHINE) <= 35 * SECOND_US);
        for (uint32_t i = 0; i < 12 && job(id)->state != JOB_FAILED; i++) {
            end_by_node(id, DISK_FULL);
            wait_for_retry((uint32_t)nodes);
        }
        CHECK_EQ(job(id)->state, JOB_FAILED);
        CHECK_STR(job(id)->reason, DISK_FULL);
        CHECK_EQ(job(id)->exit_code, 125);
    }
}

TEST(a_job_that_has_run_waits_for_its_only_node)
{
    struct msg resume = {.type = MSG_TYPE_NODE_RESUME, .node_resume = {.name = "a"}};
    uint64_t id, other;

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    run(id);
    CHECK_EQ(job(id)->state, JOB_RUNNING);
    (void)fail_until_excluded(id, 1, RESTART_ALONE);
    CHECK_EQ(job(id)->state, JOB_RESTARTING);
    wait_for_retry(1);
    CHECK_EQ(job(id)->part_count, 0);
    CHECK(strstr(job(id)->reason, "without node a, which the job does not use now") != NULL);
    other = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(conn_of(other), 1);
    end_by_program(other);
    for (uint32_t i = 0; i < EXCLUDE_US / SECOND_US / 60; i++)
        wait_for_retry(1);
    CHECK_EQ(conn_of(id), 1);   /* after the end of its exclusion */
    end_by_node(id, DISK_FULL); /* now one more failure is enough */
    wait_for_retry(1);
    CHECK_EQ(job(id)->state, JOB_RESTARTING);
    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_RESUME, .client = 3, .msg = &resume, .user = "ann"});
    CHECK_EQ(conn_of(id), 1);
    CHECK_STR(job(id)->node_faults, "");
}

/* The excluded node is neither kept nor reserved for the job: others start there at once. What it
 * waits for is the other node. */
/* The shims' own words decide, where they say a class: a part that was cut off is not its node's
 * failure, and a worker that could not be spawned because memory ran out is. */
TEST(the_class_of_the_report_counts)
{
    uint64_t id;

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    run(id);
    for (uint32_t i = 0; i < 3; i++) {
        step_rank_report(1, (struct rank_report){.job_id = id,
                                                 .generation = job(id)->generation,
                                                 .phase = SHIM_ENDED,
                                                 .is_lost = true,
                                                 .failed_class = FAILURE_NETWORK,
                                                 .cause = "cut off from the server"});
        wait_for_retry(1);
        CHECK_EQ(conn_of(id), 1);
    }
    CHECK_STR(job(id)->node_faults, "");
    step_rank_report(1, (struct rank_report){.job_id = id,
                                             .generation = job(id)->generation,
                                             .phase = SHIM_ENDED,
                                             .exit_code = 125,
                                             .failed_class = FAILURE_NODE,
                                             .cause = "rank 0: Cannot allocate memory"});
    CHECK_STR(job(id)->node_faults, "a 1");
    CHECK_EQ(job(id)->restarts_without_progress, 0);
    CHECK_EQ(job(id)->failed_rank, 0);

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    step_rank_report(1, (struct rank_report){.job_id = id,
                                             .phase = SHIM_ENDED,
                                             .exit_code = 125,
                                             .failed_class = FAILURE_NODE,
                                             .cause = "rank 0: Cannot allocate memory"});
    CHECK_EQ(job(id)->state, JOB_FAILED);
    CHECK_EQ(job(id)->exit_code, 125);
    CHECK(job(id)->exit_is_ours); /* no program has exited with it */
}

TEST(others_use_the_excluded_node_meanwhile)
{
    uint64_t id, busy, other, behind;

    begin(2, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    run(id);
    busy = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(conn_of(busy), 2);
    end_by_node(id, DISK_FULL);
    tick(SECOND_US);
    CHECK_EQ(conn_of(id), 1);
    end_by_node(id, DISK_FULL);
    CHECK_EQ(job(id)->state, JOB_RESTARTING);
    other = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(conn_of(other), 1); /* while the job waits for its next try */
    tick(2 * SECOND_US);
    CHECK_EQ(job(id)->part_count, 0);
    CHECK(strstr(job(id)->reason, "without node a, which the job does not use now") != NULL);
    end_by_program(other);
    other = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(conn_of(other), 1); /* and while it waits for slots */
    behind = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK(strstr(job(behind)->reason, "it waits for 1 slot on b, reserved") != NULL);
    end_by_program(busy);
    CHECK_EQ(conn_of(id), 2);
}

TEST(a_job_that_has_never_run_waits_for_a_lost_node)
{
    uint64_t id;

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    tick(100 * SECOND_US);
    CHECK_EQ(job(id)->state, JOB_RESTARTING);
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 1});
    hello(1, 1);
    CHECK_EQ(conn_of(id), 1);
}

TEST(failures_of_nodes_have_a_limit)
{
    uint64_t id;
    uint32_t tries = 0;

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    run(id);
    while (job(id)->state != JOB_FAILED && tries < 100) {
        if (conn_of(id) != 0) {
            end_by_node(id, DISK_FULL);
            tries++;
        }
        if (job(id)->state != JOB_FAILED)
            wait_for_retry(1);
    }
    CHECK_EQ(tries, RESTART_NODE_FAILURES_MAX + 1);
}

TEST(a_lost_node_costs_no_restart_and_is_not_excluded)
{
    uint64_t id;

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    run(id);
    for (uint32_t i = 0; i < 4; i++) {
        tick(100 * SECOND_US);
        CHECK_EQ(job(id)->state, JOB_RESTARTING);
        CHECK_EQ(job(id)->failed_class, FAILURE_NETWORK);
        step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = 1});
        hello(1, 1);
        wait_for_retry(1);
        CHECK_EQ(conn_of(id), 1);
    }
    CHECK_EQ(job(id)->restarts, 4);
    CHECK_EQ(job(id)->node_failures, 4);
    CHECK_EQ(job(id)->restarts_without_progress, 0);
    CHECK_STR(job(id)->node_faults, "");
}

/* For a script that reports no checkpoint, an hour of running renews its restarts. */
TEST(time_renews_the_restarts_of_a_silent_program)
{
    uint64_t id;

    begin(1, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    for (uint32_t i = 0; i < 5; i++) {
        run(id);
        for (uint64_t s = 0; s < RESTARTS_RENEWED_US / SECOND_US; s++) {
            const struct part_beat_shim shim = {.job_id = id,
                                                .generation = job(id)->generation,
                                                .phase = SHIM_RUNNING,
                                                .slot_mask = 1};

            tick(SECOND_US);
            step_beat(1, &shim, 1);
        }
        end_by_program(id);
        CHECK_EQ(job(id)->state, JOB_STARTING);
        CHECK_EQ(job(id)->restarts_without_progress, 1);
    }
    run(id);
    end_by_program(id);
    CHECK_EQ(job(id)->state, JOB_FAILED); /* this one ran for no time */
}

/* A restarted server excludes the same nodes, and knows since when the job runs. */
TEST(a_restart_of_the_server_keeps_both)
{
    static struct rdzv_record record;
    uint64_t id;

    begin(2, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    fail_until_a_is_excluded(id);
    record = keep_record(id);
    begin_with(8, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = id + 1});
    hello(1, 1);
    hello(2, 1);
    wait_for_retry(2);
    CHECK_EQ(conn_of(id), 2);
    CHECK_EQ(job(id)->node_failures, 3);
}

static void end_not_run(uint64_t id, uint64_t conn, uint32_t code)
{
    step_rank_report(conn, (struct rank_report){.job_id = id,
                                                .generation = job(id)->generation,
                                                .phase = SHIM_ENDED,
                                                .is_lost = true,
                                                .failed_class = FAILURE_PROGRAM,
                                                .errno_exit = code,
                                                .cause = "no such program"});
}

/* A shared disk is not mounted on a: b is asked at once, and nothing is counted. */
TEST(a_program_that_one_node_lacks_runs_on_another)
{
    uint64_t id;

    begin(2, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    end_not_run(id, 1, 127);
    CHECK_EQ(conn_of(id), 2);
    CHECK_STR(job(id)->node_faults, "a 2");
    CHECK_EQ(job(id)->restarts_without_progress, 0);
    end_not_run(id, 2, 126); /* so it is the program */
    CHECK_EQ(job(id)->state, JOB_FAILED);
    CHECK_EQ(job(id)->exit_code, 126);
    CHECK(job(id)->exit_is_ours);
}

/* Without a node that could have it, with two that lack it, or without restarts, it is final. */
TEST(a_program_that_is_missing_ends_the_job_at_once)
{
    uint64_t id;

    begin(1, 2);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3});
    end_not_run(id, 1, 127);
    CHECK_EQ(job(id)->state, JOB_FAILED);
    CHECK_EQ(job(id)->exit_code, 127);

    begin(2, 1);
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    end_not_run(id, 1, 127);
    CHECK_EQ(job(id)->state, JOB_FAILED);

    begin(2, 1); /* nobody waits for slots to learn of a typing error */
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 3});
    (void)step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    end_not_run(id, 1, 127);
    CHECK_EQ(job(id)->state, JOB_FAILED);

    begin(3, 1);
    id = step_submit((struct msg_submit){.nodes = 2, .nproc_per_node = 1, .max_restarts = 3});
    end_not_run(id, 1, 127);
    end_not_run(id, 2, 127);
    CHECK_EQ(job(id)->state, JOB_FAILED);
    CHECK_EQ(job(id)->exit_code, 127);
    CHECK_EQ(job(id)->generation, 1);
}

/* The rank failed, but on a GPU that its node has drained for a fault. */
TEST(a_faulty_gpu_is_the_failure_of_its_node)
{
    const struct part_slot_closed closed = {.slot = 0,
                                            .state = SLOT_DRAINED,
                                            .incident = 5,
                                            .reason = "the GPU has fallen off the bus"};
    struct msg beat = {.type = MSG_TYPE_BEAT};
    uint64_t id;

    begin_with(8, 3);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 1, .gpus = 1});
    step_hello(2, (struct msg_node_hello){.name = "b", .instance = 2, .slots = 1, .gpus = 1});
    id = step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .max_restarts = 1});
    run(id);
    beat.beat.sent_us = now_us;
    beat.beat.closed.items = &closed;
    beat.beat.closed.count = 1;
    beat.beat.shims.items = &(const struct part_beat_shim){
        .job_id = id, .generation = 1, .phase = SHIM_RUNNING, .slot_mask = 1};
    beat.beat.shims.count = 1;
    step_node(1, &beat);
    end_by_program(id);
    CHECK_EQ(job(id)->failed_class, FAILURE_NODE);
    wait_for_retry(2);
    CHECK_EQ(conn_of(id), 2);
    CHECK_EQ(job(id)->restarts_without_progress, 0);
}

/* More nodes than are remembered: the newest stay. */
TEST(the_table_of_failures_is_bounded)
{
    struct rdzv_record record = {.job_id = 1,
                                 .request_id = "00000000000000000000000000000001",
                                 .name = "job",
                                 .user = "ann",
                                 .nodes = 1,
                                 .nproc_per_node = 1,
                                 .max_restarts = 1,
                                 .state = JOB_RESTARTING,
                                 .generation = 1,
                                 .running_ms = 1,
                                 .failed_rank = -1,
                                 .node_faults =
                                     "n1 2 n1 2 n2 1 n3 1 n4 1 n5 1 n6 1 n7 1 n8 1 n9 1"};

    begin_with(8, 3);
    wall_ms = 100000;
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    hello(1, 1);
    wait_for_retry(1);
    CHECK_EQ(conn_of(1), 1);
    end_by_node(1, DISK_FULL);
    CHECK_STR(job(1)->node_faults, "n2 1 n3 1 n4 1 n5 1 n6 1 n7 1 n8 1 a 1");
}

TEST_MAIN
