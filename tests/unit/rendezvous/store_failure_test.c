/* Failures of a job in the store: kept, completed, bounded; and the ranks that failed. */
#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

static struct part_failure make_failure(uint32_t generation)
{
    return (struct part_failure){.generation = generation,
                                 .failed_ms = 1000,
                                 .ran_us = -1,
                                 .alone_us = 5,
                                 .class = FAILURE_NODE,
                                 .rank = 2,
                                 .node = "node1",
                                 .core = "/tmp/core.1",
                                 .cause = "it exited",
                                 .tail = "line 1\nline 2\n",
                                 .error = "ValueError: no",
                                 .world = 4,
                                 .oom = true,
                                 .decision = ""};
}

static void write_failure(struct store *store, const struct part_failure *failure, bool is_end)
{
    store_begin(store);
    store_write_failure(store, 1, failure, is_end);
    store_commit(store);
}

TEST(a_failure_is_kept_and_completed)
{
    struct store *store = open_or_fail(test_dir());
    struct part_failure failure = make_failure(3), read[FAILURES_KEPT_MAX];
    struct arena arena = {0};

    write_failure(store, &failure, false);
    failure.error = failure.core = NULL; /* as before */
    failure.decision = "restarted at once";
    failure.stopped = 3;
    write_failure(store, &failure, false);
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_failures(store, 1, &arena, read), 1);
    CHECK_EQ(read[0].generation, 3);
    CHECK_EQ(read[0].ran_us, -1);
    CHECK_EQ(read[0].class, FAILURE_NODE);
    CHECK_EQ(read[0].rank, 2);
    CHECK_EQ(read[0].stopped, 3);
    CHECK(read[0].oom);
    CHECK_STR(read[0].tail, "line 1\nline 2\n");
    CHECK_STR(read[0].error, "ValueError: no");
    CHECK_STR(read[0].core, "/tmp/core.1");
    CHECK_STR(read[0].decision, "restarted at once");
    failure.rank = 0; /* what a server that started meanwhile does not know */
    failure.tail = "";
    failure.lost = 1;
    failure.decision = "not restarted: no";
    write_failure(store, &failure, true);
    arena_reset(&arena);
    CHECK_EQ(store_failures(store, 1, &arena, read), 1);
    CHECK_EQ(read[0].rank, 2);
    CHECK_EQ(read[0].lost, 1);
    CHECK_STR(read[0].tail, "line 1\nline 2\n");
    CHECK_STR(read[0].decision, "not restarted: no");
    CHECK_EQ(store_failures(store, 2, &arena, read), 0);
    arena_reset(&arena);
    store_close(&store);
}

TEST(of_many_failures_the_first_and_the_newest_are_kept)
{
    struct store *store = open_or_fail(test_dir());
    struct part_failure read[FAILURES_KEPT_MAX];
    struct arena arena = {0};

    for (uint32_t generation = 4; generation < 104; generation++) {
        struct part_failure failure = make_failure(generation);

        write_failure(store, &failure, false);
    }
    CHECK_EQ(store_failures(store, 1, &arena, read), FAILURES_KEPT_MAX);
    CHECK_EQ(read[0].generation, 4);
    CHECK_EQ(read[1].generation, 5);
    CHECK_EQ(read[2].generation, 104 - (FAILURES_KEPT_MAX - FAILURES_FIRST_MAX));
    CHECK_EQ(read[FAILURES_KEPT_MAX - 1].generation, 103);
    arena_reset(&arena);
    store_close(&store);
}

TEST(failed_ranks_come_in_the_order_of_time)
{
    struct store *store = open_or_fail(test_dir());
    const struct rdzv_part parts[2] = {
        {.node = "node0", .local_count = 2, .slot_mask = 3},
        {.node = "node1", .rank_base = 2, .local_count = 2, .slot_mask = 3},
    };
    struct rdzv_rank ranks[4] = {{.state = RANK_EXITED, .exit_code = 1, .failed_ms = 900},
                                 {.state = RANK_STOPPED, .signal = 15},
                                 {.state = RANK_EXITED, .signal = 6, .failed_ms = 400},
                                 {.state = RANK_EXITED, .exit_code = 9}};
    struct part_failed_rank read[8];
    struct arena arena = {0};

    store_begin(store);
    store_write_ranks(store, 1, 4, parts, 2, ranks,
                      (struct store_clock){.boot_us = 1000000, .wall_ms = 1700000000000});
    store_commit(store);
    CHECK_EQ(store_failed_ranks(store, 1, 4, &arena, read, 8), 3);
    CHECK_EQ(read[0].rank, 2);
    CHECK_EQ(read[0].signal, 6);
    CHECK_EQ(read[0].after_us, 0);
    CHECK_EQ(read[1].rank, 0);
    CHECK_EQ(read[1].after_us, 500000);
    CHECK_EQ(read[2].rank, 3);
    CHECK_EQ(read[2].after_us, -1);
    CHECK_STR(read[2].node, "node1");
    CHECK_EQ(store_failed_ranks(store, 1, 4, &arena, read, 2), 2);
    CHECK_EQ(store_failed_ranks(store, 1, 5, &arena, read, 8), 0);
    arena_reset(&arena);
    store_close(&store);
}

TEST(failures_go_with_their_job)
{
    struct store *store = open_or_fail(test_dir());
    struct part_failure failure = make_failure(1), read[FAILURES_KEPT_MAX];
    struct rdzv_record job = {.name = "a", .user = "ann", .nodes = 1, .nproc_per_node = 1};
    uint64_t after_id = 0;
    struct arena arena = {0};
    bool is_at_end;

    job.state = JOB_FAILED;
    job.ended_ms = 1000;
    store_begin(store);
    for (job.job_id = 1; job.job_id <= 2; job.job_id++) { /* the newest stays */
        store_write_job(store, &job);
        store_write_failure(store, job.job_id, &failure, false);
    }
    CHECK_EQ(store_expire(store, 2000, NULL, NULL, &after_id, &is_at_end), 1);
    store_commit(store);
    CHECK_EQ(store_failures(store, 1, &arena, read), 0);
    CHECK_EQ(store_failures(store, 2, &arena, read), 1);
    arena_reset(&arena);
    store_close(&store);
}

TEST_MAIN
