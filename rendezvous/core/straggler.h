/* Which rank of a job is slow, by how much, in which part of a step, and since when. Pure.
 *
 * In data-parallel training all ranks take equally long for a step, because the fast ones wait for the slow
 * one in a collective. So what counts is a rank's own time: its step less the time that it waited for others.
 * The rule: a rank becomes a straggler when its own time per step has been over 1.2 times the median of all
 * ranks for 50 steps in a row. It stops being one when its own time has been under 1.1 times the median for
 * as many steps. If half of the ranks are slow, the lower median is used, that of the fast half.
 *
 * Ranks report totals (msg_progress), so a lost message does no harm. What a rank reports over at least
 * STRAGGLER_BLOCK_STEPS steps is a block. At least three blocks must agree, so that one long pause makes no
 * straggler, however many steps its block has. */
#ifndef RENDEZVOUS_CORE_STRAGGLER_H
#define RENDEZVOUS_CORE_STRAGGLER_H

#include <stdbool.h>
#include <stdint.h>

#define STRAGGLER_STEPS 50u
#define STRAGGLER_BLOCK_STEPS 10u
#define STRAGGLER_BLOCKS 3u
#define STRAGGLER_SLOW_PERCENT 120u /* of the median */
#define STRAGGLER_WELL_PERCENT 110u
#define STRAGGLER_MIN_US 1000u     /* smaller differences are noise, whatever the factor */
#define STRAGGLER_EVERY_US 1000000 /* how long a computed median is used */

enum straggler_part {
    STRAGGLER_DATA,    /* it waits for data */
    STRAGGLER_COMPUTE, /* forward and backward */
    STRAGGLER_UPDATE,  /* optimizer */
    STRAGGLER_OTHER,   /* the rest of a step */
    STRAGGLER_PARTS
};

/* Totals over the timed steps of a generation. */
struct straggler_totals {
    uint64_t steps, step_us, data_us, compute_us, update_us, wait_us;
};

/* Times of one step. own_us is the sum of its parts if the rank reports them. */
struct straggler_times {
    uint32_t own_us;
    uint32_t part_us[STRAGGLER_PARTS];
};

/* One rank; zeroed before its generation. */
struct straggler_rank {
    struct straggler_totals from; /* at the start of the current block */
    struct straggler_times times; /* the newest complete block */
    bool has_times, is_slow;
    uint8_t blocks; /* in a row that argue for a change: slow ones, or fast ones of a slow rank */
    uint32_t steps; /* of these blocks; both are counted up to the numbers of the rule */
    uint64_t slow_step;  /* the first step of the blocks that made it slow, */
    uint64_t slow_at_us; /* and its time; kept while it is slow or may become so */
};

/* All ranks of a generation; zeroed before it. */
struct straggler_job {
    uint64_t next_us; /* the medians are not computed again before this */
    uint32_t slow_count;
    struct straggler_times median;
};

enum straggler_news { STRAGGLER_NOTHING, STRAGGLER_BEGINS, STRAGGLER_ENDS };

struct straggler {
    uint32_t rank;
    enum straggler_part part; /* the part of a step that exceeds its median most */
    uint32_t own_us, median_us;
    uint32_t part_us, part_median_us;
    uint64_t since_step; /* among the timed steps of the generation */
    uint64_t since_us;   /* on the clock of the events */
};

/* `rank` has reported its totals. `ranks`: [world]. */
enum straggler_news straggler_step(struct straggler_job *job, struct straggler_rank *ranks,
                                   uint32_t world, uint32_t rank,
                                   const struct straggler_totals *totals, uint64_t now_us);
/* Describes a rank that is slow. */
void straggler_describe(const struct straggler_job *job, const struct straggler_rank *ranks,
                        uint32_t rank, struct straggler *out);
/* The slowest of the slow ranks. False: no rank is slow. */
bool straggler_worst(const struct straggler_job *job, const struct straggler_rank *ranks,
                     uint32_t world, struct straggler *out);
/* "data", "forward and backward", "optimizer", "the rest of the step" */
const char *straggler_part_name(enum straggler_part part);

#endif
