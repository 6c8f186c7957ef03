/* Which of several ranks failed first, and so is the cause of the failure of the others. Pure. */
#ifndef LAUNCHERD_CAUSE_FIRST_H
#define LAUNCHERD_CAUSE_FIRST_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/cause/words.h"

struct cause_rank {
    enum cause_kind kind; /* of what it said */
    bool is_running;
    bool has_failed;   /* it ended, not with exit code 0 */
    uint32_t order;    /* among those that have ended */
    int64_t raised_us; /* when it raised its exception, by its error file; INT64_MAX: not known */
};

/* Whether a rank that says this may have failed because of another one. */
bool cause_is_of_others(enum cause_kind kind);
/* The index of the first: the earliest exception that an error file tells, or else the first to end; but one that failed by
 * itself comes before those that lost a peer, also if it has not ended yet. -1: none has failed. */
int32_t cause_first(const struct cause_rank *ranks, uint32_t count);
/* Whether all that failed may have done so because of a rank that still runs and has said nothing yet. */
bool cause_may_become_clear(const struct cause_rank *ranks, uint32_t count);

#endif
