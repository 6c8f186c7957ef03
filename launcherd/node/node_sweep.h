/* The end of shims. A shim that ended in order has recorded its last report and left no process.
 * After any other end, all of /proc is searched for processes with the shim's token and for
 * orphans, whose parent is launcherd because it is their subreaper. They are killed until none is
 * found. Only then the core gets SHIM_GONE. */
#ifndef LAUNCHERD_NODE_NODE_SWEEP_H
#define LAUNCHERD_NODE_NODE_SWEEP_H

#include <signal.h>

#include "launcherd/node/node_shims.h"

/* Called on SIGCHLD. */
void node_sweep_reap(struct node_shims *shims);
/* The process of `shim` is gone: starts to sweep. */
void node_sweep_begin(struct node_shim *shim);
/* Notes how its process ended. */
void node_sweep_describe(struct node_shim *shim, const siginfo_t *info);
/* Kills each descendant of this launcherd that belongs to none of its shims and helpers: what a
 * warm process has left. */
void node_sweep_orphans(struct node_shims *shims);
/* How many shims have not been reported gone yet. */
uint32_t node_sweep_left(const struct node_shims *shims);
/* Sends SIGKILL to one shim. */
void node_sweep_kill(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                     const char *why);
/* Sends `signal` to every living shim; returns node_sweep_left. */
uint32_t node_sweep_signal(struct node_shims *shims, int signal);

#endif
