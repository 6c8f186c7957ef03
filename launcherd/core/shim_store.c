#include "launcherd/core/shim_store.h"

#include "launcherd/core/shim_stop.h"

#define EXIT_UNREACHED 126

bool shim_store_is_needed(const struct shim *shim, uint64_t now_us)
{
    if (shim->store_end_ordered || shim->store_released || shim->has_failed || shim->forgotten ||
        now_us >= shim->lease_until_us)
        return false;
    return shim->options.node_count > 1 || !shim_workers_are_gone(shim);
}

void shim_store_unreached(struct shim *shim, const struct shim_event *event,
                          struct shim_actions *actions)
{
    if (!shim->go_taken || shim->phase >= SHIM_STOPPING || shim->has_failed)
        return;
    shim_fail(shim, event, FAILURE_PROGRAM, -1, "%s", event->text);
    shim->failed_errno_exit = EXIT_UNREACHED;
    shim_stop_peers(shim, event->now_us, actions);
}

static bool is_alone(const struct shim *shim)
{
    return shim->store_runs && !shim->store_end_ordered && shim->phase == SHIM_STOPPING &&
           shim->tree_empty && shim_workers_are_gone(shim);
}

void shim_store_check(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    if (!is_alone(shim))
        return;
    shim->kill_at_us = UINT64_MAX; /* nothing is left to kill or to look for */
    shim->check_at_us = shim->left_at_us = shim->late_at_us = shim->look_at_us = 0;
    if (shim_store_is_needed(shim, now_us))
        return;
    shim->store_end_ordered = true;
    shim_add(actions, (struct shim_action){.type = SHIM_END_STORE});
}

uint64_t shim_store_timer_us(const struct shim *shim)
{
    return is_alone(shim) ? shim->lease_until_us : UINT64_MAX;
}
