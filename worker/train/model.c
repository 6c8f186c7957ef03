/* The model of a training, by name or from a file, and its first parameters. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "worker/data/fileio.h"
#include "worker/model/init.h"
#include "worker/model/model.h"
#include "worker/model/file.h"
#include "worker/model/pretrained.h"
#include "worker/train/internal.h"

enum status train_model_open(struct train *train, struct err *err)
{
    const char *path = train->options->arch;
    uint64_t byte_count;
    char *text = NULL;
    struct err why;
    enum status status;

    if (!model_is_file(path))
        return STATUS_OK;
    status = fileio_read_file(path, MODEL_FILE_BYTES_MAX, &text, &byte_count, &why);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "--arch: %s", why.text);
    status = model_file_parse(&train->model_file, path, text, byte_count, err);
    free(text);
    return status;
}

struct dataset_shape train_model_dummy(const struct train *train)
{
    const struct options *options = train->options;
    const bool is_resnet = model_is_resnet(options->arch);
    const uint32_t size = options->image_size, classes = options->class_count;
    struct model_shape usual = {1, 28, 28, 10};

    if (is_resnet)
        usual = (struct model_shape){3, 224, 224, 1000};
    if (train->model_file != NULL)
        usual = model_file_shape(train->model_file, &usual);
    return (struct dataset_shape){usual.channels, size > 0 ? size : usual.height,
                                  size > 0 ? size : usual.width,
                                  classes > 0 ? classes : usual.classes};
}

static enum status build_file(const struct train *train, const struct dataset_shape *data,
                              struct graph **graph, struct err *err)
{
    const struct model_file *file = train->model_file;
    const struct model_shape given = {data->channels, data->height, data->width, data->classes};
    const struct model_shape shape = model_file_shape(file, &given);

    if (shape.channels != data->channels && data->channels != 1)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: \"channels\" is %u, the images have %u; only one channel is widened",
                       file->path, shape.channels, data->channels);
    if (shape.classes < data->classes)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: \"classes\" is %u, the data has %u",
                       file->path, shape.classes, data->classes);
    return model_file_build(graph, file, &shape, err);
}

/* The first batch norm that gets only one value for each channel and image; "": none. */
static void find_lone_norm(struct train *train, const struct graph *graph)
{
    train->lone_norm[0] = '\0';
    for (uint32_t i = 0; i < graph->layer_count && train->lone_norm[0] == '\0'; i++) {
        const struct graph_layer *layer = &graph->layers[i];
        const struct graph_value *in;

        if (layer->op != GRAPH_BATCH_NORM)
            continue;
        in = &graph->layers[layer->inputs[0]].out;
        if (in->dim_count == 1 || in->dims[1] * in->dims[2] == 1)
            (void)snprintf(train->lone_norm, sizeof train->lone_norm, "%s", layer->name);
    }
}

static enum status build(struct train *train, const struct dataset_shape *data,
                         struct graph **graph, struct err *err)
{
    const char *arch = train->options->arch;
    const uint32_t channels = model_channels(arch);
    const struct model_shape shape = {channels > 0 ? channels : data->channels, data->height,
                                      data->width, data->classes};
    enum status status;

    if (train->model_file == NULL) {
        (void)snprintf(train->model_identity, sizeof train->model_identity, "%s", arch);
        return model_build(graph, arch, &shape, err);
    }
    status = build_file(train, data, graph, err);
    if (status == STATUS_OK)
        model_file_identity(train->model_file, *graph, train->model_identity);
    return status;
}

enum status train_model_build(struct train *train, const struct dataset_shape *data,
                              struct graph **graph, struct err *err)
{
    enum status status = build(train, data, graph, err);

    if (status == STATUS_OK)
        find_lone_norm(train, *graph);
    return status;
}

static enum status zero_residual(struct train *train, const struct graph *graph, struct err *err)
{
    uint32_t count;
    enum status status = init_zero_residual(train->net, graph, &count, err);

    if (status == STATUS_OK && count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--zero-init-residual: no add in %.80s has a batch norm as its first input",
                       train->options->arch);
    return status;
}

/* On rank 0 alone: ddp_new broadcasts its values. */
static enum status load_pretrained(struct train *train, const struct graph *graph, struct err *err)
{
    const struct options *options = train->options;
    struct err taken = {.text = ""};
    enum status status = pretrained_load(train->net, graph, options->pretrained,
                                         options->new_classifier, &taken, err);

    if (status == STATUS_OK)
        log_line(LOG_INFO, train_log_about(train), "weights from %s%s%s%s", options->pretrained,
                 taken.text[0] != '\0' ? ": " : "", taken.text,
                 options->new_classifier ? ", all but the classifier's" : "");
    return status;
}

enum status train_model_init(struct train *train, const struct graph *graph, struct err *err)
{
    const struct options *options = train->options;
    const bool as_resnet = train->model_file != NULL ? train->model_file->init_torchvision
                                                     : model_is_resnet(options->arch);
    struct rng rng;
    enum status status;

    rng_seed(&rng, options->seed);
    status = as_resnet ? init_torchvision_resnet(train->net, graph, &rng, err)
                       : init_torch_default(train->net, graph, &rng, err);
    if (status == STATUS_OK && options->zero_init_residual)
        status = zero_residual(train, graph, err);
    if (status == STATUS_OK && options->pretrained != NULL && train->place->rank == 0)
        status = load_pretrained(train, graph, err);
    return status;
}
