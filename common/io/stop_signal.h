/* The signal that ends our processes. In a step of Slurm (`ddpctl run --slurm`) it is not SIGTERM:
 * there SIGTERM, SIGUSR1 and SIGUSR2 reach every process at once and are meant for the ranks.
 * Daemons, shims and stores must live on, so that the ranks get their grace. */
#ifndef COMMON_IO_STOP_SIGNAL_H
#define COMMON_IO_STOP_SIGNAL_H

#include <stdbool.h>

/* Environment variable: set in a step of Slurm, for a process and its children. */
#define STOP_SIGNAL_VARIABLE "DDP_SLURM_STEP"

bool stop_signal_is_in_step(void);
/* SIGTERM, or SIGINT in a step of Slurm. */
int stop_signal(void);
/* In a step of Slurm: makes SIGTERM, SIGUSR1 and SIGUSR2 do nothing from now on. They are caught,
 * not ignored, so that programs started later have the default action again. */
void stop_signal_shield(void);

#endif
