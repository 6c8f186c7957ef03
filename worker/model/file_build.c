/* The list of layers of a model file into a graph, for images of a known shape. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/graph/hash.h"
#include "worker/model/internal.h"

static uint32_t add(struct graph *graph, const struct model_file_layer *layer,
                    const struct model_shape *shape)
{
    const uint32_t out = layer->out == MODEL_FILE_CLASSES ? shape->classes : layer->out;
    const uint32_t input = layer->inputs[0];
    uint32_t x = GRAPH_NONE;

    switch (layer->op) {
    case GRAPH_CONV2D:
        return graph_conv2d(graph, layer->name, input, out, layer->window, layer->has_bias);
    case GRAPH_BATCH_NORM:
        x = graph_batch_norm(graph, layer->name, input);
        if (x != GRAPH_NONE) {
            graph->layers[x].eps = layer->eps;
            graph->layers[x].momentum = layer->momentum;
        }
        return x;
    case GRAPH_RELU:
        return graph_relu(graph, layer->name, input);
    case GRAPH_MAX_POOL:
        return graph_max_pool(graph, layer->name, input, layer->window);
    case GRAPH_AVG_POOL:
        return graph_avg_pool(graph, layer->name, input);
    case GRAPH_FLATTEN:
        return graph_flatten(graph, layer->name, input);
    case GRAPH_LINEAR:
        return graph_linear(graph, layer->name, input, out, layer->has_bias);
    case GRAPH_ADD:
        return graph_add(graph, layer->name, input, layer->inputs[1]);
    case GRAPH_CROSS_ENTROPY:
        return graph_cross_entropy(graph, layer->name, input);
    case GRAPH_INPUT:
    case GRAPH_CAST:
        break; /* no layers of a file: take_op() refuses them */
    }
    return x;
}

static enum status fail(const struct model_file *file, const struct model_file_layer *layer,
                        enum status status, struct err *err, const char *what)
{
    return err_set(err, status, 0, "%s, line %u, layer %s: %s", file->path, layer->line,
                   layer->name, what);
}

static const char not_scores[] =
    "the class scores come from a linear layer: put {\"op\": \"linear\", \"name\": ..., "
    "\"out_features\": \"classes\"} at the end, after a flatten";

/* The error of a graph builder; its text starts with "layer NAME: ". */
static enum status builder_failed(const struct model_file *file,
                                  const struct model_file_layer *layer, const struct graph *graph,
                                  struct err *err)
{
    return err_set(err, graph->err.status, 0, "%s, line %u, %s", file->path, layer->line,
                   graph->err.text);
}

/* -- what a layer may read: one rule for all backends, that of docs/models.md -- */

/* What a layer makes. Backends store a flattened image in an order of their own. */
enum value_kind { VALUE_IMAGES, VALUE_MAPS, VALUE_FLAT, VALUE_FEATURES };

static enum value_kind kind_made(enum graph_op op, enum value_kind in)
{
    if (op == GRAPH_LINEAR)
        return VALUE_FEATURES;
    if (op == GRAPH_FLATTEN)
        return in == VALUE_FEATURES ? VALUE_FEATURES : VALUE_FLAT;
    return in == VALUE_IMAGES ? VALUE_MAPS : in;
}

/* kinds: [file->layer_count + 1], by layer of the graph; those of the layers above are known */
static enum status check_inputs(const struct model_file *file, const struct model_file_layer *layer,
                                const struct graph_layer *made, enum value_kind *kinds,
                                struct err *err)
{
    const enum value_kind in = kinds[made->inputs[0]];
    const enum value_kind other = made->op == GRAPH_ADD ? kinds[made->inputs[1]] : in;
    char what[160];

    kinds[layer - file->layers + 1] = kind_made(made->op, in);
    if ((in == VALUE_IMAGES || other == VALUE_IMAGES) && made->op != GRAPH_CONV2D &&
        made->op != GRAPH_FLATTEN) {
        (void)snprintf(what, sizeof what,
                       "%s cannot read the images: conv2d and flatten can; put one of them first",
                       graph_op_name(made->op));
        return fail(file, layer, STATUS_BAD_INPUT, err, what);
    }
    if (made->op == GRAPH_BATCH_NORM && in == VALUE_FLAT)
        return fail(file, layer, STATUS_BAD_INPUT, err,
                    "batch_norm cannot read a flattened image: put it before the flatten, or after "
                    "a linear layer");
    if (in != other)
        return fail(file, layer, STATUS_BAD_INPUT, err,
                    "add cannot read a flattened image beside what a linear layer makes");
    if (made->op == GRAPH_CROSS_ENTROPY && in != VALUE_FEATURES)
        return fail(file, layer, STATUS_BAD_INPUT, err, not_scores);
    return STATUS_OK;
}

