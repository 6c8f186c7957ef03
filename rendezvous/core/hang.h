/* When a generation hangs, and for which rank the others wait. Pure.
 *
 *   what its ranks report                      a hang is no progress for
 *   steps, in regular messages (again_us)      max(30 s, 5 x p99 of its steps)
 *   steps only                                 the same while all ranks are idle; 10 min while one is
 *                                              busy, since it may be validating
 *   a phase without steps, or no step yet      10 min
 *   nothing                                    --hang-timeout while all ranks are idle; without that
 *                                              option never
 *   nothing more, though it promised to        max(30 s, 5 x the promised interval): its process is
 *                                              stopped
 *
 * --hang-timeout replaces the first two limits; ranks that report steps need not be idle then. Idle means
 * that CPU and GPU of all ranks have been idle for three quarters of the limit, as their nodes answer when
 * they are asked.
 *
 * Time in which the server could not listen does not count: when the server did not run, or when a node of
 * the job was silent, away or only just back, all limits start again (hang_begin_anew). */
#ifndef RENDEZVOUS_CORE_HANG_H
#define RENDEZVOUS_CORE_HANG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"
#include "rendezvous/core/rdzv.h"

#define HANG_LEAST_US 30000000ull /* the defaults of struct hang_limits */
#define HANG_FIRST_US 600000000ull
#define HANG_STEP_FACTOR 5u
#define HANG_GAPS 64u /* for steps of 1 s to 18 h, four per power of two */

struct hang_limits {
    uint64_t least_us, first_us;
    uint64_t timeout_us; /* --hang-timeout; 0: none given; TIME_US_MAX: never */
};

/* What one rank has reported; zeroed before its generation. */
struct hang_rank {
    uint64_t step, collectives;
    uint64_t heard_us; /* its newest message; 0: none yet */
    uint64_t moved_us; /* its newest step, or change of phase */
    uint64_t again_us;
    uint8_t phase;    /* enum progress_phase */
    uint8_t advances; /* how often its step grew; counted up to 2 */
    bool in_collective;
    char doing[DOING_BYTES_MAX];
};

enum hang_stage { HANG_WATCHED, HANG_ASKED_IDLE, HANG_ASKED_STACKS };

/* The progress of one generation; zeroed before it. */
struct hang_job {
    enum hang_stage stage; /* what its nodes have been asked for */
    bool has_told, has_step;
    uint64_t floor_us;      /* no limit counts from before this */
    uint64_t moved_us;      /* the newest step or phase of any rank */
    uint64_t stepped_us;    /* the newest step; 0: none since the floor, or another phase came */
    uint64_t step;          /* the highest of any rank */
    uint64_t stride;        /* from the step reported before to `step`: its precision */
    uint64_t idle_since_us; /* all its nodes have answered idle since then; 0: not */
    uint64_t due_us;        /* next time to judge, or to give up waiting for answers */
    uint16_t gaps[HANG_GAPS];
    uint32_t gap_count;
};

enum hang_why {
    HANG_NOT,
    HANG_STEPS,  /* no step for too long */
    HANG_FIRST,  /* no first step */
    HANG_PHASE,  /* a validation or checkpoint that does not end */
    HANG_SILENT, /* one rank reports nothing, though it promised to */
    HANG_IDLE,   /* its ranks report nothing at all, and are idle */
};

struct hang_doubt {
    enum hang_why why; /* HANG_NOT: look again at next_us */
    bool wants_idle;   /* ask its nodes whether the ranks are idle */
    bool is_over;      /* the limit is over: it hangs */
    int32_t rank;      /* the silent rank, or the one without progress for longest; -1: all */
    uint64_t since_us; /* when progress was last made */
    uint64_t limit_us; /* the limit that is over, or will be next */
    uint64_t next_us;
};

/* Takes a progress message of one rank. True: the rank has made progress. */
bool hang_told(struct hang_job *job, struct hang_rank *rank, const struct msg_progress *progress,
               uint64_t now_us);
void hang_begin_anew(struct hang_job *job, uint64_t now_us);
/* The time within which 99 of 100 steps end, for steps of 1 s and more; 0: less than that. */
uint64_t hang_p99_us(const struct hang_job *job);
/* Judges whether the generation hangs. All its ranks have been started. `states`: [world], as
 * reported. */
struct hang_doubt hang_judge(const struct hang_job *job, const struct hang_rank *ranks,
                             const struct rdzv_rank *states, uint32_t world,
                             const struct hang_limits *limits, uint64_t now_us);
/* The nodes have answered whether all ranks are idle. */
void hang_heard_idle(struct hang_job *job, const struct hang_doubt *doubt, bool idles,
                     uint64_t now_us);

/* -- which rank the others wait for ---------------------------------------------------------------- */

enum hang_reason {
    HANG_NOBODY,    /* all are in the same place, as far as is known */
    HANG_STOPPED,   /* its process is stopped */
    HANG_QUIET,     /* it no longer reports anything */
    HANG_BEHIND,    /* it has begun fewer collectives */
    HANG_STEP,      /* it is in an earlier step */
    HANG_ELSEWHERE, /* the others are in a collective, it is not */
};

struct hang_blame {
    enum hang_reason reason;
    int32_t rank;         /* the lowest of these ranks; -1: none */
    uint32_t count;       /* how many ranks this is true of */
    uint64_t its, others; /* HANG_BEHIND, HANG_STEP: its number and the highest one */
    const char *where;    /* what it is doing; borrowed from `looks` or `ranks`, or "" */
};

/* Finds the rank that the others wait for. `states`: [world], as reported; a rank that has ended is
 * never named. `looks`: what the nodes saw of some of the ranks, in any order. */
void hang_blame(const struct hang_rank *ranks, const struct rdzv_rank *states, uint32_t world,
                const struct part_rank_look *looks, uint32_t look_count, uint64_t now_us,
                struct hang_blame *out);
/* "the others wait for rank 1 on node1, which is stopped" */
void hang_describe(const struct hang_blame *blame, const char *node, uint32_t world,
                   char text[REASON_BYTES_MAX]);

#endif
