/* Workers that write a core file. A job may ask for one (RLIMIT_CORE is 0 unless it raises it). Until the
 * file is written the kernel shows no end of the process, which takes half a minute for a large one.
 * Once a second we look whether a worker is dead in this way, so that its failure is known at once. The
 * worker itself gets DUMPS_SPARE_MS to write its file before it is killed with all others. Part of
 * shim_workers. */
#ifndef LAUNCHERD_SHIM_DUMPS_H
#define LAUNCHERD_SHIM_DUMPS_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcherd/shim/shim_workers.h"

#define DUMPS_LOOK_MS 1000u
/* launcherd kills a shim LAUNCHER_STOP_SLACK_US after a stop that it has not done. */
#define DUMPS_SPARE_MS 7000u

/* Begins to look, until dumps_close; gives DUMPING to the core for each worker that is found. */
void dumps_open(struct shim_workers *workers);
void dumps_close(struct shim_workers *workers);

/* This worker is not to be killed now. */
bool dumps_spare(const struct shim_worker *worker);
/* One of them is not. */
bool dumps_spare_any(const struct shim_workers *workers);
/* The same by pid, for proc_kill_descendants; `arg`: struct shim_workers. The store is spared as well: the core ends it. */
bool dumps_spare_pid(void *arg, pid_t pid);

#endif
