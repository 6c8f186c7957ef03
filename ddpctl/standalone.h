/* `run --standalone`: a private rendezvous and launcherds as children, the job in the foreground,
 * nothing left behind.
 *
 * Layout of the directory (a fresh one under $TMPDIR, mode 0700, removed at the end; or
 * --state-dir, kept): rendezvous.sock, rendezvous/, rendezvous.log    the server: its socket,
 * state, messages node0/, node0.log, node1/ ...                   each node's daemon: state, logs
 * of its ranks, messages Meanwhile `ddpctl --server unix:DIR/rendezvous.sock status @last` works.
 */
#ifndef DDPCTL_STANDALONE_H
#define DDPCTL_STANDALONE_H

#include <stdint.h>

#include "ddpctl/attach.h"

/* CPU cores that we may use, NVIDIA GPUs that the driver shows. */
void standalone_machine(uint32_t *cores, uint32_t *gpus);

/* Runs `options` (server is filled in) against daemons of its own; returns the exit code. */
int standalone_run(struct ctl *ctl, const struct attach_options *options);

#endif
