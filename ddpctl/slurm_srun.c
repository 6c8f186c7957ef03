#include "ddpctl/slurm_srun.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>

uint32_t slurm_srun_args(uint32_t nodes, char text[2][32], const char *args[SLURM_SRUN_ARGS])
{
    static const char *const fixed[] = {
        "--ntasks-per-node=1",
        "--overlap", /* a step that we run in ourselves may hold the nodes' CPUs */
        "--cpu-bind=none",
        "--mpi=none",
        "--input=all",
        "--output=all", /* to our pipe, from all tasks */
        "--error=all",
        "--wait=0",
        "--kill-on-bad-exit=0", /* the server handles a node that fails */
        "--no-kill",
        "--export=ALL",
        "--job-name=ddpctl",
    };
    uint32_t count = 0;

    static_assert(3 + sizeof fixed / sizeof fixed[0] <= SLURM_SRUN_ARGS, "they fit");
    (void)snprintf(text[0], sizeof text[0], "--nodes=%u", nodes);
    (void)snprintf(text[1], sizeof text[1], "--ntasks=%u", nodes);
    args[count++] = "srun";
    args[count++] = text[0];
    args[count++] = text[1];
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        args[count++] = fixed[i];
    return count;
}
