/* Parameters and buffers in the layout in which their layer reads them: the tensor functions of
 * struct backend. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

uint32_t cpu_tensor_layout(const void *state, uint32_t index,
                           uint64_t numbers[BACKEND_LAYOUT_WORDS])
{
    const struct cpu_tensor *tensor = &((const struct cpu *)state)->tensors[index];

    static_assert(1 + CPU_LAYOUT_NUMBERS_MAX <= BACKEND_LAYOUT_WORDS, "room for all numbers");
    numbers[0] = tensor->size;
    return tensor->stored == NULL ? 1 : 1 + cpu_layout_numbers(tensor->stored, numbers + 1);
}

size_t cpu_tensor_size(const void *state, uint32_t index)
{
    return ((const struct cpu *)state)->tensors[index].size;
}

static enum status convert(const struct cpu *cpu, const struct cpu_layout *from_layout,
                           const float *from, const struct cpu_layout *to_layout, float *to,
                           struct err *err)
{
    const void *const memory[CPU_MEMORIES] = {[CPU_IN] = from, [CPU_OUT] = to};
    struct cpu_prim *prim;
    enum status status =
        cpu_prim_new_convert(&prim, cpu->dnnl, from_layout, to_layout, "(network)", err);

    if (status == STATUS_OK)
        status = cpu_prim_run(cpu->dnnl, prim, memory, err);
    cpu_prim_free(&prim);
    return status;
}

enum status cpu_tensor_pack(void *state, uint32_t index, const float *row_major, float *stored,
                            struct err *err)
{
    const struct cpu *cpu = state;
    const struct cpu_tensor *tensor = &cpu->tensors[index];

    assert(tensor->count <= tensor->size);
    memset(stored, 0, tensor->size * sizeof(float)); /* the padding */
    if (tensor->stored != NULL)
        return convert(cpu, tensor->plain, row_major, tensor->stored, stored, err);
    memcpy(stored, row_major, tensor->count * sizeof(float));
    return STATUS_OK;
}

enum status cpu_tensor_unpack(void *state, uint32_t index, const void *stored,
                              enum graph_dtype dtype, float *row_major, struct err *err)
{
    const struct cpu *cpu = state;
    const struct cpu_tensor *tensor = &cpu->tensors[index];

    (void)dtype; /* stored as fp32, whatever the type */
    if (tensor->stored != NULL)
        return convert(cpu, tensor->stored, stored, tensor->plain, row_major, err);
    memcpy(row_major, stored, tensor->count * sizeof(float));
    return STATUS_OK;
}
