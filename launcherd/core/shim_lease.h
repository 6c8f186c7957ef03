/* The lease of a shim, as launcherd passes it on. */
#ifndef LAUNCHERD_CORE_SHIM_LEASE_H
#define LAUNCHERD_CORE_SHIM_LEASE_H

#include "launcherd/core/shim.h"

/* Takes a longer lease, if the event brings one. Call this before checking whether the lease has
 * ended: a shim that was stopped for a long time may only now read that it was renewed. Renewals that still wait in its
 * socket are on its page, too. */
void shim_lease_take(struct shim *shim, const struct shim_event *event);

#endif
