/* Jobs that may run on a changing number of nodes: --nodes MIN:MAX. */
#include "tests/unit/rendezvous/core_tools.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/core/elastic.h"
#include "tests/lib/test.h"

#define NODES 4u

static const char *const names[NODES] = {"a", "b", "c", "d"};
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

static void go_away(uint32_t node)
{
    is_here[node] = false;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_CLOSED, .conn = node + 1});
}

/* Nodes a, b, ... are connected, with one slot each. */
static void begin(uint32_t count)
{
    memset(is_here, 0, sizeof is_here);
    begin_fenced(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < count; i++)
        come(i);
}

static uint64_t submit(uint32_t nodes_min, uint32_t nodes)
{
    return step_submit((struct msg_submit){.nodes = nodes,
                                           .nodes_min = nodes_min,
                                           .nproc_per_node = 1,
                                           .max_restarts = 1,
                                           .grace_us = SECOND_US,
                                           .wait_for_nodes = true});
}

static uint32_t node_of(uint64_t job_id, uint32_t part)
{
    return (uint32_t)(job(job_id)->parts[part].node[0] - 'a');
}

static void report(uint64_t job_id, uint32_t part, struct rank_report report)
{
    report.job_id = job_id;
    report.generation = job(job_id)->generation;
    report.rank = part;
    report.joined = true;
    report.has_world = report.phase == SHIM_RUNNING;
    step_rank_report(node_of(job_id, part) + 1, report);
}

static void run(uint64_t job_id)
{
    for (uint32_t i = 0; i < job(job_id)->part_count; i++)
        report(job_id, i, (struct rank_report){.phase = SHIM_READY});
    for (uint32_t i = 0; i < job(job_id)->part_count; i++)
        report(job_id, i, (struct rank_report){.phase = SHIM_RUNNING});
    CHECK_EQ(job(job_id)->state, JOB_RUNNING);
}

/* Every part that still runs ends on the signal; the end of the last one may start the next
 * generation. */
static void end_stopped(uint64_t job_id, int32_t exit_code)
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
                                                                .is_stopped = exit_code == 0,
                                                                .exit_code = exit_code});
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

static void say_checkpoint(uint64_t job_id, uint64_t checkpoint_step)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS,
                      .progress = {.job_id = job_id,
                                   .generation = job(job_id)->generation,
                                   .step = checkpoint_step,
                                   .checkpoint_step = checkpoint_step}};

    step_node(node_of(job_id, 0) + 1, &msg);
}

/* "ac": its parts are on these nodes, ranks in this order. */
static void check_on(uint64_t job_id, uint32_t generation, const char *nodes)
{
    const struct rdzv_record *record = job(job_id);
    char on[NODES + 1] = "";

    for (uint32_t i = 0; i < record->part_count; i++) {
        on[i] = record->parts[i].node[0];
        CHECK_EQ(record->parts[i].rank_base, i);
    }
    CHECK_STR(on, nodes);
    CHECK_EQ(record->generation, generation);
    CHECK_EQ(record->nodes, strlen(nodes));
}

static void drain(const char *name)
{
    struct msg msg = {.type = MSG_TYPE_NODE_DRAIN,
                      .node_drain = {.name = name, .reason = "a new disk"}};

    step((struct rdzv_event){
        .type = RDZV_EVENT_NODE_DRAIN, .client = 9, .msg = &msg, .user = "ann"});
}

TEST(the_number_of_nodes_is_what_fits_between_both_bounds)
{
    const struct rdzv_record record = {.nodes_min = 2, .nodes_max = 4, .nproc_per_node = 8};

    CHECK_EQ(elastic_nodes(&record, 1, UINT64_MAX), 0);
    CHECK_EQ(elastic_nodes(&record, 2, UINT64_MAX), 2);
    CHECK_EQ(elastic_nodes(&record, 9, UINT64_MAX), 4);
    CHECK_EQ(elastic_nodes(&record, 9, 31), 3);
    CHECK_EQ(elastic_nodes(&record, 9, 15), 0);
}

TEST(a_job_starts_with_as_many_nodes_as_have_room)
{
    begin(3);
    CHECK_EQ(submit(1, 4), 1);
    check_on(1, 1, "abc");
    CHECK_EQ(job(1)->nodes_max, 4);

    begin(3);
    CHECK_EQ(submit(1, 2), 1);
    check_on(1, 1, "ab");
}

