/* Which signal ends a process of ours. In a step of Slurm (`ddpctl run --slurm`) another one than
 * usual: there SIGTERM, SIGUSR1 and SIGUSR2 come to every process at once, and are meant for the ranks.
 * Daemons, shims and stores must live on, so that the ranks have their grace. */
#ifndef COMMON_IO_STOP_SIGNAL_H
#define COMMON_IO_STOP_SIGNAL_H

#include <stdbool.h>

/* The variable that says so, to a process and those that it starts. */
#define STOP_SIGNAL_VARIABLE "DDP_SLURM_STEP"

bool stop_signal_is_in_step(void);
/* SIGTERM; in a step SIGINT. */
int stop_signal(void);
/* In a step: SIGTERM, SIGUSR1 and SIGUSR2 do nothing from now on. They are caught, not ignored, so that
 * programs that are started have the default again. */
void stop_signal_shield(void);

#endif
