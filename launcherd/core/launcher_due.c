#include "launcherd/core/launcher_due.h"

#include "launcherd/core/launcher_silent.h"
#include "launcherd/core/launcher_table.h"

bool launcher_due_is_watched(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return !shim->dead && !shim->unseen && shim->phase < SHIM_RUNNING && shim->ask_at_us != 0 &&
           (!shim->adopted || shim->is_met) && launcher_is_ours(launcher, shim);
}

bool launcher_due_is_asked(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return launcher_due_is_watched(launcher, shim) ||
           (launcher_silent_minds(launcher, shim) && !shim->is_silent);
}

uint32_t launcher_due_asks_max(const struct launcher_shim *shim)
{
    return launcher_silent_is_to_stop(shim)             ? LAUNCHER_ASKS_STOP_MAX
           : shim->is_held                              ? LAUNCHER_ASKS_HELD_MAX
           : shim->got_go && shim->phase < SHIM_RUNNING ? LAUNCHER_ASKS_GO_MAX
                                                        : LAUNCHER_ASKS_MAX;
}

/* The earliest limit so far. */
struct due {
    uint64_t at_us;
    const char *why;
};

static void at(struct due *due, uint64_t at_us, const char *why)
{
    if (at_us < due->at_us)
        *due = (struct due){at_us, why};
}

/* A shim that answers to nothing: nobody waits for the grace if none of its ranks is left. */
static void check_stop(const struct launcher *launcher, const struct launcher_shim *shim,
                       bool may_run, struct due *due)
{
    if (shim->end_by_us != 0 && (may_run || shim->forgotten))
        at(due, shim->end_by_us, "it has not carried out a stop in time");
    if (!may_run && shim->is_silent && launcher_silent_owes_end(launcher, shim))
        at(due, 0, "it has ended, and does not answer");
    if (may_run && shim->is_told && shim->stop_by_us != 0)
        at(due, shim->ranks_left == 0 ? 0 : shim->stop_by_us,
           "it does not answer, and the job is to stop");
}

/* The end of the lease of this shim, as far as it is known here; 0: it is not. */
static uint64_t lease_us(const struct launcher *launcher, const struct launcher_shim *shim)
{
    const uint64_t own_us =
        launcher_is_ours(launcher, shim) ? launcher->lease_until_us : shim->foreign_until_us;

    return own_us > shim->lease_until_us ? own_us : shim->lease_until_us;
}

/* The server counts on these limits (LEASE_MARGIN_US). A shim that has said that it ends its ranks gets the time for
 * that. Of one that has a lease which nobody here knows, because launcherd was started again, only its answers say that
 * it minds the lease itself. */
static void check_lease(const struct launcher *launcher, const struct launcher_shim *shim,
                        struct due *due)
{
    const uint64_t until_us = lease_us(launcher, shim);

    if (until_us != 0)
        at(due, until_us + (shim->ends_lease ? LAUNCHER_LEASE_SLACK_US : LEASE_LAUNCHER_US),
           "it has not ended with its lease");
    else if (shim->adopted && shim->is_silent)
        at(due, 0, "it does not answer, and nobody knows when its lease ends");
    else if (shim->adopted && !shim->is_met)
        at(due, shim->heard_at_us + LAUNCHER_UNKNOWN_US,
           "it has not said hello, and nobody knows when its lease ends");
}

static void check_start(const struct launcher *launcher, const struct launcher_shim *shim,
                        struct due *due)
{
    if (shim->phase == SHIM_PREPARING && shim->started_at_us != 0)
        at(due, shim->started_at_us + LAUNCHER_PREPARE_US, "it has not got ready in 10 minutes");
    if (shim->phase == SHIM_PREPARING && shim->take_by_us != 0)
        at(due, shim->take_by_us, "it was warm, and has not taken the start order in 5 s");
    if (launcher_due_is_watched(launcher, shim) && shim->asks == launcher_due_asks_max(shim))
        at(due, shim->ask_at_us,
           shim->is_held  ? "its folder has not come further for 80 s"
           : shim->got_go ? "it has said nothing for 60 s while it started the ranks"
                          : "it has said nothing for 30 s while it prepared");
}

uint64_t launcher_due_us(const struct launcher *launcher, const struct launcher_shim *shim,
                         const char **why)
{
    const bool may_run = shim->phase != SHIM_ENDED;
    struct due due = {UINT64_MAX, ""};

    *why = "";
    if (shim->dead || shim->unseen)
        return UINT64_MAX; /* an unseen one cannot be killed; the server waits for its lease */
    if (shim->killed_at_us != 0)
        return shim->killed_at_us + LAUNCHER_UNKILLABLE_US;
    check_stop(launcher, shim, may_run, &due);
    if (may_run)
        check_lease(launcher, shim, &due);
    check_start(launcher, shim, &due);
    *why = due.why;
    return due.at_us;
}
