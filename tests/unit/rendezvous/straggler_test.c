/* The rule for a slow rank, on made-up series of step times. */
#include "rendezvous/core/straggler.h"

#include <string.h>

#include "tests/lib/test.h"

#define RANKS 16u
#define TOLD_US 1000000u /* ranks tell once a second */

/* The time that a rank needs for a step by itself; all ranks then wait for the slowest. */
typedef uint32_t own_time(uint32_t rank, uint64_t step, enum straggler_part *part);

static struct straggler_job job;
static struct straggler_rank ranks[RANKS];
static uint64_t now_us, step_count, begun[RANKS], ended[RANKS], begun_step[RANKS];
static uint64_t random_state;

static void begin(void)
{
    job = (struct straggler_job){0};
    memset(ranks, 0, sizeof ranks);
    memset(begun, 0, sizeof begun);
    memset(ended, 0, sizeof ended);
    now_us = 5000000;
    step_count = 0;
    random_state = 7;
}

/* Trains `steps` steps and tells what each rank would tell. */
static void train(uint32_t world, uint64_t steps, own_time *own)
{
    static struct straggler_totals totals[RANKS], zero[RANKS];
    static uint64_t told_at_us;

    if (step_count == 0) {
        memcpy(totals, zero, sizeof totals);
        told_at_us = now_us;
    }
    for (uint64_t end = step_count + steps; step_count < end; step_count++) {
        uint32_t own_us[RANKS], slowest_us = 0;
        enum straggler_part part[RANKS];

        for (uint32_t i = 0; i < world; i++) {
            part[i] = STRAGGLER_COMPUTE;
            own_us[i] = own(i, step_count, &part[i]);
            slowest_us = own_us[i] > slowest_us ? own_us[i] : slowest_us;
        }
        now_us += slowest_us;
        for (uint32_t i = 0; i < world; i++) {
            const uint64_t base_us = own_us[i] < 10000 ? own_us[i] / 2 : 5000;

            totals[i].steps++;
            totals[i].step_us += slowest_us;
            totals[i].wait_us += slowest_us - own_us[i];
            totals[i].data_us += part[i] == STRAGGLER_DATA ? own_us[i] - base_us : base_us / 2;
            totals[i].compute_us +=
                part[i] == STRAGGLER_COMPUTE ? own_us[i] - base_us : base_us / 2;
            totals[i].update_us += part[i] == STRAGGLER_UPDATE ? own_us[i] - base_us : 0;
        }
        if (now_us < told_at_us + TOLD_US)
            continue;
        told_at_us = now_us;
        for (uint32_t i = 0; i < world; i++) {
            switch (straggler_step(&job, ranks, world, i, &totals[i], now_us + i)) {
            case STRAGGLER_NOTHING:
                break;
            case STRAGGLER_BEGINS:
                begun[i]++;
                begun_step[i] = totals[i].steps;
                break;
            case STRAGGLER_ENDS:
                ended[i]++;
                break;
            }
        }
    }
}

static uint64_t count_begun(void)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < RANKS; i++)
        count += begun[i];
    return count;
}

/* 30 ms, a fifth more or less each time. */
static uint32_t noise(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    (void)rank;
    (void)step;
    (void)part;
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return 24000 + (uint32_t)(random_state >> 33) % 12000;
}

static uint32_t one_slow(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    if (rank == 3)
        *part = STRAGGLER_DATA;
    return rank == 3 ? 42000 : noise(rank, step, part);
}

TEST(noise_names_nobody)
{
    struct straggler out;

    begin();
    train(8, 20000, noise);
    CHECK_EQ(count_begun(), 0);
    CHECK(!straggler_worst(&job, ranks, 8, &out));
}

TEST(one_slow_rank_is_named_with_its_part)
{
    struct straggler out;

    begin();
    train(8, 2000, noise);
    train(8, 2000, one_slow);
    CHECK_EQ(count_begun(), 1);
    CHECK_EQ(begun[3], 1);
    CHECK(straggler_worst(&job, ranks, 8, &out));
    CHECK_EQ(out.rank, 3);
    CHECK_EQ(out.part, STRAGGLER_DATA);
    CHECK(out.own_us > 41000 && out.own_us <= 42000);
    CHECK(out.median_us > 29000 && out.median_us < 31000);
    CHECK(out.part_us > out.part_median_us + 11000);
    CHECK(out.since_step >= 1950 && out.since_step <= 2050);
    CHECK(out.since_us > 60000000 && out.since_us < now_us);
    /* named within 50 steps, and the second or two of the blocks around them */
    CHECK(begun_step[3] - out.since_step >= STRAGGLER_STEPS);
    CHECK(begun_step[3] - out.since_step <= STRAGGLER_STEPS + 90);
    train(8, 2000, noise);
    CHECK_EQ(ended[3], 1);
    CHECK(!straggler_worst(&job, ranks, 8, &out));
}

