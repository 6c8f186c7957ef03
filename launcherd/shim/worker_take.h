/* What the shim keeps until a warm worker reports that it has taken its rank: the ends of its
 * output, stdin and connection. If it does not report, another process can be started with the same
 * ends; the core decides that (core/shim_take.h). */
#ifndef LAUNCHERD_SHIM_WORKER_TAKE_H
#define LAUNCHERD_SHIM_WORKER_TAKE_H

#include <stdbool.h>

#include "launcherd/shim/worker_ends.h"

/* Waits for the report on `fd`, the socket to the worker. Takes `fd`, and copies `ends`. False: it
 * cannot wait, and `fd` is closed. */
bool worker_take_begin(struct shim_worker *worker, int fd, const struct worker_ends *ends);
/* Gives TAKEN to the core if the worker has reported. Call before its EXITED is given. */
void worker_take_look(struct shim_worker *worker);
/* Moves the ends to the caller, for another process. False: the worker was not waited for. */
bool worker_take_ends(struct shim_worker *worker, struct worker_ends *ends);
/* Stops waiting. Does nothing if the worker was not waited for. */
void worker_take_close(struct shim_worker *worker);

#endif
