#include "rendezvous/core/restart.h"

#include <stddef.h>

static uint64_t next_random(uint64_t *random)
{
    uint64_t x = *random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *random = x;
    return x * 0x2545F4914F6CDD1Dull;
}

/* The least back-off before that restart. The most is twice this. */
static uint64_t back_off_least_us(uint32_t attempt)
{
    uint64_t delay_us = RESTART_DELAY_FIRST_US;

    if (attempt == 0)
        return 0;
    for (uint32_t i = 1; i < attempt && delay_us < RESTART_DELAY_MAX_US; i++)
        delay_us *= 2;
    return (delay_us > RESTART_DELAY_MAX_US ? RESTART_DELAY_MAX_US : delay_us) / 2;
}

static uint64_t back_off_us(uint32_t attempt, uint64_t *random)
{
    const uint64_t least_us = back_off_least_us(attempt);

    return least_us == 0 ? 0 : least_us + next_random(random) % least_us;
}

uint64_t restart_back_off_most_us(uint32_t attempt)
{
    return 2 * back_off_least_us(attempt);
}

/* How much longer than its back-off each of the restarts that are left has to wait, so that the last
 * one is RESTART_SPREAD_US after the first of the equal failures. */
static uint64_t stretch_us(const struct restart_case *failed)
{
    const uint32_t done = failed->restarts_without_progress;
    const uint32_t end =
        failed->max_restarts < RESTART_DAY_MAX ? failed->max_restarts : RESTART_DAY_MAX;
    uint64_t last_us = failed->alike_us;

    for (uint32_t i = done; i < end; i++)
        last_us += back_off_least_us(i);
    return last_us >= RESTART_SPREAD_US ? 0 : (RESTART_SPREAD_US - last_us) / (end - done);
}

/* A failure of the node or of the network, not of the program. */
static struct restart_answer decide_for_machine(const struct restart_case *failed, uint64_t *random)
{
    uint32_t attempt = failed->node_failures + (failed->class == FAILURE_NODE);

    if (failed->no_node_left)
        return (struct restart_answer){.why_not = "no other node can run it"};
    if (failed->node_failures >= RESTART_NODE_FAILURES_MAX)
        return (struct restart_answer){
            .why_not = "20 restarts after failures of nodes brought no new checkpoint"};
    return (struct restart_answer){
        .restart = true,
        .delay_us = failed->goes_elsewhere ? 0 : back_off_us(attempt, random),
    };
}

struct restart_answer restart_decide(const struct restart_case *failed, uint64_t *random)
{
    uint32_t done = failed->restarts_without_progress;

    if (failed->errno_exit != 0 && !failed->goes_elsewhere)
        return (struct restart_answer){.why_not = "the nodes cannot run it"};
    if (failed->no_program && !failed->goes_elsewhere)
        return (struct restart_answer){.why_not = "no file of that name exists"};
    if (failed->cannot_start)
        return (struct restart_answer){.why_not = "it would fail in the same way"};
    if (failed->max_restarts == 0)
        return (struct restart_answer){.why_not = "restarts are off (--max-restarts 0)"};
    if (failed->class != FAILURE_PROGRAM && failed->class != FAILURE_HANG)
        return decide_for_machine(failed, random);
    if (failed->alike != NULL && !failed->is_given)
        return (struct restart_answer){.why_not = failed->alike};
    if (done >= failed->max_restarts)
        return (struct restart_answer){.why_not =
                                           "--max-restarts is used up without a new checkpoint"};
    if (done >= RESTART_DAY_MAX)
        return (struct restart_answer){.why_not = "20 restarts brought no new checkpoint"};
    return (struct restart_answer){
        .restart = true,
        .delay_us = back_off_us(done, random) + (failed->alike != NULL ? stretch_us(failed) : 0),
    };
}

bool restart_believes(uint64_t known_step, uint64_t said_step, uint64_t ran_us)
{
    uint64_t seconds = ran_us / 1000000 + 1;

    return said_step <= known_step ||
           (said_step - known_step - 1) / RESTART_STEPS_PER_S_MAX < seconds;
}
