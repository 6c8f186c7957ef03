/* The CUDA module's tables over host memory: the backend's own logic runs end to end on a machine
 * without a GPU.
 *
 *   kernels   their C references (kernels/), made from KERNEL_TABLE
 *   plans     plain loops (tests/standin/cudnn)
 *   memory    fenced: it can be touched only while a "kernel" or a copy runs; anybody else who
 *             does dies of SIGSEGV
 *   streams   queues. A call waits in its stream's queue until the host waits for it, or until
 *             the device happens to go on. Which stream goes on next is drawn from the seed; only
 *             the order within a stream, events and waits are respected. So a dependency that the
 *             backend forgets is an order that some seed draws.
 *   captures  calls with their streams, events and waits; a launch runs them in a drawn order too.
 *             What CUDA refuses is refused: a stream that was not joined, a wait for an event of
 *             outside, memory that is made or freed meanwhile. */
#ifndef TESTS_STANDIN_CUDA_STANDIN_H
#define TESTS_STANDIN_CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/backend/cuda/exec/kernels.h"
#include "worker/backend/cuda/module/runtime.h"
#include "worker/backend/cuda/plans/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct cuda_runtime standin_runtime;
extern const struct cuda_kernels standin_kernels;
extern const struct cuda_plans standin_plans;

/* What goes wrong on purpose; all zeros: nothing. */
struct standin_faults {
    bool no_norm_plans;     /* plans say that they can do no batch norm */
    bool no_bias_plans;     /* plans of weights leave the gradient of the bias out */
    bool no_apply_plans;    /* plans say that they can do no NORM_APPLY */
    bool no_prologue_plans; /* ... and make no batch norm on the way into a convolution */
    bool no_add_plans;      /* ... and add no data gradient to another one */
    bool no_masked_plans;   /* ... nor to one under a mask */
    bool no_spare_plans;    /* ... and none leaves multiprocessors free */
    bool no_captures;       /* capturing a step fails */
    uint32_t fail_captured; /* this launch of a capture, counted from 1, returns an error */
    uint32_t fail_call;     /* this launch from now on, counted from 1, returns an error */
};
extern struct standin_faults standin_faults;

/* STANDIN_DEVICES in the environment; else 1. They share memory and streams; what tells them apart is the file
 * that STANDIN_USED names, to which each choice of a device adds a line with its index. */
uint32_t standin_device_count(void);

/* What the last set of plans was opened with. */
extern struct plan_options standin_plan_options;
/* Plans that were queued or captured, by kind. */
extern uint32_t standin_plan_runs[PLAN_KINDS];
/* Sets of plans that were built. */
extern uint32_t standin_plan_builds;
/* What they all did; set it to zeros to begin anew. */
extern struct plan_counts standin_plan_totals;
/* Whether sets of the process share a cache, as that of the disk; off at first. Then a plan has a time only after a set
 * had time for it: one plan a set, the costliest, or with PLAN_TUNE_ALL all. */
extern bool standin_plan_cache;
void standin_plan_cache_clear(void);
/* What plans of a kind report as measured; 0: nothing. */
extern float standin_plan_times_us[PLAN_KINDS];

/* So far; memory, streams, events and graphs: those that were not given back. */
struct standin_counts {
    uint64_t runs;     /* calls that ran: the device's clock, each takes a microsecond */
    uint64_t launches; /* calls that were queued or captured */
    uint64_t captured; /* calls in captures */
    uint64_t replayed; /* captures that were launched */
    size_t device_blocks, pinned_blocks, streams, events, graphs;
};
struct standin_counts standin_counts(void);

/* Which order is drawn from now on. 0: every call runs at once, in the order of the host. Else the
 * seed chooses how lazy the device is, and which stream goes on when it does. Default: DDP_SEED, or
 * 1. Waits for the device first. */
void standin_seed_order(uint64_t seed);

/* Queues `run` on the stream with a copy of its `bytes` of arguments; it runs inside the fence.
 * 0, or the code of a failure on purpose. */
int standin_queue(struct CUstream_st *stream, void (*run)(void *args), const void *args,
                  size_t bytes);
/* Runs it now, inside the fence, on no stream: what waits in queues keeps waiting. */
void standin_run(void (*run)(void *args), void *args);
/* A copy, for standin_queue() and standin_run(); `from` NULL: zeros. */
struct standin_copy {
    void *to;
    const void *from;
    size_t bytes;
};
void standin_run_copy(void *args);
/* Waits for all streams. */
void standin_sync(void);

#ifdef __cplusplus
}
#endif

#endif
