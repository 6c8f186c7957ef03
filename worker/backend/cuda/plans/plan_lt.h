/* Linear layers by cublasLt: the three products of a step, with the bias and its gradient in their
 * epilogues. All values are row-major; see plans.h. */
#ifndef WORKER_BACKEND_CUDA_PLANS_PLAN_LT_H
#define WORKER_BACKEND_CUDA_PLANS_PLAN_LT_H

#include "worker/backend/cuda/libs.h"
#include "worker/backend/cuda/plans/plans.h"

#define LT_CANDIDATES_MAX 16

/* One product d = op(a) op(b), column-major as in cublasLt. */
struct lt_plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    enum plan_port a_port, b_port, d_port;
    enum plan_port bias_port;                                      /* PLAN_PORTS: none */
    cublasLtMatmulHeuristicResult_t algorithms[LT_CANDIDATES_MAX]; /* best first */
    uint32_t algorithm_count;
};

/* Creates the product's description; needs no device. Errors: STATUS_LIBRARY, cublasLt's text in
 * `err`. */
enum status lt_plan_open(const struct cublaslt_api *api, const struct plan_request *request,
                         bool tf32, struct lt_plan *plan, struct err *err);
/* Fills `algorithms` with at most `limit` entries. Errors: STATUS_UNSUPPORTED (none). */
enum status lt_plan_propose(const struct cublaslt_api *api, cublasLtHandle_t handle,
                            size_t workspace_limit, uint32_t limit, struct lt_plan *plan,
                            struct err *err);
cublasStatus_t lt_plan_run(const struct cublaslt_api *api, cublasLtHandle_t handle,
                           const struct lt_plan *plan, uint32_t algorithm,
                           struct CUstream_st *stream, void *workspace, void *const *pointers);
void lt_plan_close(const struct cublaslt_api *api, struct lt_plan *plan);

#endif
