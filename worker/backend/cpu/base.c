/* What every layer of the CPU backend uses: memory, rounding, areas, sums over ranks. Calls nothing
 * of the other files. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64

void *cpu_alloc(struct cpu *cpu, size_t bytes)
{
    size_t rounded = (bytes + ALIGN) / ALIGN * ALIGN; /* > 0: aligned_alloc(0) may return NULL */
    void *memory = aligned_alloc(ALIGN, rounded);

    if (memory == NULL)
        return NULL;
    memset(memory, 0, rounded);
    cpu->bytes += bytes;
    return memory;
}

enum status cpu_out_of_memory(const struct cpu_layer *layer, struct err *err)
{
    return err_set(err, STATUS_MEMORY, 0, "layer %s: out of memory",
                   layer != NULL ? layer->graph->name : "(network)");
}

void cpu_round(const struct cpu *cpu, enum graph_dtype dtype, float *values, size_t n)
{
    if (dtype == GRAPH_F16)
        cpu->kernels->round_f16(values, n, values);
    else if (dtype == GRAPH_BF16)
        cpu->kernels->round_bf16(values, n, values);
}

struct cpu_area cpu_area(const struct cpu_value *value, uint32_t images)
{
    assert(value->blocked && value->blocks > 0);
    return (struct cpu_area){images, value->blocks, value->dims[1], value->dims[2]};
}

void cpu_tensor_set_layout(struct cpu_tensor *tensor, const dnnl_memory_desc_t *plain,
                           const dnnl_memory_desc_t *stored)
{
    assert(plain->ndims == stored->ndims);
    *tensor = (struct cpu_tensor){.plain = *plain, .stored = *stored, .count = 1};
    for (int i = 0; i < plain->ndims; i++)
        tensor->count *= (size_t)plain->dims[i];
    tensor->size = dnnl_memory_desc_get_size(stored) / sizeof(float);
    assert(tensor->count <= tensor->size);
}

void cpu_tensor_set_vector(struct cpu_tensor *tensor, size_t count, size_t size)
{
    assert(count <= size);
    *tensor = (struct cpu_tensor){.is_vector = true, .count = count, .size = size};
}

void cpu_add_grad(const struct cpu *cpu, float *grad, const float *more, size_t count, bool adds)
{
    if (adds)
        cpu->kernels->residual->add(grad, more, false, count, grad);
    else if (grad != more)
        memcpy(grad, more, count * sizeof *grad);
}

enum status cpu_sync(struct cpu *cpu, const struct cpu_layer *layer, double *values, size_t count,
                     struct err *err)
{
    struct err cause = {.text = ""};
    enum status status;

    if (cpu->norm_sum == NULL || !cpu->training)
        return STATUS_OK;
    status = cpu->norm_sum(cpu->norm_sum_user, values, count, &cause);
    if (status == STATUS_OK)
        return STATUS_OK;
    return err_set(err, status, cause.code, "layer %s, statistics of all ranks: %.160s",
                   layer->graph->name, cause.text);
}
