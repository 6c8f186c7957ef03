/* The models that ddp-worker can train, by PyTorch's names. */
#ifndef WORKER_MODEL_H
#define WORKER_MODEL_H

#include <stdbool.h>
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

/* Whether `-a ARCH` is a file (model_file.h): it has a '/' or ends in ".json". */
bool model_is_file(const char *arch);

/* Two blocks of conv 5x5, batch norm, ReLU, max pool 2x2; then a linear layer: the tutorials'
 * ConvNet. */
void model_convnet_build(struct graph *graph, const struct model_shape *shape);
/* Four unpadded convolutions 3x3 and two linear layers; for images from 16x16 on. */
void model_toynet_build(struct graph *graph, const struct model_shape *shape);
/* As torchvision's; any image from 1x1 on, 28x28 included, though 224x224 is what they are for. */
void model_resnet18_build(struct graph *graph, const struct model_shape *shape);
void model_resnet34_build(struct graph *graph, const struct model_shape *shape);
void model_resnet50_build(struct graph *graph, const struct model_shape *shape);
void model_resnet101_build(struct graph *graph, const struct model_shape *shape);
void model_resnet152_build(struct graph *graph, const struct model_shape *shape);

/* What `-a ARCH` reads where its images have another number of channels: 3 for the ResNets, else 0
 * (any). One-channel images are repeated. */
uint32_t model_channels(const char *arch);
/* Whether convolutions start as torchvision's ResNet has them: see init.h. */
bool model_is_resnet(const char *arch);

#endif
