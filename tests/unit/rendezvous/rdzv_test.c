/* Scenarios of the server's core alone: placement, reasons, restarts, cancel, restore. The
 * simulation has the rest. */
#include "rendezvous/rdzv.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US 1000000ull

static struct rdzv *core;
static void *memory;
static struct rdzv_actions actions;
static uint64_t now_us;

static const struct rdzv_options options = {
    .jobs_max = 8,
    .nodes_max = 4,
    .lease_us = 60 * SECOND_US,
    .beat_interval_us = SECOND_US,
    .suspect_us = 5 * SECOND_US,
    .lost_us = 15 * SECOND_US,
    .seed = 1,
    .cluster = "test",
};

static void step(struct rdzv_event event)
{
    event.now_us = now_us;
    event.wall_ms = 1000;
    rdzv_step(core, &event, &actions);
}

static void begin(void)
{
    free(memory);
    memory = calloc(1, rdzv_bytes(&options));
    CHECK(memory != NULL);
    core = rdzv_init(memory, &options);
    now_us = 100 * SECOND_US;
}

static void begin_empty(void)
{
    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
}

static uint32_t count_of(enum rdzv_action_type type)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < actions.count; i++)
        count += actions.items[i].type == type;
    return count;
}

static const struct rdzv_action *find(enum rdzv_action_type type)
{
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].type == type)
            return &actions.items[i];
    return NULL;
}

static void hello(uint64_t conn, const char *name, uint32_t slots)
{
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};

    msg.node_hello = (struct msg_node_hello){.protocol = PROTOCOL_VERSION,
                                             .version = "1",
                                             .name = name,
                                             .boot_id = "b",
                                             .instance = conn,
                                             .address = "127.0.0.1",
                                             .slots = slots};
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = conn, .msg = &msg});
}

static void beat(uint64_t conn, const struct part_beat_shim *shims, uint32_t count)
{
    struct msg msg = {.type = MSG_TYPE_BEAT};

    msg.beat.sent_us = now_us;
    msg.beat.shims.items = shims;
    msg.beat.shims.count = count;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = conn, .msg = &msg});
}

static uint64_t submit(uint32_t nodes, uint32_t nproc, uint32_t max_restarts)
{
    static const char *const argv[] = {"x"};
    static uint32_t serial;
    char request_id[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};

    (void)snprintf(request_id, sizeof request_id, "%032u", ++serial);
    msg.submit = (struct msg_submit){.request_id = request_id,
                                     .name = "job",
                                     .nodes = nodes,
                                     .nproc_per_node = nproc,
                                     .max_restarts = max_restarts,
                                     .grace_us = SECOND_US,
                                     .cwd = "/",
                                     .argv = {argv, 1}};
    step((struct rdzv_event){.type = RDZV_EVENT_SUBMIT, .client = 7, .msg = &msg, .user = "ann"});
    return find(RDZV_REPLY_SUBMITTED) == NULL ? 0 : find(RDZV_REPLY_SUBMITTED)->job_id;
}

/* A report of all ranks of one part, alike. `failed`: the global rank that exited 9 by signal; -1:
 * none. */
static void report(uint64_t conn, uint64_t job_id, enum shim_phase phase, uint32_t rank_base,
                   uint32_t ranks, enum rank_state state, int32_t failed)
{
    struct part_report_rank list[SLOTS_PER_NODE_MAX] = {{0}};
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    for (uint32_t i = 0; i < ranks; i++) {
        list[i].rank = rank_base + i;
        list[i].state = state;
        list[i].signal = (int32_t)(rank_base + i) == failed ? SIGKILL : 0;
    }
    msg.shim_report = (struct msg_shim_report){
        .job_id = job_id,
        .generation = rdzv_record(core, job_id)->generation,
        .revision = 1,
        .phase = phase,
        .master_port = 4000,
        .failed_rank = failed,
        .cause = failed < 0 ? "" : "rank was killed by signal 9 (SIGKILL)",
        .tail = "last words",
    };
    msg.shim_report.ranks.items = list;
    msg.shim_report.ranks.count = ranks;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = conn, .msg = &msg});
}

