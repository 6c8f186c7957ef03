/* The CUDA backend for net_options.backend: what it works with is set once, before the first net.
 */
#ifndef WORKER_BACKEND_CUDA_EXEC_BACKEND_H
#define WORKER_BACKEND_CUDA_EXEC_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cuda/exec/kernels.h"
#include "worker/backend/cuda/module/runtime.h"
#include "worker/backend/cuda/plans/plans.h"
#include "worker/net/backend.h"

/* Where batch norms take their statistics and make their values; see stats.c. */
enum cuda_stats {
    CUDA_STATS_NONE,     /* by themselves */
    CUDA_STATS_APPLY,    /* sums out of the convolution before, applied in a pass */
    CUDA_STATS_PROLOGUE, /* or on the way into the next convolution, where it can */
    CUDA_STATS_MEASURED /* requested only: for each norm the form that was the fastest when timed */
};

struct cuda_backend_options {
    uint32_t device_index;
    bool is_synchronous; /* wait after every launch, so that a failure names its layer */
    bool no_captures;    /* every step is eager, nothing is captured */
    enum cuda_stats stats;
    uint32_t candidates; /* timed for each plan; 0: the plans' own choice */
};

/* The tables of a loaded module, or a test's; borrowed for good. Options begin as 0 and as
 * DDP_CUDA_SYNC=1, DDP_CUDA_GRAPH=0, DDP_CUDA_STATS=1, 2 or auto and DDP_CUDA_CANDIDATES=N (1 to
 * 32) in the environment say. */
void cuda_backend_use(const struct cuda_runtime *runtime, const struct cuda_kernels *kernels,
                      const struct cuda_plans *plans, uint32_t device_index);

/* Another device for the nets that are made from now on. */
void cuda_backend_choose(uint32_t device_index);

extern const struct backend backend_cuda;

#endif
