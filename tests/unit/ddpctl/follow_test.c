#include <string.h>

#include "ddpctl/follow.h"
#include "tests/lib/test.h"

static struct follow follow;
static struct part_job job;
static uint8_t mask[RANKS_PER_JOB_MAX / 8];
static uint64_t at_us;

static struct msg_job_info info(uint32_t generation, bool ended)
{
    job = (struct part_job){.job_id = 7,
                            .nodes = 1,
                            .nproc_per_node = 3,
                            .generation = generation,
                            .ended = ended,
                            .state = ended ? JOB_SUCCEEDED : JOB_RUNNING};
    return (struct msg_job_info){.jobs = {.items = &job, .count = 1}, .failed_rank = -1};
}

static void begin(const struct follow_options *options, uint32_t generation, bool ended)
{
    struct msg_job_info now = info(generation, ended);

    follow_init(&follow, options);
    CHECK_EQ(follow_job(&follow, &now, NULL), STATUS_OK);
}

static bool next(struct msg_log_read *read)
{
    uint64_t ask_at_us = UINT64_MAX;

    at_us += 200000; /* longer than the pause after an answer without news */
    return follow_next(&follow, at_us, read, &ask_at_us);
}

static enum follow_data answer(uint32_t rank, uint64_t offset, uint32_t count, bool is_final,
                               uint32_t *skip)
{
    static const uint8_t bytes[64];
    struct msg_log_data data = {.request_id = rank,
                                .offset = offset,
                                .bytes = {.items = bytes, .count = count},
                                .is_final = is_final,
                                .problem = ""};
    uint32_t who = 99;
    bool final;
    enum follow_data result = follow_take(&follow, &data, at_us, &who, skip, &final);

    CHECK_EQ(final, is_final && result != FOLLOW_PROBLEM);
    return result;
}

TEST(every_rank_is_read_in_turn)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true, .from_generation = 1};
    struct msg_log_read read;
    uint32_t skip;

    begin(&options, 1, false);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(next(&read));
        CHECK_EQ(read.rank, i);
        CHECK_EQ(read.offset, 0);
        CHECK_EQ(read.job_id, 7);
        CHECK(read.wait_us > 0);
    }
    CHECK(!next(&read)); /* one request for each log at a time */
    CHECK_EQ(answer(1, 0, 10, false, &skip), FOLLOW_SHOW);
    CHECK(next(&read));
    CHECK_EQ(read.rank, 1);
    CHECK_EQ(read.offset, 10);
}

TEST(all_generations_are_read_to_what_is_there_now)
{
    struct follow_options options = {
        .what = LOG_METRICS, .to_current = true, .rank_mask = mask, .from_generation = 1};
    struct msg_log_read read;
    uint32_t skip;

    memset(mask, 0, sizeof mask);
    mask[0] = 1;
    begin(&options, 2, false);
    CHECK(next(&read));
    CHECK_EQ(read.what, LOG_METRICS);
    CHECK_EQ(read.generation, 1);
    CHECK_EQ(read.wait_us, 0);
    CHECK(!follow_turn(&follow));
    CHECK_EQ(answer(0, 0, 10, true, &skip), FOLLOW_SHOW);
    CHECK(!follow_done(&follow));
    CHECK(follow_turn(&follow));
    CHECK(next(&read));
    CHECK_EQ(read.generation, 2);
    CHECK(!follow_done(&follow));
    CHECK_EQ(answer(0, 0, 0, true, &skip), FOLLOW_NOTHING);
    CHECK(!follow_turn(&follow));
    CHECK(follow_done(&follow)); /* though the job goes on */
}

TEST(an_answer_without_new_bytes_is_not_asked_for_at_once)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true};
    struct msg_log_read read;
    uint64_t ask_at_us = UINT64_MAX;
    uint32_t skip;

    begin(&options, 1, false);
    CHECK(next(&read) && next(&read) && next(&read));
    CHECK_EQ(answer(0, 0, 0, false, &skip), FOLLOW_NOTHING);
    CHECK(!follow_next(&follow, at_us, &read, &ask_at_us));
    CHECK(ask_at_us > at_us && ask_at_us < at_us + 1000000);
    CHECK(follow_next(&follow, ask_at_us, &read, &ask_at_us));
}

