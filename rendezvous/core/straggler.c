#include "rendezvous/core/straggler.h"

#include <assert.h>
#include <string.h>

#define BYTE_VALUES 256u

static uint32_t per_step(uint64_t us, uint64_t steps)
{
    const uint64_t one = us / steps;

    return one < UINT32_MAX ? (uint32_t)one : UINT32_MAX;
}

/* The growth of a total. A total that went back belongs to a program that started counting
 * again. */
static uint64_t since(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void take_block(struct straggler_rank *rank, const struct straggler_totals *totals)
{
    const struct straggler_totals *from = &rank->from;
    const uint64_t steps = totals->steps - from->steps;
    const uint64_t step_us = since(totals->step_us, from->step_us);
    const uint64_t wait_us = since(totals->wait_us, from->wait_us);
    struct straggler_times *times = &rank->times;
    uint64_t told_us = 0;

    times->part_us[STRAGGLER_DATA] = per_step(since(totals->data_us, from->data_us), steps);
    times->part_us[STRAGGLER_COMPUTE] =
        per_step(since(totals->compute_us, from->compute_us), steps);
    times->part_us[STRAGGLER_UPDATE] = per_step(since(totals->update_us, from->update_us), steps);
    times->own_us = per_step(since(step_us, wait_us), steps);
    for (uint32_t i = 0; i < STRAGGLER_OTHER; i++)
        told_us += times->part_us[i];
    times->part_us[STRAGGLER_OTHER] =
        told_us < times->own_us ? (uint32_t)(times->own_us - told_us) : 0;
    rank->has_times = true;
}

/* -- medians ----------------------------------------------------------------------------------- */

/* STRAGGLER_PARTS stands for the rank's own time. */
static uint32_t value_of(const struct straggler_rank *rank, uint32_t part)
{
    return part == STRAGGLER_PARTS ? rank->times.own_us : rank->times.part_us[part];
}

/* The place-th smallest value (from 0) of the ranks with times: a radix selection, highest byte
 * first. */
static uint32_t select_value(const struct straggler_rank *ranks, uint32_t world, uint32_t part,
                             uint32_t place)
{
    uint32_t found = 0, mask = 0;

    for (uint32_t shift = 32; shift > 0;) {
        uint32_t counts[BYTE_VALUES] = {0}, byte = 0;

        shift -= 8;
        for (uint32_t i = 0; i < world; i++)
            if (ranks[i].has_times && (value_of(&ranks[i], part) & mask) == found)
                counts[value_of(&ranks[i], part) >> shift & 0xff]++;
        for (; place >= counts[byte]; byte++)
            place -= counts[byte];
        found |= byte << shift;
        mask |= UINT32_C(0xff) << shift;
    }
    return found;
}

/* False: not enough ranks have reported a block. */
static bool compute_medians(struct straggler_job *job, const struct straggler_rank *ranks,
                            uint32_t world, uint64_t now_us)
{
    uint32_t known = 0;

    if (now_us < job->next_us)
        return job->median.own_us > 0;
    for (uint32_t i = 0; i < world; i++)
        known += ranks[i].has_times;
    if (world < 2 || known < 2 || known * 2 < world)
        return false;
    for (uint32_t part = 0; part < STRAGGLER_PARTS; part++)
        job->median.part_us[part] = select_value(ranks, world, part, (known - 1) / 2);
    job->median.own_us = select_value(ranks, world, STRAGGLER_PARTS, (known - 1) / 2);
    job->next_us = now_us + STRAGGLER_EVERY_US;
    return job->median.own_us > 0;
}

/* -- the rule ---------------------------------------------------------------------------------- */

static bool is_over(uint32_t own_us, uint32_t median_us, uint32_t percent)
{
    return (uint64_t)own_us * 100 > (uint64_t)median_us * percent;
}

/* Whether the newest block argues for a change of the rank's state: it is slow and the rank is not
 * a straggler, or the reverse. */
static bool speaks_for_change(const struct straggler_job *job, const struct straggler_rank *rank)
{
    const uint32_t own_us = rank->times.own_us, median_us = job->median.own_us;

    if (rank->is_slow)
        return !is_over(own_us, median_us, STRAGGLER_WELL_PERCENT) ||
               own_us < median_us + STRAGGLER_MIN_US;
    return is_over(own_us, median_us, STRAGGLER_SLOW_PERCENT) &&
           own_us >= median_us + STRAGGLER_MIN_US;
}

static enum straggler_news judge(struct straggler_job *job, struct straggler_rank *rank,
                                 uint64_t steps, uint64_t now_us)
{
    if (!speaks_for_change(job, rank)) {
        rank->blocks = 0;
        rank->steps = 0;
        return STRAGGLER_NOTHING;
    }
    if (rank->blocks == 0 && !rank->is_slow) {
        rank->slow_step = rank->from.steps;
        rank->slow_at_us = since(now_us, steps * rank->times.own_us);
    }
    if (rank->blocks < STRAGGLER_BLOCKS)
        rank->blocks++;
    rank->steps += steps < STRAGGLER_STEPS ? (uint32_t)steps : STRAGGLER_STEPS;
    if (rank->steps > STRAGGLER_STEPS)
        rank->steps = STRAGGLER_STEPS;
    if (rank->blocks < STRAGGLER_BLOCKS || rank->steps < STRAGGLER_STEPS)
        return STRAGGLER_NOTHING;
    rank->is_slow = !rank->is_slow;
    rank->blocks = 0;
    rank->steps = 0;
    job->slow_count += rank->is_slow ? 1 : -1u;
    return rank->is_slow ? STRAGGLER_BEGINS : STRAGGLER_ENDS;
}

enum straggler_news straggler_step(struct straggler_job *job, struct straggler_rank *ranks,
                                   uint32_t world, uint32_t rank,
                                   const struct straggler_totals *totals, uint64_t now_us)
{
    struct straggler_rank *mine = &ranks[rank];
    enum straggler_news news = STRAGGLER_NOTHING;
    uint64_t steps;

    assert(rank < world);
    if (totals->steps < mine->from.steps)
        mine->from = *totals;
    steps = totals->steps - mine->from.steps;
    if (steps < STRAGGLER_BLOCK_STEPS)
        return STRAGGLER_NOTHING;
    /* The first steps of a generation are warm-up: their block is not used. */
    if (mine->from.steps > 0 || mine->has_times)
        take_block(mine, totals);
    if (mine->has_times && compute_medians(job, ranks, world, now_us))
        news = judge(job, mine, steps, now_us);
    mine->from = *totals;
    return news;
}

void straggler_describe(const struct straggler_job *job, const struct straggler_rank *ranks,
                        uint32_t rank, struct straggler *out)
{
    const struct straggler_times *times = &ranks[rank].times, *median = &job->median;
    int64_t most = INT64_MIN;

    *out = (struct straggler){.rank = rank,
                              .own_us = times->own_us,
                              .median_us = median->own_us,
                              .since_step = ranks[rank].slow_step,
                              .since_us = ranks[rank].slow_at_us};
    for (uint32_t i = 0; i < STRAGGLER_PARTS; i++) {
        const int64_t over = (int64_t)times->part_us[i] - median->part_us[i];

        if (over <= most)
            continue;
        most = over;
        out->part = (enum straggler_part)i;
        out->part_us = times->part_us[i];
        out->part_median_us = median->part_us[i];
    }
}

bool straggler_worst(const struct straggler_job *job, const struct straggler_rank *ranks,
                     uint32_t world, struct straggler *out)
{
    uint32_t worst = world;

    if (job->slow_count == 0)
        return false;
    for (uint32_t i = 0; i < world; i++)
        if (ranks[i].is_slow &&
            (worst == world || ranks[i].times.own_us > ranks[worst].times.own_us))
            worst = i;
    assert(worst < world);
    straggler_describe(job, ranks, worst, out);
    return true;
}

const char *straggler_part_name(enum straggler_part part)
{
    switch (part) {
    case STRAGGLER_DATA:
        return "data";
    case STRAGGLER_COMPUTE:
        return "forward and backward";
    case STRAGGLER_UPDATE:
        return "optimizer";
    case STRAGGLER_OTHER:
    case STRAGGLER_PARTS:
        break;
    }
    return "the rest of the step";
}
