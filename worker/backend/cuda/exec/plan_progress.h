/* What a person sees while plans are made: "plans: 61 of 187", a line that is written again on a terminal, a line of
 * the log now and then elsewhere. A start that has everything in the cache shows nothing. */
#ifndef WORKER_BACKEND_CUDA_EXEC_PLAN_PROGRESS_H
#define WORKER_BACKEND_CUDA_EXEC_PLAN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/backend/cuda/plans/plans.h"

struct plan_progress {
    uint64_t begun_us, shown_us; /* by mono_us(); 0: not yet */
};

#define PLAN_PROGRESS_BYTES 96

/* The line for `now_us`. False: none is due; then `text` is empty. On a terminal the last one of a phase is empty: it
 * makes room for what comes. */
bool plan_progress_line(struct plan_progress *progress, enum plan_phase phase, uint32_t done,
                        uint32_t total, uint64_t now_us, bool is_terminal,
                        char text[PLAN_PROGRESS_BYTES]);
/* Shows it on stderr. */
void plan_progress_show(struct plan_progress *progress, enum plan_phase phase, uint32_t done,
                        uint32_t total);

#endif
