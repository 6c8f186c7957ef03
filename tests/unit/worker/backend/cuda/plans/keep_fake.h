/* Functions in place of cuDNN, cublasLt and the timing on a device, for tests of what sets of plans build, time and keep: a
 * plan's JSON is the number of its engine. And runs of a program that makes plans. */
#ifndef TESTS_UNIT_WORKER_BACKEND_CUDA_PLANS_KEEP_FAKE_H
#define TESTS_UNIT_WORKER_BACKEND_CUDA_PLANS_KEEP_FAKE_H

#include <stdatomic.h>

#include "worker/backend/cuda/plans/internal.h"

enum { KEEP_CANDIDATES = 3, KEEP_FASTEST = 2 };

extern struct keep {
    bool no_memory;      /* to time plans with */
    bool none_runs;      /* no candidate, when it is timed */
    bool takes_all;      /* a plan's timing, of the time that a set has */
    int64_t fails_below; /* engines below this one fail in a run */

    atomic_uint proposals; /* since the set was opened, as timings; threads propose */
    uint32_t timings;
    uint32_t timed[8];           /* the channels of the plans that were timed, in this order */
    int64_t ran;                 /* the engine of the last run */
    int handles;                 /* of cuDNN, made and not destroyed */
    char notes[1024];            /* the last one */
    struct plan_options options; /* of the next set */
    struct plan_counts counts;   /* of the last set */
} keep;

extern const struct plan_request keep_request;
/* Five requests, of which two are equal: the cheapest first. */
#define KEEP_REQUESTS 5
#define KEEP_DISTINCT 4
const struct plan_request *keep_several(void);

/* Options without anything but this time. */
void keep_reset(uint64_t tune_us);
struct plan_set *keep_open(const char *folder, uint32_t candidates);
/* As a run of the program that builds these plans; returns the first one. */
struct plan_info keep_build_all(const char *folder, const struct plan_request *requests,
                                uint32_t request_count);
/* ... that builds keep_request, which must have an engine. */
struct plan_info keep_build(const char *folder, uint32_t candidates);
size_t keep_files(const char *folder);
/* A folder of the test with this name, in memory of its own until the next call. */
const char *keep_folder(const char *name);

#endif
