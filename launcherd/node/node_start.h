/* The start of shims: LAUNCHER_SPAWN_SHIM, LAUNCHER_SPAWN_AGAIN. A thread makes the folders and files first
 * (shim_files.h); then the loop starts the process, or a warm one takes the order. If a disk does not answer in
 * FILE_WORK_LATE_MS, this start has failed, with the disk's name; everything else goes on. */
#ifndef LAUNCHERD_NODE_NODE_START_H
#define LAUNCHERD_NODE_NODE_START_H

#include "launcherd/node/node_shims.h"

void node_start_shim(struct node_shims *shims, const struct msg *start);
/* Starts it again, from the order in its run directory. */
void node_start_again(struct node_shims *shims, uint64_t job_id, uint32_t generation);
/* For LAUNCHER_KILL_SHIM: if its process has not been started yet, it never is; its end is posted with the reason
 * `why`. */
void node_start_cancel(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                       const char *why);
/* launcherd ends together with its shims: none is started any more. */
void node_start_cancel_all(struct node_shims *shims);

#endif
