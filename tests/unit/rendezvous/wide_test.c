/* The server's core with the largest job there may be: 4,096 nodes of 8 ranks. No step overflows; each
 * order goes to each node once; a small job costs little memory; full memory is an answer. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/core/state.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/core_tools.h"

#define WIDTH NODES_PER_JOB_MAX
#define NPROC (RANKS_PER_JOB_MAX / NODES_PER_JOB_MAX)
#define STEPS_MAX 64u

static uint32_t totals[RDZV_JOB_ENDED + 1]; /* actions of each type since clear() */
static bool seen[RDZV_JOB_ENDED + 1][WIDTH];
static uint32_t parts[WIDTH]; /* by connection - 1: the part of the last START */

static void clear(void)
{
    memset(totals, 0, sizeof totals);
    memset(seen, 0, sizeof seen);
}

static void count_actions(void)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct rdzv_action *action = &actions.items[i];

        totals[action->type]++;
        if (action->conn == 0 || action->type == RDZV_SEND_REPORT_ACK)
            continue;
        CHECK(action->conn <= WIDTH && !seen[action->type][action->conn - 1]);
        seen[action->type][action->conn - 1] = true;
        if (action->type == RDZV_SEND_START)
            parts[action->conn - 1] = action->part;
    }
}

/* With the steps that the core wants at this instant. */
static void step_all(struct rdzv_event event)
{
    step_unchecked(event);
    count_actions();
    for (uint32_t i = 0; actions.timer_at_us <= now_us; i++) {
        CHECK(i < STEPS_MAX);
        step_unchecked((struct rdzv_event){.type = RDZV_EVENT_TICK});
        count_actions();
    }
}

static void hello(uint32_t node)
{
    char name[NODE_NAME_BYTES_MAX];
    struct msg msg = {.type = MSG_TYPE_NODE_HELLO};

    (void)snprintf(name, sizeof name, "node%u", node);
    msg.node_hello = (struct msg_node_hello){.version = "1",
                                             .name = name,
                                             .boot_id = "b",
                                             .instance = node + 1,
                                             .address = "127.0.0.1",
                                             .slots = NPROC};
    step_all((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = &msg});
}

static void report(uint32_t node, uint64_t job_id, uint32_t generation, enum shim_phase phase,
                   enum rank_state state, bool has_world)
{
    struct part_report_rank ranks[NPROC];
    struct msg msg = {.type = MSG_TYPE_SHIM_REPORT};

    for (uint32_t i = 0; i < NPROC; i++)
        ranks[i] = (struct part_report_rank){.rank = parts[node] * NPROC + i,
                                             .state = state,
                                             .joined = phase >= SHIM_RUNNING,
                                             .signal = state == RANK_STOPPED ? SIGKILL : 0};
    msg.shim_report = (struct msg_shim_report){.job_id = job_id,
                                               .generation = generation,
                                               .revision = 1,
                                               .phase = phase,
                                               .master_port = 4000,
                                               .has_world = has_world,
                                               .failed_rank = -1,
                                               .cause = "",
                                               .tail = "",
                                               .error = "",
                                               .failed_core = ""};
    msg.shim_report.ranks.items = ranks;
    msg.shim_report.ranks.count = NPROC;
    step_all((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = node + 1, .msg = &msg});
}

static void report_all(uint64_t job_id, uint32_t generation, enum shim_phase phase,
                       enum rank_state state, bool has_world)
{
    clear();
    for (uint32_t i = 0; i < WIDTH; i++)
        if (rdzv_node_conn(core, core->nodes[i].name) != 0)
            report(i, job_id, generation, phase, state, has_world);
    rdzv_check(core);
}

static uint64_t submit(uint32_t nodes, uint32_t nproc)
{
    static const char *const argv[] = {"x"};
    static uint32_t serial;
    char request_id[REQUEST_ID_CHARS + 1];
    struct msg msg = {.type = MSG_TYPE_SUBMIT};
    uint64_t before = core->next_job_id;

    (void)snprintf(request_id, sizeof request_id, "%032u", ++serial);
    msg.submit = (struct msg_submit){.request_id = request_id,
                                     .name = "job",
                                     .nodes = nodes,
                                     .nproc_per_node = nproc,
                                     .max_restarts = 3,
                                     .grace_us = SECOND_US,
                                     .cwd = "/",
                                     .argv = {argv, 1}};
    step_all(
        (struct rdzv_event){.type = RDZV_EVENT_SUBMIT, .client = 1, .msg = &msg, .user = "ann"});
    return core->next_job_id > before ? before : 0;
}

static void begin_nodes(uint32_t jobs_max, uint32_t nodes_max, uint32_t nodes)
{
    clear();
    begin_with(jobs_max, nodes_max);
    step_all((struct rdzv_event){.type = RDZV_EVENT_RESTORED, .next_job_id = 1});
    for (uint32_t i = 0; i < nodes; i++) {
        clear();
        hello(i);
    }
    clear();
}

static enum job_state state_of(uint64_t job_id)
{
    return rdzv_job_record(core, job_id)->state;
}

/* Up to the point at which every rank trains. */
static void run_generation(uint64_t job_id, uint32_t generation, uint32_t width)
{
    report_all(job_id, generation, SHIM_READY, RANK_WAITING, false);
    CHECK_EQ(totals[RDZV_SEND_GO], width);
    report_all(job_id, generation, SHIM_RUNNING, RANK_RUNNING, false);
    CHECK_EQ(totals[RDZV_SEND_WORLD], width);
    report_all(job_id, generation, SHIM_RUNNING, RANK_RUNNING, true);
    CHECK_EQ(totals[RDZV_SEND_WORLD], 0);
    CHECK_EQ(state_of(job_id), JOB_RUNNING);
}

