/* The c10d store of a generation (docs/c10d-store.md), as the shim of node rank 0 sees it. Part of the
 * shim's core.
 *
 * The store is a process beside the workers. It must outlive every rank of the job: rank 0 may exit
 * first, and ranks on other nodes go on to use the store. So a shim whose workers have all exited 0
 * waits, in phase `stopping`, for the server's `stop`, which comes when the other nodes have ended their
 * parts. It does not wait where there is no other node, after a failure, or once the lease is over.
 * KILL_TREE and CHECK_TREE do not concern the store. */
#ifndef LAUNCHERD_CORE_SHIM_STORE_H
#define LAUNCHERD_CORE_SHIM_STORE_H

#include "launcherd/core/shim.h"

/* Whether ranks may still use the store. */
bool shim_store_is_needed(const struct shim *shim, uint64_t now_us);
/* The ranks would wait for it in vain, and no restart helps: 126, as for a command that cannot be run here. */
void shim_store_unreached(struct shim *shim, const struct shim_event *event,
                          struct shim_actions *actions);
/* After each event: ends the store when it is not needed and no other process is left. */
void shim_store_check(struct shim *shim, uint64_t now_us, struct shim_actions *actions);
/* When to look again; UINT64_MAX: no need. */
uint64_t shim_store_timer_us(const struct shim *shim);

#endif
