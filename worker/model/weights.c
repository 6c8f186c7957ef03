/* One face for both kinds of files with weights. See weights.h. */
#include "worker/model/weights.h"

#include <assert.h>
#include <string.h>

#include "kernels/half.h"

enum status weights_open(struct weights *weights, const char *path, struct err *err)
{
    weights->is_pth = pth_is_file(path);
    return weights->is_pth ? pth_open(&weights->pth, path, err)
                           : safetensors_open(&weights->safetensors, path, err);
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

        return (struct weights_tensor){other->name, other->dims, other->dim_count, true};
    }
    tensor = &weights->safetensors.tensors[index];
    return (struct weights_tensor){tensor->name, tensor->dims, tensor->dim_count,
                                   tensor->type == SAFETENSORS_F32 ||
                                       tensor->type == SAFETENSORS_F16 ||
                                       tensor->type == SAFETENSORS_BF16};
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
    assert(tensor->byte_count <= count * sizeof *values);
    status = safetensors_read(&weights->safetensors, tensor, values, err);
    if (status == STATUS_OK)
        widen(tensor->type, values, count);
    return status;
}

const char *weights_taken(const struct weights *weights)
{
    return weights->is_pth ? weights->pth.taken : "";
}
