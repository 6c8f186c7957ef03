/* The CUDA backend for net_options.backend: what it works with is set once, before the first net.
 */
#ifndef WORKER_BACKEND_CUDA_CUDA_BACKEND_H
#define WORKER_BACKEND_CUDA_CUDA_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cuda/cuda_kernels.h"
#include "worker/backend/cuda/module_runtime.h"
#include "worker/backend/cuda/plans.h"
#include "worker/net_backend.h"

/* How batch norms get their statistics and values, see cuda_stats.c. */
enum cuda_stats {
    CUDA_STATS_NONE,     /* by themselves */
    CUDA_STATS_APPLY,    /* sums out of the convolution before, applied in a pass */
    CUDA_STATS_PROLOGUE, /* or on the way into the next convolution, where it can */
    CUDA_STATS_MEASURED  /* as a wish: each as was the fastest when plans were timed */
};

struct cuda_backend_options {
    uint32_t device_index;
    bool is_synchronous; /* wait behind every launch, so that a failure names its layer */
    bool no_records;     /* every step is queued anew, none is repeated from a record */
    enum cuda_stats stats;
};

/* The tables of a loaded module, or a test's; borrowed for good. Options begin as 0 and as
 * DDP_CUDA_SYNC=1, DDP_CUDA_GRAPH=0 and DDP_CUDA_STATS=1, 2 or auto in the environment say. */
void cuda_backend_use(const struct cuda_runtime *runtime, const struct cuda_kernels *kernels,
                      const struct cuda_plans *plans, uint32_t device_index);

/* Averages gradients over all ranks in place, on the device: queues that on `stream`, behind which
 * the optimizer waits. Called for each bucket in order, maybe only while a step is recorded. */
struct cuda_reduce {
    enum status (*reduce)(void *user, void *memory, size_t count, enum graph_dtype dtype,
                          struct CUstream_st *stream, struct err *err);
    void *user;
    float after;  /* every value is multiplied by this behind it; 0: stays */
    bool in_fp32; /* 16-bit gradients go there as fp32, and are rounded when they come back */
    bool delays;  /* none before backward is over */
};

/* For the nets made from now on: net_step_reduce asks for it. Copied; NULL: none. */
void cuda_backend_reduce_with(const struct cuda_reduce *reduce);

extern const struct backend backend_cuda;

#endif
