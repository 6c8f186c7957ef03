/* nn.Conv2d, nn.Linear and nn.BatchNorm2d as they start. */
#include "worker/init.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Values going into one output: input channels x kernel area, or input features. */
static size_t fan_in(const struct graph *graph, const struct graph_layer *layer)
{
    const struct graph_tensor *weight = &graph->tensors[layer->tensor_first];

    return weight->count / weight->dims[0];
}

static void draw_uniform(struct rng *rng, double bound, float *values, size_t count)
{
    rng_uniform_f32(rng, (float)-bound, (float)bound, values, count);
}

static void fill(float value, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value;
}

/* Bounds in double and in torch's order of operations, so that they round alike.
 * Source: torch.nn.init.kaiming_uniform_(a=sqrt(5)),
 * torch.nn.modules.linear.Linear.reset_parameters. */
static void draw_tensor(const struct graph *graph, const struct graph_tensor *tensor,
                        struct rng *rng, float *values)
{
    const struct graph_layer *layer = &graph->layers[tensor->layer];
    double fan = 0.0;

    if (layer->op == GRAPH_BATCH_NORM) {
        bool is_one = tensor->role == GRAPH_WEIGHT || tensor->role == GRAPH_RUNNING_VAR;

        fill(is_one ? 1.0F : 0.0F, values, tensor->count);
        return;
    }
    assert(layer->op == GRAPH_CONV2D || layer->op == GRAPH_LINEAR);
    fan = (double)fan_in(graph, layer);
    if (tensor->role == GRAPH_WEIGHT) {
        double gain = sqrt(2.0 / (1.0 + sqrt(5.0) * sqrt(5.0)));

        draw_uniform(rng, sqrt(3.0) * (gain / sqrt(fan)), values, tensor->count);
    } else {
        draw_uniform(rng, 1.0 / sqrt(fan), values, tensor->count);
    }
}

enum status init_torch_default(struct net *net, const struct graph *graph, struct rng *rng,
                               struct err *err)
{
    size_t most = 1;
    float *values;
    enum status status = STATUS_OK;

    assert(graph->tensor_count == net_tensor_count(net));
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        most = graph->tensors[i].count > most ? graph->tensors[i].count : most;
    values = calloc(most, sizeof *values);
    if (values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "initial parameters: out of memory");
    for (uint32_t i = 0; i < graph->tensor_count && status == STATUS_OK; i++) {
        draw_tensor(graph, &graph->tensors[i], rng, values);
        status = net_tensor_write(net, i, values, err);
    }
    free(values);
    return status;
}
