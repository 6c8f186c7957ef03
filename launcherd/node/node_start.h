/* The start of shims: LAUNCHER_SPAWN_SHIM, LAUNCHER_SPAWN_AGAIN. A thread makes the folders and files, and starts
 * the process (shim_files.h), or a warm one takes the order. If it is not done in FILE_WORK_LATE_MS, this start has
 * failed: a disk does not answer, or the new process was stopped before it ran launcherd's program. Its reason has
 * the name; everything else goes on. A process that is there by then is killed. Its slots stay taken until it was
 * reaped; if it does not die, that is as with any shim (LAUNCHER_UNKILLABLE_US). */
#ifndef LAUNCHERD_NODE_NODE_START_H
#define LAUNCHERD_NODE_NODE_START_H

#include "launcherd/node/node_shims.h"

void node_start_shim(struct node_shims *shims, const struct msg *start);
/* Starts it again, from the order in its run directory. */
void node_start_again(struct node_shims *shims, uint64_t job_id, uint32_t generation);
/* For LAUNCHER_KILL_SHIM: if its process does not run its program yet, it never does; its end follows with the
 * reason `why`. */
void node_start_cancel(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                       const char *why);
/* Whether one is being started. */
bool node_start_any(const struct node_shims *shims);
/* launcherd ends: none is started any more. */
void node_start_cancel_all(struct node_shims *shims);
/* Call when children were reaped: ends the shims whose start was given up and whose process is gone. */
void node_start_check(struct node_shims *shims);

#endif
