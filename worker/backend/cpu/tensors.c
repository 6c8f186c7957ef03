/* Parameters and buffers in the layout in which their layer reads them: the tensor functions of
 * struct backend. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

/* Type, padded dimensions, strides and inner blocks: equal for equal layouts only. */
static void layout_numbers(const dnnl_memory_desc_t *md, uint64_t *numbers, uint32_t *count)
{
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;

    numbers[(*count)++] = (uint64_t)md->data_type;
    for (int i = 0; i < md->ndims; i++) {
        numbers[(*count)++] = (uint64_t)md->padded_dims[i];
        numbers[(*count)++] = (uint64_t)blocking->strides[i];
    }
    for (int i = 0; i < blocking->inner_nblks && i < 8; i++) {
        numbers[(*count)++] = (uint64_t)blocking->inner_blks[i];
        numbers[(*count)++] = (uint64_t)blocking->inner_idxs[i];
    }
}

uint32_t cpu_tensor_layout(const void *state, uint32_t index,
                           uint64_t numbers[BACKEND_LAYOUT_WORDS])
{
    const struct cpu_tensor *tensor = &((const struct cpu *)state)->tensors[index];
    uint32_t count = 0;

    numbers[count++] = tensor->size;
    if (!tensor->is_vector)
        layout_numbers(&tensor->stored, numbers, &count);
    assert(count <= BACKEND_LAYOUT_WORDS);
    return count;
}

size_t cpu_tensor_size(const void *state, uint32_t index)
{
    return ((const struct cpu *)state)->tensors[index].size;
}

enum status cpu_tensor_pack(void *state, uint32_t index, const float *row_major, float *stored,
                            struct err *err)
{
    struct cpu *cpu = state;
    const struct cpu_tensor *tensor = &cpu->tensors[index];

    assert(tensor->count <= tensor->size);
    memset(stored, 0, tensor->size * sizeof(float)); /* the padding */
    if (!tensor->is_vector)
        return cpu_reorder(cpu, &tensor->plain, row_major, &tensor->stored, stored, err);
    memcpy(stored, row_major, tensor->count * sizeof(float));
    return STATUS_OK;
}

enum status cpu_tensor_unpack(void *state, uint32_t index, const void *stored,
                              enum graph_dtype dtype, float *row_major, struct err *err)
{
    struct cpu *cpu = state;
    const struct cpu_tensor *tensor = &cpu->tensors[index];

    (void)dtype; /* stored as fp32, whatever the type */
    if (!tensor->is_vector)
        return cpu_reorder(cpu, &tensor->stored, stored, &tensor->plain, row_major, err);
    memcpy(row_major, stored, tensor->count * sizeof(float));
    return STATUS_OK;
}
