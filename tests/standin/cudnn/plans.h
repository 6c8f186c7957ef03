/* Of the stand-in for cuDNN: what a plan computes (plans.c), and sets of plans (sets.c). */
#ifndef TESTS_STANDIN_CUDNN_PLANS_H
#define TESTS_STANDIN_CUDNN_PLANS_H

#include "worker/backend/cuda/plans/plans.h"

/* What a launch keeps. */
struct plan_call {
    struct plan_request request;
    void *pointers[PLAN_PORTS];
};

/* args: struct plan_call */
void standin_plan_run(void *args);

#endif
