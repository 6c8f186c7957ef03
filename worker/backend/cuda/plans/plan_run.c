/* Queues one plan on a stream: passes its pointers to cuDNN or cublasLt. */
#include <assert.h>
#include <string.h>

#include "worker/backend/cuda/plans/internal.h"

/* Puts the pointers into cuDNN's form; again only if one has changed. */
static cudnnStatus_t pack(struct plan_set *set, struct plan *plan, void *workspace,
                          void *const *pointers)
{
    const struct cudnn_api *api = &set->cudnn;
    int64_t ids[CUDNN_GRAPH_BINDINGS_MAX];
    void *values[CUDNN_GRAPH_BINDINGS_MAX];
    cudnnStatus_t code;

    if (plan->pack != NULL && plan->packed[PLAN_PORTS] == workspace &&
        memcmp(plan->packed, pointers, PLAN_PORTS * sizeof *pointers) == 0)
        return CUDNN_STATUS_SUCCESS;
    if (plan->pack != NULL)
        (void)api->BackendDestroyDescriptor(plan->pack);
    plan->pack = NULL;
    for (uint32_t i = 0; i < plan->binding_count; i++) {
        struct cudnn_binding *binding = &plan->bindings[i];

        ids[i] = binding->id;
        values[i] =
            binding->port == PLAN_PORTS ? (void *)&binding->number : pointers[binding->port];
        assert(values[i] != NULL);
    }
    code = api->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &plan->pack);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(plan->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, plan->binding_count, ids);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(plan->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, plan->binding_count, values);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(plan->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendFinalize(plan->pack);
    memcpy(plan->packed, pointers, PLAN_PORTS * sizeof *pointers);
    plan->packed[PLAN_PORTS] = code == CUDNN_STATUS_SUCCESS ? workspace : (void *)plan;
    return code;
}

static cudnnStatus_t queue_cudnn(struct plan_set *set, struct plan *plan,
                                 const struct cudnn_plan *chosen, struct CUstream_st *stream,
                                 void *workspace, void *const *pointers)
{
    cudnnStatus_t code = pack(set, plan, workspace, pointers);

    if (code == CUDNN_STATUS_SUCCESS && (set->owner->stream != stream || stream == NULL)) {
        code = set->cudnn.SetStream(set->handle, stream);
        set->owner->stream = code == CUDNN_STATUS_SUCCESS ? stream : NULL;
    }
    if (code == CUDNN_STATUS_SUCCESS)
        code = set->cudnn.BackendExecute(set->handle, chosen->descriptor, plan->pack);
    return code;
}

enum status plan_queue(struct plan_set *set, struct plan *plan, uint32_t index,
                       struct CUstream_st *stream, void *workspace, void *const *pointers,
                       struct err *err)
{
    const struct plan *built = &set->plans[plan->built_as];
    char why[96] = "";

    assert(index < built->candidate_count && set->has_device);
    if (plan->is_linear) {
        cublasStatus_t code =
            lt_plan_run(&set->lt, set->lt_handle, &built->lt, index, stream, workspace, pointers);

        if (code == CUBLAS_STATUS_SUCCESS)
            return STATUS_OK;
        return err_set(err, STATUS_LIBRARY, (int)code, "layer %s: %s: cublasLt: %s",
                       plan->request.name, plan_kind_name(plan->request.kind),
                       set->lt.GetStatusString(code));
    }
    cudnnStatus_t code =
        queue_cudnn(set, plan, &built->candidates[index], stream, workspace, pointers);

    if (code == CUDNN_STATUS_SUCCESS)
        return STATUS_OK;
    set->cudnn.GetLastErrorString(why, sizeof why);
    return err_set(err, STATUS_LIBRARY, (int)code, "layer %s: %s: cuDNN: %s%s%s",
                   plan->request.name, plan_kind_name(plan->request.kind),
                   set->cudnn.GetErrorString(code), why[0] != '\0' ? ", " : "", why);
}