TEST(the_same_bytes_again_end_a_log_that_is_read_once)
{
    struct follow_options options = {.ranks_all = true};
    struct msg_log_data same = {.bytes = {.items = (const uint8_t *)"abc", .count = 3},
                                .problem = ""};
    struct msg_log_read read;
    bool is_final = false;
    uint32_t skip, rank;

    begin(&options, 1, false);
    CHECK(next(&read));
    CHECK_EQ(answer(0, 0, 10, false, &skip), FOLLOW_SHOW);
    CHECK(next(&read) && next(&read) && next(&read));
    CHECK_EQ(read.rank, 0);
    CHECK_EQ(follow_take(&follow, &same, at_us, &rank, &skip, &is_final), FOLLOW_NOTHING);
    CHECK(is_final);
}

TEST(repeated_bytes_are_skipped_and_gaps_are_reported)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true};
    struct msg_log_read read;
    uint32_t skip;

    begin(&options, 1, false);
    CHECK(next(&read));
    CHECK_EQ(answer(0, 0, 10, false, &skip), FOLLOW_SHOW);
    CHECK_EQ(answer(0, 0, 10, false, &skip), FOLLOW_UNASKED);
    CHECK(next(&read) && next(&read) && next(&read));
    CHECK_EQ(answer(0, 5, 10, false, &skip), FOLLOW_SHOW);
    CHECK_EQ(skip, 5);
    CHECK_EQ(follow.ranks[0].offset, 15);
    CHECK(next(&read));
    CHECK_EQ(answer(0, 2, 10, false, &skip), FOLLOW_NOTHING);
    CHECK_EQ(follow.ranks[0].offset, 15);
    CHECK(next(&read));
    CHECK_EQ(answer(0, 20, 4, false, &skip), FOLLOW_GAP);
    CHECK_EQ(follow.ranks[0].offset, 24);
}

TEST(a_lost_connection_repeats_requests_from_the_offset)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true};
    struct msg_log_read read;
    uint32_t skip;

    begin(&options, 1, false);
    CHECK(next(&read) && next(&read) && next(&read));
    CHECK_EQ(answer(2, 0, 8, false, &skip), FOLLOW_SHOW);
    follow_lost(&follow, 0, 1);
    CHECK(next(&read) && next(&read) && next(&read));
    CHECK_EQ(read.rank, 2);
    CHECK_EQ(read.offset, 8);
}

TEST(generations_are_read_to_the_end_before_the_next)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true, .from_generation = 1};
    struct msg_log_read read;
    struct msg_job_info now;
    uint32_t skip;

    begin(&options, 1, false);
    CHECK(next(&read) && next(&read) && next(&read));
    (void)answer(0, 0, 5, true, &skip);
    (void)answer(1, 0, 5, true, &skip);
    CHECK(!follow_turn(&follow));
    now = info(3, false); /* two generations were missed */
    CHECK_EQ(follow_job(&follow, &now, NULL), STATUS_OK);
    CHECK(!follow_turn(&follow)); /* rank 2 is not read yet */
    (void)answer(2, 0, 0, true, &skip);
    CHECK(follow_turn(&follow));
    CHECK_EQ(follow.generation, 2);
    CHECK(!follow_turn(&follow));
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(next(&read));
        CHECK_EQ(read.generation, 2);
        CHECK_EQ(read.offset, 0);
        (void)answer(i, 0, 1, true, &skip);
    }
    CHECK(!follow_done(&follow));
    CHECK(follow_turn(&follow));
    now = info(3, true);
    CHECK_EQ(follow_job(&follow, &now, NULL), STATUS_OK);
    CHECK(!follow_done(&follow)); /* the end of the job is not the end of its logs */
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(next(&read));
        (void)answer(i, 0, 1, true, &skip);
    }
    CHECK(follow_done(&follow));
}

TEST(a_new_job_s_logs_are_held_until_its_end)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true, .is_held = true};
    struct msg_job_info ended;
    struct msg_log_read read;

    begin(&options, 1, false);
    CHECK(!next(&read));
    ended = info(1, true);
    CHECK_EQ(follow_job(&follow, &ended, NULL), STATUS_OK);
    CHECK(next(&read));

    begin(&options, 1, false);
    CHECK(!next(&read));
    follow_go(&follow);
    CHECK(next(&read));
}

