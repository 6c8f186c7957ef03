/* Builders, shape inference and checks of the model graph. */
#include "worker/graph/graph.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct graph *graph_new(void)
{
    return calloc(1, sizeof(struct graph));
}

void graph_free(struct graph **graph)
{
    if (*graph == NULL)
        return;
    free((*graph)->layers);
    free((*graph)->tensors);
    free((*graph)->grad_order);
    free((*graph)->buckets);
    free(*graph);
    *graph = NULL;
}

/* A copy of `count` items of `size` bytes; NULL if count is 0. Sets *failed when out of memory. */
static void *copy_items(const void *items, size_t count, size_t size, bool *failed)
{
    void *copy;

    if (count == 0)
        return NULL;
    copy = malloc(count * size);
    if (copy == NULL)
        *failed = true;
    else
        memcpy(copy, items, count * size);
    return copy;
}

struct graph *graph_copy(const struct graph *graph)
{
    struct graph *copy = graph_new();
    bool failed = false;

    if (copy == NULL)
        return NULL;
    *copy = *graph;
    copy->layers = copy_items(graph->layers, graph->layer_count, sizeof *copy->layers, &failed);
    copy->tensors = copy_items(graph->tensors, graph->tensor_count, sizeof *copy->tensors, &failed);
    copy->grad_order =
        copy_items(graph->grad_order, graph->grad_count, sizeof *copy->grad_order, &failed);
    copy->buckets = copy_items(graph->buckets, graph->bucket_count, sizeof *copy->buckets, &failed);
    if (failed)
        graph_free(&copy);
    return copy;
}

const char *graph_op_name(enum graph_op op)
{
    static const char *const names[] = {
#define GRAPH_OP_NAME(name, text) [GRAPH_##name] = (text),
        GRAPH_OP_TABLE(GRAPH_OP_NAME)
#undef GRAPH_OP_NAME
    };

    assert((size_t)op < sizeof names / sizeof names[0]);
    return names[op];
}

const char *graph_dtype_name(enum graph_dtype dtype)
{
    static const char *const names[] = {
        [GRAPH_F32] = "fp32", [GRAPH_F16] = "fp16", [GRAPH_BF16] = "bf16"};

    assert((size_t)dtype < sizeof names / sizeof names[0]);
    return names[dtype];
}

uint32_t graph_dtype_bytes(enum graph_dtype dtype)
{
    return dtype == GRAPH_F32 ? 4 : 2;
}

size_t graph_value_count(const struct graph_value *value)
{
    size_t count = 1;

    assert(value->dim_count <= 3);
    for (uint32_t i = 0; i < value->dim_count; i++)
        count *= value->dims[i];
    return count;
}

uint32_t graph_use_count(const struct graph *graph, uint32_t layer)
{
    uint32_t uses = 0;

    assert(layer < graph->layer_count);
    for (uint32_t i = layer + 1; i < graph->layer_count; i++)
        for (uint32_t k = 0; k < 2; k++)
            uses += graph->layers[i].inputs[k] == layer;
    return uses;
}

uint32_t graph_only_user(const struct graph *graph, uint32_t layer)
{
    if (graph_use_count(graph, layer) != 1)
        return GRAPH_NONE;
    for (uint32_t i = layer + 1; i < graph->layer_count; i++)
        if (graph->layers[i].inputs[0] == layer || graph->layers[i].inputs[1] == layer)
            return i;
    return GRAPH_NONE;
}

static bool failed(const struct graph *graph)
{
    return graph->err.status != STATUS_OK;
}

static uint32_t fail(struct graph *graph, const char *name, const char *why)
{
    if (!failed(graph))
        (void)err_set(&graph->err, STATUS_BAD_INPUT, 0, "layer %s: %s", name, why);
    return GRAPH_NONE;
}

static bool name_taken(const struct graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (strcmp(graph->layers[i].name, name) == 0)
            return true;
    return false;
}

