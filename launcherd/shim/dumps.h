/* Workers that write a core file. A job may ask for one (RLIMIT_CORE is 0 unless the job raises
 * it). The kernel reports the end of the process only when the file is written, which takes half a
 * minute for a large one. So once a second we look whether a worker is writing a core file, to know
 * at once that it has failed. Such a worker has DUMPS_SPARE_MS to write its file before it is
 * killed like all others. Part of shim_workers. */
#ifndef LAUNCHERD_SHIM_DUMPS_H
#define LAUNCHERD_SHIM_DUMPS_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcherd/shim/shim_workers.h"

#define DUMPS_LOOK_MS 1000u
/* Less than LAUNCHER_STOP_SLACK_US, after which launcherd kills a shim that has not done a stop. */
#define DUMPS_SPARE_MS 7000u

/* Looks once a second until dumps_close, and gives DUMPING to the core for each worker that it
 * finds. */
void dumps_open(struct shim_workers *workers);
void dumps_close(struct shim_workers *workers);

/* Whether the worker must not be killed now, because it writes its core file. */
bool dumps_spare(const struct shim_worker *worker);
/* Whether that is so for any worker. */
bool dumps_spare_any(const struct shim_workers *workers);
/* dumps_spare for a pid, as a callback of proc_kill_descendants; `arg`: struct shim_workers. True
 * also for the store, which the core ends. */
bool dumps_spare_pid(void *arg, pid_t pid);

#endif
