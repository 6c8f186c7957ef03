/* Whether a failed generation is followed by another, and when. Pure.
 *
 * The budget counts restarts since the last committed checkpoint, not all restarts of the job: a job
 * that makes progress may fail a hundred times in a month, one that crashes at its start stops soon. The first restart is immediate; then exponential back-off from 1 s to 60 s,
 * with jitter over the upper half. A failure that another try
 * cannot change (the command does not exist) is not tried again. */
#ifndef RENDEZVOUS_CORE_RESTART_H
#define RENDEZVOUS_CORE_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_DELAY_FIRST_US 1000000u
#define RESTART_DELAY_MAX_US 60000000u
/* Restarts without progress are bounded even when --max-restarts is larger. */
#define RESTART_DAY_MAX 20u

struct restart_case {
    uint32_t max_restarts;
    uint32_t restarts_without_progress;
    uint32_t errno_exit; /* 126 or 127: the command could not be run; 0 otherwise */
    bool cannot_start;   /* its start order cannot be made */
};

struct restart_answer {
    bool restart;
    uint64_t delay_us;
    const char *why_not; /* static; NULL when it restarts */
};

/* `random` is advanced (xorshift64*), never 0. */
struct restart_answer restart_decide(const struct restart_case *failed, uint64_t *random);

#endif
