#include "launcherd/core/shim_lease.h"

void shim_lease_take(struct shim *shim, const struct shim_event *event)
{
    if (event->type == SHIM_EVENT_LAUNCHER_MSG && event->msg->type == MSG_TYPE_LEASE &&
        event->msg->lease.until_us > shim->lease_until_us)
        shim->lease_until_us = event->msg->lease.until_us;
}
