/* The lease of a shim, as launcherd passes it on. */
#ifndef LAUNCHERD_CORE_SHIM_LEASE_H
#define LAUNCHERD_CORE_SHIM_LEASE_H

#include "launcherd/core/shim.h"

/* Takes a longer lease, if that is what the event brings. To be called before the end of the lease is
 * looked at: a shim that was stopped for long may read only now that it was renewed. */
void shim_lease_take(struct shim *shim, const struct shim_event *event);

#endif
