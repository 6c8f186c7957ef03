/* The CUDA module's tables over host memory: the backend's own logic runs end to end on a machine
 * without a GPU.
 *
 * Kernels are their C twins, plans are plain loops, device memory lies behind a fence: it can be
 * touched only while a "kernel" or a copy runs, anybody else who does dies of SIGSEGV. Streams run
 * what they get at once; a recorded step is written down with its arguments, and run when it is
 * queued. */
#ifndef TESTS_LIB_STANDIN_H
#define TESTS_LIB_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/backend/cuda/cuda_kernels.h"
#include "worker/backend/cuda/module_runtime.h"
#include "worker/backend/cuda/plans.h"

extern const struct cuda_runtime standin_runtime;
extern const struct cuda_kernels standin_kernels;
extern const struct cuda_plans standin_plans;

/* What goes wrong on purpose; all zeros: nothing. */
struct standin_faults {
    bool no_norm_plans;     /* plans say that they can do no batch norm */
    bool no_bias_plans;     /* plans of weights leave the gradient of the bias out */
    bool no_apply_plans;    /* plans say that they can do no NORM_APPLY */
    bool no_prologue_plans; /* ... and make no batch norm on the way into a convolution */
    bool no_records;        /* recording a step fails */
    uint32_t fail_recorded; /* this launch of a record, counted from 1, returns an error */
    uint32_t fail_call;     /* this launch from now on, counted from 1, returns an error */
};
extern struct standin_faults standin_faults;

/* What the last set of plans was opened with. */
extern struct plan_options standin_plan_options;
/* Plans that were queued or written down, by kind. */
extern uint32_t standin_plan_runs[PLAN_KINDS];
/* What plans of a kind say that was measured; 0: nothing. */
extern float standin_plan_times_us[PLAN_KINDS];

/* So far: launches, launches written down in records, records that were queued, and memory that was
 * not given back. */
struct standin_counts {
    uint64_t runs; /* that were carried out: the device's clock, each takes a microsecond */
    uint64_t launches, recorded, repeated;
    size_t device_blocks, pinned_blocks, streams, events, graphs;
};
struct standin_counts standin_counts(void);

/* Runs `run` with a copy of its `bytes` of arguments inside the fence: now, or when the record that
 * is being made is queued. 0, or the code of a failure on purpose. */
int standin_queue(void (*run)(void *args), const void *args, size_t bytes);

#endif
