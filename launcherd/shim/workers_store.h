/* The master port of a generation, and the c10d store that listens on it, among the processes of a shim. Part of
 * shim_workers. */
#ifndef LAUNCHERD_SHIM_WORKERS_STORE_H
#define LAUNCHERD_SHIM_WORKERS_STORE_H

#include <signal.h>

#include "launcherd/shim/shim_workers.h"

/* RESERVE_PORT of core/shim.h: posts PORT. The port listens where there is to be a store, so that no client is refused. */
void workers_store_reserve_port(struct shim_workers *workers);
/* Starts the store; posts STORE_STARTED. `log_fd`: the stderr of rank 0, because its user has to know what the store
 * refuses. */
enum status workers_store_spawn(struct shim_workers *workers, int log_fd, struct err *err);
void workers_store_end(struct shim_workers *workers);
/* Its process was reaped: gives STORE_EXITED to the core. `oom`: NULL, or that the kernel killed for want of memory. */
void workers_store_exited(struct shim_workers *workers, const siginfo_t *info, const char *oom);

#endif