/* Makes room for item number `count` of a growing array. There is no field for the capacity: it is
 * the next power of two, so only a count that is one needs a larger array. */
static bool grow(void **items, uint32_t count, size_t size)
{
    void *grown;

    if (count != 0 && (count & (count - 1)) != 0)
        return true;
    grown = realloc(*items, (count == 0 ? 1 : (size_t)count * 2) * size);
    if (grown == NULL)
        return false;
    *items = grown;
    return true;
}

/* A new layer whose output has the type and shape of its input; NULL after an error. */
static struct graph_layer *add_layer(struct graph *graph, const char *name, enum graph_op op,
                                     uint32_t input)
{
    struct graph_layer *layer;
    void *layers = graph->layers;

    if (failed(graph))
        return NULL;
    if (name[0] == '\0' || strlen(name) >= GRAPH_NAME_MAX)
        (void)fail(graph, name, "a name has 1 to 63 characters");
    else if (name_taken(graph, name))
        (void)fail(graph, name, "the name is used twice");
    else if (graph->layer_count == GRAPH_LAYERS_MAX)
        (void)fail(graph, name, "the graph is full (1024 layers)");
    else if (op != GRAPH_INPUT && input >= graph->layer_count)
        (void)fail(graph, name, "its input is not a layer of this graph");
    else if (!grow(&layers, graph->layer_count, sizeof *layer))
        (void)err_set(&graph->err, STATUS_MEMORY, 0, "layer %s: out of memory", name);
    if (failed(graph))
        return NULL;

    graph->layers = layers;
    layer = &graph->layers[graph->layer_count++];
    *layer = (struct graph_layer){
        .op = op,
        .inputs = {input, GRAPH_NONE},
        .tensor_first = graph->tensor_count,
    };
    (void)snprintf(layer->name, sizeof layer->name, "%s", name);
    if (op != GRAPH_INPUT)
        layer->out = graph->layers[input].out;
    return layer;
}

static uint32_t done(const struct graph *graph)
{
    return failed(graph) ? GRAPH_NONE : graph->layer_count - 1;
}

static void add_tensor(struct graph *graph, struct graph_layer *layer, enum graph_role role,
                       const uint32_t *dims, uint32_t dim_count)
{
    static const char *const suffixes[] = {
        [GRAPH_WEIGHT] = "weight",
        [GRAPH_BIAS] = "bias",
        [GRAPH_RUNNING_MEAN] = "running_mean",
        [GRAPH_RUNNING_VAR] = "running_var",
    };
    struct graph_tensor *tensor;
    void *tensors = graph->tensors;

    assert(dim_count >= 1 && dim_count <= 4);
    assert(layer == &graph->layers[graph->layer_count - 1]); /* tensors of a layer are adjacent */
    if (failed(graph))
        return;
    if (graph->tensor_count == GRAPH_TENSORS_MAX ||
        !grow(&tensors, graph->tensor_count, sizeof *tensor)) {
        (void)fail(graph, layer->name, "no room for its parameters");
        return;
    }
    graph->tensors = tensors;
    tensor = &graph->tensors[graph->tensor_count++];
    *tensor = (struct graph_tensor){
        .role = role,
        .layer = (uint32_t)(layer - graph->layers),
        .dim_count = dim_count,
        .count = 1,
        .trainable = role == GRAPH_WEIGHT || role == GRAPH_BIAS,
    };
    (void)snprintf(tensor->name, sizeof tensor->name, "%s.%s", layer->name, suffixes[role]);
    for (uint32_t i = 0; i < dim_count; i++) {
        tensor->dims[i] = dims[i];
        tensor->count *= dims[i];
    }
    layer->tensor_count++;
}

static bool is_image(const struct graph_value *value)
{
    return value->dim_count == 3;
}

