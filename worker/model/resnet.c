/* ResNet 18 to 152, module for module as in torchvision.models.resnet, so that names, order and
 * shapes equal those of its state_dict. It is "v1.5": the stride of a bottleneck is that of its 3x3
 * convolution. Source: He et al. 2015, "Deep Residual Learning", table 1. */
#include "worker/model/model.h"

#include <stdio.h>

enum { STAGES = 4, EXPANSION = 4 /* output channels of a bottleneck, in widths */ };

struct resnet {
    uint32_t blocks[STAGES];
    bool is_bottleneck;
};

/* "layer1.0" + ".conv1" */
static const char *join(char full[GRAPH_NAME_MAX], const char *block, const char *part)
{
    (void)snprintf(full, GRAPH_NAME_MAX, "%.31s.%.31s", block, part);
    return full;
}

/* Convolution and batch norm number `k` of a block. */
static uint32_t conv_norm(struct graph *graph, const char *block, uint32_t k, uint32_t x,
                          uint32_t channels, struct graph_window window)
{
    char part[16], full[GRAPH_NAME_MAX];

    (void)snprintf(part, sizeof part, "conv%u", k);
    x = graph_conv2d(graph, join(full, block, part), x, channels, window, false);
    (void)snprintf(part, sizeof part, "bn%u", k);
    return graph_batch_norm(graph, join(full, block, part), x);
}

static uint32_t relu(struct graph *graph, const char *block, uint32_t k, uint32_t x)
{
    char part[16], full[GRAPH_NAME_MAX];

    (void)snprintf(part, sizeof part, "relu%u", k);
    return graph_relu(graph, join(full, block, part), x);
}

/* The skip connection: a 1x1 convolution and a batch norm where the shape changes, else x itself.
 */
static uint32_t shortcut(struct graph *graph, const char *block, uint32_t x, uint32_t channels,
                         uint32_t stride)
{
    char full[GRAPH_NAME_MAX];

    if (x == GRAPH_NONE || (stride == 1 && graph->layers[x].out.dims[0] == channels))
        return x;
    x = graph_conv2d(graph, join(full, block, "downsample.0"), x, channels,
                     (struct graph_window){1, stride, 0}, false);
    return graph_batch_norm(graph, join(full, block, "downsample.1"), x);
}

static uint32_t block(struct graph *graph, const struct resnet *net, const char *name, uint32_t x,
                      uint32_t width, uint32_t stride)
{
    const uint32_t channels = net->is_bottleneck ? width * EXPANSION : width;
    uint32_t y = x, last = 2;
    char full[GRAPH_NAME_MAX];

    if (net->is_bottleneck) {
        y = conv_norm(graph, name, 1, y, width, (struct graph_window){1, 1, 0});
        y = relu(graph, name, 1, y);
        y = conv_norm(graph, name, 2, y, width, (struct graph_window){3, stride, 1});
        y = relu(graph, name, 2, y);
        y = conv_norm(graph, name, 3, y, channels, (struct graph_window){1, 1, 0});
        last = 3;
    } else {
        y = conv_norm(graph, name, 1, y, width, (struct graph_window){3, stride, 1});
        y = relu(graph, name, 1, y);
        y = conv_norm(graph, name, 2, y, channels, (struct graph_window){3, 1, 1});
    }
    x = shortcut(graph, name, x, channels, stride);
    y = graph_add(graph, join(full, name, "add"), y, x);
    return relu(graph, name, last, y);
}

static void build(struct graph *graph, const struct model_shape *shape, const struct resnet *net)
{
    uint32_t x = graph_input(graph, shape->channels, shape->height, shape->width);

    x = graph_conv2d(graph, "conv1", x, 64, (struct graph_window){7, 2, 3}, false);
    x = graph_batch_norm(graph, "bn1", x);
    x = graph_relu(graph, "relu", x);
    x = graph_max_pool(graph, "maxpool", x, (struct graph_window){3, 2, 1});
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        for (uint32_t i = 0; i < net->blocks[stage]; i++) {
            char name[GRAPH_NAME_MAX];

            (void)snprintf(name, sizeof name, "layer%u.%u", stage + 1, i);
            x = block(graph, net, name, x, 64U << stage, stage > 0 && i == 0 ? 2 : 1);
        }
    }
    x = graph_avg_pool(graph, "avgpool", x);
    x = graph_flatten(graph, "flatten", x);
    x = graph_linear(graph, "fc", x, shape->classes, true);
    (void)graph_cross_entropy(graph, "loss", x);
}

void model_resnet18_build(struct graph *graph, const struct model_shape *shape)
{
    build(graph, shape, &(struct resnet){{2, 2, 2, 2}, false});
}

void model_resnet34_build(struct graph *graph, const struct model_shape *shape)
{
    build(graph, shape, &(struct resnet){{3, 4, 6, 3}, false});
}

void model_resnet50_build(struct graph *graph, const struct model_shape *shape)
{
    build(graph, shape, &(struct resnet){{3, 4, 6, 3}, true});
}

void model_resnet101_build(struct graph *graph, const struct model_shape *shape)
{
    build(graph, shape, &(struct resnet){{3, 4, 23, 3}, true});
}

void model_resnet152_build(struct graph *graph, const struct model_shape *shape)
{
    build(graph, shape, &(struct resnet){{3, 8, 36, 3}, true});
}
