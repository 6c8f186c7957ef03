/* The liveness machine: the first loss decides, silence is measured, and leaving is not a death. */
#include <string.h>

#include "tests/lib/test.h"
#include "worker/comm/live.h"

#define SECOND UINT64_C(1000000)

static struct comm_peer peers[4];
static struct comm_live live;
static struct comm_live_actions actions;

static void begin(uint32_t rank)
{
    comm_live_init(&live, peers, rank, 4, 10 * SECOND);
}

static void tick(uint64_t now_us)
{
    struct comm_live_event event = {.type = COMM_LIVE_TICK, .now_us = now_us};

    comm_live_step(&live, &event, &actions);
}

static void note(uint32_t from, uint64_t now_us, struct comm_note told)
{
    struct comm_live_event event = {
        .type = COMM_LIVE_NOTE, .now_us = now_us, .from = from, .note = told};

    comm_live_step(&live, &event, &actions);
}

static void closed(uint32_t from)
{
    struct comm_live_event event = {.type = COMM_LIVE_CLOSED, .from = from};

    comm_live_step(&live, &event, &actions);
}

static void beat(uint32_t from, uint64_t now_us, uint64_t seq)
{
    note(from, now_us, (struct comm_note){.type = COMM_NOTE_BEAT, .rank = from, .seq = seq});
}

TEST(beats_once_a_second)
{
    begin(0);
    tick(10 * SECOND + SECOND / 2);
    CHECK(!actions.beats);
    tick(11 * SECOND);
    CHECK(actions.beats);
    tick(11 * SECOND + 1);
    CHECK(!actions.beats);
}

TEST(silence_is_a_loss_and_told_to_all)
{
    begin(0);
    for (uint64_t s = 11; s <= 15; s++) {
        beat(1, s * SECOND, 0);
        beat(3, s * SECOND, 0);
        tick(s * SECOND);
        CHECK_EQ(live.lost_rank, COMM_RANK_NONE);
    }
    tick(15 * SECOND + 1);
    CHECK_EQ(live.lost_rank, 2);
    CHECK_EQ(live.lost_why, COMM_WHY_SILENT);
    CHECK(actions.sends);
    CHECK_EQ(actions.note.type, COMM_NOTE_LOST);
    CHECK_EQ(actions.note.rank, 2);
}

TEST(first_loss_stays)
{
    begin(0);
    closed(3);
    CHECK_EQ(live.lost_rank, 3);
    CHECK(actions.sends);
    CHECK_EQ(actions.except, 3);
    closed(1);
    CHECK_EQ(live.lost_rank, 3);
    CHECK(!actions.sends);
}

TEST(others_believe_rank_0)
{
    begin(2);
    note(0, 11 * SECOND,
         (struct comm_note){.type = COMM_NOTE_LOST, .why = COMM_WHY_CLOSED, .rank = 3});
    CHECK_EQ(live.lost_rank, 3);
    CHECK(!actions.sends);
    closed(0); /* rank 0 ends because of it */
    CHECK_EQ(live.lost_rank, 3);
}

/* Nobody is lost in the five seconds after second `from`, `rank` is right after them. */
static void check_lost_after_silence(uint64_t from, uint32_t rank)
{
    for (uint64_t s = from + 1; s <= from + 5; s++)
        tick(s * SECOND);
    CHECK_EQ(live.lost_rank, COMM_RANK_NONE);
    tick((from + 5) * SECOND + 1);
    CHECK_EQ(live.lost_rank, rank);
}

TEST(end_of_rank_0_is_its_loss)
{
    begin(2);
    closed(0);
    CHECK_EQ(live.lost_rank, 0);
    begin(2);
    check_lost_after_silence(10, 0);
}

TEST(who_was_stopped_itself_blames_nobody)
{
    begin(0);
    tick(100 * SECOND);
    CHECK_EQ(live.lost_rank, COMM_RANK_NONE);
    check_lost_after_silence(100, 1);
}

TEST(leaving_is_not_a_loss)
{
    begin(0);
    note(1, 11 * SECOND, (struct comm_note){.type = COMM_NOTE_LEFT, .rank = 2, .seq = 7});
    CHECK(actions.sends);
    CHECK_EQ(actions.note.type, COMM_NOTE_LEFT);
    CHECK_EQ(actions.note.rank, 1); /* the rank that spoke, not the rank that it named */
    closed(1);
    CHECK_EQ(live.lost_rank, COMM_RANK_NONE);
    CHECK_EQ(comm_live_missing(&live, 7), COMM_RANK_NONE);
    CHECK_EQ(comm_live_missing(&live, 8), 1);
    for (uint64_t s = 11; s < 20; s++) {
        beat(2, s * SECOND, 0);
        beat(3, s * SECOND, 0);
        tick(s * SECOND);
    }
    CHECK_EQ(live.lost_rank, COMM_RANK_NONE);
}

/* Ranks that leave because another one left are not the cause. */
TEST(first_to_leave_is_the_one_missing)
{
    begin(2);
    note(0, 11 * SECOND, (struct comm_note){.type = COMM_NOTE_LEFT, .rank = 3, .seq = 7});
    note(0, 11 * SECOND, (struct comm_note){.type = COMM_NOTE_LEFT, .rank = 1, .seq = 7});
    note(0, 11 * SECOND, (struct comm_note){.type = COMM_NOTE_LEFT, .rank = 0, .seq = 7});
    CHECK_EQ(comm_live_missing(&live, 8), 3);
}