uint32_t graph_input(struct graph *graph, uint32_t channels, uint32_t height, uint32_t width)
{
    struct graph_layer *layer;

    if (graph->layer_count != 0)
        return fail(graph, "input", "the input is the first layer");
    if (channels == 0 || height == 0 || width == 0 || channels > GRAPH_DIM_MAX ||
        height > GRAPH_DIM_MAX || width > GRAPH_DIM_MAX)
        return fail(graph, "input", "channels, height and width are 1 to 65536");
    layer = add_layer(graph, "input", GRAPH_INPUT, GRAPH_NONE);
    if (layer != NULL)
        layer->out = (struct graph_value){GRAPH_F32, {channels, height, width}, 3};
    return done(graph);
}

/* Sets height and width of the output of a window, rounded down as in PyTorch. */
static void slide(struct graph *graph, struct graph_layer *layer, struct graph_window window)
{
    char why[160];

    layer->window = window;
    if (window.kernel == 0 || window.stride == 0 || window.kernel > 255 || window.stride > 255 ||
        window.pad > 255) {
        (void)fail(graph, layer->name, "kernel and stride are 1 to 255, padding 0 to 255");
        return;
    }
    for (uint32_t i = 1; i < 3; i++) {
        uint32_t padded = layer->out.dims[i] + 2 * window.pad;

        if (padded < window.kernel) {
            (void)snprintf(why, sizeof why,
                           "a kernel of %u does not fit into %ux%u with padding %u", window.kernel,
                           layer->out.dims[1], layer->out.dims[2], window.pad);
            (void)fail(graph, layer->name, why);
            return;
        }
        layer->out.dims[i] = (padded - window.kernel) / window.stride + 1;
    }
}

uint32_t graph_conv2d(struct graph *graph, const char *name, uint32_t input, uint32_t out_channels,
                      struct graph_window window, bool has_bias)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_CONV2D, input);
    uint32_t in_channels;

    if (layer == NULL)
        return GRAPH_NONE;
    if (!is_image(&layer->out))
        return fail(graph, name, "conv2d reads [channels][height][width], not [features]");
    if (out_channels == 0 || out_channels > GRAPH_DIM_MAX)
        return fail(graph, name, "conv2d makes 1 to 65536 channels");
    in_channels = layer->out.dims[0];
    slide(graph, layer, window);
    layer->out.dims[0] = out_channels;
    layer->has_bias = has_bias;
    add_tensor(graph, layer, GRAPH_WEIGHT,
               (uint32_t[]){out_channels, in_channels, window.kernel, window.kernel}, 4);
    if (has_bias)
        add_tensor(graph, layer, GRAPH_BIAS, &out_channels, 1);
    return done(graph);
}

uint32_t graph_batch_norm(struct graph *graph, const char *name, uint32_t input)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_BATCH_NORM, input);

    if (layer == NULL)
        return GRAPH_NONE;
    layer->eps = 1e-5F;
    layer->momentum = 0.1F;
    for (int role = GRAPH_WEIGHT; role <= GRAPH_RUNNING_VAR; role++)
        add_tensor(graph, layer, (enum graph_role)role, &layer->out.dims[0], 1);
    return done(graph);
}

uint32_t graph_relu(struct graph *graph, const char *name, uint32_t input)
{
    (void)add_layer(graph, name, GRAPH_RELU, input);
    return done(graph);
}

uint32_t graph_max_pool(struct graph *graph, const char *name, uint32_t input,
                        struct graph_window window)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_MAX_POOL, input);

    if (layer == NULL)
        return GRAPH_NONE;
    if (!is_image(&layer->out))
        return fail(graph, name, "max_pool reads [channels][height][width], not [features]");
    if (window.kernel > 15)
        return fail(graph, name, "a pooling kernel is at most 15");
    if (2 * window.pad > window.kernel)
        return fail(graph, name, "padding of a pool is at most half its kernel");
    slide(graph, layer, window);
    return done(graph);
}

uint32_t graph_avg_pool(struct graph *graph, const char *name, uint32_t input)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_AVG_POOL, input);

    if (layer == NULL)
        return GRAPH_NONE;
    if (!is_image(&layer->out))
        return fail(graph, name, "avg_pool reads [channels][height][width], not [features]");
    layer->out.dims[1] = layer->out.dims[2] = 1;
    return done(graph);
}

