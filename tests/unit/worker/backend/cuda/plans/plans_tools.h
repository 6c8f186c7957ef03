/* Descriptions of devices and sets of plans for the tests that build plans without a GPU. */
#ifndef TESTS_UNIT_WORKER_BACKEND_CUDA_PLANS_PLANS_TOOLS_H
#define TESTS_UNIT_WORKER_BACKEND_CUDA_PLANS_PLANS_TOOLS_H

#include "worker/backend/cuda/plans/plans.h"

/* A file that describes a device of compute capability 8.0, 9.0 or 10.0 (80, 90, 100) as cuDNN has
 * it in JSON; lives in the test's folder. */
const char *describe_device(int capability);
/* A set of `options` on that device, by the plans of a module. SKIPs where cuDNN or cublasLt is missing. */
struct plan_set *open_set(const struct cuda_plans *plans, struct plan_options options,
                          int capability);

/* The requests of a model at an opt level, as the executor passes it; malloc'ed. `fused`: additions
 * are merged into batch norms at 16 bit too. */
struct plan_request *model_requests(const char *arch, uint32_t side, uint32_t batch, uint32_t level,
                                    enum graph_dtype half, bool fused, uint32_t *count);
/* Those of plan_list_statistics with prologues, for O2 and fp16, fused; malloc'ed. */
struct plan_request *model_statistics(const char *arch, uint32_t side, uint32_t batch,
                                      uint32_t *count);

#endif
