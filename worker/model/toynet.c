/* The Toy_Net of the DDP tricks tutorial: 3x3 convolutions without padding, each followed by a
 * batch norm and a ReLU. For 28x28 pixels the last pool's output has 512 x 4 x 4 = 8192 features.
 */
#include "worker/model/model.h"

#include <stdio.h>

static uint32_t block(struct graph *graph, const char *name, uint32_t x, uint32_t channels)
{
    const struct graph_window three = {.kernel = 3, .stride = 1, .pad = 0};
    char full[GRAPH_NAME_MAX];

    (void)snprintf(full, sizeof full, "%.60s.0", name);
    x = graph_conv2d(graph, full, x, channels, three, true);
    (void)snprintf(full, sizeof full, "%.60s.1", name);
    x = graph_batch_norm(graph, full, x);
    (void)snprintf(full, sizeof full, "%.60s.2", name);
    return graph_relu(graph, full, x);
}

void model_toynet_build(struct graph *graph, const struct model_shape *shape)
{
    const struct graph_window half = {.kernel = 2, .stride = 2, .pad = 0};
    uint32_t x = graph_input(graph, shape->channels, shape->height, shape->width);

    x = block(graph, "conv1", x, 64);
    x = block(graph, "conv2", x, 128);
    x = graph_max_pool(graph, "pool1", x, half);
    x = block(graph, "conv3", x, 256);
    x = block(graph, "conv4", x, 512);
    x = graph_max_pool(graph, "pool2", x, half);
    x = graph_flatten(graph, "flatten", x);
    x = graph_linear(graph, "fc1.0", x, 512, true);
    x = graph_batch_norm(graph, "fc1.1", x);
    x = graph_relu(graph, "fc1.2", x);
    x = graph_linear(graph, "fc2", x, shape->classes, true);
    (void)graph_cross_entropy(graph, "loss", x);
}
