/* A row-major matrix is its transpose column-major, so with C for [n][c] and so on:
 *   forward  Y' [k x n] = W [k x c] X' [c x n]     a = W transposed, b = X
 *   dgrad    DX' [c x n] = W' [c x k] DY' [k x n]  a = W, b = DY
 *   wgrad    DW' [c x k] = X' [c x n] DY [n x k]   a = X, b = DY transposed; the bias's gradient is
 *            the sum of b over the inner dimension: cublasLt's epilogue BGRADB. */
#include "worker/backend/cuda/plans/plan_lt.h"

#include <assert.h>
#include <string.h>

struct shape {
    enum plan_port a, b, d;
    bool a_transposed, b_transposed;
    uint64_t a_rows, a_columns, b_rows, b_columns, d_rows, d_columns;
};

static struct shape shape_of(const struct plan_request *request)
{
    const uint64_t n = request->n, c = request->c, k = request->k;

    switch (request->kind) {
    case PLAN_LINEAR_FORWARD:
        return (struct shape){PLAN_PORT_W, PLAN_PORT_X, PLAN_PORT_Y, true, false, c, k, c, n, k, n};
    case PLAN_LINEAR_DGRAD:
        return (struct shape){
            PLAN_PORT_W, PLAN_PORT_DY, PLAN_PORT_DX, false, false, c, k, k, n, c, n};
    default:
        assert(request->kind == PLAN_LINEAR_WGRAD);
        return (struct shape){
            PLAN_PORT_X, PLAN_PORT_DY, PLAN_PORT_DW, false, true, c, n, k, n, c, k};
    }
}

static cudaDataType_t data_type(enum graph_dtype dtype)
{
    static const cudaDataType_t types[] = {
        [GRAPH_F32] = CUDA_R_32F, [GRAPH_F16] = CUDA_R_16F, [GRAPH_BF16] = CUDA_R_16BF};

    return types[dtype];
}

void lt_plan_close(const struct cublaslt_api *api, struct lt_plan *plan)
{
    if (plan->product != NULL)
        (void)api->MatmulDescDestroy(plan->product);
    if (plan->a != NULL)
        (void)api->MatrixLayoutDestroy(plan->a);
    if (plan->b != NULL)
        (void)api->MatrixLayoutDestroy(plan->b);
    if (plan->d != NULL)
        (void)api->MatrixLayoutDestroy(plan->d);
    memset(plan, 0, sizeof *plan);
}

/* Sets workspace and alignment that algorithms may rely on: plans.h promises 16 bytes. */
static cublasStatus_t set_limits(const struct cublaslt_api *api,
                                 cublasLtMatmulPreference_t preference, size_t workspace_limit)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t bytes = 16;
    cublasStatus_t code =
        api->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &workspace_limit, sizeof workspace_limit);

    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        if (code == CUBLAS_STATUS_SUCCESS)
            code =
                api->MatmulPreferenceSetAttribute(preference, alignments[i], &bytes, sizeof bytes);
    return code;
}

/* Sets the transpositions and the epilogue. */
static cublasStatus_t describe(const struct cublaslt_api *api, const struct plan_request *request,
                               const struct shape *shape, struct lt_plan *plan)
{
    const int32_t a_op = shape->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                  b_op = shape->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue =
        request->kind == PLAN_LINEAR_WGRAD ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BIAS;
    const int32_t type = (int32_t)data_type(request->type);
    cublasStatus_t code;

    code =
        api->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &a_op, sizeof a_op);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &b_op,
                                           sizeof b_op);
    plan->bias_port = PLAN_PORTS;
    if (code != CUBLAS_STATUS_SUCCESS || !request->has_bias)
        return code;
    plan->bias_port = request->kind == PLAN_LINEAR_WGRAD ? PLAN_PORT_DBIAS : PLAN_PORT_BIAS;
    code = api->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                       sizeof epilogue);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                           &type, sizeof type);
    return code;
}

enum status lt_plan_open(const struct cublaslt_api *api, const struct plan_request *request,
                         bool tf32, struct lt_plan *plan, struct err *err)
{
    const struct shape shape = shape_of(request);
    const cudaDataType_t type = data_type(request->type);
    const cublasComputeType_t compute =
        request->type == GRAPH_F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t code;

    memset(plan, 0, sizeof *plan);
    plan->a_port = shape.a;
    plan->b_port = shape.b;
    plan->d_port = shape.d;
    code = api->MatmulDescCreate(&plan->product, compute, CUDA_R_32F);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = describe(api, request, &shape, plan);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->MatrixLayoutCreate(&plan->a, type, shape.a_rows, shape.a_columns,
                                       (int64_t)shape.a_rows);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->MatrixLayoutCreate(&plan->b, type, shape.b_rows, shape.b_columns,
                                       (int64_t)shape.b_rows);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = api->MatrixLayoutCreate(&plan->d, type, shape.d_rows, shape.d_columns,
                                       (int64_t)shape.d_rows);
    if (code == CUBLAS_STATUS_SUCCESS)
        return STATUS_OK;
    lt_plan_close(api, plan);
    return err_set(err, STATUS_LIBRARY, (int)code, "layer %s: %s: cublasLt: %s", request->name,
                   plan_kind_name(request->kind), api->GetStatusString(code));
}

enum status lt_plan_propose(const struct cublaslt_api *api, cublasLtHandle_t handle,
                            size_t workspace_limit, uint32_t limit, struct lt_plan *plan,
                            struct err *err)
{
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0;
    cublasStatus_t code = api->MatmulPreferenceCreate(&preference);

    assert(limit > 0 && limit <= LT_CANDIDATES_MAX);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = set_limits(api, preference, workspace_limit);
    if (code == CUBLAS_STATUS_SUCCESS)
        code =
            api->MatmulAlgoGetHeuristic(handle, plan->product, plan->a, plan->b, plan->d, plan->d,
                                        preference, (int)limit, plan->algorithms, &count);
    if (preference != NULL)
        (void)api->MatmulPreferenceDestroy(preference);
    plan->algorithm_count = 0;
    for (int i = 0; code == CUBLAS_STATUS_SUCCESS && i < count; i++)
        if (plan->algorithms[i].state == CUBLAS_STATUS_SUCCESS)
            plan->algorithms[plan->algorithm_count++] = plan->algorithms[i];
    if (plan->algorithm_count > 0)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, (int)code, "cublasLt: %s",
                   code == CUBLAS_STATUS_SUCCESS ? "no algorithm" : api->GetStatusString(code));
}

cublasStatus_t lt_plan_run(const struct cublaslt_api *api, cublasLtHandle_t handle,
                           const struct lt_plan *plan, uint32_t algorithm,
                           struct CUstream_st *stream, void *workspace, void *const *pointers)
{
    const cublasLtMatmulHeuristicResult_t *chosen = &plan->algorithms[algorithm];
    const float alpha = 1.0F, beta = 0.0F;
    void *d = pointers[plan->d_port];
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;

    if (plan->bias_port != PLAN_PORTS)
        code = api->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &pointers[plan->bias_port], sizeof(void *));
    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    return api->Matmul(handle, plan->product, &alpha, pointers[plan->a_port], plan->a,
                       pointers[plan->b_port], plan->b, &beta, d, plan->d, d, plan->d,
                       &chosen->algo, workspace, chosen->workspaceSize, stream);
}
