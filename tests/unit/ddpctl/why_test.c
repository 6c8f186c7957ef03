/* The texts of `ddpctl why` against golden/why-*.ok, and how it reads answers of nodes. */
#include <stdlib.h>
#include <string.h>

#include "ddpctl/why.h"
#include "tests/lib/test.h"
#include "tests/unit/ddpctl/golden_tools.h"

#define START_MS 1795224000123
#define SECOND_US 1000000

static const struct output_style style = {.now_ms = START_MS + 600000};

static struct part_job job;
static struct part_failure failures[FAILURES_KEPT_MAX];
static struct part_failed_rank failed_ranks[3];
static struct part_rank_move moves[3];
static struct msg_why_info info;
static struct part_job_rank ranks[8];
static struct msg_job_info ranks_info;
static struct why why;

static void begin(enum job_state state)
{
    job = (struct part_job){.job_id = 40,
                            .name = "vit",
                            .user = "ada",
                            .state = state,
                            .generation = 3,
                            .restarts = 2,
                            .max_restarts = 3,
                            .nodes = 2,
                            .nproc_per_node = 4,
                            .where = "gpu02,gpu03",
                            .straggler = "",
                            .reason = "",
                            .submitted_ms = START_MS,
                            .started_ms = START_MS + 1000};
    info = (struct msg_why_info){.jobs = {.items = &job, .count = 1},
                                 .ran_us = -1,
                                 .ranks = {.items = failed_ranks},
                                 .avoided = ""};
    info.failures.items = failures;
    info.moves.items = moves;
    for (uint32_t i = 0; i < 8; i++)
        ranks[i] = (struct part_job_rank){.rank = i,
                                          .local_rank = i % 4,
                                          .node = i < 4 ? "gpu02" : "gpu03",
                                          .pid = 1000 + i,
                                          .state = RANK_RUNNING};
    ranks_info = (struct msg_job_info){.jobs = {.items = &job, .count = 1},
                                       .ranks = {.items = ranks, .count = 8}};
    why = (struct why){.info = &info, .store = {.address = ""}};
}

static const char traceback[] = "Traceback (most recent call last):\n"
                                "  File \"train.py\", line 88, in <module>\n"
                                "    loss = criterion(out, target)\n"
                                "RuntimeError: shape mismatch [64,10] vs [64,100]\n";

static void add_failure(uint32_t generation, uint32_t rank)
{
    failures[info.failures.count++] = (struct part_failure){
        .generation = generation,
        .failed_ms = START_MS + 5000,
        .ran_us = 12300000,
        .alone_us = -1,
        .class = FAILURE_PROGRAM,
        .rank = (int32_t)rank,
        .local_rank = rank % 4,
        .node = rank < 4 ? "gpu02" : "gpu03",
        .pid = 4711,
        .exit_code = 1,
        .core = "",
        .cause = "rank 5 exited with code 1: RuntimeError: shape mismatch [64,10] vs [64,100]",
        .tail = "epoch 1\n",
        .error = traceback,
        .world = 8,
        .stopped = 7,
        .decision = "restarted at once (restart 1 of 3)"};
}

static void check_text(const char *name)
{
    struct buf out = {0};

    why_text(&why, &style, &out);
    check_golden(name, &out);
}

TEST(a_failed_job)
{
    begin(JOB_FAILED);
    add_failure(1, 5);
    add_failure(2, 5);
    failures[1].signal = 11;
    failures[1].exit_code = 0;
    failures[1].cause = "rank 5 was killed by signal 11 (SIGSEGV)";
    failures[1].step = 120;
    add_failure(3, 5);
    failures[2].alone_us = 1800000;
    failures[2].stopped = 6;
    failures[2].failed_too = 1;
    failures[2].step = 640;
    failures[2].checkpoint_step = 600;
    failures[2].resumed_step = 400;
    failures[2].decision = "not restarted: --max-restarts is used up without a new checkpoint";
    info.ranks_of = 3;
    info.ranks.count = 2;
    failed_ranks[0] = (struct part_failed_rank){.rank = 5, .node = "gpu03", .exit_code = 1};
    failed_ranks[1] =
        (struct part_failed_rank){.rank = 0, .node = "gpu02", .signal = 6, .after_us = 1800000};
    check_text("why-failed");
    why.generation = 2;
    check_text("why-generation");
    why.generation = 9;
    check_text("why-generation-unknown");
}

