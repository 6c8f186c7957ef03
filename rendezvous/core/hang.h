/* When a generation hangs, and for which rank its others wait. Pure.
 *
 *   what its ranks tell                        a hang is no progress for
 *   steps, again and again (again_us)          max(30 s, 5 x p99 of its steps)
 *   steps alone                                the same while all ranks idle; 10 min while one works, as it
 *                                              may validate
 *   a phase without steps, or no step yet      10 min
 *   nothing                                    --hang-timeout while all ranks idle; without it never
 *   nothing more, though it promised to        max(30 s, 5 x the promised time): its process is stopped
 *
 * --hang-timeout replaces the first two limits, and asks for no idleness of ranks that tell steps. Idle
 * means CPU and GPU of all ranks, as their nodes say when they are asked, over three quarters of the limit.
 *
 * What could not be heard counts for nothing: time in which the server did not run, or a node of the job was
 * silent, away or back a moment ago, begins the time anew (hang_begin_anew). */
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
#define HANG_GAPS 64u /* steps of 1 s to 18 h, by quarters of powers of two */

struct hang_limits {
    uint64_t least_us, first_us;
    uint64_t timeout_us; /* --hang-timeout; 0: none given; TIME_US_MAX: never */
};

/* What one rank has told; zeroed before its generation. */
struct hang_rank {
    uint64_t step, collectives;
    uint64_t heard_us; /* its newest message; 0: none yet */
    uint64_t moved_us; /* its newest step, or change of phase */
    uint64_t again_us;
    uint8_t phase;    /* enum progress_phase */
    uint8_t advances; /* times that its step grew; counted to 2 */
    bool in_collective;
    char doing[DOING_BYTES_MAX];
};

enum hang_stage { HANG_WATCHED, HANG_ASKED_IDLE, HANG_ASKED_STACKS };

/* Zeroed before a generation. */
struct hang_job {
    enum hang_stage stage; /* of asking the nodes */
    bool has_told, has_step;
    uint64_t floor_us;      /* nothing before counts */
    uint64_t moved_us;      /* the newest step or phase of any rank */
    uint64_t stepped_us;    /* the newest step; 0: none since the floor, or another phase came */
    uint64_t step;          /* the highest */
    uint64_t stride;        /* from the last that was told to that one: so exact is it */
    uint64_t idle_since_us; /* all its nodes have said idle since; 0: they have not */
    uint64_t due_us;        /* to be judged, or asked for no longer, then */
    uint16_t gaps[HANG_GAPS];
    uint32_t gap_count;
};

enum hang_why {
    HANG_NOT,
    HANG_STEPS,  /* no step */
    HANG_FIRST,  /* not even the first */
    HANG_PHASE,  /* a validation or checkpoint that does not end */
    HANG_SILENT, /* one rank tells nothing, though it promised to */
    HANG_IDLE,   /* it tells nothing at all, and idles */
};

struct hang_doubt {
    enum hang_why why; /* HANG_NOT: look again at next_us */
    bool wants_idle;   /* its nodes have to be asked whether it idles, */
    bool is_over;      /* and now it has lasted long enough */
    int32_t rank;      /* the silent one, or the one that moved longest ago; -1: all of them */
    uint64_t since_us; /* no progress since */
    uint64_t limit_us; /* the one that is over, or will be */
    uint64_t next_us;
};

/* Tells of a rank. True: it has moved. */
bool hang_told(struct hang_job *job, struct hang_rank *rank, const struct msg_progress *progress,
               uint64_t now_us);
void hang_begin_anew(struct hang_job *job, uint64_t now_us);
/* The time that 99 of 100 steps take at most, as far as 1 s and more are told apart; 0: less. */
uint64_t hang_p99_us(const struct hang_job *job);
/* `states`: [world], as reported. All ranks of the generation have been started. */
struct hang_doubt hang_judge(const struct hang_job *job, const struct hang_rank *ranks,
                             const struct rdzv_rank *states, uint32_t world,
                             const struct hang_limits *limits, uint64_t now_us);
/* The nodes have said whether all ranks idle. */
void hang_heard_idle(struct hang_job *job, const struct hang_doubt *doubt, bool idles,
                     uint64_t now_us);

/* -- for whom the others wait ------------------------------------------------------------------ */

enum hang_reason {
    HANG_NOBODY,    /* all stand in the same place, as far as is known */
    HANG_STOPPED,   /* its process is stopped */
    HANG_QUIET,     /* it tells nothing any more */
    HANG_BEHIND,    /* it has begun fewer collectives */
    HANG_STEP,      /* it is in an earlier step */
    HANG_ELSEWHERE, /* the others are in a collective, it is not */
};

struct hang_blame {
    enum hang_reason reason;
    int32_t rank;         /* the lowest of them; -1 */
    uint32_t count;       /* ranks of which that is true */
    uint64_t its, others; /* BEHIND, STEP: its number, and that of the foremost */
    const char *where;    /* it is there; of `looks`, of `ranks` or "" */
};

/* `looks`: of some of the ranks, in any order, as their nodes saw them. */
void hang_blame(const struct hang_rank *ranks, uint32_t world, const struct part_rank_look *looks,
                uint32_t look_count, uint64_t now_us, struct hang_blame *out);
/* "the others wait for rank 1 on node1, which is stopped" */
void hang_describe(const struct hang_blame *blame, const char *node, uint32_t world,
                   char text[REASON_BYTES_MAX]);

#endif
