/* The models that ddp-worker can train, by PyTorch's names. */
#ifndef WORKER_MODEL_H
#define WORKER_MODEL_H

#include <stdint.h>

#include "common/status.h"
#include "worker/graph.h"

/* Shape of the images and number of classes that a model is built for. */
struct model_shape {
    uint32_t channels, height, width, classes;
};

/* The graph for `-a ARCH`. `*graph` is owned by the caller. Errors: STATUS_NOT_FOUND (the text
 * lists what there is), STATUS_BAD_INPUT (images too small for the layers, by name), STATUS_MEMORY.
 */
enum status model_build(struct graph **graph, const char *arch, const struct model_shape *shape,
                        struct err *err);

/* Two blocks of conv 5x5, batch norm, ReLU, max pool 2x2; then a linear layer: the tutorials'
 * ConvNet. */
void model_convnet_build(struct graph *graph, const struct model_shape *shape);

#endif