static void check_line(const char *expected)
{
    struct buf out = {0};

    why_line(&info, &out);
    buf_add(&out, "", 1);
    CHECK_STR(out.bytes, expected);
    buf_free(&out);
}

static bool has_hint(uint32_t signal, const char *tail, const char *hint)
{
    struct buf out = {0};
    bool is_there;

    begin(JOB_FAILED);
    add_failure(3, 5);
    failures[0].signal = signal;
    failures[0].exit_code = 0;
    failures[0].error = "";
    failures[0].tail = tail;
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    is_there = strstr(out.bytes, hint) != NULL;
    buf_free(&out);
    return is_there;
}

/* Generations that ended as planned are no failures: only a list that is full may lack some, and nobody knows how
 * many. */
TEST(a_generation_that_did_not_fail_is_not_counted)
{
    struct buf out = {0};

    begin(JOB_SUCCEEDED);
    job.generation = 50;
    add_failure(1, 5);
    add_failure(2, 5);
    add_failure(8, 5); /* 3 to 7 were moved to other nodes */
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "    generation 8: ") != NULL);
    CHECK(strstr(out.bytes, "kept") == NULL);
    for (uint32_t i = 3; i < FAILURES_KEPT_MAX; i++)
        add_failure(9 + i, 5);
    buf_free(&out);
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "    ... the first 2 and the newest 30 are kept\n    generation 8: ") !=
          NULL);
    buf_free(&out);
}

TEST(what_was_done_is_not_advised)
{
    CHECK(has_hint(11, "step 3\n", "PYTHONFAULTHANDLER"));
    CHECK(has_hint(7, "", "PYTHONFAULTHANDLER"));
    CHECK(!has_hint(11, "Fatal Python error: Segmentation fault\n", "PYTHONFAULTHANDLER"));
}

TEST(a_full_dev_shm_is_named_before_a_crash_or_a_disk)
{
    CHECK(has_hint(7, "/dev/shm of node n0 is full", "hint: /dev/shm is full there"));
    CHECK(has_hint(0, "No space left on device\n/dev/shm of node n0 is full", "hint: /dev/shm is"));
    CHECK(has_hint(11, "/dev/shm of node n0 is full", "PYTHONFAULTHANDLER"));
}

TEST(a_collective_that_timed_out_is_explained)
{
    CHECK(has_hint(6, "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(\n",
                   "--stacks"));
    CHECK(has_hint(0, "Timed out waiting 5000ms for recv operation to complete\n", "--stacks"));
    CHECK(!has_hint(6, "terminate called\n", "--stacks"));
}

TEST(the_line_of_a_status)
{
    begin(JOB_FAILED);
    check_line("");
    add_failure(2, 5);
    check_line(""); /* the failure was in another generation and not by a rank */
    job.generation = 2;
    check_line("rank 5 on gpu03 exited with code 1 after 12s: RuntimeError: shape mismatch "
               "[64,10] vs [64,100]; restarted at once (restart 1 of 3)");
    job.state = JOB_RUNNING;
    check_line("");
    failures[0].decision = "";
    failures[0].cause = "rank 5 exited with code 1: \x1b[31m";
    job.state = JOB_RESTARTING;
    check_line("rank 5 on gpu03 exited with code 1 after 12s: \\x1b[31m");
}

