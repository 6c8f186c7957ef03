/* gpu-step DEVICE LEVEL ARCH IN OUT: one training step on a device, to be held against another's
 * program. IN and OUT are safetensors. IN: "images" F32 [n][channels][h][w], "labels" I64 [n], and
 * every parameter and buffer by its name. OUT: "loss" F32 [1], "grad.NAME", unscaled, and what SGD
 * with a rate of 0.1 makes of all of them, "after.NAME". */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/device.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/net/state.h"

enum { CLASSES = 1000, TENSORS_MAX = 2048 };
static const char loss_scale[] = "128.0";

struct step {
    const char *level, *arch;
    struct device device;
    struct safetensors in;
    struct net *net;
    struct amp amp;
    float *images;
    int64_t *labels;
    uint32_t n;
    struct safetensors_tensor out[TENSORS_MAX];
    size_t out_count;
};

static void *take(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);

    if (memory == NULL)
        abort();
    return memory;
}

static enum status read_in(const struct step *step, const char *name, enum safetensors_type type,
                           size_t bytes, void *values, struct err *err)
{
    const struct safetensors_tensor *tensor = safetensors_find(&step->in, name);

    if (tensor == NULL || tensor->type != type || (bytes > 0 && tensor->byte_count != bytes))
        return err_set(err, STATUS_BAD_INPUT, 0, "%.100s: not there, or of another type or size",
                       name);
    return safetensors_read(&step->in, tensor, values, err);
}

static enum status read_batch(struct step *step, struct model_shape *shape, struct err *err)
{
    const struct safetensors_tensor *images = safetensors_find(&step->in, "images");
    enum status status;

    if (images == NULL || images->dim_count != 4 || images->dims[0] == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "images: not there, or not [n][channels][h][w]");
    step->n = (uint32_t)images->dims[0];
    *shape = (struct model_shape){(uint32_t)images->dims[1], (uint32_t)images->dims[2],
                                  (uint32_t)images->dims[3], CLASSES};
    step->images = take(images->byte_count);
    step->labels = take(step->n * sizeof *step->labels);
    status = read_in(step, "images", SAFETENSORS_F32, 0, step->images, err);
    return status != STATUS_OK ? status
                               : read_in(step, "labels", SAFETENSORS_I64,
                                         step->n * sizeof *step->labels, step->labels, err);
}

static enum status make_net(struct step *step, const struct model_shape *shape, struct err *err)
{
    const struct amp_request request = {.level = step->level, .loss_scale = loss_scale};
    struct net_options options = {
        .batch_max = step->n, .amp = &step->amp, .backend = step->device.backend};
    struct graph *graph = NULL;
    enum status status = amp_resolve(&step->amp, &request, err);

    if (status == STATUS_OK)
        status = model_build(&graph, step->arch, shape, err);
    if (status == STATUS_OK)
        status = net_new(&step->net, graph, &options, err);
    graph_free(&graph);
    return status;
}

static enum status write_weights(struct step *step, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(step->net); i++) {
        const struct net_tensor *tensor = net_tensor(step->net, i);
        float *values = take(tensor->count * sizeof *values);

        status = read_in(step, tensor->name, SAFETENSORS_F32, tensor->count * sizeof *values,
                         values, err);
        if (status == STATUS_OK)
            status = net_tensor_write(step->net, i, values, err);
        free(values);
    }
    return status;
}

/* `values` are kept until the end. */
static void put(struct step *step, const char *prefix, const char *name, float *values,
                size_t count)
{
    const size_t bytes = strlen(prefix) + strlen(name) + 1;
    char *whole = take(bytes);

    if (step->out_count == TENSORS_MAX)
        abort();
    (void)snprintf(whole, bytes, "%s%s", prefix, name);
    step->out[step->out_count++] = (struct safetensors_tensor){
        .name = whole, .type = SAFETENSORS_F32, .dims = {count}, .dim_count = 1, .values = values};
} /* step_close frees it: NOLINT(clang-analyzer-unix.Malloc) */

static enum status keep_grads(struct step *step, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(step->net); i++) {
        const struct net_tensor *tensor = net_tensor(step->net, i);
        float *values;

        if (!tensor->trainable)
            continue;
        values = take(tensor->count * sizeof *values);
        status = net_grad_read(step->net, i, values, err);
        for (size_t k = 0; k < tensor->count; k++)
            values[k] /= strtof(loss_scale, NULL);
        put(step, "grad.", tensor->name, values, tensor->count);
    }
    return status;
}

static enum status keep_weights(struct step *step, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t i = 0; status == STATUS_OK && i < net_tensor_count(step->net); i++) {
        const struct net_tensor *tensor = net_tensor(step->net, i);
        float *values = take(tensor->count * sizeof *values);

        status = net_tensor_read(step->net, i, values, err);
        put(step, "after.", tensor->name, values, tensor->count);
    }
    return status;
}

static enum status run(struct step *step, struct err *err)
{
    const struct optim optim = {.lr = 0.1F};
    struct net_outcome outcome;
    struct net_result result = {0};
    float *loss = take(sizeof *loss);
    bool taken;
    enum status status =
        net_forward(step->net, step->images, step->labels, step->n, true, &result, err);

    if (status == STATUS_OK)
        status = net_backward(step->net, 1.0F, err);
    if (status == STATUS_OK)
        status = keep_grads(step, err);
    if (status == STATUS_OK) {
        net_update(step->net, &optim);
        status = net_outcome_take(step->net, true, &outcome, &taken, err);
    }
    *loss = (float)(result.loss_sum / step->n);
    put(step, "", "loss", loss, 1);
    return status == STATUS_OK ? keep_weights(step, err) : status;
}

static enum status write_out(const struct step *step, const char *path, struct err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    enum status status;

    if (fd < 0)
        return err_set(err, STATUS_IO, 0, "cannot write %.100s", path);
    status = safetensors_write(fd, step->out, step->out_count, NULL, 0, err);
    (void)close(fd);
    return status;
}

static void close_step(struct step *step)
{
    net_free(&step->net);
    device_close(&step->device);
    safetensors_close(&step->in);
    free(step->images);
    free(step->labels);
    for (size_t i = 0; i < step->out_count; i++) {
        free((void *)(uintptr_t)step->out[i].name);
        free((void *)(uintptr_t)step->out[i].values);
    }
}

int main(int argc, char **argv)
{
    static struct step step;
    struct model_shape shape;
    struct err err = {.text = ""}, notice;
    enum status status;

    if (argc != 6) {
        (void)fprintf(stderr, "usage: gpu-step DEVICE LEVEL ARCH IN OUT\n");
        return 2;
    }
    step.in.fd = -1;
    step.level = argv[2];
    step.arch = argv[3];
    status = device_open(&step.device, argv[1], 0, &notice, &err);
    if (status == STATUS_OK)
        status = safetensors_open(&step.in, argv[4], &err);
    if (status == STATUS_OK)
        status = read_batch(&step, &shape, &err);
    if (status == STATUS_OK)
        status = make_net(&step, &shape, &err);
    if (status == STATUS_OK)
        status = write_weights(&step, &err);
    if (status == STATUS_OK)
        status = run(&step, &err);
    if (status == STATUS_OK)
        status = write_out(&step, argv[5], &err);
    if (status != STATUS_OK)
        (void)fprintf(stderr, "gpu-step: %s\n", err.text);
    else
        (void)printf("one step on %s\n", step.device.identity.name);
    close_step(&step);
    return status == STATUS_OK ? 0 : 1;
}