uint32_t graph_flatten(struct graph *graph, const char *name, uint32_t input)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_FLATTEN, input);
    size_t count;

    if (layer == NULL)
        return GRAPH_NONE;
    count = graph_value_count(&layer->out);
    if (count > UINT32_MAX)
        return fail(graph, name, "more than 4294967295 features");
    layer->out = (struct graph_value){layer->out.dtype, {(uint32_t)count, 0, 0}, 1};
    return done(graph);
}

uint32_t graph_linear(struct graph *graph, const char *name, uint32_t input, uint32_t out_features,
                      bool has_bias)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_LINEAR, input);
    uint32_t in_features;

    if (layer == NULL)
        return GRAPH_NONE;
    if (layer->out.dim_count != 1)
        return fail(graph, name, "linear reads [features]; put a flatten before it");
    if (out_features == 0 || out_features > GRAPH_DIM_MAX)
        return fail(graph, name, "linear makes 1 to 65536 features");
    in_features = layer->out.dims[0];
    layer->out.dims[0] = out_features;
    layer->has_bias = has_bias;
    add_tensor(graph, layer, GRAPH_WEIGHT, (uint32_t[]){out_features, in_features}, 2);
    if (has_bias)
        add_tensor(graph, layer, GRAPH_BIAS, &out_features, 1);
    return done(graph);
}

uint32_t graph_add(struct graph *graph, const char *name, uint32_t a, uint32_t b)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_ADD, a);
    const struct graph_value *other;
    char why[160];

    if (layer == NULL)
        return GRAPH_NONE;
    if (b >= graph->layer_count - 1)
        return fail(graph, name, "its second input is not a layer of this graph");
    other = &graph->layers[b].out;
    if (memcmp(other, &layer->out, sizeof *other) != 0) {
        (void)snprintf(why, sizeof why, "adds %s and %s, whose shapes differ",
                       graph->layers[a].name, graph->layers[b].name);
        return fail(graph, name, why);
    }
    layer->inputs[1] = b;
    return done(graph);
}

uint32_t graph_cross_entropy(struct graph *graph, const char *name, uint32_t input)
{
    struct graph_layer *layer = add_layer(graph, name, GRAPH_CROSS_ENTROPY, input);

    if (layer == NULL)
        return GRAPH_NONE;
    if (layer->out.dim_count != 1)
        return fail(graph, name, "cross_entropy reads [classes]; put a flatten before it");
    return done(graph);
}

enum status graph_check(const struct graph *graph, struct err *err)
{
    if (failed(graph)) {
        if (err != NULL)
            *err = graph->err;
        return graph->err.status;
    }
    if (graph->layer_count < 2 || graph->layers[0].op != GRAPH_INPUT)
        return err_set(err, STATUS_BAD_INPUT, 0, "graph: it has no input or no layers after it");
    for (uint32_t i = 0; i + 1 < graph->layer_count; i++) {
        const struct graph_layer *layer = &graph->layers[i];

        assert(layer->tensor_first + layer->tensor_count <= graph->tensor_count);
        assert(i == 0 || layer->inputs[0] < i); /* execution order */
        if (layer->op == GRAPH_CROSS_ENTROPY)
            return err_set(err, STATUS_BAD_INPUT, 0, "layer %s: the loss is the last layer",
                           layer->name);
        if (graph_use_count(graph, i) == 0)
            return err_set(err, STATUS_BAD_INPUT, 0, "layer %s: no other layer reads it",
                           layer->name);
    }
    if (graph->layers[graph->layer_count - 1].op != GRAPH_CROSS_ENTROPY)
        return err_set(err, STATUS_BAD_INPUT, 0, "layer %s: the last layer must be cross_entropy",
                       graph->layers[graph->layer_count - 1].name);
    return STATUS_OK;
}