/* Exit code 125 is then the launcher's: no program has run, and none has ended. */
TEST(a_rank_that_was_not_started)
{
    struct buf out = {0};

    begin(JOB_FAILED);
    job.generation = 1;
    add_failure(1, 5);
    failures[0].class = FAILURE_NODE;
    failures[0].pid = 0;
    failures[0].ran_us = -1;
    failures[0].exit_code = 125;
    failures[0].error = failures[0].tail = "";
    failures[0].cause = "rank 5: cannot start 'train': Resource temporarily unavailable";
    failures[0].decision = "not restarted: --max-restarts is used up";
    failures[0].stopped = 6;
    failures[0].failed_too = 1;
    info.ranks_of = 1;
    info.ranks.count = 2;
    failed_ranks[0] = (struct part_failed_rank){.rank = 5, .node = "gpu03", .exit_code = 125};
    failed_ranks[1] =
        (struct part_failed_rank){.rank = 6, .node = "gpu03", .exit_code = 125, .after_us = 1000};
    check_line("rank 5 on gpu03 was not started: cannot start 'train': Resource temporarily "
               "unavailable; not restarted: --max-restarts is used up");
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "failed: rank 5 on gpu03 was not started\n"
                            "  cannot start 'train': Resource temporarily unavailable\n") != NULL);
    CHECK(strstr(out.bytes, "  rank 6 on gpu03 was not started either") != NULL);
    CHECK(strstr(out.bytes, "exited with code") == NULL);
    CHECK(strstr(out.bytes, "ddpctl logs") == NULL); /* it has printed nothing */
    buf_free(&out);
    failures[0].pid = 4711; /* the program's own 125 */
    failures[0].cause = "rank 5 exited with code 125";
    check_line("rank 5 on gpu03 exited with code 125; not restarted: --max-restarts is used up");
}

TEST(a_kill_for_want_of_memory)
{
    begin(JOB_FAILED);
    job.generation = 1;
    add_failure(1, 2);
    failures[0].exit_code = 0;
    failures[0].signal = 9;
    failures[0].oom = true;
    failures[0].error = "";
    failures[0].core = "/var/lib/core.4711";
    failures[0].cause = "rank 2 was killed by signal 9 (SIGKILL)";
    failures[0].tail = "step 1\nstep 2\n";
    failures[0].stopped = 1;
    failures[0].failed_too = 3;
    failures[0].left = 1;
    failures[0].left_rank = 7;
    failures[0].lost = 2;
    check_text("why-oom");
}

static void check_hint(const char *cause, const char *hint)
{
    struct buf out = {0};

    begin(JOB_FAILED);
    add_failure(3, 0);
    failures[0].cause = cause;
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK_EQ(strstr(out.bytes, "  hint: ") != NULL, hint != NULL);
    if (hint != NULL)
        CHECK(strstr(out.bytes, hint) != NULL);
    buf_free(&out);
}

TEST(what_to_do)
{
    check_hint("rank 0 exited with code 1: RuntimeError: CUDA out of memory. Tried",
               "GPU's memory");
    check_hint("rank 0 exited with code 1: OSError: [Errno 28] No space left on device", "df -h");
    check_hint("rank 0 exited with code 1: *** An error occurred in MPI_Init",
               "mpirun as the program");
    check_hint("rank 0 exited with code 1: ValueError: no", NULL);
}

TEST(a_lost_node)
{
    begin(JOB_RESTARTING);
    add_failure(3, 0);
    job.reason = "it waits until node gpu03 is back, or its lease is over";
    failures[0].class = FAILURE_NETWORK;
    failures[0].rank = -1;
    failures[0].exit_code = 125;
    failures[0].node = "gpu03";
    failures[0].error = failures[0].tail = "";
    failures[0].cause = "node gpu03 was lost: silent for 15 s";
    failures[0].stopped = 4;
    failures[0].lost = 4;
    failures[0].decision = "restarted at once (--max-restarts does not count it)";
    check_text("why-lost");
}

TEST(a_hang_for_which_no_rank_is_named)
{
    struct buf out = {0};

    begin(JOB_FAILED);
    add_failure(3, 0);
    failures[0].class = FAILURE_HANG;
    failures[0].rank = -1;
    failures[0].node = failures[0].tail = failures[0].error = failures[0].stacks = "";
    failures[0].stopped = failures[0].world = 1;
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "  its 1 rank was stopped because of it\n") != NULL);
    CHECK(strstr(out.bytes, "other rank") == NULL); /* there is no other */
    buf_free(&out);
    failures[0].stopped = failures[0].world = 8;
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "  its 8 ranks were stopped because of it\n") != NULL);
    buf_free(&out);
    failures[0].class = FAILURE_NODE; /* that could not start its part */
    failures[0].stopped = failures[0].world = 4;
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "  its 4 ranks were stopped because of it\n") != NULL);
    buf_free(&out);
}

