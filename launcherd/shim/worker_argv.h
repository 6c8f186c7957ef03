/* The command line of a worker. */
#ifndef LAUNCHERD_SHIM_WORKER_ARGV_H
#define LAUNCHERD_SHIM_WORKER_ARGV_H

#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"

/* The job's argv, ended by NULL, with --NAME=LOCAL_RANK inserted if the job asks for that
 * (common/launch.h). From the arena; NULL: no memory. */
char **worker_argv_build(const struct msg_start *start, uint32_t local, struct arena *arena);

#endif