TEST(beat_of_rank_0_names_who_is_behind)
{
    struct comm_note told;

    begin(0);
    beat(1, 11 * SECOND, 9);
    beat(2, 11 * SECOND, 4);
    beat(3, 11 * SECOND, 8);
    told = comm_live_beat(&live, (struct comm_own){.seq = 9});
    CHECK_EQ(told.rank, 2);
    CHECK_EQ(told.seq, 4);
    told = comm_live_beat(&live, (struct comm_own){.seq = 3});
    CHECK_EQ(told.rank, 0);
    begin(3);
    note(0, 11 * SECOND, told);
    CHECK_EQ(live.behind_rank, 0);
    CHECK_EQ(live.behind_seq, 3);
}

static void busy_beat(uint32_t from, uint64_t now_us, uint64_t seq)
{
    note(from, now_us,
         (struct comm_note){.type = COMM_NOTE_BEAT, .rank = from, .seq = seq, .busy = true});
}

/* A tick of this rank, which has begun `seq` collectives. */
static void tick_at(uint64_t now_us, uint64_t seq, bool busy)
{
    struct comm_live_event event = {
        .type = COMM_LIVE_TICK, .now_us = now_us, .own = {.seq = seq, .busy = busy}};

    comm_live_step(&live, &event, &actions);
}

/* Nothing moves since second 12, the limit is 6 s, and 20 s more are granted. */
static uint64_t stalls_at_s(void)
{
    return comm_live_stalls_at(&live, 12 * SECOND, 6 * SECOND, 20 * SECOND) / SECOND;
}

TEST(time_in_which_the_missing_rank_is_busy_does_not_count)
{
    begin(2);
    tick_at(12 * SECOND, 5, true); /* to be busy itself is no reason */
    CHECK_EQ(stalls_at_s(), 18);
    for (uint64_t s = 13; s <= 15; s++) {
        busy_beat(0, s * SECOND, 4);
        tick_at(s * SECOND, 5, false);
        CHECK_EQ(stalls_at_s(), s + 6);
    }
    beat(0, 16 * SECOND, 4);
    tick_at(16 * SECOND, 5, false);
    CHECK_EQ(stalls_at_s(), 15 + 6);
    for (uint64_t s = 17; s < 60; s++) { /* but it is not granted without end */
        busy_beat(0, s * SECOND, 4);
        tick_at(s * SECOND, 5, false);
    }
    CHECK_EQ(stalls_at_s(), 12 + 20 + 6);
}

TEST(a_busy_rank_that_has_come_is_not_waited_for)
{
    begin(2);
    busy_beat(0, 13 * SECOND, 5);
    tick_at(13 * SECOND, 5, false);
    CHECK_EQ(stalls_at_s(), 18);
}

TEST(rank_0_tells_who_is_busy)
{
    struct comm_note told;

    begin(0);
    beat(1, 12 * SECOND, 5);
    busy_beat(2, 12 * SECOND, 4);
    beat(3, 12 * SECOND, 5);
    tick_at(13 * SECOND, 5, false);
    CHECK_EQ(stalls_at_s(), 13 + 6);
    told = comm_live_beat(&live, (struct comm_own){.seq = 5});
    CHECK_EQ(told.rank, 2);
    CHECK(told.busy);
    told = comm_live_beat(&live, (struct comm_own){.seq = 3, .busy = true});
    CHECK_EQ(told.rank, 0);
    CHECK(told.busy);
    beat(3, 13 * SECOND, 4); /* that one has no reason to be behind */
    told = comm_live_beat(&live, (struct comm_own){.seq = 5});
    CHECK_EQ(told.rank, 3);
    CHECK(!told.busy);
    tick_at(14 * SECOND, 5, false);
    CHECK_EQ(stalls_at_s(), 13 + 6);
}

TEST(ranks_out_of_range_are_passed_over)
{
    begin(1);
    note(0, 11 * SECOND, (struct comm_note){.type = COMM_NOTE_LOST, .rank = 4});
    note(0, 11 * SECOND, (struct comm_note){.type = COMM_NOTE_LEFT, .rank = COMM_RANK_NONE});
    CHECK_EQ(live.lost_rank, COMM_RANK_NONE);
    CHECK_EQ(comm_live_missing(&live, 1000), COMM_RANK_NONE);
}

TEST(report_goes_to_rank_0)
{
    struct comm_live_event event = {
        .type = COMM_LIVE_REPORT,
        .note = {
            .type = COMM_NOTE_BEAT, .why = COMM_WHY_STALLED, .rank = 2, .seq = 5, .busy = true}};

    begin(3);
    comm_live_step(&live, &event, &actions);
    CHECK(actions.sends);
    CHECK_EQ(actions.note.type, COMM_NOTE_LOST);
    CHECK_EQ(actions.note.why, COMM_WHY_STALLED);
    CHECK_EQ(actions.note.seq, 5);
    begin(0);
    note(3, 11 * SECOND, actions.note);
    CHECK_EQ(live.lost_rank, 2);
    CHECK(live.lost_busy);
}

TEST_MAIN
