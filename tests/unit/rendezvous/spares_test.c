/* Spare nodes of a job: --spares, --replace-stragglers. */
#include "tests/unit/rendezvous/core_tools.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/job.h"
#include "tests/lib/test.h"

#define NODES 5u

static const char *const names[NODES] = {"a", "b", "c", "d", "e"};
static bool is_here[NODES];

static const struct rdzv_record *job(uint64_t job_id)
{
    return rdzv_job_record(core, job_id);
}

static void come(uint32_t node)
{
    is_here[node] = true;
    step_hello(node + 1,
               (struct msg_node_hello){.name = names[node], .instance = node + 1, .slots = 1});
}

/* The node's launcherd has ended. */
static void go_away(uint32_t node)
{
    is_here[node] = false;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = node + 1});
}

static void begin(uint32_t count)
{
    memset(is_here, 0, sizeof is_here);
    begin_with(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < count; i++)
        come(i);
}

static const struct msg_submit two_and_a_spare = {.nodes = 2,
                                                  .nproc_per_node = 1,
                                                  .spares = 1,
                                                  .max_restarts = 3,
                                                  .grace_us = SECOND_US,
                                                  .wait_for_nodes = true};

static uint64_t submit(void)
{
    return step_submit(two_and_a_spare);
}

static uint32_t node_of(uint64_t job_id, uint32_t part)
{
    return (uint32_t)(job(job_id)->parts[part].node[0] - 'a');
}

static void report(uint64_t job_id, uint32_t part, enum shim_phase phase)
{
    step_rank_report(node_of(job_id, part) + 1,
                     (struct rank_report){.job_id = job_id,
                                          .generation = job(job_id)->generation,
                                          .rank = part,
                                          .phase = phase,
                                          .has_world = phase == SHIM_RUNNING,
                                          .joined = true});
}

static void run(uint64_t job_id)
{
    for (uint32_t i = 0; i < job(job_id)->part_count; i++)
        report(job_id, i, SHIM_READY);
    for (uint32_t i = 0; i < job(job_id)->part_count; i++)
        report(job_id, i, SHIM_RUNNING);
    CHECK_EQ(job(job_id)->state, JOB_RUNNING);
}

/* Every part on a connected node ends on the signal. */
static void end_stopped(uint64_t job_id)
{
    const uint32_t generation = job(job_id)->generation, count = job(job_id)->part_count;
    uint32_t nodes[NODES];

    for (uint32_t i = 0; i < count; i++)
        nodes[i] = node_of(job_id, i);
    for (uint32_t i = 0; i < count; i++)
        if (is_here[nodes[i]])
            step_rank_report(nodes[i] + 1, (struct rank_report){.job_id = job_id,
                                                                .generation = generation,
                                                                .rank = i,
                                                                .phase = SHIM_ENDED,
                                                                .is_stopped = true});
}

/* Lets `seconds` pass, in which the connected nodes send beats that list what runs on them. */
static void pass(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        now_us += SECOND_US;
        wall_ms += 1000;
        for (uint32_t node = 0; node < NODES; node++) {
            struct part_beat_shim shims[8];
            uint32_t count = 0;

            for (uint32_t k = 0; k < rdzv_job_count(core); k++) {
                const struct rdzv_record *record = job(rdzv_job_at(core, k));

                for (uint32_t p = 0; p < record->part_count; p++)
                    if (record->parts[p].node[0] == 'a' + (char)node)
                        shims[count++] = (struct part_beat_shim){record->job_id, record->generation,
                                                                 SHIM_RUNNING, 1, false};
            }
            if (is_here[node])
                step_beat(node + 1, shims, count);
        }
    }
}

/* "ac": its parts are on these nodes, ranks in this order. */
static void check_on(uint64_t job_id, uint32_t generation, const char *nodes)
{
    const struct rdzv_record *record = job(job_id);
    char on[NODES + 1] = "";

    for (uint32_t i = 0; i < record->part_count; i++)
        on[i] = record->parts[i].node[0];
    CHECK_STR(on, nodes);
    CHECK_EQ(record->generation, generation);
}

/* Which nodes hold a slot for a job that has no part there: "c". */
static void check_spares(uint64_t job_id, const char *nodes)
{
    char on[NODES + 1] = "";
    uint32_t count = 0;

    for (uint32_t i = 0; i < rdzv_node_count(core); i++) {
        struct part_slot slots[SLOTS_PER_NODE_MAX];
        struct part_node node;
        bool is_part = false;

        rdzv_node_at(core, i, now_us, &node);
        for (uint32_t p = 0; p < job(job_id)->part_count; p++)
            is_part = is_part || strcmp(job(job_id)->parts[p].node, node.name) == 0;
        if (rdzv_node_slots(core, i, true, slots) == 0 || slots[0].job_id != job_id || is_part)
            continue;
        CHECK_EQ(node.slots_free, 0);
        on[count++] = node.name[0];
    }
    CHECK_STR(on, nodes);
}

