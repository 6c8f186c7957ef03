/* Whether another generation follows a failed one, and when. Pure. --max-restarts counts failures
 * of the program since the last committed checkpoint, not all restarts of the job: a job that makes
 * progress may fail a hundred times in a month, and one that crashes at its start stops soon. The
 * first restart is immediate. Then comes exponential back-off from 1 s to 60 s, with jitter over
 * the upper half. Failures of nodes and of the network (failure.h) have a limit of their own. After
 * a failure of a node the first restart waits as well, since the node may recover. A failure that a
 * restart cannot cure (the command does not exist) is not tried again.
 *
 * A failure that came several times in a row (failure_early, failure_same) ends the job, unless the
 * user has asked for a number of restarts: that many are made. They are spread over RESTART_SPREAD_US
 * at least, since the same failure right after the last one says nothing new. */
#ifndef RENDEZVOUS_CORE_RESTART_H
#define RENDEZVOUS_CORE_RESTART_H

#include "rendezvous/core/job.h"

#define RESTART_DELAY_FIRST_US 1000000u
#define RESTART_DELAY_MAX_US 60000000u
/* Restarts without progress are bounded even when --max-restarts is larger. */
#define RESTART_DAY_MAX 20u
/* The job fails after this many restarts without progress that were for failures of nodes or of the
 * network. */
#define RESTART_NODE_FAILURES_MAX 20u
/* From the first of the failures in a row that are the same to the last restart. */
#define RESTART_SPREAD_US 60000000u
/* Restarts after failures of nodes with a back-off, until the only node that can run a job is excluded:
 * they take a minute at least. */
#define RESTART_ALONE 7u
/* The same where all nodes are on one machine: a quarter of a minute at least. */
#define RESTART_ONE_MACHINE 5u
/* Faster than any program takes steps. */
#define RESTART_STEPS_PER_S_MAX 10000u

struct restart_case {
    enum failure_class class;
    uint32_t max_restarts;
    uint32_t restarts_without_progress;
    uint32_t node_failures; /* restarts without progress for failures of nodes or of the network */
    bool no_node_left;      /* it has never run, and the nodes that could run it are excluded */
    uint32_t errno_exit;    /* 126 or 127: the command could not be run; 0 otherwise */
    bool no_program;        /* an interpreter did not find the program */
    bool goes_elsewhere; /* the command cannot be run on one node: another node is asked at once */
    bool cannot_start;   /* its start order cannot be made */
    const char *alike;   /* the failure came several times in a row: as text; NULL: it did not */
    uint64_t alike_us;   /* since the first of these failures */
    bool is_given;       /* the user has asked for max_restarts */
};

struct restart_answer {
    bool restart;
    uint64_t delay_us;
    const char *why_not; /* static, or `alike`; NULL when it restarts */
};

/* `random`: the state of xorshift64*, never 0; it is advanced. */
struct restart_answer restart_decide(const struct restart_case *failed, uint64_t *random);

/* The longest back-off before that restart. */
uint64_t restart_back_off_most_us(uint32_t attempt);

/* A new checkpoint renews the budget, so a worker's claim is limited by what the elapsed time
 * allows: at most RESTART_STEPS_PER_S_MAX since the generation began to run (and one second more),
 * counted from the newest known checkpoint. Workers repeat the claim, so a true one is accepted a
 * little later. */
bool restart_believes(uint64_t known_step, uint64_t said_step, uint64_t ran_us);

#endif
