/* The fusion pass: element-wise layers are merged into the layer before them. */
#include "worker/graph/pass.h"

#include <assert.h>
#include <stdlib.h>

/* Removes layer `gone`; layers that read it read `instead`. Higher indices move down by one. */
static void remove_layer(struct graph *graph, uint32_t gone, uint32_t instead)
{
    assert(graph->layers[gone].tensor_count == 0 && instead < gone);

    for (uint32_t i = gone; i + 1 < graph->layer_count; i++)
        graph->layers[i] = graph->layers[i + 1];
    graph->layer_count--;
    for (uint32_t i = gone; i < graph->layer_count; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t *input = &graph->layers[i].inputs[k];

            if (*input == gone)
                *input = instead;
            else if (*input != GRAPH_NONE && *input > gone)
                (*input)--;
        }
    }
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        graph->tensors[i].layer -= graph->tensors[i].layer > gone;
}

/* The addition of a residual block goes into the batch norm that runs last. All three values have
 * one type: pass_amp ran before. */
static void fuse_add(struct graph *graph, uint32_t at, bool adds_half)
{
    struct graph_layer *layer = &graph->layers[at];
    uint32_t user = graph_only_user(graph, at), other;

    if (layer->op != GRAPH_BATCH_NORM || layer->out.dim_count != 3 || user == GRAPH_NONE ||
        graph->layers[user].op != GRAPH_ADD || (layer->out.dtype != GRAPH_F32 && !adds_half))
        return;
    other = graph->layers[user].inputs[graph->layers[user].inputs[0] == at ? 1 : 0];
    if (other > at)
        return; /* the other summand is computed later; if it is a batch norm, it takes the add */
    layer->fused_add = true;
    layer->inputs[1] = other;
    remove_layer(graph, user, at);
}

static void fuse_relu(struct graph *graph, uint32_t at)
{
    struct graph_layer *layer = &graph->layers[at];
    uint32_t user = graph_only_user(graph, at);

    if (layer->op != GRAPH_BATCH_NORM && layer->op != GRAPH_ADD)
        return;
    if (user == GRAPH_NONE || graph->layers[user].op != GRAPH_RELU)
        return;
    layer->fused_relu = true;
    remove_layer(graph, user, at);
}

static void fuse_pool(struct graph *graph, uint32_t at)
{
    struct graph_layer *layer = &graph->layers[at];
    uint32_t user = graph_only_user(graph, at);
    const struct graph_layer *pool;

    if (layer->op != GRAPH_BATCH_NORM || !layer->fused_relu || user == GRAPH_NONE ||
        layer->fused_add || layer->out.dtype != GRAPH_F32)
        return;
    pool = &graph->layers[user];
    if (pool->op != GRAPH_MAX_POOL || pool->window.kernel != 2 || pool->window.stride != 2 ||
        pool->window.pad != 0 || layer->out.dims[1] % 2 != 0 || layer->out.dims[2] % 2 != 0)
        return;
    layer->fused_pool = true;
    layer->window = pool->window;
    layer->out = pool->out;
    remove_layer(graph, user, at);
}

void pass_fuse_adds(struct graph *graph)
{
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const uint32_t user = graph_only_user(graph, i);
        const bool has_relu = user != GRAPH_NONE && graph->layers[user].fused_relu;
        struct graph_layer *layer = &graph->layers[i];

        if (layer->fused_add || layer->fused_relu || layer->fused_pool)
            continue;
        fuse_add(graph, i, true);
        layer->rounds_norm = layer->fused_add;
        layer->fused_relu = layer->fused_add && has_relu;
    }
}

void pass_fuse_pools(struct graph *graph)
{
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        struct graph_layer *layer = &graph->layers[i];
        const uint32_t user = graph_only_user(graph, i);

        if (layer->op != GRAPH_BATCH_NORM || !layer->fused_relu || layer->fused_add ||
            layer->fused_pool || user == GRAPH_NONE || graph->layers[user].op != GRAPH_MAX_POOL)
            continue;
        layer->fused_pool = true;
        layer->window = graph->layers[user].window;
        layer->out = graph->layers[user].out;
        remove_layer(graph, user, i);
    }
}

enum status pass_fuse(const struct graph *graph, bool adds_half, struct graph **out,
                      struct err *err)
{
    *out = graph_copy(graph);
    if (*out == NULL)
        return err_set(err, STATUS_MEMORY, 0, "fusing layers: out of memory");
    for (uint32_t i = 0; i < (*out)->layer_count; i++) {
        fuse_add(*out, i, adds_half);
        fuse_relu(*out, i);
        fuse_pool(*out, i);
    }
    return STATUS_OK;
}
