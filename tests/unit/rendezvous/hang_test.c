/* The rule alone: when a generation hangs, and for which rank the others wait. */
#include "rendezvous/core/hang.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

#define SECOND_US 1000000ull
#define WORLD 4u

static struct hang_job job;
static struct hang_rank ranks[WORLD];
static struct rdzv_rank states[WORLD];
static struct hang_limits limits;
static uint64_t now_us, step;

static void begin(void)
{
    job = (struct hang_job){.floor_us = 10 * SECOND_US};
    memset(ranks, 0, sizeof ranks);
    for (uint32_t i = 0; i < WORLD; i++)
        states[i] = (struct rdzv_rank){.state = RANK_RUNNING};
    limits = (struct hang_limits){.least_us = HANG_LEAST_US, .first_us = HANG_FIRST_US};
    now_us = 10 * SECOND_US;
    step = 0;
}

static bool tell(uint32_t rank, struct msg_progress progress)
{
    progress.doing = progress.doing != NULL ? progress.doing : "";
    return hang_told(&job, &ranks[rank], &progress, now_us);
}

/* Ranks that repeat their reports; a step takes `each_us`. */
static void train(uint32_t steps, uint64_t each_us)
{
    for (uint32_t i = 0; i < steps; i++) {
        now_us += each_us;
        step++;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            (void)tell(rank, (struct msg_progress){.step = step, .again_us = 2 * SECOND_US});
    }
}

/* The ranks still report, but no new step. */
static void stand(uint64_t us, uint32_t but)
{
    for (uint64_t end = now_us + us; now_us < end;) {
        now_us += SECOND_US;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            if (rank != but)
                (void)tell(rank, (struct msg_progress){.step = step, .again_us = 2 * SECOND_US});
    }
}

static struct hang_doubt judge(void)
{
    return hang_judge(&job, ranks, states, WORLD, &limits, now_us);
}

TEST(thirty_seconds_without_a_step)
{
    begin();
    train(200, SECOND_US / 5);
    CHECK_EQ(judge().why, HANG_NOT);
    CHECK_EQ(judge().next_us, now_us + HANG_LEAST_US);
    stand(HANG_LEAST_US - SECOND_US, WORLD);
    CHECK_EQ(judge().why, HANG_NOT);
    stand(SECOND_US, WORLD);
    CHECK_EQ(judge().why, HANG_STEPS);
    CHECK(judge().is_over && !judge().wants_idle);
    train(1, SECOND_US);
    CHECK_EQ(judge().why, HANG_NOT);
}

/* Steps of 20 s: a hang is five times the 99th percentile, at most a quarter of an octave above. */
TEST(long_steps_have_more_time)
{
    begin();
    train(50, 20 * SECOND_US);
    CHECK(hang_p99_us(&job) >= 20 * SECOND_US && hang_p99_us(&job) <= 25 * SECOND_US);
    stand(99 * SECOND_US, WORLD);
    CHECK_EQ(judge().why, HANG_NOT);
    stand(26 * SECOND_US, WORLD);
    CHECK_EQ(judge().why, HANG_STEPS);
    begin();
    train(50, 20 * SECOND_US);
    limits.timeout_us = 5 * SECOND_US;
    stand(5 * SECOND_US, WORLD);
    CHECK_EQ(judge().why, HANG_STEPS);
    limits.timeout_us = TIME_US_MAX;
    CHECK_EQ(judge().why, HANG_NOT);
    CHECK_EQ(judge().next_us, UINT64_MAX);
}

/* Several steps in one message do not count as one long step. */
TEST(steps_that_are_told_together_are_short)
{
    begin();
    for (uint32_t i = 0; i < 100; i++) {
        now_us += 20 * SECOND_US;
        step += 100;
        (void)tell(0, (struct msg_progress){.step = step, .again_us = SECOND_US});
    }
    CHECK_EQ(hang_p99_us(&job), 0);
}

TEST(a_phase_has_ten_minutes_and_does_not_count_as_a_step)
{
    begin();
    train(100, SECOND_US);
    CHECK(tell(0, (struct msg_progress){.step = step, .phase = PROGRESS_VALIDATING}));
    ranks[0].again_us = 2 * SECOND_US;
    for (uint32_t i = 0; i < 590; i++) {
        now_us += SECOND_US;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            (void)tell(rank, (struct msg_progress){.step = step,
                                                   .again_us = SECOND_US,
                                                   .phase = rank == 0 ? PROGRESS_VALIDATING
                                                                      : PROGRESS_STEPS});
        CHECK_EQ(judge().why, HANG_NOT);
    }
    for (uint32_t i = 0; i < 10; i++) {
        now_us += SECOND_US;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            ranks[rank].heard_us = now_us;
    }
    CHECK_EQ(judge().why, HANG_PHASE);
    train(1, SECOND_US);
    CHECK_EQ(judge().why, HANG_NOT);
    CHECK(hang_p99_us(&job) <= 1250000);
}

