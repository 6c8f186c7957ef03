/* The command line of the one srun of `run --slurm`. Pure. */
#ifndef DDPCTL_SLURM_SRUN_H
#define DDPCTL_SLURM_SRUN_H

#include <stdint.h>

#define SLURM_SRUN_ARGS 16u

/* Writes srun and its options for one task on each of `nodes` into `args`, numbers into `text`.
 * Returns how many arguments there are. The caller adds the command that each task runs. */
uint32_t slurm_srun_args(uint32_t nodes, char text[2][32], const char *args[SLURM_SRUN_ARGS]);

#endif
