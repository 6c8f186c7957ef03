/* Parameters and buffers in the layout in which their layer reads them: the tensor functions of
 * struct backend. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>
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

static size_t count_of(const struct cpu_shape *shape, int first)
{
    size_t count = 1;

    for (int i = first; i < shape->dim_count; i++)
        count *= (size_t)shape->dims[i];
    return count;
}

/* Copies weights between their own shape and the wider one, both row-major. */
static void copy_rows(const struct cpu_tensor *tensor, const float *from,
                      const struct cpu_shape *from_shape, float *to,
                      const struct cpu_shape *to_shape)
{
    const size_t row = count_of(&tensor->shape, 1);

    for (int64_t o = 0; o < tensor->shape.dims[0]; o++)
        memcpy(to + (size_t)o * count_of(to_shape, 1), from + (size_t)o * count_of(from_shape, 1),
               row * sizeof *to);
}

/* A row-major copy in the wider shape, initially 0; NULL: out of memory. */
static float *wide_new(const struct cpu_tensor *tensor)
{
    return calloc(count_of(&tensor->wide, 0), sizeof(float));
}

static bool is_widened(const struct cpu_tensor *tensor)
{
    return tensor->stored != NULL && count_of(&tensor->wide, 0) != tensor->count;
}

static enum status pack_wide(const struct cpu *cpu, const struct cpu_tensor *tensor,
                             const float *row_major, float *stored, struct err *err)
{
    float *wide = wide_new(tensor);
    enum status status;

    if (wide == NULL)
        return cpu_out_of_memory(NULL, err);
    copy_rows(tensor, row_major, &tensor->shape, wide, &tensor->wide);
    status = convert(cpu, tensor->plain, wide, tensor->stored, stored, err);
    free(wide);
    return status;
}

static enum status unpack_wide(const struct cpu *cpu, const struct cpu_tensor *tensor,
                               const float *stored, float *row_major, struct err *err)
{
    float *wide = wide_new(tensor);
    enum status status;

    if (wide == NULL)
        return cpu_out_of_memory(NULL, err);
    status = convert(cpu, tensor->stored, stored, tensor->plain, wide, err);
    if (status == STATUS_OK)
        copy_rows(tensor, wide, &tensor->wide, row_major, &tensor->shape);
    free(wide);
    return status;
}

enum status cpu_tensor_pack(void *state, uint32_t index, const float *row_major, float *stored,
                            struct err *err)
{
    const struct cpu *cpu = state;
    const struct cpu_tensor *tensor = &cpu->tensors[index];

    assert(tensor->count <= tensor->size);
    memset(stored, 0, tensor->size * sizeof(float)); /* the padding */
    if (is_widened(tensor))
        return pack_wide(cpu, tensor, row_major, stored, err);
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

    (void)dtype; /* stored as fp32, whatever the type is */
    if (is_widened(tensor))
        return unpack_wide(cpu, tensor, stored, row_major, err);
    if (tensor->stored != NULL)
        return convert(cpu, tensor->stored, stored, tensor->plain, row_major, err);
    memcpy(row_major, stored, tensor->count * sizeof(float));
    return STATUS_OK;
}
