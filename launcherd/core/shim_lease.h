/* The lease of a shim, as launcherd passes it on. */
#ifndef LAUNCHERD_CORE_SHIM_LEASE_H
#define LAUNCHERD_CORE_SHIM_LEASE_H

#include "launcherd/core/shim.h"

/* Takes a longer lease, if the event brings one. Call this before checking whether the lease has
 * ended: a shim that was stopped for a long time may only now read that it was renewed. */
void shim_lease_take(struct shim *shim, const struct shim_event *event);
/* Ends the workers if the lease is over. If this step comes late, the process or the machine stood still, and renewals may
 * wait in the connection to launcherd: there is a short time to read them first, once for each lease. */
void shim_lease_check(struct shim *shim, const struct shim_event *event,
                      struct shim_actions *actions);
/* When to check next. */
uint64_t shim_lease_timer_us(const struct shim *shim);

#endif
