/* A worker that was warm takes its place: what the shim keeps until it has said so. The ends of its output, stdin and
 * connection stay open here, so that another process can be started with the same ones if it does not. Whether that is
 * done, the core decides (core/shim_take.h). */
#ifndef LAUNCHERD_SHIM_WORKER_TAKE_H
#define LAUNCHERD_SHIM_WORKER_TAKE_H

#include <stdbool.h>

#include "launcherd/shim/worker_ends.h"

/* `fd`: the socket to the worker, which is kept, as are copies of `ends`. False: it cannot be waited for, and `fd` is
 * closed. */
bool worker_take_begin(struct shim_worker *worker, int fd, const struct worker_ends *ends);
/* Gives TAKEN to the core if the worker has said so. To be called before its end is given. */
void worker_take_look(struct shim_worker *worker);
/* The ends for another process: the caller's from then on. False: it did not wait. */
bool worker_take_ends(struct shim_worker *worker, struct worker_ends *ends);
/* Nothing is waited for any more. */
void worker_take_close(struct shim_worker *worker);

#endif
