/* Initial parameters of nn.Conv2d, nn.Linear and nn.BatchNorm2d. */
#include "worker/model/init.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "worker/net/state.h"

/* Inputs of one output: input channels times kernel area, or input features. */
static size_t fan_in(const struct graph *graph, const struct graph_layer *layer)
{
    const struct graph_tensor *weight = &graph->tensors[layer->tensor_first];

    assert(layer->tensor_count > 0 && weight->role == GRAPH_WEIGHT && weight->dims[0] > 0);
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

/* The bounds are computed in double and in torch's order of operations, so that they round alike.
 * Source: torch.nn.init.kaiming_uniform_(a=sqrt(5)),
 * torch.nn.modules.linear.Linear.reset_parameters. */
static void draw_tensor(const struct graph *graph, const struct graph_tensor *tensor,
                        struct rng *rng, float *values)
{
    const struct graph_layer *layer = &graph->layers[tensor->layer];
    double fan = 0.0;

    assert(tensor->layer < graph->layer_count);
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

/* Source: torch.nn.init.kaiming_normal_, torchvision.models.resnet.ResNet.__init__. */
static void draw_fan_out(const struct graph_tensor *tensor, struct rng *rng, float *values)
{
    const double fan = (double)(tensor->dims[0] * (size_t)tensor->dims[2] * tensor->dims[3]);

    assert(tensor->dim_count == 4);
    rng_normal_f32(rng, 0.0F, (float)(sqrt(2.0) / sqrt(fan)), values, tensor->count);
}

/* A buffer for the largest tensor, zeroed. */
static float *room_for_largest(const struct graph *graph)
{
    size_t most = 1;

    for (uint32_t i = 0; i < graph->tensor_count; i++)
        most = graph->tensors[i].count > most ? graph->tensors[i].count : most;
    return calloc(most, sizeof(float));
}

enum pass { PASS_DEFAULT, PASS_DEFAULT_BEFORE_FAN_OUT, PASS_FAN_OUT };

/* torch draws some weights twice. The random numbers of the first time are used up, as there, but make no values. */
static enum status draw_all(struct net *net, const struct graph *graph, enum pass pass,
                            struct rng *rng, float *values, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < graph->tensor_count && status == STATUS_OK; i++) {
        const struct graph_tensor *tensor = &graph->tensors[i];
        const bool is_conv_weight =
            graph->layers[tensor->layer].op == GRAPH_CONV2D && tensor->role == GRAPH_WEIGHT;

        if (pass == PASS_FAN_OUT && !is_conv_weight)
            continue;
        if (pass == PASS_DEFAULT_BEFORE_FAN_OUT && is_conv_weight) {
            rng_skip(rng, tensor->count);
            continue;
        }
        if (pass == PASS_FAN_OUT)
            draw_fan_out(tensor, rng, values);
        else
            draw_tensor(graph, tensor, rng, values);
        status = net_tensor_write(net, i, values, err);
    }
    return status;
}

static enum status init(struct net *net, const struct graph *graph, bool is_resnet, struct rng *rng,
                        struct err *err)
{
    float *values = room_for_largest(graph);
    enum status status;

    assert(graph->tensor_count == net_tensor_count(net));
    if (values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "initial parameters: out of memory");
    status = draw_all(net, graph, is_resnet ? PASS_DEFAULT_BEFORE_FAN_OUT : PASS_DEFAULT, rng,
                      values, err);
    if (status == STATUS_OK && is_resnet)
        status = draw_all(net, graph, PASS_FAN_OUT, rng, values, err);
    free(values);
    return status;
}

enum status init_torch_default(struct net *net, const struct graph *graph, struct rng *rng,
                               struct err *err)
{
    return init(net, graph, false, rng, err);
}

enum status init_torchvision_resnet(struct net *net, const struct graph *graph, struct rng *rng,
                                    struct err *err)
{
    return init(net, graph, true, rng, err);
}

enum status init_zero_residual(struct net *net, const struct graph *graph, uint32_t *count,
                               struct err *err)
{
    float *zeros = room_for_largest(graph);
    enum status status = STATUS_OK;

    assert(graph->tensor_count == net_tensor_count(net));
    *count = 0;
    if (zeros == NULL)
        return err_set(err, STATUS_MEMORY, 0, "initial parameters: out of memory");
    for (uint32_t i = 0; i < graph->layer_count && status == STATUS_OK; i++) {
        const struct graph_layer *layer = &graph->layers[i];
        const struct graph_layer *last = layer;

        if (layer->op == GRAPH_ADD)
            last = &graph->layers[layer->inputs[0]];
        if (last->op != GRAPH_BATCH_NORM || last == layer)
            continue;
        status = net_tensor_write(net, last->tensor_first, zeros, err);
        ++*count;
    }
    free(zeros);
    return status;
}