static void run_on_one_node(uint64_t job_id, uint64_t conn, uint32_t ranks)
{
    report(conn, job_id, SHIM_READY, 0, ranks, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 1);
    report(conn, job_id, SHIM_RUNNING, 0, ranks, RANK_RUNNING, -1);
    CHECK_EQ(rdzv_record(core, job_id)->state, JOB_RUNNING);
}

TEST(a_job_runs_and_succeeds)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 2);
    CHECK_EQ(count_of(RDZV_SEND_WELCOME), 1);
    id = submit(1, 2, 0);
    CHECK_EQ(id, 1);
    CHECK_EQ(count_of(RDZV_SEND_START), 1);
    CHECK_EQ(count_of(RDZV_PERSIST), 1); /* queued and generation 1: one transaction */
    CHECK_EQ(rdzv_record(core, id)->generation, 1);
    run_on_one_node(id, 1, 2);
    report(1, id, SHIM_ENDED, 0, 2, RANK_EXITED, -1);
    CHECK_EQ(rdzv_record(core, id)->state, JOB_SUCCEEDED);
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 1);
    CHECK_EQ(count_of(RDZV_PERSIST_RANKS), 1);
    CHECK_EQ(count_of(RDZV_JOB_ENDED), 1);
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK(rdzv_record(core, id) == NULL);
}

TEST(a_waiting_job_says_why)
{
    uint64_t first, second, third;

    begin_empty();
    first = submit(1, 4, 0);
    CHECK_STR(rdzv_record(core, first)->reason, "no node is connected");
    hello(1, "node0", 2);
    CHECK_STR(rdzv_record(core, first)->reason,
              "wants 4 slots on one node; 0 of the 1 connected have that many at all");
    hello(2, "node1", 4);
    CHECK_EQ(rdzv_record(core, first)->state, JOB_STARTING);
    second = submit(1, 3, 0);
    CHECK_STR(rdzv_record(core, second)->reason,
              "wants 3 slots on one node; 0 have them free, the best other has 2");
    third = submit(1, 1, 0); /* would fit, but whoever came first goes first */
    CHECK_EQ(rdzv_record(core, third)->state, JOB_QUEUED);
    CHECK_STR(rdzv_record(core, third)->reason, "behind job 2 (job) in the queue");
}

TEST(the_first_restart_is_immediate_and_ranks_stay)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 2);
    hello(2, "node1", 2);
    id = submit(2, 2, 3);
    CHECK_STR(rdzv_record(core, id)->parts[0].node, "node0");
    CHECK_STR(rdzv_record(core, id)->parts[1].node, "node1");
    CHECK_EQ(rdzv_record(core, id)->parts[1].rank_base, 2);
    report(1, id, SHIM_READY, 0, 2, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 0); /* the whole gang, or nobody */
    report(2, id, SHIM_READY, 2, 2, RANK_WAITING, -1);
    CHECK_EQ(count_of(RDZV_SEND_GO), 2);
    report(1, id, SHIM_RUNNING, 0, 2, RANK_RUNNING, -1);
    report(2, id, SHIM_RUNNING, 2, 2, RANK_RUNNING, -1);
    report(2, id, SHIM_STOPPING, 2, 2, RANK_EXITED, 3);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 2);
    CHECK_EQ(rdzv_record(core, id)->failed_rank, 3);
    CHECK_STR(rdzv_record(core, id)->failed_node, "node1");
    CHECK_STR(rdzv_record(core, id)->tail, "last words");
    report(2, id, SHIM_ENDED, 2, 2, RANK_EXITED, 3);
    CHECK_EQ(count_of(RDZV_SEND_START), 0); /* node0 has not ended yet */
    report(1, id, SHIM_ENDED, 0, 2, RANK_STOPPED, -1);
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 2);
    CHECK_EQ(count_of(RDZV_SEND_START), 2);
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    CHECK_EQ(rdzv_record(core, id)->generation, 2);
    CHECK_EQ(rdzv_record(core, id)->restarts, 1);
    CHECK_STR(rdzv_record(core, id)->parts[0].node, "node0");
    CHECK_EQ(rdzv_ended_ranks(core, id)[3].signal, SIGKILL);
}

