/* The edge of the shim: the process `launcherd --shim`, one for each job and node. It reads the
 * start order from its run directory, listens there for launcherd, and carries out what the core
 * (core/shim.h) decides: processes, pipes, log files. It is the parent of the workers, and as a
 * subreaper it becomes the parent of their orphaned descendants. It keeps running when launcherd
 * ends. */
#ifndef LAUNCHERD_SHIM_SHIM_IO_H
#define LAUNCHERD_SHIM_SHIM_IO_H

#include <stdint.h>

#define SHIM_ARGUMENT "--shim"
/* The arguments after it, in this order. */
enum shim_argument {
    SHIM_ARG_RUN_DIR,
    SHIM_ARG_STATE_ID, /* of the state directory, for a launcherd that has lost the run directory (adopt_files.h) */
    SHIM_ARG_LOG_DIR,
    SHIM_ARG_NODE_NAME,
    SHIM_ARG_NODE_ADDRESS,
    SHIM_ARG_GPUS, /* devices_format: the GPU of each slot */
    SHIM_ARG_LEASE_UNTIL_US,
    SHIM_ARG_LEASE_US,
    SHIM_ARG_LOG_MAX,
    SHIM_ARG_ALLOW_ROOT, /* "1", "0": node_options.allow_root */
    SHIM_ARG_CGROUPS,    /* the folder in which it makes its cgroup; empty: no cgroup */
    SHIM_ARG_JOB_MEMORY, /* bytes; 0: no limit */
    SHIM_ARG_COUNT,
};

/* Runs until the shim exits, and returns the exit code. The connection to launcherd is on
 * SPAWN_EXTRA_FD. `arguments`: [SHIM_ARG_COUNT]. */
int shim_main(char *const *arguments);

#endif
