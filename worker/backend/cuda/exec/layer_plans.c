/* The plans of one layer in the current step's set: whether a plan exists, its properties, and how
 * to queue it. Sets are built in sets.c. */
#include <assert.h>

#include "worker/backend/cuda/exec/internal.h"

int32_t *cuda_plan_entry(const struct cuda *cuda, const struct cuda_set *set, uint32_t layer,
                         enum plan_kind kind)
{
    assert(layer < cuda->graph->layer_count && kind < PLAN_KINDS);
    assert(set->index != NULL);
    return &set->index[(size_t)layer * PLAN_KINDS + (size_t)kind];
}

bool cuda_has_plan(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind)
{
    int32_t index = *cuda_plan_entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 && cuda->plans->info(cuda->set->plans, (uint32_t)index)->status == STATUS_OK;
}

bool cuda_lacks_bias(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind)
{
    int32_t index = *cuda_plan_entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 && cuda->plans->info(cuda->set->plans, (uint32_t)index)->lacks_bias;
}

bool cuda_plan_spares(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind)
{
    int32_t index = *cuda_plan_entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 && cuda->plans->info(cuda->set->plans, (uint32_t)index)->spares_sms;
}

bool cuda_norm_put_off(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const int32_t index = *cuda_plan_entry(cuda, cuda->set, norm->index, PLAN_NORM_FORWARD);
    const int32_t back = *cuda_plan_entry(cuda, cuda->set, norm->index, PLAN_NORM_BACKWARD);

    return index >= 0 && back >= 0 &&
           (cuda->plans->info(cuda->set->plans, (uint32_t)index)->is_put_off ||
            cuda->plans->info(cuda->set->plans, (uint32_t)back)->is_put_off);
}

float cuda_plan_time_us(const struct cuda *cuda, const struct cuda_layer *layer,
                        enum plan_kind kind)
{
    int32_t index = *cuda_plan_entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 ? cuda->plans->info(cuda->set->plans, (uint32_t)index)->time_us : 0.0F;
}

bool cuda_adds_by_plan(const struct cuda *cuda, const struct cuda_layer *layer)
{
    float one, apart;

    if (cuda_residual_by_plan(cuda, layer))
        return true;
    if (layer->graph->op != GRAPH_CONV2D || !layer->adds[0] ||
        !cuda_has_plan(cuda, layer, PLAN_CONV_DGRAD_ADD))
        return false;
    one = cuda_plan_time_us(cuda, layer, PLAN_CONV_DGRAD_ADD);
    apart = cuda_plan_time_us(cuda, layer, PLAN_CONV_DGRAD);
    return !(layer->add_us > 0.0F && one > 0.0F && apart > 0.0F && apart + layer->add_us < one);
}

enum status cuda_no_plan(const struct cuda *cuda, const struct cuda_layer *layer,
                         enum plan_kind kind, struct err *err)
{
    int32_t index = *cuda_plan_entry(cuda, cuda->set, layer->index, kind);
    const char *why = index < 0 ? "none was asked for"
                                : cuda->plans->info(cuda->set->plans, (uint32_t)index)->engine;

    return err_set(err, STATUS_UNSUPPORTED, 0, "layer %s: no plan for its %s: %.100s",
                   layer->graph->name, plan_kind_name(kind), why);
}

enum status cuda_run(struct cuda *cuda, struct cuda_layer *layer, enum plan_kind kind,
                     void *const *pointers, struct err *err)
{
    struct err cause = {.text = ""};
    enum status status;

    assert(cuda->set != NULL && cuda->set->n == cuda->rows);
    if (!cuda_has_plan(cuda, layer, kind))
        return cuda_no_plan(cuda, layer, kind, err);
    status = cuda->plans->run(cuda->set->plans,
                              (uint32_t)*cuda_plan_entry(cuda, cuda->set, layer->index, kind),
                              cuda->stream, cuda->workspace, pointers, &cause);
    if (status != STATUS_OK)
        return cuda_named(layer, status, &cause, err);
    return cuda_launched(cuda, layer, 0, plan_kind_name(kind), err);
}
