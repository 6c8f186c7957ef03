/* `run --slurm`: inside a Slurm allocation, one srun starts a private rendezvous on the first node
 * and a launcherd on each node (slurm_node.h). The job runs in the foreground as with --standalone.
 *
 *     ddpctl  --(1) srun-->  task on each node:   here
 *             (2) names of all nodes -->  node 0:  a key for each, one for us, the server's addresses
 *             (3) addresses, keys    -->  each:    launcherd joins; node 0 last, by the address that
 *                                                  others have reached
 *             (4) submit, attach by TLS with our key; the end of the job ends the tasks
 *
 * Slurm's signals (time limit, scancel, --signal, requeue) reach the tasks or us, and go to the
 * ranks. */
#ifndef DDPCTL_SLURM_H
#define DDPCTL_SLURM_H

#include "ddpctl/attach.h"
#include "ddpctl/spec.h"

/* Sets the nodes and the ranks of each node in `spec` from the allocation, if they are not given.
 *   STATUS_NOT_FOUND, STATUS_TOO_BIG, STATUS_BAD_INPUT  as slurm_env.h */
enum status slurm_take(struct spec *spec, const struct options *options, struct err *err);
/* Our environment without variables about a single Slurm task. The texts are borrowed; the caller
 * frees the array. NULL: no memory. */
char **slurm_rank_environ(void);
/* Runs `options` (server is set here); returns the exit code. */
int slurm_run(struct ctl *ctl, const struct attach_options *options);

#endif
