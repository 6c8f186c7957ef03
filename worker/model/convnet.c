/* The ConvNet of the public DDP tutorials, module for module, so that names equal those of
 * PyTorch's state_dict. */
#include "worker/model/model.h"

void model_convnet_build(struct graph *graph, const struct model_shape *shape)
{
    const struct graph_window same = {.kernel = 5, .stride = 1, .pad = 2};
    const struct graph_window half = {.kernel = 2, .stride = 2, .pad = 0};
    uint32_t x;

    x = graph_input(graph, shape->channels, shape->height, shape->width);
    x = graph_conv2d(graph, "layer1.0", x, 16, same, true);
    x = graph_batch_norm(graph, "layer1.1", x);
    x = graph_relu(graph, "layer1.2", x);
    x = graph_max_pool(graph, "layer1.3", x, half);
    x = graph_conv2d(graph, "layer2.0", x, 32, same, true);
    x = graph_batch_norm(graph, "layer2.1", x);
    x = graph_relu(graph, "layer2.2", x);
    x = graph_max_pool(graph, "layer2.3", x, half);
    x = graph_flatten(graph, "flatten", x);
    x = graph_linear(graph, "fc", x, shape->classes, true);
    (void)graph_cross_entropy(graph, "loss", x);
}
