#include "launcherd/core/launcher_table.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "common/utf8.h"

struct launcher_shim *launcher_table_find(struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].job_id == job_id && launcher->shims[i].generation == generation)
            return &launcher->shims[i];
    return NULL;
}

struct launcher_shim *launcher_table_add(struct launcher *launcher,
                                         struct launcher_actions *actions)
{
    for (uint32_t i = 0; launcher->shim_count == SHIMS_PER_NODE_MAX && i < SHIMS_PER_NODE_MAX; i++)
        if (launcher->shims[i].dead && !launcher_is_ours(launcher, &launcher->shims[i]))
            launcher_table_remove(launcher, &launcher->shims[i], actions);
    if (launcher->shim_count == SHIMS_PER_NODE_MAX)
        return NULL;
    struct launcher_shim *shim = &launcher->shims[launcher->shim_count++];
    memset(shim, 0, sizeof *shim);
    return shim;
}

void launcher_table_remove(struct launcher *launcher, struct launcher_shim *shim,
                           struct launcher_actions *actions)
{
    assert(shim >= launcher->shims && shim < launcher->shims + launcher->shim_count);
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_REMOVE,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation});
    struct launcher_shim *last = &launcher->shims[--launcher->shim_count];
    if (shim != last)
        *shim = *last;
}

bool launcher_is_ours(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return launcher->cluster[0] == '\0' || strcmp(launcher->cluster, shim->cluster) == 0;
}

bool launcher_shim_is_active(const struct launcher_shim *shim)
{
    return !shim->dead && shim->phase != SHIM_ENDED;
}

void launcher_shim_set_dead(struct launcher_shim *shim, uint64_t now_us)
{
    assert(!shim->dead);
    shim->dead = true;
    shim->connected = false;
    shim->connect_at_us = 0;
    shim->phase = SHIM_ENDED;
    shim->revision = LAUNCHER_REVISION_LAST;
    shim->acked = 0;
    shim->gone_at_us = now_us;
}

void launcher_shim_set_cause(struct launcher_shim *shim, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    utf8_printable_format(shim->cause, sizeof shim->cause, format, args);
    va_end(args);
}

uint64_t launcher_table_slots(const struct launcher *launcher)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher_shim_is_active(&launcher->shims[i]))
            mask |= launcher->shims[i].slot_mask;
    return mask;
}
