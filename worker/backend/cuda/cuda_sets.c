/* Plans of the net, one set a batch size: made when that size first comes (the last batch of an
 * epoch may be smaller), then kept. */
#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cuda/cuda.h"

static int32_t *entry(const struct cuda *cuda, const struct cuda_set *set, uint32_t layer,
                      enum plan_kind kind)
{
    assert(layer < cuda->graph->layer_count);
    return &set->index[(size_t)layer * PLAN_KINDS + (size_t)kind];
}

/* What plan_list cannot know: how a flattened image is stored, and the type of the images. */
static void adapt(const struct cuda *cuda, struct plan_want *want)
{
    const struct cuda_layer *layer = &cuda->layers[want->layer];

    if (layer->in[0]->planes > 1)
        want->c = (uint32_t)layer->in[0]->image_size;
    if (layer->in[0]->planes > 1 && layer->graph->op == GRAPH_BATCH_NORM)
        want->k = want->c;
}

static enum status grow_workspace(struct cuda *cuda, size_t bytes, struct err *err)
{
    enum status status;

    if (bytes <= cuda->workspace_bytes)
        return STATUS_OK;
    status = cuda->runtime->stream_sync(cuda->stream, err); /* nobody uses the old one */
    if (status != STATUS_OK)
        return status;
    cuda->runtime->memory_free(&cuda->workspace);
    cuda->bytes -= cuda->workspace_bytes;
    cuda->workspace_bytes = 0;
    for (uint32_t i = 0; i < CUDA_STEPS_MAX; i++) { /* they know the old one */
        cuda->runtime->graph_free(&cuda->steps[i].graph);
        cuda->steps[i] = (struct cuda_step){0};
    }
    status = cuda->runtime->memory_new(&cuda->workspace, bytes, err);
    if (status == STATUS_OK) {
        cuda->workspace_bytes = bytes;
        cuda->bytes += bytes;
    }
    return status;
}

static enum status take_infos(struct cuda *cuda, struct cuda_set *set,
                              const struct plan_want *wants, uint32_t count, struct err *err)
{
    size_t workspace = 0;

    for (size_t i = 0; i < (size_t)cuda->graph->layer_count * PLAN_KINDS; i++)
        set->index[i] = -1;
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_info *info = cuda->plans->info(set->plans, i);

        *entry(cuda, set, wants[i].layer, wants[i].kind) = (int32_t)i;
        if (info->status == STATUS_OK && info->workspace_bytes > workspace)
            workspace = info->workspace_bytes;
    }
    return grow_workspace(cuda, workspace, err);
}

static uint32_t list_wants(const struct cuda *cuda, uint32_t n, struct plan_want *wants)
{
    uint32_t count = plan_list(cuda->graph, n, cuda->evaluate_only, wants);

    if (cuda_stats_wanted(cuda))
        count += plan_list_statistics(cuda->graph, n, cuda->options.stats >= CUDA_STATS_PROLOGUE,
                                      wants != NULL ? wants + count : NULL);
    for (uint32_t i = 0; i < count && wants != NULL; i++)
        adapt(cuda, &wants[i]);
    return count;
}

static enum status make_set(struct cuda *cuda, struct cuda_set *set, uint32_t n, struct err *err)
{
    const struct plan_options options = {
        .device_index = cuda->options.device_index,
        .deterministic = cuda->deterministic,
        .tf32 = cuda->tf32,
    };
    uint32_t count = list_wants(cuda, n, NULL);
    struct plan_want *wants = calloc((size_t)count + 1, sizeof *wants);
    enum status status = STATUS_OK;

    set->index = calloc((size_t)cuda->graph->layer_count * PLAN_KINDS, sizeof *set->index);
    set->forms = calloc(cuda->graph->layer_count, sizeof *set->forms);
    if (wants == NULL || set->index == NULL || set->forms == NULL)
        status = cuda_out_of_memory(NULL, err);
    if (status == STATUS_OK)
        status = cuda->plans->open(&set->plans, &options, err);
    if (status == STATUS_OK) {
        (void)list_wants(cuda, n, wants);
        status = cuda->plans->build(set->plans, wants, count, err);
    }
    if (status == STATUS_OK)
        status = take_infos(cuda, set, wants, count, err);
    if (status == STATUS_OK)
        cuda_stats_choose(cuda);
    free(wants);
    return status;
}

static void close_set(struct cuda *cuda, struct cuda_set *set)
{
    if (set->plans != NULL)
        cuda->plans->close(&set->plans);
    free(set->index);
    free(set->forms);
    *set = (struct cuda_set){0};
}

enum status cuda_sets_use(struct cuda *cuda, uint32_t n, struct err *err)
{
    struct cuda_set *set = cuda->sets;
    enum status status;

    while (set < cuda->sets + CUDA_SETS_MAX && set->n != 0 && set->n != n)
        set++;
    if (set == cuda->sets + CUDA_SETS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "a batch of %u images: there have been %d other sizes, and each needs its "
                       "own plans",
                       n, CUDA_SETS_MAX);
    cuda->set = set;
    if (set->n == n)
        return STATUS_OK;
    status = make_set(cuda, set, n, err);
    if (status != STATUS_OK) {
        close_set(cuda, set);
        return status;
    }
    set->n = n;
    return STATUS_OK;
}

void cuda_sets_close(struct cuda *cuda)
{
    for (uint32_t i = 0; i < CUDA_SETS_MAX; i++)
        close_set(cuda, &cuda->sets[i]);
    cuda->runtime->memory_free(&cuda->workspace);
}

bool cuda_has_plan(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind)
{
    int32_t index = *entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 && cuda->plans->info(cuda->set->plans, (uint32_t)index)->status == STATUS_OK;
}

bool cuda_lacks_bias(const struct cuda *cuda, const struct cuda_layer *layer, enum plan_kind kind)
{
    int32_t index = *entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 && cuda->plans->info(cuda->set->plans, (uint32_t)index)->lacks_bias;
}

float cuda_plan_time_us(const struct cuda *cuda, const struct cuda_layer *layer,
                        enum plan_kind kind)
{
    int32_t index = *entry(cuda, cuda->set, layer->index, kind);

    return index >= 0 ? cuda->plans->info(cuda->set->plans, (uint32_t)index)->time_us : 0.0F;
}

enum status cuda_no_plan(const struct cuda *cuda, const struct cuda_layer *layer,
                         enum plan_kind kind, struct err *err)
{
    int32_t index = *entry(cuda, cuda->set, layer->index, kind);
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

    if (!cuda_has_plan(cuda, layer, kind))
        return cuda_no_plan(cuda, layer, kind, err);
    status =
        cuda->plans->run(cuda->set->plans, (uint32_t)*entry(cuda, cuda->set, layer->index, kind),
                         cuda->stream, cuda->workspace, pointers, &cause);
    if (status != STATUS_OK)
        return cuda_named(layer, status, &cause, err);
    return cuda_launched(cuda, layer, 0, plan_kind_name(kind), err);
}