TEST(a_job_that_is_being_stopped)
{
    begin(JOB_RUNNING);
    add_failure(3, 5);
    failures[0].stopped = 0;
    failures[0].decision = "";
    check_text("why-stopping");
}

TEST(a_job_that_waits)
{
    static const struct part_node nodes[] = {
        {.name = "gpu01", .state = NODE_UP, .slots = 4, .slots_free = 4},
        {.name = "gpu02", .state = NODE_UP, .slots = 8, .slots_free = 3},
        {.name = "gpu03", .state = NODE_LOST, .slots = 8},
        {.name = "gpu04", .state = NODE_UP, .slots = 2, .slots_free = 2},
        {.name = "gpu05", .state = NODE_UP, .slots = 4, .drained = true, .drained_by = "eve"},
    };
    struct msg_nodes list = {.nodes = {.items = nodes, .count = 5}};

    begin(JOB_QUEUED);
    job.reason = "wants 2 nodes with 4 free slots each, 1 has that";
    why.nodes = &list;
    check_text("why-queued");
    job.nodes = job.nodes_max = 4; /* --nodes 2:4 */
    job.nodes_min = 2;
    job.reason = "wants 4 slots on each of 2 to 4 nodes";
    check_text("why-queued-elastic");
    job.nodes_min = job.nodes_max = 0;
    job.nodes = 1;
    job.reason = "wants 4 slots on one node";
    check_text("why-queued-one");
}

/* The server does not place it there, so that node does not have what the job wants. */
TEST(a_node_that_the_job_avoids_is_not_counted)
{
    static const struct part_node nodes[] = {
        {.name = "gpu0", .state = NODE_UP, .slots = 4, .slots_free = 4},
        {.name = "gpu02", .state = NODE_UP, .slots = 4, .slots_free = 4},
    };
    struct msg_nodes list = {.nodes = {.items = nodes, .count = 2}};
    struct buf out = {0};

    begin(JOB_RESTARTING);
    add_failure(3, 5);
    failures[0].decision = "restarted at once; the job does not use node gpu02 for 10 minutes";
    info.avoided = "gpu01 gpu02";
    why.nodes = &list;
    why_text(&why, &style, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "; 1 of 2 nodes has that now\n") != NULL);
    CHECK(strstr(out.bytes, "    gpu0         4 of 4 slots free, enough for its share\n"
                            "    gpu02        not used for this job now, which it has failed: "
                            "ddpctl node resume gpu02 ends that\n") != NULL);
    buf_free(&out);
}

TEST(a_job_that_starts)
{
    begin(JOB_STARTING);
    for (uint32_t i = 0; i < 8; i++)
        ranks[i].state = i == 6 ? RANK_RUNNING : RANK_WAITING;
    why.job = &ranks_info;
    check_text("why-starting");
}

TEST(jobs_that_ended_otherwise)
{
    struct part_event cancel = {.at_ms = START_MS + 9000, .text = "cancel was asked for by eve"};

    begin(JOB_CANCELLED);
    job.ended = true;
    job.ended_ms = START_MS + 60000;
    why.cancel = &cancel;
    check_text("why-cancelled");
    why.cancel = NULL;
    job.reason = "job 1 has failed, and this one was to start after its success (--after 1:ok)";
    check_text("why-cancelled-after");
    begin(JOB_SUCCEEDED);
    job.ended = true;
    job.ended_ms = START_MS + 61000;
    add_failure(1, 5);
    check_text("why-succeeded");
    begin(JOB_FAILED); /* no rank failed: its generation has no failure */
    job.ended = true;
    job.reason = "the time limit of 60 s is over";
    add_failure(1, 5);
    check_text("why-time-limit");
}