TEST(the_budget_ends_and_progress_renews_it)
{
    struct msg progress = {.type = MSG_TYPE_PROGRESS};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 1);
    run_on_one_node(id, 1, 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_record(core, id)->restarts_without_progress, 1);
    run_on_one_node(id, 1, 1);
    progress.progress =
        (struct msg_progress){.job_id = id, .generation = 2, .step = 9, .checkpoint_step = 8};
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &progress});
    CHECK_EQ(rdzv_record(core, id)->restarts_without_progress, 0);
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_record(core, id)->generation, 3);
    progress.progress.step = 30; /* of generation 2, late: it does not count */
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &progress});
    CHECK_EQ(rdzv_record(core, id)->restarts_without_progress, 1);
    run_on_one_node(id, 1, 1);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_record(core, id)->state, JOB_FAILED);
    CHECK_EQ(rdzv_record(core, id)->exit_code, 128 + SIGKILL);
    CHECK_EQ(rdzv_record(core, id)->restarts, 2);
}

TEST(back_off_keeps_the_place_in_the_queue)
{
    uint64_t id, other;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 5);
    other = submit(1, 1, 0);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_record(core, id)->generation, 2);
    report(1, id, SHIM_ENDED, 0, 1, RANK_EXITED, 0);
    CHECK_EQ(rdzv_record(core, id)->state, JOB_RESTARTING);
    CHECK_EQ(rdzv_record(core, other)->state, JOB_QUEUED);
    CHECK(actions.timer_at_us <= now_us + 2 * SECOND_US);
    now_us += 2 * SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_record(core, id)->generation, 3);
    CHECK_EQ(rdzv_record(core, other)->state, JOB_QUEUED);
}

TEST(a_silent_node_is_lost_and_its_part_moves)
{
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    hello(2, "node1", 1);
    id = submit(1, 1, 1);
    CHECK_STR(rdzv_record(core, id)->parts[0].node, "node0");
    run_on_one_node(id, 1, 1);
    now_us += 14 * SECOND_US;
    beat(2, NULL, 0);
    CHECK_EQ(rdzv_record(core, id)->generation, 1);
    now_us += SECOND_US;
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_record(core, id)->generation, 2);
    CHECK_STR(rdzv_record(core, id)->parts[0].node, "node1");
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 1);
    hello(3, "node0", 1); /* it comes back, and still has the old shim */
    CHECK_EQ(rdzv_node_conn(core, "node0"), 3);
    beat(3, &(struct part_beat_shim){id, 1, SHIM_RUNNING, 1}, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->generation, 1);
    CHECK_EQ(submit(1, 1, 0), 2); /* its slot is not free before that shim has ended */
    CHECK_EQ(rdzv_record(core, 2)->state, JOB_QUEUED);
    beat(3, &(struct part_beat_shim){id, 1, SHIM_ENDED, 1}, 1);
    CHECK_EQ(count_of(RDZV_SEND_FORGET), 1);
    CHECK_EQ(rdzv_record(core, 2)->state, JOB_STARTING);
}

TEST(cancel_is_durable_and_waits_for_the_end)
{
    struct msg msg = {.type = MSG_TYPE_CANCEL,
                      .cancel = {.job = "1", .signal = SIGTERM, .grace_us = -1}};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    run_on_one_node(id, 1, 1);
    step((struct rdzv_event){.type = RDZV_EVENT_CANCEL, .client = 9, .job_id = id, .msg = &msg});
    CHECK_EQ(count_of(RDZV_PERSIST), 1);
    CHECK_EQ(count_of(RDZV_REPLY_CANCELLED), 1);
    CHECK_EQ(find(RDZV_SEND_STOP)->signal, SIGTERM);
    CHECK_EQ(find(RDZV_SEND_STOP)->grace_us, SECOND_US);
    CHECK_EQ(rdzv_record(core, id)->state, JOB_RUNNING);
    report(1, id, SHIM_ENDED, 0, 1, RANK_STOPPED, -1);
    CHECK_EQ(rdzv_record(core, id)->state, JOB_CANCELLED);
    CHECK_EQ(rdzv_record(core, id)->exit_code, 125);
}

