/* The list of layers of a model file into a graph, for images of a known shape. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
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

/* The error of a graph builder; its text starts with "layer NAME: ". */
static enum status builder_failed(const struct model_file *file,
                                  const struct model_file_layer *layer, const struct graph *graph,
                                  struct err *err)
{
    return err_set(err, graph->err.status, 0, "%s, line %u, %s", file->path, layer->line,
                   graph->err.text);
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
                              const struct model_shape *shape, struct err *err)
{
    uint64_t weights = 0;

    for (uint32_t i = 0; i < file->layer_count; i++) {
        const struct model_file_layer *layer = &file->layers[i];
        enum status status;

        assert(graph->layer_count == i + 1); /* layer n of the file has index n in the graph */
        if (add(graph, layer, shape) == GRAPH_NONE)
            return builder_failed(file, layer, graph, err);
        status = check_size(file, layer, graph, &weights, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* Adds the loss if the file has none, and checks the graph. */
static enum status finish(struct graph *graph, const struct model_file *file,
                          const struct model_shape *shape, struct err *err)
{
    const struct model_file_layer *last = &file->layers[file->layer_count - 1];
    const struct graph_layer *scores;
    char what[224];

    assert(graph->layer_count == file->layer_count + 1);
    if (last->op != GRAPH_CROSS_ENTROPY) {
        if (graph->layers[graph->layer_count - 1].out.dim_count != 1)
            return fail(file, last, STATUS_BAD_INPUT, err,
                        "the loss after the last layer reads [classes]; put a flatten before it");
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
    enum status status;

    assert(file->layer_count > 0 && shape->classes > 0);
    *out = graph;
    if (graph == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its graph", file->path);
    if (graph_input(graph, shape->channels, shape->height, shape->width) == GRAPH_NONE)
        status = err_set(err, graph->err.status, 0, "%s: %s", file->path, graph->err.text);
    else
        status = add_layers(graph, file, shape, err);
    if (status == STATUS_OK)
        status = finish(graph, file, shape, err);
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