static void drain(const char *name)
{
    struct msg msg = {.type = MSG_TYPE_NODE_DRAIN,
                      .node_drain = {.name = name, .reason = "a new disk"}};

    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_DRAIN, .client = 9, .msg = &msg, .user = "ann"});
}

static void cancel(uint64_t job_id)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL, .cancel = {.signal = 15, .grace_us = -1}};

    step((struct rdzv_event){
        .type = RDZV_EVENT_CANCEL, .client = 9, .job_id = job_id, .msg = &msg, .user = "ann"});
}

TEST(a_free_node_is_held_and_nobody_else_gets_it)
{
    begin(3);
    CHECK_EQ(submit(), 1);
    check_on(1, 1, "ab");
    check_spares(1, "c");
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1}), 2);
    CHECK_EQ(job(2)->state, JOB_QUEUED);
    come(3);
    check_on(2, 1, "d");
}

TEST(a_job_does_not_wait_for_its_spare)
{
    begin(2);
    CHECK_EQ(submit(), 1);
    check_on(1, 1, "ab");
    check_spares(1, "");
    come(2);
    check_spares(1, "c");
}

TEST(a_job_that_waits_goes_before_a_spare)
{
    begin(2);
    (void)submit();
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1}), 2);
    come(2);
    check_on(2, 1, "c");
    check_spares(1, "");
    come(3);
    check_spares(1, "d");
}

TEST(the_spare_takes_the_node_rank_of_a_lost_node)
{
    begin(4);
    (void)submit();
    run(1);
    is_here[0] = false; /* silent */
    pass(15);
    CHECK_EQ(job(1)->stopping, STOP_FAILURE);
    check_spares(1, "c");
    end_stopped(1);
    pass(2);
    check_on(1, 2, "cb"); /* b keeps its rank */
    check_spares(1, "d"); /* and another spare is chosen */
    CHECK_EQ(job(1)->restarts_without_progress, 0);
}

/* Also where another free node would come before it. */
TEST(the_spare_is_taken_and_not_another_free_node)
{
    begin(2);
    (void)submit();
    come(3);
    check_spares(1, "d");
    come(2);
    run(1);
    go_away(0);
    step_rank_report(
        2, (struct rank_report){.job_id = 1, .rank = 1, .phase = SHIM_ENDED, .exit_code = 1});
    pass(3);
    check_on(1, 2, "db");
    check_spares(1, "c");
}

TEST(a_node_that_closed_its_connection_is_not_waited_for)
{
    begin(3);
    (void)submit();
    run(1);
    go_away(1);
    step_rank_report(1, (struct rank_report){.job_id = 1, .phase = SHIM_ENDED, .exit_code = 1});
    CHECK_EQ(job(1)->stopping, STOP_FAILURE);
    pass(3);
    check_on(1, 2, "ac");
    CHECK_EQ(job(1)->restarts_without_progress, 0);
}

TEST(a_lost_spare_is_not_noticed_and_another_one_is_sought)
{
    begin(3);
    (void)submit();
    run(1);
    check_spares(1, "c");
    is_here[2] = false;
    pass(16);
    check_spares(1, "");
    come(3);
    check_spares(1, "d");
    drain("d");
    check_spares(1, "");
    CHECK_EQ(job(1)->state, JOB_RUNNING);
    check_on(1, 1, "ab");
}

/* Its launcherd is restarted: the slots stay the job's. */
TEST(a_spare_that_calls_again_is_the_same)
{
    begin(3);
    (void)submit();
    run(1);
    go_away(2);
    check_spares(1, "c");
    is_here[2] = true;
    step_hello(9, (struct msg_node_hello){.name = "c", .instance = 9, .slots = 1});
    check_spares(1, "c");
}

/* A spare whose connection is closed cannot be used; the job waits for it or for the lost node. */
TEST(a_spare_that_does_not_answer_is_not_taken)
{
    begin(3);
    (void)submit();
    run(1);
    go_away(2);
    go_away(1);
    step_rank_report(1, (struct rank_report){.job_id = 1, .phase = SHIM_ENDED, .exit_code = 1});
    pass(3);
    CHECK_EQ(job(1)->state, JOB_RESTARTING);
    is_here[2] = true;
    step_hello(3, (struct msg_node_hello){.name = "c", .instance = 9, .slots = 1});
    check_on(1, 2, "ac");
}

