/* Costs of layers. See cost.h. */
#include "worker/profile/cost.h"

#include <assert.h>

struct sizes {
    const struct graph *graph;
    double images;
    bool stores_types;
    bool needs_grad
        [GRAPH_LAYERS_MAX]; /* whether backward computes the gradient of a layer's value */
};

static double element_bytes(const struct sizes *sizes, enum graph_dtype dtype)
{
    return sizes->stores_types ? (double)graph_dtype_bytes(dtype) : 4.0;
}

/* Bytes of a layer's value for all images; 0 for GRAPH_NONE. */
static double value_bytes(const struct sizes *sizes, uint32_t layer)
{
    const struct graph_value *value;

    if (layer == GRAPH_NONE)
        return 0.0;
    value = &sizes->graph->layers[layer].out;
    return sizes->images * (double)graph_value_count(value) * element_bytes(sizes, value->dtype);
}

static double grad_bytes(const struct sizes *sizes, uint32_t layer)
{
    return layer != GRAPH_NONE && sizes->needs_grad[layer] ? value_bytes(sizes, layer) : 0.0;
}

static double weight_bytes(const struct sizes *sizes, const struct graph_layer *layer)
{
    const struct graph_tensor *weight = &sizes->graph->tensors[layer->tensor_first];

    return (double)weight->count * element_bytes(sizes, weight->dtype);
}

/* Each output is a sum of weight->count / out_channels products. */
static double product_flop(const struct sizes *sizes, const struct graph_layer *layer)
{
    const struct graph_tensor *weight = &sizes->graph->tensors[layer->tensor_first];
    const double per_output = (double)weight->count / layer->out.dims[0];

    return 2.0 * sizes->images * (double)graph_value_count(&layer->out) * per_output;
}

static struct cost_layer cost_product(const struct sizes *sizes, uint32_t index)
{
    const struct graph_layer *layer = &sizes->graph->layers[index];
    const double flop = product_flop(sizes, layer), weights = weight_bytes(sizes, layer);
    const double x = value_bytes(sizes, layer->inputs[0]), y = value_bytes(sizes, index);
    const double dx = grad_bytes(sizes, layer->inputs[0]);
    struct cost_layer cost = {{flop, x + weights + y}, {flop, y + x + weights}};

    if (dx > 0.0) {
        cost.backward.flop += flop;
        cost.backward.bytes += y + weights + dx;
    }
    return cost;
}

/* Whether backward reads the input of forward, too; for other layers it reads only the gradient. */
static bool reads_input_again(const struct graph_layer *layer)
{
    return layer->op == GRAPH_BATCH_NORM || layer->op == GRAPH_RELU;
}

static struct cost_layer cost_pass(const struct sizes *sizes, uint32_t index)
{
    const struct graph_layer *layer = &sizes->graph->layers[index];
    const double y = value_bytes(sizes, index), x = value_bytes(sizes, layer->inputs[0]);
    struct cost_layer cost = {.forward.bytes = x + value_bytes(sizes, layer->inputs[1]) + y};

    if (layer->op == GRAPH_FLATTEN) /* a view: nothing is moved */
        return (struct cost_layer){.forward.bytes = 0.0};
    if (layer->op == GRAPH_INPUT) /* images are fp32 before they are converted */
        cost.forward.bytes = y + sizes->images * (double)graph_value_count(&layer->out) * 4.0;
    if (layer->op == GRAPH_CROSS_ENTROPY) {
        cost.forward.bytes = x;
        cost.backward.bytes = x + grad_bytes(sizes, layer->inputs[0]);
    } else if (sizes->needs_grad[index]) {
        cost.backward.bytes =
            y + grad_bytes(sizes, layer->inputs[0]) + grad_bytes(sizes, layer->inputs[1]);
        cost.backward.bytes += reads_input_again(layer) ? x : 0.0;
    }
    return cost;
}

void cost_of_layers(const struct graph *graph, uint32_t images, bool stores_types,
                    struct cost_layer *costs)
{
    struct sizes sizes = {.graph = graph, .images = images, .stores_types = stores_types};

    assert(graph->layer_count <= GRAPH_LAYERS_MAX);
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        const struct graph_layer *layer = &graph->layers[i];

        assert(layer->inputs[0] == GRAPH_NONE || layer->inputs[0] < i);
        sizes.needs_grad[i] = layer->tensor_count > 0;
        for (uint32_t k = 0; k < 2; k++)
            if (layer->inputs[k] != GRAPH_NONE && sizes.needs_grad[layer->inputs[k]])
                sizes.needs_grad[i] = true;
        costs[i] = layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR ? cost_product(&sizes, i)
                                                                          : cost_pass(&sizes, i);
    }
}

double cost_of_update(const struct graph *graph, const struct optim *optim, bool stores_types)
{
    const struct sizes sizes = {.graph = graph, .stores_types = stores_types};
    double bytes = 0.0, states = 0.0;

    for (uint32_t s = 0; s < OPTIM_STATES; s++)
        states += optim_uses(optim, (enum optim_state)s) ? 2.0 * 4.0 : 0.0;
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &graph->tensors[i];
        const double half = tensor->dtype != GRAPH_F32 ? element_bytes(&sizes, tensor->dtype) : 0.0;

        if (tensor->trainable)
            bytes += (double)tensor->count *
                     (2.0 * 4.0 + states + element_bytes(&sizes, tensor->grad_dtype) + half);
    }
    return bytes;
}