TEST(no_first_step_for_ten_minutes)
{
    begin();
    for (uint32_t rank = 0; rank < WORLD; rank++)
        (void)tell(rank, (struct msg_progress){.phase = PROGRESS_PREPARING});
    now_us += HANG_FIRST_US - SECOND_US;
    CHECK_EQ(judge().why, HANG_NOT);
    now_us += SECOND_US;
    CHECK_EQ(judge().why, HANG_FIRST);
}

/* A program that reports only steps may run a validation without reporting that. */
TEST(steps_alone_hang_when_all_idle_or_after_ten_minutes)
{
    struct hang_doubt doubt;

    begin();
    for (uint32_t i = 0; i < 100; i++) {
        now_us += SECOND_US;
        (void)tell(0, (struct msg_progress){.step = ++step});
    }
    now_us += HANG_LEAST_US / 4;
    doubt = judge();
    CHECK(doubt.why == HANG_STEPS && doubt.wants_idle && !doubt.is_over);
    hang_heard_idle(&job, &doubt, true, now_us);
    now_us += HANG_LEAST_US / 4;
    doubt = judge();
    CHECK(!doubt.is_over);
    hang_heard_idle(&job, &doubt, false, now_us); /* a rank worked: it begins anew */
    hang_heard_idle(&job, &doubt, true, now_us);
    now_us += HANG_LEAST_US / 2;
    CHECK(!judge().is_over);
    now_us += HANG_LEAST_US / 4;
    CHECK(judge().is_over);
    hang_heard_idle(&job, &doubt, false, now_us);
    CHECK(!judge().is_over);
    now_us += HANG_FIRST_US;
    CHECK(judge().is_over && !judge().wants_idle);
}

TEST(who_tells_nothing_hangs_by_its_timeout_alone)
{
    struct hang_doubt doubt;

    begin();
    now_us += 10 * HANG_FIRST_US;
    CHECK_EQ(judge().why, HANG_NOT);
    CHECK_EQ(judge().next_us, UINT64_MAX);
    begin();
    limits.timeout_us = 40 * SECOND_US;
    CHECK_EQ(judge().next_us, now_us + 10 * SECOND_US);
    now_us += 10 * SECOND_US;
    doubt = judge();
    CHECK(doubt.why == HANG_IDLE && doubt.wants_idle && !doubt.is_over);
    hang_heard_idle(&job, &doubt, false, now_us);
    CHECK_EQ(judge().why, HANG_NOT);
    now_us += 10 * SECOND_US;
    hang_heard_idle(&job, &doubt, true, now_us);
    now_us += 29 * SECOND_US;
    CHECK(!judge().is_over);
    now_us += SECOND_US;
    CHECK(judge().is_over);
}

TEST(a_rank_that_breaks_its_word_hangs_in_any_phase)
{
    begin();
    train(100, SECOND_US);
    stand(29 * SECOND_US, 2);
    CHECK_EQ(judge().why, HANG_NOT);
    train(0, 0);
    begin();
    train(100, SECOND_US);
    for (uint32_t i = 0; i < 31; i++) { /* the others go on */
        now_us += SECOND_US;
        step++;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            if (rank != 2)
                (void)tell(rank, (struct msg_progress){.step = step, .again_us = SECOND_US});
    }
    CHECK_EQ(judge().why, HANG_SILENT);
    CHECK_EQ(judge().rank, 2);
    states[2].state = RANK_EXITED; /* it has ended, so it sends no reports */
    CHECK_EQ(judge().why, HANG_NOT);
}

/* The server or a node was away. */
TEST(what_could_not_be_heard_begins_anew)
{
    begin();
    train(100, SECOND_US);
    now_us += 10 * HANG_LEAST_US;
    CHECK(judge().is_over);
    hang_begin_anew(&job, now_us);
    CHECK_EQ(judge().why, HANG_NOT);
    CHECK_EQ(judge().next_us, now_us + HANG_LEAST_US);
    now_us += HANG_LEAST_US;
    CHECK(judge().is_over);
}

TEST(the_end_of_training_is_no_hang)
{
    begin();
    for (uint32_t rank = 0; rank < WORLD; rank++)
        (void)tell(rank, (struct msg_progress){.step = 99, .steps = 100});
    for (uint32_t rank = 0; rank < WORLD; rank++)
        (void)tell(rank, (struct msg_progress){.step = 100, .steps = 100});
    now_us += HANG_FIRST_US - SECOND_US;
    CHECK_EQ(judge().why, HANG_NOT);
}

