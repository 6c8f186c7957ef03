/* One face for both kinds of files with weights. See weights.h. */
#include "worker/model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"

enum status weights_open(struct weights *weights, const char *path, struct err *err)
{
    enum status status;

    weights->is_pth = pth_is_file(path);
    weights->skip = 0;
    status = weights->is_pth ? pth_open(&weights->pth, path, err)
                             : safetensors_open(&weights->safetensors, path, err);
    (void)snprintf(weights->taken, sizeof weights->taken, "%s",
                   status == STATUS_OK && weights->is_pth ? weights->pth.taken : "");
    return status;
}

void weights_close(struct weights *weights)
{
    if (weights->is_pth)
        pth_close(&weights->pth);
    else
        safetensors_close(&weights->safetensors);
}

size_t weights_count(const struct weights *weights)
{
    return weights->is_pth ? weights->pth.tensor_count : weights->safetensors.tensor_count;
}

struct weights_tensor weights_tensor(const struct weights *weights, size_t index)
{
    const struct safetensors_tensor *tensor;

    assert(index < weights_count(weights));
    if (weights->is_pth) {
        const struct pth_tensor *other = &weights->pth.tensors[index];

        return (struct weights_tensor){other->name + weights->skip, other->dims, other->dim_count,
                                       true};
    }
    tensor = &weights->safetensors.tensors[index];
    return (struct weights_tensor){
        tensor->name + weights->skip, tensor->dims, tensor->dim_count,
        tensor->type == SAFETENSORS_F32 || tensor->type == SAFETENSORS_F16 ||
            tensor->type == SAFETENSORS_BF16 || tensor->type == SAFETENSORS_F64};
}

void weights_strip(struct weights *weights, const char *prefix)
{
    const size_t count = strlen(prefix), used = strlen(weights->taken);

    for (size_t i = 0; i < weights_count(weights); i++) {
        const char *name = weights_tensor(weights, i).name;

        if (strncmp(name, prefix, count) != 0 || name[count] == '\0')
            return;
    }
    weights->skip += count;
    (void)snprintf(weights->taken + used, sizeof weights->taken - used, "%s%s",
                   strstr(weights->taken, "names without") != NULL ? " and "
                   : used > 0                                      ? ", names without "
                                                                   : "names without ",
                   prefix);
}

bool weights_find(const struct weights *weights, const char *name, size_t *index)
{
    size_t low = 0, high = weights_count(weights); /* both kinds are sorted by name */

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(weights_tensor(weights, middle).name, name);

        if (order == 0) {
            *index = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Converts halves to floats in place, from the back: each float covers two halves. */
static void widen(enum safetensors_type type, void *values, size_t count)
{
    for (size_t i = count; i > 0 && type != SAFETENSORS_F32; i--) {
        uint16_t half;
        float value;

        memcpy(&half, (char *)values + (i - 1) * sizeof half, sizeof half);
        value = type == SAFETENSORS_F16 ? half_f16_to(half) : half_bf16_to(half);
        memcpy((char *)values + (i - 1) * sizeof value, &value, sizeof value);
    }
}

static enum status read_doubles(struct weights *weights, const struct safetensors_tensor *tensor,
                                float *values, size_t count, struct err *err)
{
    double *doubles = malloc(tensor->byte_count > 0 ? tensor->byte_count : 1);
    enum status status;

    assert(tensor->byte_count == count * sizeof *doubles);
    if (doubles == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %zu doubles", count);
    status = safetensors_read(&weights->safetensors, tensor, doubles, err);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        values[i] = (float)doubles[i];
    free(doubles);
    return status;
}

enum status weights_read(struct weights *weights, size_t index, float *values, size_t count,
                         struct err *err)
{
    const struct safetensors_tensor *tensor;
    enum status status;

    assert(weights_tensor(weights, index).is_readable);
    if (weights->is_pth) {
        assert(pth_count(&weights->pth.tensors[index]) == count);
        return pth_read(&weights->pth, &weights->pth.tensors[index], values, err);
    }
    tensor = &weights->safetensors.tensors[index];
    if (tensor->type == SAFETENSORS_F64)
        return read_doubles(weights, tensor, values, count, err);
    assert(tensor->byte_count <= count * sizeof *values);
    status = safetensors_read(&weights->safetensors, tensor, values, err);
    if (status == STATUS_OK)
        widen(tensor->type, values, count);
    return status;
}

const char *weights_taken(const struct weights *weights)
{
    return weights->taken;
}
