/* The mixed-precision pass. Layers are moved one by one into a new graph; casts are inserted before
 * them where their inputs have another type. */
#include "worker/graph/pass.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    const struct graph *from;
    const struct amp *amp;
    struct graph *to;
    uint32_t moved[GRAPH_LAYERS_MAX]; /* index in `from` to index in `to` */
    uint32_t casts[GRAPH_LAYERS_MAX]; /* index in `to` to that of its value's cast, or GRAPH_NONE */
    enum graph_dtype cast_types[GRAPH_LAYERS_MAX]; /* the type of that cast */
};

/* The type in which a layer reads its inputs and makes its value. The inputs are moved already. */
static enum graph_dtype compute_type(const struct walk *walk, const struct graph_layer *layer)
{
    const struct graph_layer *layers = walk->to->layers;
    enum graph_dtype a = GRAPH_F32, b = GRAPH_F32;

    if (layer->op == GRAPH_INPUT || layer->op == GRAPH_CROSS_ENTROPY)
        return GRAPH_F32;
    if (layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR || walk->amp->level >= 2)
        return walk->amp->half;
    a = layers[walk->moved[layer->inputs[0]]].out.dtype;
    if (layer->inputs[1] == GRAPH_NONE)
        return a;
    b = layers[walk->moved[layer->inputs[1]]].out.dtype;
    return a == b ? a : GRAPH_F32;
}

/* The index in `to` of the value of `layer` as `dtype`: itself, an earlier cast or a new one.
 * GRAPH_NONE when the graph is full. */
static uint32_t cast_to(struct walk *walk, uint32_t layer, enum graph_dtype dtype)
{
    struct graph *to = walk->to;
    struct graph_layer *cast;

    if (to->layers[layer].out.dtype == dtype)
        return layer;
    if (walk->casts[layer] != GRAPH_NONE && walk->cast_types[layer] == dtype)
        return walk->casts[layer];
    if (to->layer_count == GRAPH_LAYERS_MAX)
        return GRAPH_NONE;
    cast = &to->layers[to->layer_count];
    *cast = (struct graph_layer){
        .op = GRAPH_CAST, .inputs = {layer, GRAPH_NONE}, .out = to->layers[layer].out};
    cast->out.dtype = dtype;
    (void)snprintf(cast->name, sizeof cast->name, "%.56s.%s", to->layers[layer].name,
                   graph_dtype_name(dtype));
    cast->tensor_first = to->layers[layer].tensor_first;
    walk->casts[layer] = to->layer_count;
    walk->cast_types[layer] = dtype;
    walk->casts[to->layer_count] = GRAPH_NONE;
    return to->layer_count++;
}

static bool move_layer(struct walk *walk, uint32_t index)
{
    struct graph *to = walk->to;
    struct graph_layer layer = walk->from->layers[index];
    enum graph_dtype dtype = compute_type(walk, &layer);

    for (uint32_t k = 0; k < 2; k++) {
        if (layer.inputs[k] == GRAPH_NONE || layer.op == GRAPH_INPUT)
            continue;
        assert(layer.inputs[k] < index);
        layer.inputs[k] = cast_to(walk, walk->moved[layer.inputs[k]], dtype);
        if (layer.inputs[k] == GRAPH_NONE)
            return false;
    }
    if (to->layer_count == GRAPH_LAYERS_MAX)
        return false;
    layer.out.dtype = dtype;
    walk->moved[index] = to->layer_count;
    walk->casts[to->layer_count] = GRAPH_NONE;
    to->layers[to->layer_count++] = layer;
    return true;
}

static void type_tensors(struct walk *walk)
{
    const struct amp *amp = walk->amp;

    for (uint32_t i = 0; i < walk->to->tensor_count; i++) {
        struct graph_tensor *tensor = &walk->to->tensors[i];
        const enum graph_op op = walk->from->layers[tensor->layer].op;

        assert(walk->moved[tensor->layer] < walk->to->layer_count);
        tensor->layer = walk->moved[tensor->layer];
        if (op == GRAPH_BATCH_NORM && amp->norm_is_fp32)
            continue;
        tensor->dtype = amp->half;
        tensor->has_master = amp->has_masters && tensor->trainable;
        tensor->grad_dtype = amp->level == 1 ? GRAPH_F32 : amp->half;
    }
}

/* A copy without layers, with room for as many as a graph may have. */
static struct graph *copy_without_layers(const struct graph *graph)
{
    struct graph *copy = graph_copy(graph);

    if (copy == NULL)
        return NULL;
    free(copy->layers);
    copy->layers = calloc(GRAPH_LAYERS_MAX, sizeof *copy->layers);
    copy->layer_count = 0;
    if (copy->layers == NULL)
        graph_free(&copy);
    return copy;
}

enum status pass_amp(const struct graph *graph, const struct amp *amp, struct graph **out,
                     struct err *err)
{
    struct walk *walk = calloc(1, sizeof *walk);
    enum status status = STATUS_OK;

    *out = amp->level == 0 ? graph_copy(graph) : copy_without_layers(graph);
    if (*out == NULL || walk == NULL) {
        free(walk);
        graph_free(out);
        return err_set(err, STATUS_MEMORY, 0, "setting types: out of memory");
    }
    *walk = (struct walk){.from = graph, .amp = amp, .to = *out};
    for (uint32_t i = 0; amp->level > 0 && status == STATUS_OK && i < graph->layer_count; i++)
        if (!move_layer(walk, i))
            status = err_set(err, STATUS_TOO_BIG, 0,
                             "layer %s: with the casts before it the graph is full (%d layers)",
                             graph->layers[i].name, GRAPH_LAYERS_MAX);
    if (status == STATUS_OK && amp->level > 0)
        type_tensors(walk);
    if (status != STATUS_OK)
        graph_free(out);
    free(walk);
    return status;
}
