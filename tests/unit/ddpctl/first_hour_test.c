/* Why a job waits, who still runs, and which GPUs the nodes of a private run get. */
#include "ddpctl/done_note.h"
#include "ddpctl/standalone_gpus.h"
#include "ddpctl/wait_note.h"
#include "tests/lib/test.h"

#include <string.h>

TEST(a_reason_is_told_once_when_it_has_lasted)
{
    struct wait_note note = {0};
    struct part_job job = {
        .job_id = 12, .name = "r50", .state = JOB_QUEUED, .reason = "no node is connected"};

    CHECK(wait_note_due(&note, 0, 0) == NULL);
    wait_note_take(&note, &job, 100);
    CHECK(wait_note_due(&note, 199, 100) == NULL);
    wait_note_take(&note, &job, 150); /* the same reason: its time continues */
    CHECK_STR(wait_note_due(&note, 200, 100), "r50 (12) waits: no node is connected");
    CHECK(wait_note_due(&note, 1000, 100) == NULL);
    job.reason = "behind job 11 (a) in the queue";
    wait_note_take(&note, &job, 1000);
    CHECK(wait_note_due(&note, 1050, 100) == NULL);
    CHECK_STR(wait_note_due(&note, 1100, 100), "r50 (12) waits: behind job 11 (a) in the queue");
    job.reason = "waits for job 11 (a) to end (--after)";
    wait_note_take(&note, &job, 1200);
    CHECK_STR(wait_note_due(&note, 1300, 100), "r50 (12) waits for job 11 (a) to end (--after)");
    job.state = JOB_RUNNING;
    wait_note_take(&note, &job, 2000);
    CHECK(wait_note_due(&note, 9000, 0) == NULL);
    job.state = JOB_RESTARTING;
    job.reason = "rank 3 exited with code 1";
    wait_note_take(&note, &job, 10000);
    CHECK_STR(wait_note_due(&note, 10100, 100),
              "r50 (12) waits to start again: rank 3 exited with code 1");
}

TEST(who_still_runs_when_others_are_done_is_told_once)
{
    struct done_note note = {0};
    struct part_job job = {.job_id = 12, .name = "r50", .state = JOB_RUNNING, .generation = 1};
    struct part_job_rank ranks[5];
    struct msg_job_info info = {.jobs = {.items = &job, .count = 1},
                                .ranks = {.items = ranks, .count = 5}};

    for (uint32_t i = 0; i < 5; i++)
        ranks[i] = (struct part_job_rank){.rank = i, .state = RANK_RUNNING};
    done_note_take(&note, &info, 100);
    CHECK(done_note_due(&note, 1000, 100) == NULL);
    ranks[0].state = RANK_EXITED;
    done_note_take(&note, &info, 1000);
    CHECK(done_note_due(&note, 1099, 100) == NULL);
    ranks[2].state = ranks[3].state = RANK_EXITED; /* the first of them counts for the time */
    done_note_take(&note, &info, 1090);
    CHECK_STR(done_note_due(&note, 1100, 100), "ranks 0, 2-3 have ended, ranks 1, 4 still run");
    CHECK(done_note_due(&note, 9000, 100) == NULL);
    for (uint32_t i = 1; i < 5; i++)
        ranks[i].state = RANK_RUNNING;
    ranks[1].state = ranks[2].state = ranks[4].state = RANK_EXITED;
    job.generation = 2;
    done_note_take(&note, &info, 10000);
    CHECK_STR(done_note_due(&note, 11000, 100), "ranks 0-2, 4 have ended, rank 3 still runs");
    job.generation = 3; /* a failure: the end says it */
    ranks[1].exit_code = 1;
    done_note_take(&note, &info, 20000);
    CHECK(done_note_due(&note, 90000, 100) == NULL);
}

static void expect_share(const struct standalone_gpus *gpus, uint32_t nodes, uint32_t workers,
                         uint32_t node, const char *expected)
{
    char text[4 * SLOTS_PER_NODE_MAX];

    standalone_gpus_share(gpus, nodes, workers, node, text, sizeof text);
    CHECK_STR(text, expected);
}

TEST(every_worker_has_a_gpu_where_there_are_enough)
{
    const struct standalone_gpus four = {.count = 4, .items = {0, 1, 2, 3}};
    const struct standalone_gpus some = {.is_limited = true, .count = 2, .items = {6, 3}};
    const struct standalone_gpus none = {0}, hidden = {.is_limited = true};
    char words[256];

    expect_share(&four, 2, 2, 0, "0,1");
    expect_share(&four, 2, 2, 1, "2,3");
    expect_share(&four, 3, 1, 2, "2");
    expect_share(&some, 2, 1, 1, "3");
    expect_share(&none, 2, 2, 1, "");
    expect_share(&hidden, 2, 2, 1, "none");
    standalone_gpus_explain(&four, 2, 2, words, sizeof words);
    CHECK_STR(words, "");
    standalone_gpus_explain(&none, 2, 2, words, sizeof words);
    CHECK_STR(words, "");
}

TEST(too_few_gpus_are_shared_on_one_node_and_unused_on_several)
{
    const struct standalone_gpus three = {.count = 3, .items = {0, 1, 2}};
    char words[256];

    expect_share(&three, 1, 8, 0, "0,1,2");
    expect_share(&three, 2, 2, 0, "none");
    expect_share(&three, 4, 1, 3, "none");
    standalone_gpus_explain(&three, 2, 2, words, sizeof words);
    CHECK(strstr(words, "3 GPUs here and 4 workers on 2 nodes") != NULL);
    CHECK(strstr(words, "--nproc-per-node gpu") != NULL);
    standalone_gpus_explain(&three, 4, 1, words, sizeof words);
    CHECK(strstr(words, "--nodes 1") != NULL);
}

TEST_MAIN