/* -- live jobs ---------------------------------------------------------------------------------- */

static const char store_json[] =
    "{\"schema\":\"ddp.store.v1\",\"address\":\"10.0.0.2:4123\",\"keys\":7,\"bytes\":400,"
    "\"clients\":["
    "{\"client\":0,\"address\":\"10.0.0.2\",\"node\":\"gpu02\",\"pid\":1000,\"connected_s\":40,"
    "\"waits\":\"keys\",\"waits_s\":34.4,\"missing\":[\"default_pg/0//cpu//0/2\"],"
    "\"missing_count\":2},"
    "{\"client\":1,\"address\":\"10.0.0.2\",\"node\":\"gpu02\",\"pid\":1001,\"connected_s\":40,"
    "\"waits\":\"keys\",\"waits_s\":33,\"missing\":[\"default_pg/0//cpu//0/2\"],"
    "\"missing_count\":1},"
    "{\"client\":2,\"address\":\"10.0.0.3\",\"node\":\"gpu03\",\"pid\":9,\"connected_s\":40,"
    "\"waits\":\"keys\",\"waits_s\":33,\"missing\":[\"mine\\u001b[31m\"],\"missing_count\":1},"
    "{\"client\":3,\"address\":\"10.0.0.3\",\"node\":\"gpu03\",\"pid\":1005,\"connected_s\":40,"
    "\"waits\":\"\",\"waits_s\":0,\"missing\":[],\"missing_count\":0}]}";

static const char stack_json[] =
    "{\"schema\":\"ddp.stack.v1\",\"rank\":2,\"pid\":1002,\"state\":\"S\",\"wchan\":\"do_wait\","
    "\"kernel_stack\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"],\"threads\":[],\"cpu_s\":1.5,"
    "\"children\":[],\"python\":\"Process 1002: python3 train.py\\nPython v3.11.2\\n\\nThread 1002 "
    "(idle): \\\"MainThread\\\"\\n"
    "    load (data.py:7)\\u001b[2J\\n    main (train.py:3)\\n\"}";

static void make_live(struct arena *arena)
{
    struct err err;

    begin(JOB_RUNNING);
    why.job = &ranks_info;
    info.ran_us = 95 * SECOND_US;
    CHECK_EQ(
        why_store_parse(store_json, sizeof store_json - 1, &ranks_info, arena, &why.store, &err),
        STATUS_OK);
    CHECK_EQ(why_stack_parse(stack_json, sizeof stack_json - 1, 2, arena, &why.stacks[0], &err),
             STATUS_OK);
    why.stacks[1] = (struct why_stack){.rank = 0,
                                       .pid = 1000,
                                       .state = "S",
                                       .wchan = "0",
                                       .kernel = "",
                                       .kernel_problem = "",
                                       .python = "",
                                       .python_problem = "py-spy is not installed on this node"};
    why.stack_count = 2;
}

TEST(a_job_that_stands_still)
{
    struct arena arena = {0};
    struct buf out = {0};

    make_live(&arena);
    (void)strcpy(why.unknown[why.unknown_count++], "where rank 7 stands: gpu03 does not answer");
    CHECK(why_stands_still(&info));
    check_text("why-standing");
    why_json(&why, &out);
    check_json(&out);
    check_golden("why-standing-json", &out);
    arena_reset(&arena);
}

TEST(a_job_that_runs)
{
    begin(JOB_RUNNING);
    info.ran_us = 95 * SECOND_US;
    job.step = 120;
    job.steps = 1000;
    job.samples_per_s = 5100;
    job.loss = 1.5;
    moves[0] = (struct part_rank_move){.rank = 3, .age_us = 41 * SECOND_US};
    moves[1] = (struct part_rank_move){.rank = 0, .age_us = 2 * SECOND_US};
    info.moves.count = 2;
    CHECK(why_stands_still(&info));
    check_text("why-running");
    moves[0].age_us = 29 * SECOND_US;
    CHECK(!why_stands_still(&info));
    info.ran_us = 29 * SECOND_US;
    info.moves.count = 0;
    CHECK(!why_stands_still(&info));
    info.ran_us = 30 * SECOND_US;
    CHECK(why_stands_still(&info));
}

