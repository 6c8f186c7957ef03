/* --pretrained: names and shapes are compared first, then the values are read. */
#include "worker/model/pretrained.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/text.h"
#include "worker/model/weights.h"
#include "worker/net/state.h"

struct source {
    struct net *net;
    const struct graph *graph;
    const char *path;
    struct weights file;
    uint32_t classifier; /* the last linear layer; GRAPH_NONE: there is none */
    bool new_classifier;
};

/* Whether tensor `index` keeps its value: --new-classifier. */
static bool is_left_out(const struct source *source, uint32_t index)
{
    return source->new_classifier && source->graph->tensors[index].layer == source->classifier;
}

/* -- names -- */

/* A list of names for an error: "a, b, c and 7 more". */
struct names {
    char text[80];
    size_t used;
    uint32_t count, shown;
};

static void add_name(struct names *names, const char *name)
{
    const size_t room = sizeof names->text - names->used;

    names->count++;
    if (names->shown + 1 < names->count || strlen(name) + 3 > room)
        return;
    names->used += (size_t)snprintf(names->text + names->used, room, "%s%s",
                                    names->used == 0 ? "" : ", ", name);
    names->shown++;
}

/* Finishes the list. `longest`: shown in part where not even one name fitted. */
static void end_names(struct names *names, const char *longest, char text[128])
{
    assert(names->count > 0 && names->shown <= names->count);
    if (names->shown == 0)
        (void)snprintf(names->text, sizeof names->text, "%.60s...", longest);
    if (names->shown < names->count && names->count > 1)
        (void)snprintf(text, 128, "%s and %u more", names->text,
                       names->count - (names->shown > 0 ? names->shown : 1));
    else
        (void)snprintf(text, 128, "%s", names->text);
}

static bool is_ignored(const char *name)
{
    return text_ends_with(name, "num_batches_tracked") || strncmp(name, "optimizer.", 10) == 0;
}

static bool is_known(const struct source *source, const char *name)
{
    for (uint32_t i = 0; i < source->graph->tensor_count; i++)
        if (strcmp(source->graph->tensors[i].name, name) == 0)
            return true;
    return false;
}

static enum status check_missing(struct source *source, struct err *err)
{
    struct names names = {.used = 0};
    const char *first = "";
    bool is_classifier = true;
    char text[128];
    size_t found;

    for (uint32_t i = 0; i < source->graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &source->graph->tensors[i];

        if (is_left_out(source, i) || weights_find(&source->file, tensor->name, &found))
            continue;
        first = names.count == 0 ? tensor->name : first;
        add_name(&names, tensor->name);
        is_classifier = is_classifier && tensor->layer == source->classifier;
    }
    if (names.count == 0)
        return STATUS_OK;
    end_names(&names, first, text);
    return err_set(err, STATUS_CONFLICT, 0, "--pretrained %.60s has no %s%s", source->path, text,
                   is_classifier ? "; --new-classifier leaves that layer as it is drawn" : "");
}

static enum status check_extra(struct source *source, struct err *err)
{
    struct names names = {.used = 0};
    const char *first = "";
    char text[128];

    for (size_t i = 0; i < weights_count(&source->file); i++) {
        const char *name = weights_tensor(&source->file, i).name;

        if (is_ignored(name) || is_known(source, name))
            continue;
        first = names.count == 0 ? name : first;
        add_name(&names, name);
    }
    if (names.count == 0)
        return STATUS_OK;
    end_names(&names, first, text);
    return err_set(err, STATUS_CONFLICT, 0,
                   "--pretrained %.60s is of another model: the one of --arch has no %s",
                   source->path, text);
}

/* -- shapes and types -- */

static void shape_text(const uint64_t *dims, uint32_t dim_count, char text[64])
{
    int used = snprintf(text, 64, "[");

    for (uint32_t i = 0; i < dim_count && used < 40; i++)
        used += snprintf(text + used, 64 - (size_t)used, "%s%llu", i == 0 ? "" : ", ",
                         (unsigned long long)dims[i]);
    (void)snprintf(text + used, 64 - (size_t)used, "]");
}

static struct weights_tensor tensor_there(const struct source *source, const char *name)
{
    size_t index = 0;
    const bool found = weights_find(&source->file, name, &index);

    assert(found);
    return weights_tensor(&source->file, index);
}

