/* Tells workers of a stop, so that they know how much time they have. */
#ifndef LAUNCHERD_SHIM_WORKER_STOP_H
#define LAUNCHERD_SHIM_WORKER_STOP_H

#include "launcherd/shim/shim_workers.h"

/* Sends worker_stop to every worker whose connection is open. `kill_at_us`: on CLOCK_BOOTTIME;
 * UINT64_MAX: they are already killed, and nothing is sent. */
void worker_stop_tell(struct shim_workers *workers, uint32_t signal, uint64_t kill_at_us);

#endif
