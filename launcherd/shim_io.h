/* The shim's edge: the process `launcherd --shim`, one for each job and node. It reads its order
 * from its run directory, listens there for launcherd, and carries out what the core (shim.h)
 * decides: processes, pipes, log files. It is the parent of the workers and the reaper of all that
 * they leave behind, and lives on when launcherd does not. */
#ifndef LAUNCHERD_SHIM_IO_H
#define LAUNCHERD_SHIM_IO_H

#include <stdint.h>

#define SHIM_ARGUMENT "--shim"
/* What follows it on the command line, in this order; all are texts. */
enum shim_argument {
    SHIM_ARG_RUN_DIR,
    SHIM_ARG_LOG_DIR,
    SHIM_ARG_NODE_NAME,
    SHIM_ARG_NODE_ADDRESS,
    SHIM_ARG_GPUS,
    SHIM_ARG_LEASE_UNTIL_US,
    SHIM_ARG_LEASE_US,
    SHIM_ARG_COUNT,
};

/* Runs until the shim's work is over; the connection to launcherd is on SPAWN_EXTRA_FD.
 * `arguments`: [SHIM_ARG_COUNT]. Answers the exit code. */
int shim_main(char *const *arguments);

#endif
