/* A model in a file: a JSON list of layers, read strictly. docs/models.md is the description for
 * users. Reading knows no shapes; building does, once the data is there. No I/O here.
 *
 * Every error names the file, the line and the layer:
 *     nets/a.json, line 7, layer conv2: "kernel" is 0, must be 1 to 255 */
#ifndef WORKER_MODEL_FILE_H
#define WORKER_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph.h"
#include "worker/model.h"

#define MODEL_FILE_BYTES_MAX (1U << 20)
#define MODEL_FILE_NAME_MAX 40                     /* of the model */
#define MODEL_FILE_WEIGHTS_MAX (UINT64_C(1) << 30) /* weights of all layers together */
#define MODEL_FILE_VALUES_MAX (UINT64_C(1) << 28)  /* of one layer for one image */
#define MODEL_FILE_CLASSES 0 /* model_file_layer.out: as many as there are classes */

struct model_file_layer {
    enum graph_op op;
    char name[GRAPH_NAME_MAX];
    uint32_t line;      /* where it begins, from 1 */
    uint32_t inputs[2]; /* 0: the images; n: the layer before which n - 1 stand in the file, which
                           is its number in the graph */
    struct graph_window window;
    uint32_t out; /* channels or features */
    bool has_bias;
    float eps, momentum;
};

struct model_file {
    char path[64]; /* for errors; the end of a long one */
    char name[MODEL_FILE_NAME_MAX + 1];
    uint32_t channels; /* 0: the data's */
    uint32_t classes;  /* 0: the data's */
    bool init_torchvision;
    struct model_file_layer *layers; /* [layer_count] */
    uint32_t layer_count;            /* without the images and an implied loss */
};

/* `text` need not end in a NUL. `*file` is the caller's, NULL on failure. Errors: STATUS_BAD_INPUT,
 * STATUS_TOO_BIG, STATUS_MEMORY. */
enum status model_file_parse(struct model_file **file, const char *path, const char *text,
                             size_t byte_count, struct err *err);
void model_file_free(struct model_file **file);

/* What the graph is built for with data of this shape: the file's channels and classes go first. */
struct model_shape model_file_shape(const struct model_file *file, const struct model_shape *data);
/* The graph for images and classes of `shape`; owned by the caller. Errors: STATUS_BAD_INPUT
 * (shapes that do not fit, a value that nobody reads, no scores for the classes), STATUS_TOO_BIG,
 * STATUS_MEMORY. */
enum status model_file_build(struct graph **graph, const struct model_file *file,
                             const struct model_shape *shape, struct err *err);
/* "name@" and 16 digits of the graph's hash: what a checkpoint is recognised by. */
void model_file_identity(const struct model_file *file, const struct graph *graph, char text[64]);

#endif