static enum status check_tensor(const struct source *source, uint32_t index, struct err *err)
{
    const struct graph_tensor *here = &source->graph->tensors[index];
    const struct weights_tensor there = tensor_there(source, here->name);
    uint64_t dims[4] = {0};
    char mine[64], theirs[64];
    bool is_same = there.dim_count == here->dim_count, only_first = is_same;

    for (uint32_t i = 0; i < here->dim_count; i++) {
        dims[i] = here->dims[i];
        if (there.dims[i] != dims[i]) {
            is_same = false;
            only_first = only_first && i == 0;
        }
    }
    shape_text(dims, here->dim_count, mine);
    shape_text(there.dims, there.dim_count, theirs);
    if (!is_same && only_first && here->layer == source->classifier)
        return err_set(err, STATUS_CONFLICT, 0,
                       "--pretrained %.50s: its %s is for %llu classes, here are %u: "
                       "--new-classifier leaves that layer as it is drawn",
                       source->path, here->name, (unsigned long long)there.dims[0], here->dims[0]);
    if (!is_same)
        return err_set(err, STATUS_CONFLICT, 0, "--pretrained %.60s: its %s is %s, the model's %s",
                       source->path, here->name, theirs, mine);
    if (!there.is_readable)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "--pretrained %.60s: the type of %s is not fp32, fp16, bf16 or fp64",
                       source->path, here->name);
    return STATUS_OK;
}

static enum status check_all(struct source *source, struct err *err)
{
    enum status status = check_extra(source, err);

    if (status == STATUS_OK)
        status = check_missing(source, err);
    for (uint32_t i = 0; status == STATUS_OK && i < source->graph->tensor_count; i++)
        if (!is_left_out(source, i))
            status = check_tensor(source, i, err);
    return status;
}

/* -- values -- */

static enum status load_tensor(struct source *source, uint32_t index, struct err *err)
{
    const struct graph_tensor *tensor = &source->graph->tensors[index];
    float *values = malloc(tensor->count * sizeof *values);
    size_t there = 0;
    const bool found = weights_find(&source->file, tensor->name, &there);
    struct err why;
    enum status status;

    assert(found);
    if (values == NULL)
        return err_set(err, STATUS_MEMORY, 0, "--pretrained: no memory for %s", tensor->name);
    status = weights_read(&source->file, there, values, tensor->count, err);
    if (status == STATUS_OK) {
        status = safetensors_check_values(tensor->name, values, tensor->count, &why);
        if (status != STATUS_OK)
            (void)err_set(err, status, 0, "--pretrained %.60s: %.150s", source->path, why.text);
    }
    if (status == STATUS_OK)
        status = net_tensor_write(source->net, index, values, err);
    free(values);
    return status;
}

/* A model inside of another one, as wrappers save it; not where this model's own names begin so. */
static void strip_names(struct source *source)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "model.", "module."};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (source->graph->tensor_count > 0 &&
            strncmp(source->graph->tensors[0].name, prefixes[i], strlen(prefixes[i])) != 0)
            weights_strip(&source->file, prefixes[i]);
}

static uint32_t last_linear(const struct graph *graph)
{
    for (uint32_t i = graph->layer_count; i > 0; i--)
        if (graph->layers[i - 1].op == GRAPH_LINEAR)
            return i - 1;
    return GRAPH_NONE;
}

bool pretrained_is_of_torch(const char *path)
{
    return pth_is_file(path);
}

enum status pretrained_load(struct net *net, const struct graph *graph, const char *path,
                            bool new_classifier, struct err *taken, struct err *err)
{
    struct source source = {.net = net,
                            .graph = graph,
                            .path = path,
                            .classifier = last_linear(graph),
                            .new_classifier = new_classifier};
    struct stat now;
    struct err why;
    enum status status;

    if (stat(path, &now) == 0 && S_ISDIR(now.st_mode))
        return err_set(err, STATUS_BAD_INPUT, EISDIR,
                       "--pretrained %.120s: a folder: it needs the FILE of the weights", path);
    status = weights_open(&source.file, path, &why);

    assert(graph->tensor_count == net_tensor_count(net));
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "--pretrained: %s", why.text);
    strip_names(&source);
    status = check_all(&source, err);
    for (uint32_t i = 0; status == STATUS_OK && i < graph->tensor_count; i++)
        if (!is_left_out(&source, i))
            status = load_tensor(&source, i, err);
    if (status == STATUS_OK)
        (void)err_set(taken, STATUS_OK, 0, "%s", weights_taken(&source.file));
    weights_close(&source.file);
    return status;
}