static enum status check_size(const struct model_file *file, const struct model_file_layer *layer,
                              const struct graph *graph, uint64_t *weights, struct err *err)
{
    const struct graph_layer *made = &graph->layers[graph->layer_count - 1];
    /* in two products, each of which fits 64 bits */
    const uint64_t values =
        (uint64_t)made->out.dims[0] * (made->out.dim_count == 3 ? made->out.dims[1] : 1);
    const uint64_t width = made->out.dim_count == 3 ? made->out.dims[2] : 1;
    char what[128];

    for (uint32_t i = 0; i < made->tensor_count; i++)
        *weights += graph->tensors[made->tensor_first + i].count;
    if (values > MODEL_FILE_VALUES_MAX || values * width > MODEL_FILE_VALUES_MAX) {
        (void)snprintf(what, sizeof what, "more than %" PRIu64 " values for one image",
                       MODEL_FILE_VALUES_MAX);
        return fail(file, layer, STATUS_TOO_BIG, err, what);
    }
    if (*weights > MODEL_FILE_WEIGHTS_MAX) {
        (void)snprintf(what, sizeof what,
                       "with it the model has %" PRIu64 " weights, at most %" PRIu64, *weights,
                       MODEL_FILE_WEIGHTS_MAX);
        return fail(file, layer, STATUS_TOO_BIG, err, what);
    }
    return STATUS_OK;
}

static enum status add_layers(struct graph *graph, const struct model_file *file,
                              const struct model_shape *shape, enum value_kind *kinds,
                              struct err *err)
{
    uint64_t weights = 0;

    kinds[0] = VALUE_IMAGES;
    for (uint32_t i = 0; i < file->layer_count; i++) {
        const struct model_file_layer *layer = &file->layers[i];
        enum status status;

        assert(graph->layer_count == i + 1); /* layer n of the file has index n in the graph */
        if (add(graph, layer, shape) == GRAPH_NONE)
            return builder_failed(file, layer, graph, err);
        status = check_inputs(file, layer, &graph->layers[i + 1], kinds, err);
        if (status == STATUS_OK)
            status = check_size(file, layer, graph, &weights, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* Adds the loss if the file has none, and checks the graph. */
static enum status finish(struct graph *graph, const struct model_file *file,
                          const struct model_shape *shape, const enum value_kind *kinds,
                          struct err *err)
{
    const struct model_file_layer *last = &file->layers[file->layer_count - 1];
    const struct graph_layer *scores;
    char what[224];

    assert(graph->layer_count == file->layer_count + 1);
    if (last->op != GRAPH_CROSS_ENTROPY) {
        if (kinds[file->layer_count] != VALUE_FEATURES)
            return fail(file, last, STATUS_BAD_INPUT, err, not_scores);
        (void)graph_cross_entropy(graph, "loss", graph->layer_count - 1);
    }
    if (graph_check(graph, NULL) != STATUS_OK && graph->err.status != STATUS_OK)
        return builder_failed(file, last, graph, err);
    for (uint32_t i = 0; i < file->layer_count; i++)
        if (i + 2 < graph->layer_count && graph_use_count(graph, i + 1) == 0)
            return fail(file, &file->layers[i], STATUS_BAD_INPUT, err, "no other layer reads it");
    scores = &graph->layers[graph->layers[graph->layer_count - 1].inputs[0]];
    if (scores->out.dims[0] < shape->classes) {
        (void)snprintf(what, sizeof what,
                       "the loss gets %u scores from %s, for %u classes; \"out_features\": "
                       "\"classes\" is always as many as there are",
                       scores->out.dims[0], scores->name, shape->classes);
        return fail(file, last, STATUS_BAD_INPUT, err, what);
    }
    return graph_check(graph, err);
}

struct model_shape model_file_shape(const struct model_file *file, const struct model_shape *data)
{
    struct model_shape shape = *data;

    if (file->channels > 0)
        shape.channels = file->channels;
    if (file->classes > 0)
        shape.classes = file->classes;
    return shape;
}

enum status model_file_build(struct graph **out, const struct model_file *file,
                             const struct model_shape *shape, struct err *err)
{
    struct graph *graph = graph_new();
    enum value_kind *kinds = calloc(file->layer_count + 1, sizeof *kinds);
    enum status status;

    assert(file->layer_count > 0 && shape->classes > 0);
    *out = graph;
    if (graph == NULL || kinds == NULL)
        status = err_set(err, STATUS_MEMORY, 0, "%s: no memory for its graph", file->path);
    else if (graph_input(graph, shape->channels, shape->height, shape->width) == GRAPH_NONE)
        status = err_set(err, graph->err.status, 0, "%s: %s", file->path, graph->err.text);
    else
        status = add_layers(graph, file, shape, kinds, err);
    if (status == STATUS_OK)
        status = finish(graph, file, shape, kinds, err);
    free(kinds);
    if (status != STATUS_OK)
        graph_free(out);
    return status;
}

void model_file_identity(const struct model_file *file, const struct graph *graph, char text[64])
{
    uint8_t hash[32];
    int used = snprintf(text, 64, "%s@", file->name);

    graph_hash(graph, hash);
    for (int i = 0; i < 8; i++)
        used += snprintf(text + used, 64 - (size_t)used, "%02x", hash[i]);
    assert(used < 64); /* 40 for the name, 1, 16 digits */
}
