/* The master port of a generation, and the c10d store that listens on it. Part of shim_workers. */
#ifndef LAUNCHERD_SHIM_WORKERS_STORE_H
#define LAUNCHERD_SHIM_WORKERS_STORE_H

#include <signal.h>

#include "launcherd/shim/shim_workers.h"

/* Action RESERVE_PORT of core/shim.h: posts PORT. If this shim runs a store, the port listens at
 * once, so that no client is refused. */
void workers_store_reserve_port(struct shim_workers *workers);
/* Starts the store, and posts STORE_STARTED. `log_fd`: the stderr of rank 0, because the job's user
 * must see what the store refuses. */
enum status workers_store_spawn(struct shim_workers *workers, int log_fd, struct err *err);
/* On another node than the first: gives STORE_UNREACHED if the store does not answer. */
void workers_store_probe(struct shim_workers *workers);
void workers_store_end(struct shim_workers *workers);
/* Call when the store was reaped. Gives STORE_EXITED to the core. `oom`: the text if the kernel has
 * killed because memory was short; else NULL. */
void workers_store_exited(struct shim_workers *workers, const siginfo_t *info, const char *oom);

#endif
