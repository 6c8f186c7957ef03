/* Errors of the CUDA backend: named by layer, and kept until a call can report them. */
#include <stdlib.h>

#include "worker/backend/cuda/exec/internal.h"

enum status cuda_named(const struct cuda_layer *layer, enum status status, const struct err *cause,
                       struct err *err)
{
    if (status == STATUS_OK)
        return STATUS_OK;
    return err_set(err, status, cause->code, "layer %s: %.200s",
                   layer != NULL ? layer->graph->name : "(network)", cause->text);
}

enum status cuda_out_of_memory(const struct cuda_layer *layer, struct err *err)
{
    return err_set(err, STATUS_MEMORY, 0, "layer %s: out of memory",
                   layer != NULL ? layer->graph->name : "(network)");
}

enum status cuda_launched(struct cuda *cuda, const struct cuda_layer *layer, int code,
                          const char *what, struct err *err)
{
    struct err cause = {.text = ""};
    enum status status = cuda->runtime->launched(code, what, &cause);

    if (status == STATUS_OK && cuda->options.is_synchronous && cuda->mode == CUDA_EAGER)
        status = cuda->runtime->stream_sync(cuda->stream, &cause);
    return cuda_named(layer, status, &cause, err);
}

void cuda_keep(struct cuda *cuda, enum status status, const struct err *err)
{
    if (status == STATUS_OK || cuda->failed.status != STATUS_OK)
        return;
    cuda->failed = *err;
    cuda->failed.status = status;
}

enum status cuda_failed(const struct cuda *cuda, struct err *err)
{
    if (cuda->failed.status == STATUS_OK)
        return STATUS_OK;
    return err_set(err, cuda->failed.status, cuda->failed.code, "%s", cuda->failed.text);
}