static uint32_t a_fifth(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    (void)step;
    (void)part;
    return rank == 1 ? 35900 : 30000; /* 1.197 times */
}

static uint32_t all_slow(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    return 3 * noise(rank, step, part);
}

TEST(what_is_slow_on_all_ranks_or_by_less_than_a_fifth_is_no_straggler)
{
    begin();
    train(4, 1000, a_fifth);
    train(8, 1000, noise);
    train(8, 1000, all_slow);
    CHECK_EQ(count_begun(), 0);
}

/* Two nodes of four ranks each, of which one is slow: half of the ranks. */
static uint32_t half_slow(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    return noise(rank, step, part) + (rank >= 4 ? 15000 : 0);
}

static uint32_t one_of_two(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    return noise(rank, step, part) + (rank == 1 ? 15000 : 0);
}

TEST(half_of_the_ranks_are_slow_against_the_other_half)
{
    begin();
    train(8, 1500, half_slow);
    CHECK_EQ(count_begun(), 4);
    for (uint32_t i = 4; i < 8; i++)
        CHECK_EQ(begun[i], 1);
    begin();
    train(2, 1500, one_of_two);
    CHECK_EQ(begun[1], 1);
    CHECK_EQ(begun[0], 0);
}

/* The first steps of rank 2 take 20 times as long: its caches are cold. */
static uint32_t slow_start(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    return rank == 2 && step < 20 ? 600000 : noise(rank, step, part);
}

TEST(a_slow_start_is_no_straggler)
{
    begin();
    train(4, 1000, slow_start);
    CHECK_EQ(count_begun(), 0);
}

/* Rank 0 writes something every 500 steps, for two seconds. */
static uint32_t spikes(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    return noise(rank, step, part) + (rank == 0 && step % 500 == 499 ? 2000000 : 0);
}

/* Steps of half a millisecond: a block has two thousand of them. */
static uint32_t short_spikes(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    (void)part;
    return 500 + (rank == 0 && step % 20000 == 19999 ? 2000000 : 0);
}

TEST(single_long_pauses_are_no_straggler)
{
    begin();
    train(4, 10000, spikes);
    CHECK_EQ(count_begun(), 0);
    begin();
    train(4, 200000, short_spikes);
    CHECK_EQ(count_begun(), 0);
}

/* Steps that take longer than a second, each told by itself. */
static uint32_t long_steps(uint32_t rank, uint64_t step, enum straggler_part *part)
{
    (void)step;
    if (rank == 1)
        *part = STRAGGLER_UPDATE;
    return rank == 1 ? 5000000 : 3000000;
}

TEST(long_steps_are_judged_by_steps)
{
    struct straggler out;

    begin();
    train(3, 59, long_steps);
    CHECK_EQ(count_begun(), 0);
    train(3, 1, long_steps);
    CHECK_EQ(begun[1], 1);
    CHECK(straggler_worst(&job, ranks, 3, &out));
    CHECK_EQ(out.part, STRAGGLER_UPDATE);
    CHECK_EQ(out.since_step, 10);
}

TEST(totals_that_lie_do_no_harm)
{
    struct straggler_totals totals = {.steps = UINT64_MAX, .wait_us = UINT64_MAX};
    struct straggler_totals back = {.steps = 3, .step_us = UINT64_MAX, .data_us = UINT64_MAX};
    struct straggler out;

    begin();
    for (uint32_t i = 0; i < 40; i++) {
        (void)straggler_step(&job, ranks, 2, i % 2, i % 4 < 2 ? &totals : &back, now_us);
        now_us += TOLD_US;
        back.steps += 20;
    }
    (void)straggler_worst(&job, ranks, 2, &out);
    begin();
    CHECK_EQ(straggler_step(&job, ranks, 1, 0, &totals, now_us), STRAGGLER_NOTHING);
}

TEST_MAIN
