/* A model in a file: a JSON list of layers, checked strictly. docs/models.md describes the format.
 * Parsing needs no shapes; building needs those of the data. No I/O here.
 *
 * Every error names the file, the line and the layer:
 *     nets/a.json, line 7, layer conv2: "kernel" is 0, must be 1 to 255 */
#ifndef WORKER_MODEL_FILE_H
#define WORKER_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"
#include "worker/model/model.h"

#define MODEL_FILE_BYTES_MAX (1U << 20)
#define MODEL_FILE_NAME_MAX 40                     /* characters of the model's name */
#define MODEL_FILE_WEIGHTS_MAX (UINT64_C(1) << 30) /* in all layers together */
#define MODEL_FILE_VALUES_MAX (UINT64_C(1) << 28)  /* in the output of a layer for one image */
#define MODEL_FILE_CHANNELS_MAX 4                  /* of the input, for all backends */
#define MODEL_FILE_CLASSES 0                       /* model_file_layer.out: the number of classes */

struct model_file_layer {
    enum graph_op op;
    char name[GRAPH_NAME_MAX];
    uint32_t line;      /* in the file, from 1 */
    uint32_t inputs[2]; /* 0: the images; n: the n-th layer of the file, its index in the graph */
    struct graph_window window;
    uint32_t out; /* channels or features */
    bool has_bias;
    float eps, momentum;
};

struct model_file {
    char path[64]; /* for errors; of a long path its end */
    char name[MODEL_FILE_NAME_MAX + 1];
    uint32_t channels; /* 0: those of the data */
    uint32_t classes;  /* 0: those of the data */
    bool init_torchvision;
    struct model_file_layer *layers; /* [layer_count] */
    uint32_t layer_count;            /* without the images and a loss that the file leaves out */
};

/* `text` need not end in a NUL. `*file` is the caller's, NULL on failure. Errors: STATUS_BAD_INPUT,
 * STATUS_TOO_BIG, STATUS_MEMORY. */
enum status model_file_parse(struct model_file **file, const char *path, const char *text,
                             size_t byte_count, struct err *err);
void model_file_free(struct model_file **file);

/* The shape to build the graph for: that of the data, but with the file's channels and classes
 * where it has them. */
struct model_shape model_file_shape(const struct model_file *file, const struct model_shape *data);
/* The graph for images and classes of `shape`; owned by the caller. Errors: STATUS_BAD_INPUT
 * (shapes that do not fit, a value that no layer reads, too few scores for the classes),
 * STATUS_TOO_BIG, STATUS_MEMORY. */
enum status model_file_build(struct graph **graph, const struct model_file *file,
                             const struct model_shape *shape, struct err *err);
/* "NAME@" and 16 hex digits of the graph's hash: the `arch` of a checkpoint. */
void model_file_identity(const struct model_file *file, const struct graph *graph, char text[64]);

#endif
