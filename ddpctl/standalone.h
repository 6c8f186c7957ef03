/* `run --standalone`: a private rendezvous and launcherds as children, the job in the foreground.
 * At the end no process and no file is left.
 *
 * The directory is a fresh one under $TMPDIR (mode 0700, removed at the end), or --state-dir
 * (kept):
 *   rendezvous.sock, rendezvous/, rendezvous.log   the server: socket, state, log
 *   node0/, node0.log, node1/, ...                 each launcherd: state and logs of ranks, its log
 * With --log-dir the logs of ranks are there. Each node has GPUs of its own (standalone_gpus.h).
 * During the run `ddpctl --server unix:DIR/rendezvous.sock status @last` works. */
#ifndef DDPCTL_STANDALONE_H
#define DDPCTL_STANDALONE_H

#include <stdint.h>

#include "ddpctl/attach.h"

/* The CPU cores and the NVIDIA GPUs that we may use. The GPUs are counted by launcherd.
 *   STATUS_NOT_FOUND  there is no launcherd
 *   STATUS_BAD_INPUT  CUDA_VISIBLE_DEVICES is not a list of numbers */
enum status standalone_machine(const struct ctl *ctl, uint32_t *cores, uint32_t *gpus,
                               struct err *err);

/* Runs `options` (server is set here) on daemons of its own; returns the exit code. */
int standalone_run(struct ctl *ctl, const struct attach_options *options);

#endif
