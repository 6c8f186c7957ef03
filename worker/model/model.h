/* The models that ddp-worker can train, as graphs, and the values that their parameters start with.
 *
 *     model.h       models by PyTorch's names
 *     file.h        models from a JSON file
 *     init.h        initial parameters
 *     pretrained.h  parameters from a safetensors file */
#ifndef WORKER_MODEL_MODEL_H
#define WORKER_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"

/* Shape of the images and number of classes that a model is built for. */
struct model_shape {
    uint32_t channels, height, width, classes;
};

/* The graph for `-a ARCH`, owned by the caller. Errors: STATUS_NOT_FOUND (the text lists all
 * models), STATUS_BAD_INPUT (images too small; the text names the layer), STATUS_MEMORY. */
enum status model_build(struct graph **graph, const char *arch, const struct model_shape *shape,
                        struct err *err);

/* Whether `-a ARCH` is a file (file.h): it has a '/' or ends in ".json". */
bool model_is_file(const char *arch);

/* Two blocks of conv 5x5, batch norm, ReLU, max pool 2x2; then a linear layer: the tutorials'
 * ConvNet. */
void model_convnet_build(struct graph *graph, const struct model_shape *shape);
/* Four 3x3 convolutions without padding, two linear layers; for images of at least 16x16. */
void model_toynet_build(struct graph *graph, const struct model_shape *shape);
/* torchvision's ResNets; for images of any size, meant for 224x224. */
void model_resnet18_build(struct graph *graph, const struct model_shape *shape);
void model_resnet34_build(struct graph *graph, const struct model_shape *shape);
void model_resnet50_build(struct graph *graph, const struct model_shape *shape);
void model_resnet101_build(struct graph *graph, const struct model_shape *shape);
void model_resnet152_build(struct graph *graph, const struct model_shape *shape);

/* Channels of the input of `-a ARCH`: 3 for the ResNets, else 0 (those of the data). Images of one
 * channel are copied into all three. */
uint32_t model_channels(const char *arch);
/* Whether convolutions start as in torchvision's ResNet, see init.h. */
bool model_is_resnet(const char *arch);

#endif
