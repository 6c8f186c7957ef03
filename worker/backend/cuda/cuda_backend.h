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

struct cuda_backend_options {
    uint32_t device_index;
    bool is_synchronous; /* wait behind every launch, so that a failure names its layer */
    bool no_records;     /* every step is queued anew, none is repeated from a record */
    uint32_t stats; /* statistics of batch norms in the convolution before, see cuda_stats.c: 0:
                       not, 1: applied in a pass, 2: on the way into the next one where it can */
};

/* The tables of a loaded module, or a test's; borrowed for good. Options begin as 0 and as
 * DDP_CUDA_SYNC=1, DDP_CUDA_GRAPH=0 and DDP_CUDA_STATS=1 or 2 in the environment say. */
void cuda_backend_use(const struct cuda_runtime *runtime, const struct cuda_kernels *kernels,
                      const struct cuda_plans *plans, uint32_t device_index);

/* Averages gradients over all ranks in place, on the device: queues that on `stream`, behind which
 * the optimizer waits. Called for each bucket in order, maybe only while a step is recorded. */
struct cuda_reduce {
    enum status (*reduce)(void *user, void *memory, size_t count, enum graph_dtype dtype,
                          struct CUstream_st *stream, struct err *err);
    void *user;
};

/* For the nets made from now on: net_step_reduce asks for it. Copied; NULL: none. */
void cuda_backend_reduce_with(const struct cuda_reduce *reduce);

extern const struct backend backend_cuda;

#endif