/* The server knows from its store that the job reports steps. It has heard no step yet, and the job
 * may be in a validation. */
TEST(a_server_that_was_restarted_asks_whether_the_job_idles)
{
    begin();
    job.has_told = job.has_step = true;
    now_us += HANG_LEAST_US + SECOND_US;
    CHECK(judge().wants_idle && !judge().is_over);
    now_us = job.floor_us + HANG_FIRST_US;
    CHECK(judge().is_over);
}

/* -- for whom ---------------------------------------------------------------------------------- */

static void blame_is(const struct part_rank_look *looks, uint32_t count, enum hang_reason reason,
                     int32_t rank)
{
    struct hang_blame blame;
    char text[REASON_BYTES_MAX];

    hang_blame(ranks, states, WORLD, looks, count, now_us, &blame);
    CHECK_EQ(blame.reason, reason);
    CHECK_EQ(blame.rank, rank);
    hang_describe(&blame, "gpu01", WORLD, text);
    CHECK(strlen(text) > 10);
}

TEST(the_rank_that_the_others_wait_for)
{
    const struct part_rank_look stopped[] = {
        {.rank = 0, .state = "S", .where = "", .place = LOOK_COLLECTIVE},
        {.rank = 3, .state = "T", .where = "", .place = LOOK_UNKNOWN}};
    const struct part_rank_look elsewhere[] = {
        {.rank = 0, .state = "S", .where = "all_reduce (x.py:1)", .place = LOOK_COLLECTIVE},
        {.rank = 1, .state = "S", .where = "load (train.py:5)", .place = LOOK_ELSEWHERE}};

    begin();
    train(10, SECOND_US);
    blame_is(NULL, 0, HANG_NOBODY, -1);
    blame_is(elsewhere, 2, HANG_ELSEWHERE, 1);
    ranks[2].step--;
    blame_is(NULL, 0, HANG_STEP, 2);
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i].collectives = i == 1 ? 41 : 42;
    blame_is(NULL, 0, HANG_BEHIND, 1);
    stand(12 * SECOND_US, 0);
    blame_is(NULL, 0, HANG_QUIET, 0);
    blame_is(stopped, 2, HANG_STOPPED, 3);
    now_us += 60 * SECOND_US; /* all ranks are silent, so none differs from the others */
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i].collectives = 42;
    ranks[2].step = step;
    blame_is(NULL, 0, HANG_NOBODY, -1);
}

/* The rank has exited with 0 and sends no reports any more; its last step may be lower than the
 * others'. */
TEST(a_rank_that_has_ended_is_not_named)
{
    begin();
    train(10, SECOND_US);
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i].collectives = i == 2 ? 41 : 42;
    states[2].state = states[3].state = RANK_EXITED;
    stand(12 * SECOND_US, 3);
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i].collectives = i == 1 || i == 2 ? 41 : 42;
    blame_is(NULL, 0, HANG_BEHIND, 1);
}

/* Nodes may answer in any order. */
TEST(of_several_the_lowest_is_named)
{
    const struct part_rank_look looks[] = {
        {.rank = 2, .state = "T", .where = "c", .place = LOOK_UNKNOWN},
        {.rank = 1, .state = "T", .where = "b", .place = LOOK_UNKNOWN},
        {.rank = 3, .state = "T", .where = "d", .place = LOOK_UNKNOWN}};
    struct hang_blame blame;

    begin();
    hang_blame(ranks, states, WORLD, looks, 3, now_us, &blame);
    CHECK_EQ(blame.rank, 1);
    CHECK_EQ(blame.count, 3);
    CHECK_STR(blame.where, "b");
}

/* The stack of a stopped process without Python gives no place; its last report does. */
TEST(a_stopped_rank_is_where_it_told_last)
{
    const struct part_rank_look looks[] = {
        {.rank = 1, .state = "T", .where = "do_signal_stop", .place = LOOK_UNKNOWN}};
    struct hang_blame blame;
    char text[REASON_BYTES_MAX];

    begin();
    (void)snprintf(ranks[1].doing, sizeof ranks[1].doing, "forward layer2.0.conv1 (conv2d)");
    hang_blame(ranks, states, WORLD, looks, 1, now_us, &blame);
    hang_describe(&blame, "gpu01", WORLD, text);
    CHECK_STR(text, "the others wait for rank 1 on gpu01, whose process is stopped (SIGSTOP, or a "
                    "debugger): forward layer2.0.conv1 (conv2d)");
    ranks[1].doing[0] = '\0';
    hang_blame(ranks, states, WORLD, looks, 1, now_us, &blame);
    CHECK_STR(blame.where, "do_signal_stop");
}

TEST_MAIN
