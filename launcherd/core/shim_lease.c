#include "launcherd/core/shim_lease.h"

static void take(struct shim *shim, uint64_t until_us)
{
    if (until_us > shim->lease_until_us)
        shim->lease_until_us = until_us;
}

void shim_lease_take(struct shim *shim, const struct shim_event *event)
{
    take(shim, event->lease_until_us);
    if (event->type == SHIM_EVENT_LAUNCHER_MSG && event->msg->type == MSG_TYPE_LEASE)
        take(shim, event->msg->lease.until_us);
}
