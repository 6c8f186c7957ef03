/* Which rank of a job is slow, by how much, in which part of a step, and since when. Pure.
 *
 * In data-parallel training all ranks take equally long for a step, as the fast ones wait for the slow
 * one in a collective. So a rank's own time is what counts: its step without the time that it waited
 * for others. The rule: a rank is a straggler when its own time of a step is over 1.2 times the median of
 * all ranks for 50 steps in a row, and no longer when it was under 1.1 times for as many. Where half of
 * the ranks are slow, the median is that of the fast half.
 *
 * Ranks tell totals (msg_progress), so a message that is lost costs nothing. What a rank told over at
 * least STRAGGLER_BLOCK_STEPS steps is a block, and three blocks at least must agree: one long pause is no
 * straggler, however many steps lie in its block. */
#ifndef RENDEZVOUS_CORE_STRAGGLER_H
#define RENDEZVOUS_CORE_STRAGGLER_H

#include <stdbool.h>
#include <stdint.h>

#define STRAGGLER_STEPS 50u
#define STRAGGLER_BLOCK_STEPS 10u
#define STRAGGLER_BLOCKS 3u
#define STRAGGLER_SLOW_PERCENT 120u /* of the median */
#define STRAGGLER_WELL_PERCENT 110u
#define STRAGGLER_MIN_US 1000u     /* less is noise, whatever the factor */
#define STRAGGLER_EVERY_US 1000000 /* a median holds for so long */

enum straggler_part {
    STRAGGLER_DATA,    /* it waits for data */
    STRAGGLER_COMPUTE, /* forward and backward */
    STRAGGLER_UPDATE,  /* optimizer */
    STRAGGLER_OTHER,   /* the rest of a step */
    STRAGGLER_PARTS
};

/* Of the timed steps of a generation. */
struct straggler_totals {
    uint64_t steps, step_us, data_us, compute_us, update_us, wait_us;
};

/* Of one step. own_us is the sum of its parts, if the rank tells them. */
struct straggler_times {
    uint32_t own_us;
    uint32_t part_us[STRAGGLER_PARTS];
};

/* One rank; zeroed before its generation. */
struct straggler_rank {
    struct straggler_totals from; /* where the block at hand begins */
    struct straggler_times times; /* of the newest whole block */
    bool has_times, is_slow;
    uint8_t blocks; /* in a row, and the steps of them: slow ones, or well ones of a slow rank; */
    uint32_t steps; /* both stop counting at the rule's numbers */
    uint64_t slow_step;  /* the first of the blocks that made it slow began there, */
    uint64_t slow_at_us; /* and then; kept while it is slow or may become it */
};

/* All ranks of a generation; zeroed before it. */
struct straggler_job {
    uint64_t next_us; /* the medians are computed again, not before then */
    uint32_t slow_count;
    struct straggler_times median;
};

enum straggler_news { STRAGGLER_NOTHING, STRAGGLER_BEGINS, STRAGGLER_ENDS };

struct straggler {
    uint32_t rank;
    enum straggler_part part; /* that lies most over its median */
    uint32_t own_us, median_us;
    uint32_t part_us, part_median_us;
    uint64_t since_step; /* of the timed steps of the generation */
    uint64_t since_us;   /* on the clock of the events */
};

/* `rank` of `ranks`, [world], has told its totals. */
enum straggler_news straggler_step(struct straggler_job *job, struct straggler_rank *ranks,
                                   uint32_t world, uint32_t rank,
                                   const struct straggler_totals *totals, uint64_t now_us);
/* What is known of a rank that is slow. */
void straggler_describe(const struct straggler_job *job, const struct straggler_rank *ranks,
                        uint32_t rank, struct straggler *out);
/* The slowest of the slow ranks. False: no rank is slow. */
bool straggler_worst(const struct straggler_job *job, const struct straggler_rank *ranks,
                     uint32_t world, struct straggler *out);
/* "data", "forward and backward", "optimizer", "the rest of the step" */
const char *straggler_part_name(enum straggler_part part);

#endif
