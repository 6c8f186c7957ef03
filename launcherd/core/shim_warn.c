#include "launcherd/core/shim_warn.h"

#include "launcherd/core/shim_stop.h"

static bool is_wanted(const struct shim *shim)
{
    return shim->options.warn_signal != 0 && shim->phase == SHIM_RUNNING &&
           shim->warn_at_us != UINT64_MAX;
}

void shim_warn_check(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    if (!is_wanted(shim))
        return;
    if (shim->warn_at_us == 0)
        shim->warn_at_us = now_us + shim->options.warn_after_us;
    if (now_us < shim->warn_at_us)
        return;
    shim->warn_at_us = UINT64_MAX;
    shim_add(actions, (struct shim_action){.type = SHIM_WARN, .signal = shim->options.warn_signal});
}

uint64_t shim_warn_timer_us(const struct shim *shim)
{
    return is_wanted(shim) ? shim->warn_at_us : UINT64_MAX;
}
