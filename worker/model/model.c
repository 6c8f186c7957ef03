/* Finds a model by name. */
#include "worker/model/model.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *arch;
    void (*build)(struct graph *graph, const struct model_shape *shape);
} models[] = {
    {"convnet", model_convnet_build},     {"toynet", model_toynet_build},
    {"resnet18", model_resnet18_build},   {"resnet34", model_resnet34_build},
    {"resnet50", model_resnet50_build},   {"resnet101", model_resnet101_build},
    {"resnet152", model_resnet152_build},
};

enum status model_build(struct graph **graph, const char *arch, const struct model_shape *shape,
                        struct err *err)
{
    enum status status;

    assert(shape->classes > 0);
    *graph = NULL;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].arch, arch) != 0)
            continue;
        *graph = graph_new();
        if (*graph == NULL)
            return err_set(err, STATUS_MEMORY, 0, "model %s: out of memory", arch);
        models[i].build(*graph, shape);
        status = graph_check(*graph, err);
        if (status != STATUS_OK)
            graph_free(graph);
        return status;
    }
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "no model \"%.60s\"; there are: convnet, toynet, resnet18, resnet34, resnet50, "
                   "resnet101 and resnet152, or a file: ./NAME.json",
                   arch);
}

bool model_is_file(const char *arch)
{
    const size_t count = strlen(arch);

    return strchr(arch, '/') != NULL || (count > 5 && strcmp(arch + count - 5, ".json") == 0);
}

bool model_is_resnet(const char *arch)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].arch, arch) == 0)
            return strncmp(arch, "resnet", 6) == 0;
    return false;
}

uint32_t model_channels(const char *arch)
{
    return model_is_resnet(arch) ? 3 : 0;
}
