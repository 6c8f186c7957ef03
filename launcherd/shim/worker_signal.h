/* Signals of a stop to workers and to what they have started or left; process/signal_rule.h says who gets one when. Part of
 * shim_workers. */
#ifndef LAUNCHERD_SHIM_WORKER_SIGNAL_H
#define LAUNCHERD_SHIM_WORKER_SIGNAL_H

#include <stdbool.h>

struct shim_workers;

/* To each running worker, and where it has no handler to what it has started. */
void worker_signal_first(struct shim_workers *workers, int signal);
/* Near the end of the grace, to what has not got it and may still have something to save. */
void worker_signal_late(struct shim_workers *workers, int signal);
/* Call when no worker runs, and again: to what they have left. `is_told`: names it in the logs before, which may take
 * LEFTOVERS_LOOK_MS. */
void worker_signal_left(struct shim_workers *workers, int signal, bool is_told);
/* A warning. Nothing is being stopped. */
void worker_signal_warn(struct shim_workers *workers, int signal);

#endif