TEST(a_restored_job_goes_on_untouched)
{
    struct rdzv_record record;
    struct part_beat_shim shim = {0};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    run_on_one_node(id, 1, 1);
    record = *rdzv_record(core, id);
    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    now_us += 30 * SECOND_US; /* longer than a node may be silent, shorter than a lease */
    step((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_record(core, id)->state, JOB_RUNNING);
    hello(1, "node0", 1); /* it lists no shim: gone without a trace */
    CHECK_EQ(rdzv_record(core, id)->generation, 2);

    begin();
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORE, .record = &record});
    step((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 2});
    shim = (struct part_beat_shim){id, 1, SHIM_RUNNING, 1};
    {
        struct msg msg = {.type = MSG_TYPE_NODE_HELLO};

        msg.node_hello = (struct msg_node_hello){
            .version = "1", .name = "node0", .boot_id = "b", .address = "127.0.0.1", .slots = 1};
        msg.node_hello.shims.items = &shim;
        msg.node_hello.shims.count = 1;
        step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 4, .msg = &msg});
    }
    CHECK_EQ(rdzv_record(core, id)->generation, 1);
    CHECK_EQ(count_of(RDZV_SEND_STOP) + count_of(RDZV_SEND_START) + count_of(RDZV_SEND_GO), 0);
    report(4, id, SHIM_ENDED, 0, 1, RANK_EXITED, -1);
    CHECK_EQ(rdzv_record(core, id)->state, JOB_SUCCEEDED);
}

TEST(two_processes_with_one_name)
{
    begin_empty();
    hello(1, "node0", 1);
    hello(2, "node0", 1);
    CHECK_EQ(count_of(RDZV_CLOSE_NODE), 1);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->conn, 2);
    now_us += 6 * SECOND_US; /* the first is silent: the second may have the name */
    hello(3, "node0", 1);
    CHECK_EQ(find(RDZV_CLOSE_NODE)->conn, 1);
    CHECK_EQ(rdzv_node_conn(core, "node0"), 3);
}

TEST(a_command_that_is_not_there_is_not_tried_again)
{
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};
    struct part_report_rank rank = {.state = RANK_EXITED, .exit_code = 127};
    uint64_t id;

    begin_empty();
    hello(1, "node0", 1);
    id = submit(1, 1, 3);
    msg.shim_report = (struct msg_shim_report){.job_id = id,
                                               .generation = 1,
                                               .revision = 1,
                                               .phase = SHIM_ENDED,
                                               .failed_errno_exit = 127,
                                               .cause = "rank 0: cannot run foo",
                                               .tail = ""};
    msg.shim_report.ranks.items = &rank;
    msg.shim_report.ranks.count = 1;
    step((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = 1, .msg = &msg});
    CHECK_EQ(rdzv_record(core, id)->state, JOB_FAILED);
    CHECK_EQ(rdzv_record(core, id)->exit_code, 127);
    CHECK(rdzv_record(core, id)->exit_is_ours);
}

TEST(too_many_ranks_and_a_full_queue_are_answers)
{
    begin_empty();
    CHECK_EQ(submit(NODES_PER_JOB_MAX, SLOTS_PER_NODE_MAX, 0), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_TOO_BIG);
    for (uint32_t i = 0; i < options.jobs_max; i++)
        CHECK(submit(1, 1, 0) != 0);
    CHECK_EQ(submit(1, 1, 0), 0);
    CHECK_EQ(find(RDZV_REPLY_ERROR)->status, STATUS_TOO_BIG);
}

TEST_MAIN