TEST(who_the_others_wait_for)
{
    struct arena arena = {0};
    bool marks[8] = {false};

    make_live(&arena);
    CHECK_EQ(why_blockers(&why, marks, 8), 1); /* found by the key that only this rank sets */
    CHECK(marks[2]);
    memset(marks, 0, sizeof marks);
    why.store.clients[0].missing_listed = why.store.clients[1].missing_listed = 0;
    CHECK_EQ(why_blockers(&why, marks, 8), 5); /* otherwise the ranks that have not connected */
    CHECK(!marks[0] && !marks[1] && marks[2] && !marks[5] && marks[7]);
    memset(marks, 0, sizeof marks);
    for (uint32_t i = 0; i < why.store.client_count; i++)
        why.store.clients[i].waits = "";
    CHECK_EQ(why_blockers(&why, marks, 8), 0); /* no rank waits */
    arena_reset(&arena);
}

static void check_key(const char *key, int32_t rank, const char *text)
{
    struct buf out = {0};
    int32_t found = 7;

    CHECK_EQ(why_key_text(key, &found, &out), text != NULL);
    CHECK_EQ(found, rank);
    buf_add(&out, "", 1);
    if (text != NULL)
        CHECK_STR(out.bytes, text);
    buf_free(&out);
}

TEST(keys_of_pytorch)
{
    check_key("default_pg/0//cpu//0/2", 2, "rank 2 in process group 0 (Gloo)");
    check_key("default_pg/0//1//cpu//0/2", -1, "rank 2 in process group 1 (Gloo)");
    check_key("default_pg/0//cuda//0", 0, "the id of NCCL from the first rank of process group 0");
    check_key("worker/attempt_2/default_pg/0//cpu//0/1", 1, "rank 1 in process group 0 (Gloo)");
    check_key("default_pg/store_based_barrier_key:0", -1, "the barrier of process group 0");
    check_key("default_pg/0//cpu//0/99999999999999999999", -1, NULL);
    check_key("default_pg/0//cpu//0/-1", -1, NULL);
    check_key("default_pg/0//cpu//0/2x", -1, NULL);
    check_key("default_pg/", -1, NULL);
    check_key("worker/attempt_", -1, NULL);
    check_key("", -1, NULL);
}

static void check_refused(const char *json)
{
    struct arena arena = {0};
    struct why_store store;
    struct why_stack stack;
    struct err err;

    CHECK(why_store_parse(json, strlen(json), NULL, &arena, &store, &err) != STATUS_OK);
    CHECK_STR(store.address, "");
    CHECK(why_stack_parse(json, strlen(json), 0, &arena, &stack, &err) != STATUS_OK);
    arena_reset(&arena);
}

TEST(answers_that_are_not_what_they_should_be)
{
    struct arena arena = {0};
    struct why_store store;
    struct why_stack stack;
    struct err err;
    static const char odd[] = "{\"schema\":\"ddp.store.v1\",\"address\":5,\"keys\":-1,\"clients\":"
                              "[1,null,{\"pid\":1e300,\"missing\":[1,{}],\"missing_count\":-4}]}";
    static const char bare[] = "{\"schema\":\"ddp.stack.v1\",\"kernel_stack\":\"no list\"}";

    check_refused("");
    check_refused("not JSON");
    check_refused("{}");
    check_refused("[]");
    check_refused("{\"schema\":\"ddp.other.v1\"}");
    CHECK_EQ(why_store_parse(odd, sizeof odd - 1, &ranks_info, &arena, &store, &err), STATUS_OK);
    CHECK_EQ(store.client_count, 1);
    CHECK_EQ(store.clients[0].rank, -1);
    CHECK_EQ(store.clients[0].missing_count, 0);
    CHECK_EQ(why_stack_parse(bare, sizeof bare - 1, 0, &arena, &stack, &err), STATUS_OK);
    CHECK_STR(stack.kernel, "");
    arena_reset(&arena);
}

TEST_MAIN
