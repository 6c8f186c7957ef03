/* The CUDA backend for net_options.backend. Its modules and options are set once, before the first
 * net. */
#ifndef WORKER_BACKEND_CUDA_EXEC_BACKEND_H
#define WORKER_BACKEND_CUDA_EXEC_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cuda/exec/kernels.h"
#include "worker/backend/cuda/module/runtime.h"
#include "worker/backend/cuda/plans/plans.h"
#include "worker/net/backend.h"

/* How batch norms get their statistics and compute their values; see stats.c. */
enum cuda_stats {
    CUDA_STATS_NONE,     /* the norm's own passes do everything */
    CUDA_STATS_APPLY,    /* the convolution before makes the sums, one pass applies them */
    CUDA_STATS_PROLOGUE, /* or the next convolution applies them to its input, if it can */
    CUDA_STATS_MEASURED  /* requested only: for each norm the fastest form, by measured times */
};

struct cuda_backend_options {
    uint32_t device_index;
    bool is_synchronous; /* wait after every launch, so that an error names its layer */
    bool no_captures;    /* every step is eager */
    enum cuda_stats stats;
    uint32_t candidates;     /* candidates to time for each plan; 0: the plans' own choice */
    bool norm_plans;         /* batch norms by plans wherever there are some */
    bool no_masked_plans;    /* shortcuts' gradients are stored, see residual.c */
    bool masked_plans;       /* ... are not, wherever there are plans for that */
    struct plan_set *shared; /* of cuda_backend_share */
    uint32_t shared_index;   /* ... and its device */
};

/* Sets the tables of a loaded module, or a test's; they must stay valid for ever. Options are 0
 * unless these are set in the environment: DDP_CUDA_SYNC=1, DDP_CUDA_GRAPH=0, DDP_CUDA_STATS=1, 2
 * or auto, DDP_CUDA_CANDIDATES=N (1 to 32), DDP_CUDA_NORMS=plans, DDP_CUDA_SHORTCUTS=auto or 1. */
void cuda_backend_use(const struct cuda_runtime *runtime, const struct cuda_kernels *kernels,
                      const struct cuda_plans *plans, uint32_t device_index);

/* An open set of plans on the device that cuda_backend_use named: nets there use its handles. It is closed after them.
 * NULL: they open their own. */
void cuda_backend_share(struct plan_set *plans);

/* Chooses the device of the nets that are created from now on. */
void cuda_backend_choose(uint32_t device_index);

extern const struct backend backend_cuda;

#endif
