/* Whether a failed generation is followed by another, and when. Pure.
 *
 * --max-restarts counts failures of the program since the last committed checkpoint, not all
 * restarts of the job: a job that makes progress may fail a hundred times in a month, one that
 * crashes at its start stops soon. The first restart is immediate; then exponential back-off from
 * 1 s to 60 s, with jitter over the upper half. Failures of nodes and of the network (failure.h) have
 * a limit of their own, and after one of a node the first restart waits, too: it may recover. A
 * failure that another try cannot change (the command does not exist) is not tried again. */
#ifndef RENDEZVOUS_CORE_RESTART_H
#define RENDEZVOUS_CORE_RESTART_H

#include "rendezvous/core/job.h"

#define RESTART_DELAY_FIRST_US 1000000u
#define RESTART_DELAY_MAX_US 60000000u
/* Restarts without progress are bounded even when --max-restarts is larger. */
#define RESTART_DAY_MAX 20u
/* After so many restarts without progress for failures of nodes or of the network it ends. */
#define RESTART_NODE_FAILURES_MAX 20u
/* More than any program does. */
#define RESTART_STEPS_PER_S_MAX 10000u

struct restart_case {
    enum failure_class class;
    uint32_t max_restarts;
    uint32_t restarts_without_progress;
    uint32_t node_failures; /* restarts without progress for failures of another class */
    bool no_node_left;      /* it has never run, and the nodes that could run it are excluded */
    uint32_t errno_exit;    /* 126 or 127: the command could not be run; 0 otherwise */
    bool cannot_start;      /* its start order cannot be made */
    const char *early; /* the same failure came twice right after the start: says so; else NULL */
};

struct restart_answer {
    bool restart;
    uint64_t delay_us;
    const char *why_not; /* static, or `early`; NULL when it restarts */
};

/* `random` is advanced (xorshift64*), never 0. */
struct restart_answer restart_decide(const struct restart_case *failed, uint64_t *random);

/* A new checkpoint renews the budget, so what a worker says about one is believed only as far as time
 * allows: from the newest that is known, with RESTART_STEPS_PER_S_MAX since the generation began to
 * run (and a second more). A worker repeats it, so a true one is believed a little later. */
bool restart_believes(uint64_t known_step, uint64_t said_step, uint64_t ran_us);

#endif