TEST(the_largest_job_runs_and_ends)
{
    uint64_t id;

    begin_nodes(4, NODES_MAX, WIDTH);
    id = submit(WIDTH, NPROC);
    CHECK_EQ(id, 1);
    CHECK_EQ(totals[RDZV_SEND_START], WIDTH);
    run_generation(id, 1, WIDTH);
    report_all(id, 1, SHIM_ENDED, RANK_EXITED, true);
    CHECK_EQ(totals[RDZV_SEND_FORGET], WIDTH);
    CHECK_EQ(totals[RDZV_PERSIST_RANKS], 1);
    CHECK_EQ(totals[RDZV_JOB_ENDED], 1);
    step_all((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(rdzv_job_count(core), 0);
    CHECK_EQ(core->blocks.taken_count, 0);
}

/* One of the spare nodes replaces a node that is gone. */
TEST(the_largest_job_restarts)
{
    const uint32_t width = WIDTH - 1;
    uint64_t id;

    begin_nodes(4, NODES_MAX, WIDTH);
    id = submit(width, NPROC);
    run_generation(id, 1, width);
    clear();
    now_us += 14 * SECOND_US;
    for (uint32_t i = 0; i < WIDTH; i++) {
        struct part_beat_shim shim = {id, 1, SHIM_RUNNING, bits_below(NPROC), false};
        struct msg msg = {.type = MSG_TYPE_BEAT, .beat = {.shims = {&shim, i < width}}};

        if (i != 7)
            step_all((struct rdzv_event){.type = RDZV_EVENT_NODE_MSG, .conn = i + 1, .msg = &msg});
    }
    clear();
    now_us += SECOND_US;
    step_all((struct rdzv_event){.type = RDZV_EVENT_TICK});
    CHECK_EQ(totals[RDZV_CLOSE_NODE], 1);
    CHECK_EQ(totals[RDZV_SEND_STOP], width - 1);
    for (uint32_t i = 0; i < width; i++)
        if (i != 7)
            report(i, id, 1, SHIM_ENDED, RANK_STOPPED, true);
    CHECK_EQ(rdzv_job_record(core, id)->generation, 2);
    CHECK_EQ(totals[RDZV_SEND_FORGET], width - 1);
    CHECK_EQ(totals[RDZV_SEND_START], width);
    for (uint32_t i = 0; i < width; i++)
        if (i != 7) /* ranks stay where they were */
            CHECK_STR(rdzv_job_record(core, id)->parts[i].node, core->nodes[i].name);
    rdzv_check(core);
}

/* Pages of the core's memory that are there. */
static uint32_t pages_of(const struct rdzv_options *options)
{
    static unsigned char page_states[1u << 20];
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), bytes = rdzv_bytes(options);
    char *begin = (char *)core - (uintptr_t)core % page_bytes;
    uint64_t count = (bytes + page_bytes - 1) / page_bytes;
    uint32_t there = 0;

    CHECK(count <= sizeof page_states);
    CHECK_EQ(mincore(begin, count * page_bytes, page_states), 0);
    for (uint64_t i = 0; i < count; i++)
        there += page_states[i] & 1;
    return there;
}

TEST(a_small_job_costs_little_memory)
{
    struct rdzv_options options = {.jobs_max = JOBS_ACTIVE_MAX, .nodes_max = NODES_MAX};
    uint32_t before, jobs = 400;

    CHECK(rdzv_bytes(&options) < 1080ull << 20); /* address space, as docs/architecture.md says */
    begin_nodes(JOBS_ACTIVE_MAX, NODES_MAX, 100);
    (void)submit(1, 1);
    before = pages_of(&options);
    for (uint32_t i = 0; i < jobs; i++) {
        clear();
        CHECK(submit(1, 1) != 0);
    }
    CHECK_EQ(state_of(jobs), JOB_STARTING);
    (void)printf("# %.1f KiB a running job\n", 4.0 * (pages_of(&options) - before) / jobs);
    CHECK(4 * (pages_of(&options) - before) < 8 * jobs);
}

TEST(full_memory_is_an_answer)
{
    struct gang held[64], *last = held;
    uint64_t id;

    begin_nodes(4, 8, 4);
    while (gang_new(&core->blocks, last, NODES_PER_JOB_MAX, RANKS_PER_JOB_MAX))
        last++;
    while (gang_new(&core->blocks, last, 1, 1))
        CHECK(++last < held + 64);
    id = submit(2, 1);
    CHECK_EQ(state_of(id), JOB_QUEUED);
    CHECK_STR(rdzv_job_record(core, id)->reason,
              "the server's memory for ranks is full: it waits for other jobs to end");
    gang_free(&core->blocks, held);
    clear();
    hello(4); /* something changes */
    CHECK_EQ(state_of(id), JOB_STARTING);
}

/* A job that waits for its next try gives the memory of its last generation to one that can start. */
TEST(ended_generations_make_room)
{
    struct gang held;
    uint64_t first, second;

    begin_nodes(4, 4, 4);
    first = submit(1, 1);
    for (uint32_t i = 1; i < 3; i++) { /* a second restart waits */
        clear();
        report(0, first, i, SHIM_ENDED, RANK_STOPPED, false);
    }
    CHECK_EQ(state_of(first), JOB_RESTARTING);
    CHECK(core->jobs[0].last.part_count == 1);
    while (job_gang_new(core, &held, NODES_PER_JOB_MAX, RANKS_PER_JOB_MAX) ||
           blocks_alloc(&core->blocks, 1))
        continue;
    clear();
    CHECK(core->jobs[0].last.part_count == 0); /* given up for the last of these */
    second = submit(1, 1);
    CHECK_EQ(state_of(second), JOB_QUEUED);
}

TEST_MAIN