TEST(with_too_few_it_waits_and_says_for_what)
{
    begin(1);
    CHECK_EQ(submit(2, 4), 1);
    CHECK_EQ(job(1)->state, JOB_QUEUED);
    CHECK_STR(job(1)->reason,
              "wants 1 slot on each of 2 to 4 nodes; 1 of the 1 connected has that many at all");
    come(1);
    check_on(1, 1, "ab");
}

TEST(without_a_lost_node_it_goes_on_with_the_others_in_their_order)
{
    begin(3);
    (void)submit(1, 3);
    run(1);
    is_here[1] = false; /* silent */
    pass(15);
    CHECK_EQ(job(1)->stopping, STOP_FAILURE);
    CHECK_EQ(job(1)->part_count, 3);
    end_stopped(1, 0);
    check_on(1, 2, "ac");
    CHECK_EQ(job(1)->restarts_without_progress, 0);
    CHECK_EQ(job(1)->node_failures, 1);
}

TEST(below_the_least_number_it_waits_for_nodes)
{
    begin(2);
    (void)submit(2, 3);
    run(1);
    is_here[0] = false;
    pass(15);
    end_stopped(1, 0);
    CHECK_EQ(job(1)->state, JOB_RESTARTING);
    pass(1);
    CHECK_STR(job(1)->reason,
              "wants 1 slot on each of 2 to 3 nodes; 1 of the 1 connected has that many at all");
    come(2);
    check_on(1, 2, "cb"); /* as many nodes as before: the node that stays keeps its ranks */
}

/* The generation ends without the node that went away just now, and not a microsecond sooner. */
static void await_leaving(uint64_t wait_us)
{
    now_us += wait_us - 1;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(job(1)->part_count, 3);
    now_us++;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
}

/* The node is gone with its workers, and ranks elsewhere fail because of that. --max-restarts does
 * not count this, and the server does not wait until the node counts as lost. */
TEST(a_gone_node_is_not_awaited)
{
    begin(3);
    (void)submit(1, 3);
    run(1);
    pass(5);
    go_away(0);
    report(1, 1, (struct rank_report){.phase = SHIM_STOPPING, .exit_code = 1});
    CHECK_EQ(job(1)->stopping, STOP_FAILURE);
    report(1, 1, (struct rank_report){.phase = SHIM_ENDED, .exit_code = 1});
    report(1, 2, (struct rank_report){.phase = SHIM_ENDED, .is_stopped = true});
    CHECK_EQ(job(1)->part_count, 3);
    await_leaving(ELASTIC_MISSED_US);
    check_on(1, 2, "bc");
    CHECK_EQ(job(1)->restarts_without_progress, 0);
    CHECK_EQ(job(1)->node_failures, 1);
}

/* If a rank of the node itself failed, its launcherd may come back. The same holds if its
 * connection closes long after a rank elsewhere has failed. */
TEST(a_gone_node_that_nobody_misses_has_a_second)
{
    begin(3);
    (void)submit(1, 3);
    run(1);
    pass(5);
    report(1, 0, (struct rank_report){.phase = SHIM_STOPPING, .exit_code = 1});
    go_away(0);
    report(1, 1, (struct rank_report){.phase = SHIM_ENDED, .is_stopped = true});
    report(1, 2, (struct rank_report){.phase = SHIM_ENDED, .is_stopped = true});
    await_leaving(ELASTIC_GONE_US);
    check_on(1, 2, "bc");

    begin(3);
    (void)submit(1, 3);
    run(1);
    report(1, 1, (struct rank_report){.phase = SHIM_STOPPING, .exit_code = 1});
    pass(2);
    go_away(0);
    report(1, 1, (struct rank_report){.phase = SHIM_ENDED, .exit_code = 1});
    report(1, 2, (struct rank_report){.phase = SHIM_ENDED, .is_stopped = true});
    await_leaving(ELASTIC_GONE_US);
}

/* A missing peer does not cause a death by SIGKILL: this is the program's failure, and counts. */
TEST(a_rank_that_was_killed_misses_nobody)
{
    begin(3);
    (void)submit(1, 3);
    run(1);
    pass(5);
    go_away(0);
    report(1, 1, (struct rank_report){.phase = SHIM_STOPPING, .signal = SIGKILL});
    report(1, 1, (struct rank_report){.phase = SHIM_ENDED, .signal = SIGKILL});
    report(1, 2, (struct rank_report){.phase = SHIM_ENDED, .is_stopped = true});
    await_leaving(ELASTIC_GONE_US);
    check_on(1, 2, "bc");
    CHECK_EQ(job(1)->restarts_without_progress, 1);
}

