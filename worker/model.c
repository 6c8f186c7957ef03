/* Finds a model by name. */
#include "worker/model.h"

#include <string.h>

static const struct {
    const char *arch;
    void (*build)(struct graph *graph, const struct model_shape *shape);
} models[] = {
    {"convnet", model_convnet_build},
};

enum status model_build(struct graph **graph, const char *arch, const struct model_shape *shape,
                        struct err *err)
{
    enum status status;

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
    return err_set(err, STATUS_NOT_FOUND, 0, "no model \"%s\"; there is: convnet", arch);
}