TEST(without_follow_existing_logs_are_enough)
{
    struct follow_options options = {.ranks_all = true, .tail_lines = 3};
    struct msg_log_read read;
    uint32_t skip;

    begin(&options, 2, false);
    CHECK(next(&read));
    CHECK_EQ(read.generation, 2);
    CHECK_EQ(read.tail_lines, 3);
    CHECK_EQ(read.wait_us, 0);
    CHECK_EQ(answer(0, 1000, 20, false, &skip), FOLLOW_SHOW);
    CHECK_EQ(skip, 0);
    CHECK(next(&read) && next(&read) && next(&read));
    CHECK_EQ(read.tail_lines, 0);
    CHECK_EQ(read.offset, 1020);
    (void)answer(0, 1020, 0, true, &skip);
    follow.ranks[1].final = follow.ranks[2].final = true;
    CHECK(follow_done(&follow));
}

/* A log that grows faster than it is read: without -f, reading stops at the size in the first
 * answer. */
TEST(without_follow_a_growing_log_has_an_end)
{
    struct follow_options options = {.ranks_all = true, .tail_lines = 3};
    static const uint8_t bytes[64];
    struct msg_log_data data = {.request_id = 0,
                                .offset = 1000,
                                .bytes = {.items = bytes, .count = 64},
                                .problem = "",
                                .size = 1100};
    struct msg_log_read read;
    uint32_t rank, skip;
    bool is_final;

    begin(&options, 1, false);
    CHECK(next(&read));
    CHECK_EQ(follow_take(&follow, &data, at_us, &rank, &skip, &is_final), FOLLOW_SHOW);
    CHECK(!is_final && next(&read) && next(&read) && next(&read));
    CHECK_EQ(read.rank, 0);
    data.offset = 1064;
    data.size = 5000; /* it has grown */
    CHECK_EQ(follow_take(&follow, &data, at_us, &rank, &skip, &is_final), FOLLOW_SHOW);
    CHECK(is_final && !next(&read));
    options.keep_on = true; /* with -f it has not */
    begin(&options, 1, false);
    CHECK(next(&read));
    (void)follow_take(&follow, &data, at_us, &rank, &skip, &is_final);
    data.offset = 5000;
    CHECK(next(&read) && next(&read) && next(&read));
    (void)follow_take(&follow, &data, at_us, &rank, &skip, &is_final);
    CHECK(!is_final && next(&read));
}

TEST(missing_ranks_and_generations_are_named)
{
    struct follow_options options = {.generation = 5, .ranks_all = true};
    struct msg_job_info now = info(2, true);
    struct err err = {0};

    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_NOT_FOUND);
    CHECK_STR(err.text, "there is no generation 5: the job is at generation 2");
    options = (struct follow_options){.previous = true, .ranks_all = true};
    follow_init(&follow, &options);
    now = info(1, true);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_NOT_FOUND);
    options = (struct follow_options){.keep_on = true};
    CHECK_EQ(follow_ranks_parse("3", &options, mask, &err), STATUS_OK);
    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_NOT_FOUND);
    CHECK_STR(err.text, "there is no rank 3: the job has ranks 0 to 2");
    options = (struct follow_options){.ranks_failed = true};
    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_NOT_FOUND);
}

/* Rank 2 failed in generation 1. */
static void begin_failed(struct follow_options options, bool ended)
{
    struct msg_job_info now = info(3, ended);

    options.ranks_failed = true;
    now.crashed_generation = 1;
    now.crashed_rank = 2;
    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, NULL), STATUS_OK);
}

static void check_begins(uint32_t generation, uint32_t rank)
{
    struct msg_log_read read = {0};

    CHECK(next(&read));
    CHECK_EQ(read.generation, generation);
    CHECK_EQ(read.rank, rank);
    CHECK(!next(&read));
}