/* The node's workers may still run, and the job with them. */
TEST(a_node_that_only_lost_its_connection_is)
{
    begin(2);
    (void)submit(1, 2);
    run(1);
    go_away(0);
    pass(10);
    CHECK_EQ(job(1)->stopping, STOP_NONE);
    check_on(1, 1, "ab");
}

TEST(it_grows_at_a_checkpoint_and_uses_no_budget)
{
    begin(1);
    (void)submit(1, 3);
    run(1);
    come(2);
    pass(59);
    say_checkpoint(1, 10);
    CHECK_EQ(job(1)->stopping, STOP_NONE); /* --grow-after is not over */
    pass(2);
    CHECK_EQ(job(1)->stopping, STOP_NONE); /* that is no new checkpoint */
    say_checkpoint(1, 20);
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    CHECK_EQ(find(RDZV_SEND_STOP)->signal, SIGTERM);
    CHECK_EQ(find(RDZV_SEND_STOP)->grace_us, SECOND_US);
    CHECK_STR(job(1)->reason, "it grows after checkpoint 20: from 1 to 2 nodes");
    end_stopped(1, 0);
    check_on(1, 2, "ac");
    CHECK_EQ(job(1)->restarts, 1);
    CHECK_EQ(job(1)->restarts_without_progress, 0);
    CHECK_EQ(job(1)->node_failures, 0);
    run(1);
    pass(61);
    say_checkpoint(1, 30);
    CHECK_EQ(job(1)->stopping, STOP_NONE); /* no further node is available */
}

TEST(it_takes_nothing_that_a_waiting_job_needs)
{
    begin(1);
    (void)submit(1, 3);
    run(1);
    CHECK_EQ(submit(2, 2), 2); /* waits for two */
    come(1);
    pass(61);
    say_checkpoint(1, 10);
    CHECK_EQ(job(1)->stopping, STOP_NONE);
    CHECK_EQ(job(2)->state, JOB_QUEUED);
    come(2);
    check_on(2, 1, "bc");
}

TEST(it_leaves_a_drained_node_if_it_can)
{
    begin(2);
    (void)submit(1, 2);
    run(1);
    drain("a");
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    CHECK_STR(job(1)->reason, "it leaves node a, which was drained: it goes on with 1 node");
    end_stopped(1, 0);
    check_on(1, 2, "b");

    run(1);
    drain("b"); /* it stays: no other node has room */
    CHECK_EQ(job(1)->stopping, STOP_NONE);
    come(2);
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    end_stopped(1, 0);
    check_on(1, 3, "c");
    CHECK_EQ(job(1)->restarts_without_progress, 0);
}

TEST(a_job_of_a_fixed_size_stays_on_a_drained_node)
{
    begin(3);
    (void)submit(2, 2);
    run(1);
    drain("a");
    CHECK_EQ(job(1)->stopping, STOP_NONE);
}

/* All ranks of the job ended by themselves before the signal came. */
TEST(a_job_that_ends_meanwhile_has_succeeded)
{
    begin(2);
    (void)submit(1, 2);
    run(1);
    drain("a");
    report(1, 0, (struct rank_report){.phase = SHIM_ENDED});
    report(1, 1, (struct rank_report){.phase = SHIM_ENDED});
    CHECK(job(1) == NULL || job(1)->state == JOB_SUCCEEDED);

    begin(2);
    (void)submit(1, 2);
    run(1);
    drain("a");
    report(1, 0, (struct rank_report){.phase = SHIM_ENDED, .is_stopped = true});
    report(1, 1, (struct rank_report){.phase = SHIM_ENDED});
    check_on(1, 2, "b");
}

TEST(a_restarted_server_goes_on_with_a_planned_stop)
{
    struct rdzv_record record;
    struct rdzv_part parts[2];

    begin(2);
    (void)submit(1, 2);
    run(1);
    drain("a");
    record = *job(1);
    memcpy(parts, record.parts, sizeof parts);
    record.parts = parts;
    begin_fenced(8, NODES);
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    come(0);
    come(1);
    CHECK_EQ(job(1)->stopping, STOP_PLANNED);
    end_stopped(1, 0);
    CHECK_EQ(job(1)->generation, 2);
    CHECK_EQ(job(1)->restarts_without_progress, 0);
    CHECK_EQ(job(1)->node_failures, 0);
}

TEST_MAIN