/* The job needs three nodes and has two with its spare, so other jobs may use them meanwhile. */
TEST(a_job_that_cannot_start_holds_no_spare)
{
    struct msg_submit request = two_and_a_spare;

    begin(4);
    request.nodes = 3;
    CHECK_EQ(step_submit(request), 1);
    check_spares(1, "d");
    run(1);
    go_away(0);
    go_away(1);
    step_rank_report(
        3, (struct rank_report){.job_id = 1, .rank = 2, .phase = SHIM_ENDED, .exit_code = 1});
    pass(3);
    CHECK_EQ(job(1)->state, JOB_RESTARTING);
    check_spares(1, "");
    come(1);
    check_on(1, 2, "dbc");
}

TEST(a_drained_node_is_left_for_the_spare)
{
    begin(3);
    (void)submit();
    run(1);
    drain("a");
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    CHECK_STR(job(1)->reason, "it leaves node a, which was drained: it goes on with 2 nodes");
    end_stopped(1);
    check_on(1, 2, "cb");
    CHECK_EQ(job(1)->restarts_without_progress, 0);
    CHECK_EQ(job(1)->node_failures, 0);
    check_spares(1, "");
}

TEST(without_a_spare_a_drained_node_is_not_left)
{
    begin(2);
    (void)submit();
    run(1);
    drain("a");
    CHECK_EQ(job(1)->stopping, STOP_NONE);
    come(2);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    end_stopped(1);
    check_on(1, 2, "cb");
}

TEST(nothing_is_held_after_the_end)
{
    begin(3);
    (void)submit();
    run(1);
    cancel(1);
    check_spares(1, "c");
    end_stopped(1);
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 3, .nproc_per_node = 1}), 2);
    check_on(2, 1, "abc");
}

TEST(a_restarted_server_seeks_a_spare_again)
{
    struct rdzv_record record;

    begin(3);
    (void)submit();
    run(1);
    record = keep_record(1);
    begin_with(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    check_spares(1, "");
    for (uint32_t i = 0; i < 3; i++)
        step_hello(i + 1,
                   (struct msg_node_hello){
                       .name = names[i],
                       .instance = i + 1,
                       .slots = 1,
                       .shims = {.items = &(struct part_beat_shim){1, 1, SHIM_RUNNING, 1, false},
                                 .count = i < 2}});
    check_spares(1, "c");
}

/* The slots of a user are bounded, and spares are among them. */
TEST(a_spare_counts_for_its_user)
{
    memset(is_here, 0, sizeof is_here);
    begin_quotas(8, NODES, 2, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 3; i++)
        come(i);
    CHECK_EQ(submit(), 1);
    check_on(1, 1, "ab");
    check_spares(1, "");

    memset(is_here, 0, sizeof is_here);
    begin_quotas(8, NODES, 3, 0);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 4; i++)
        come(i);
    CHECK_EQ(submit(), 1);
    check_spares(1, "c");
    CHECK_EQ(step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1}), 2);
    CHECK_EQ(job(2)->state, JOB_QUEUED);
}

TEST(spares_are_given_to_a_higher_priority_before_a_job_is_stopped)
{
    memset(is_here, 0, sizeof is_here);
    begin_preempting(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 3; i++)
        come(i);
    (void)submit();
    run(1);
    check_spares(1, "c");
    CHECK_EQ(step_submit_as((struct msg_submit){.nodes = 1, .nproc_per_node = 1, .priority = 5},
                            "root", true),
             2);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    check_on(2, 1, "c");
    CHECK_EQ(job(1)->stopping, STOP_NONE); /* its spare was enough */
    check_spares(1, "");
}

TEST(no_spare_is_taken_while_a_higher_priority_waits)
{
    struct msg_submit request = two_and_a_spare;

    begin(0);
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 2});
    request.nodes = 1;
    CHECK_EQ(step_submit(request), 1);
    CHECK_EQ(step_submit_as((struct msg_submit){.nodes = 1, .nproc_per_node = 2, .priority = 5},
                            "root", true),
             2);
    CHECK_EQ(job(2)->state, JOB_QUEUED);
    come(2);
    check_spares(1, "");
    cancel(2);
    check_spares(1, "c");
}

TEST(a_job_of_an_equal_priority_gets_no_spare)
{
    memset(is_here, 0, sizeof is_here);
    begin_preempting(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 3; i++)
        come(i);
    (void)submit();
    run(1);
    (void)step_submit((struct msg_submit){.nodes = 1, .nproc_per_node = 1});
    CHECK_EQ(job(2)->state, JOB_QUEUED);
    check_spares(1, "c");
    CHECK_EQ(job(1)->stopping, STOP_NONE);
}