TEST(the_failed_rank_is_shown_in_the_generation_where_it_failed)
{
    struct msg_job_info now;
    uint32_t skip;

    for (int ended = 0; ended < 2; ended++) {
        begin_failed((struct follow_options){0}, ended != 0);
        check_begins(1, 2);
        (void)answer(2, 0, 5, true, &skip);
        CHECK(!follow_turn(&follow));
        CHECK(follow_done(&follow));
    }
    begin_failed((struct follow_options){.generation = 3}, true);
    check_begins(3, 2);
    begin_failed((struct follow_options){.previous = true}, true);
    check_begins(2, 2);
    begin_failed((struct follow_options){.keep_on = true}, false); /* then on, through restarts */
    check_begins(1, 2);
    (void)answer(2, 0, 5, true, &skip);
    CHECK(!follow_done(&follow) && follow_turn(&follow));
    check_begins(2, 2);
    now = info(2, false); /* a job that version 1 stored: no failure is kept */
    now.failed_rank = 1;
    follow_init(&follow, &(struct follow_options){.ranks_failed = true});
    CHECK_EQ(follow_job(&follow, &now, NULL), STATUS_OK);
    check_begins(1, 1);
}

TEST(an_unreadable_log_is_given_up_in_time)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true};
    struct msg_log_data data = {.problem = "node1 is not connected"};
    struct msg_log_read read;
    uint64_t now_us = 1000, ask_at_us = UINT64_MAX;
    uint32_t rank, skip, tries = 0;
    bool is_final = false;

    begin(&options, 1, true);
    follow.ranks[1].final = follow.ranks[2].final = true;
    for (; !is_final && tries < 1000; tries++) {
        CHECK(follow_next(&follow, now_us, &read, &ask_at_us));
        (void)follow_take(&follow, &data, now_us, &rank, &skip, &is_final);
        CHECK(!follow_next(&follow, now_us, &read, &ask_at_us)); /* not at once */
        now_us += 1000000;
    }
    CHECK(tries > 10 && tries < 1000);
    CHECK(follow_done(&follow));
}

TEST(rank_lists)
{
    struct follow_options options;
    struct err err = {0};

    CHECK_EQ(follow_ranks_parse("0,4-7", &options, mask, &err), STATUS_OK);
    CHECK_EQ(mask[0], 0xf1);
    CHECK_EQ(follow_ranks_parse("all", &options, mask, &err), STATUS_OK);
    CHECK(options.ranks_all);
    CHECK(follow_ranks_parse("7-4", &options, mask, &err) != STATUS_OK);
    CHECK(follow_ranks_parse("1,,2", &options, mask, &err) != STATUS_OK);
    CHECK(follow_ranks_parse("x", &options, mask, &err) != STATUS_OK);
    CHECK(follow_ranks_parse("32768", &options, mask, &err) != STATUS_OK);
}

/* Only a limited number of logs is read at a time; each log uses the connection with its own
 * index. */
TEST(a_job_with_more_ranks_than_logs)
{
    struct follow_options options = {.keep_on = true, .ranks_all = true};
    struct msg_job_info now = info(1, false);
    struct msg_log_read read;
    struct err err = {0};
    uint32_t count = 0;

    job.nodes = 512;
    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_OK);
    while (next(&read)) {
        CHECK(read.rank < FOLLOW_RANKS_MAX);
        count++;
    }
    CHECK_EQ(count, FOLLOW_RANKS_MAX);

    CHECK_EQ(follow_ranks_parse("3,900-1023,1400-1535", &options, mask, &err), STATUS_OK);
    options.keep_on = true;
    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_OK);
    CHECK_EQ(follow.ranks[3].ordinal, 0);
    CHECK_EQ(follow.ranks[1400].ordinal, 125);
    for (count = 0; next(&read);)
        count++;
    CHECK_EQ(count, 261);
    follow_lost(&follow, 5, 10); /* the sixth of ten connections is lost */
    for (count = 0; next(&read); count++)
        CHECK_EQ(follow.ranks[read.rank].ordinal % 10, 5);
    CHECK_EQ(count, 26);

    CHECK_EQ(follow_ranks_parse("0-1024", &options, mask, &err), STATUS_OK);
    follow_init(&follow, &options);
    CHECK_EQ(follow_job(&follow, &now, &err), STATUS_TOO_BIG);
}

TEST_MAIN
