/* The end of shims. One that ended in order has recorded its last report and left no process. After
 * any other end, all of /proc is searched for processes with its token, and for orphans, which come
 * to launcherd because it is their subreaper; they are killed, again and again, until none is
 * found. Only then the core gets SHIM_GONE. */
#ifndef LAUNCHERD_NODE_NODE_SWEEP_H
#define LAUNCHERD_NODE_NODE_SWEEP_H

#include "launcherd/node/node_shims.h"
#include "launcherd/process/rundir.h"

/* On SIGCHLD. */
void node_sweep_reap(struct node_shims *shims);
/* The process of `shim` is gone: sweep from now on. */
void node_sweep_begin(struct node_shim *shim);
/* SIGKILL for each descendant of this launcherd that is of none of its shims and helpers: what a process that
 * kept others warm has left. */
void node_sweep_orphans(struct node_shims *shims);
/* SIGKILL for the workers of a shim and all that they started, by what its shim.json says; returns how
 * many were found, a cgroup as one. */
uint32_t node_sweep_kill_described(const struct rundir_shim *process);
/* How many shims are not reported gone yet. */
uint32_t node_sweep_left(const struct node_shims *shims);
/* SIGKILL for one shim. */
void node_sweep_kill(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                     const char *why);
/* Sends `signal` to every living shim; returns node_sweep_left. */
uint32_t node_sweep_signal(struct node_shims *shims, int signal);

#endif