TEST(a_preempted_job_gives_its_spares_back)
{
    memset(is_here, 0, sizeof is_here);
    begin_preempting(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < 3; i++)
        come(i);
    (void)submit();
    run(1);
    CHECK_EQ(step_submit_as((struct msg_submit){.nodes = 3, .nproc_per_node = 1, .priority = 5},
                            "root", true),
             2);
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    end_stopped(1);
    check_on(2, 1, "abc");
    CHECK_EQ(job(1)->state, JOB_QUEUED);
}

/* An elastic job uses its spare for a lost node, not to grow. */
TEST(an_elastic_job_does_not_grow_onto_its_spare)
{
    struct msg_submit request = two_and_a_spare;

    begin(3);
    request.nodes_min = 2;
    request.nodes = 4;
    CHECK_EQ(step_submit(request), 1);
    check_on(1, 1, "abc"); /* a node that is free at the start is used */
    come(3);
    check_spares(1, "d");
    run(1);
    is_here[1] = false;
    pass(15);
    end_stopped(1);
    pass(2);
    check_on(1, 2, "adc");
    come(1);
    check_spares(1, "b");
    run(1);
    for (uint32_t i = 0; i < 3; i++) /* its program fails */
        step_rank_report(
            node_of(1, i) + 1,
            (struct rank_report){
                .job_id = 1, .generation = 2, .rank = i, .phase = SHIM_ENDED, .exit_code = 3});
    pass(3);
    check_on(1, 3, "adc");
    check_spares(1, "b");
}

TEST(a_spare_is_on_another_node)
{
    struct msg_submit request = two_and_a_spare;
    struct part_node node;

    begin(0);
    step_hello(1, (struct msg_node_hello){.name = "a", .instance = 1, .slots = 2});
    request.nodes = 1;
    CHECK_EQ(step_submit(request), 1);
    check_on(1, 1, "a");
    rdzv_node_at(core, 0, now_us, &node);
    CHECK_EQ(node.slots_free, 1);
}

/* -- stragglers -- */

/* Every rank reports `step_count` more steps; those of `slow` took 200 ms, the others 100 ms. */
static void tell(uint64_t job_id, uint64_t step_count, uint32_t slow, uint64_t checkpoint_step)
{
    static uint64_t steps;

    steps += step_count;
    for (uint32_t i = 0; i < job(job_id)->part_count; i++) {
        const uint64_t own_us = i == slow ? 200000 : 100000;
        struct msg msg = {.type = MSG_TYPE_PROGRESS,
                          .progress = {.job_id = job_id,
                                       .generation = job(job_id)->generation,
                                       .rank = i,
                                       .step = steps,
                                       .checkpoint_step = checkpoint_step,
                                       .timed_steps = steps,
                                       .step_us = steps * 200000,
                                       .compute_us = steps * own_us,
                                       .wait_us = steps * (200000 - own_us)}};

        step_node(node_of(job_id, i) + 1, &msg);
    }
}

static void run_with_straggler(bool replaces)
{
    struct msg_submit request = two_and_a_spare;

    request.replace_stragglers = replaces;
    begin(3);
    CHECK_EQ(step_submit(request), 1);
    run(1);
    for (uint32_t i = 0; i < 10; i++) {
        pass(7);
        tell(1, 20, 0, 0);
    }
}

TEST(a_straggler_is_left_for_the_spare_after_a_checkpoint)
{
    run_with_straggler(true);
    CHECK_EQ(job(1)->stopping, STOP_NONE);
    tell(1, 1, 0, 20);
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    CHECK_STR(job(1)->reason, "it leaves node a, whose rank is a straggler, for a spare");
    end_stopped(1);
    check_on(1, 2, "cb");
    run(1);
    pass(2);
    check_spares(1, ""); /* a is no spare for the next ten minutes */
    CHECK_EQ(job(1)->restarts_without_progress, 0);
    pass(600);
    check_spares(1, "a");
}

TEST(a_straggler_stays_without_the_option_or_without_a_spare)
{
    run_with_straggler(false);
    tell(1, 1, 0, 20);
    CHECK_EQ(job(1)->stopping, STOP_NONE);

    run_with_straggler(true);
    drain("c");
    tell(1, 1, 0, 20);
    CHECK_EQ(job(1)->stopping, STOP_NONE);
}

TEST(to_replace_stragglers_a_job_needs_spares)
{
    begin(2);
    CHECK_EQ(step_submit(
                 (struct msg_submit){.nodes = 1, .nproc_per_node = 1, .replace_stragglers = true}),
             0);
}

TEST_MAIN
