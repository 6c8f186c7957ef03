#include "launcherd/core/shim_take.h"

#include "launcherd/core/shim_stop.h"

/* Whether to wait for its report. A rank that is being stopped is killed anyway. */
static bool is_awaited(const struct shim *shim, const struct shim_rank *rank)
{
    return rank->take_by_us != 0 && rank->state == RANK_RUNNING && shim->phase < SHIM_STOPPING;
}

void shim_take_begin(struct shim_rank *rank, const struct shim_event *event)
{
    rank->is_late = false;
    rank->take_by_us = event->must_take ? event->now_us + SHIM_TAKE_US : 0;
}

void shim_take_done(struct shim_rank *rank)
{
    if (!rank->is_late) /* else it was killed already */
        rank->take_by_us = 0;
}

static void set_late(struct shim *shim, struct shim_rank *rank)
{
    rank->is_late = true;
    shim->warm_late = true;
    shim_change(shim);
}

bool shim_take_exited(struct shim *shim, struct shim_rank *rank, const struct shim_event *event,
                      struct shim_actions *actions)
{
    if (!is_awaited(shim, rank))
        return false;
    set_late(shim, rank);
    rank->take_by_us = 0;
    rank->state = RANK_WAITING;
    rank->pid = 0;
    shim_add(actions, (struct shim_action){.type = SHIM_SPAWN_ONE, .local = event->local});
    return true;
}

void shim_take_check(struct shim *shim, const struct shim_event *event,
                     struct shim_actions *actions)
{
    for (uint32_t i = 0; i < shim->options.local_count; i++) {
        struct shim_rank *rank = &shim->ranks[i];

        if (!is_awaited(shim, rank) || event->now_us < rank->take_by_us)
            continue;
        if (rank->is_late) {
            shim_fail(shim, event, FAILURE_NODE, (int32_t)(shim->options.rank_base + i),
                      "the process %u that waited for rank %u has not taken it, and does not die "
                      "of SIGKILL",
                      rank->pid, shim->options.rank_base + i);
            shim_stop_peers(shim, event->now_us, actions);
            return;
        }
        set_late(shim, rank);
        rank->take_by_us = event->now_us + SHIM_TAKE_US;
        shim_add(actions, (struct shim_action){.type = SHIM_KILL_ONE, .local = i});
    }
}

uint64_t shim_take_timer_us(const struct shim *shim)
{
    uint64_t at_us = UINT64_MAX;

    for (uint32_t i = 0; i < shim->options.local_count; i++)
        if (is_awaited(shim, &shim->ranks[i]) && shim->ranks[i].take_by_us < at_us)
            at_us = shim->ranks[i].take_by_us;
    return at_us;
}
