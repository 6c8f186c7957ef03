/* Used by every layer of the CPU backend: memory, shapes, rounding, sums over ranks. Of the other
 * files it calls only dnnl.h. */
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

struct cpu_shape cpu_value_shape(const struct cpu *cpu, const struct cpu_value *value, uint32_t n)
{
    const bool is_image = value->blocked || value->dims[1] != 1 || value->dims[2] != 1;
    struct cpu_shape shape = {.dim_count = is_image ? 4 : 2,
                              .dims = {n, value->dims[0], value->dims[1], value->dims[2]}};

    assert(value->type == CPU_F32);
    if (value->blocked)
        shape.order = cpu->kernels->block == 16 ? CPU_BLOCKS_16 : CPU_BLOCKS_8;
    return shape;
}

struct cpu_shape cpu_weights_shape(const int64_t *dims, int dim_count)
{
    struct cpu_shape shape = {.dim_count = dim_count};

    assert(dim_count > 0 && dim_count <= CPU_DIMS_MAX);
    memcpy(shape.dims, dims, (size_t)dim_count * sizeof *dims);
    return shape;
}

enum status cpu_weights_set_layout(struct cpu_layer *layer, const struct cpu_shape *shape,
                                   const struct cpu_shape *wide, const struct cpu_layout *stored,
                                   struct err *err)
{
    struct cpu_tensor *tensor = &layer->tensors[0];
    enum status status;

    cpu_tensor_close(tensor);
    *tensor = (struct cpu_tensor){.count = 1, .shape = *shape, .wide = *wide};
    for (int i = 0; i < shape->dim_count; i++) {
        assert(wide->dims[i] == shape->dims[i] || (i < 2 && wide->dims[i] > shape->dims[i]));
        tensor->count *= (size_t)shape->dims[i];
    }
    tensor->size = cpu_layout_bytes(stored) / sizeof(float);
    assert(tensor->count <= tensor->size && shape->dim_count == wide->dim_count);
    status = cpu_layout_new(&tensor->plain, wide, layer->graph->name, err);
    if (status == STATUS_OK)
        status = cpu_layout_copy(&tensor->stored, stored, layer->graph->name, err);
    return status;
}

void cpu_tensor_set_vector(struct cpu_tensor *tensor, size_t count, size_t size)
{
    assert(count <= size);
    *tensor = (struct cpu_tensor){.count = count, .size = size};
}

void cpu_tensor_close(struct cpu_tensor *tensor)
{
    cpu_layout_free(&tensor->plain);
    cpu_layout_free(&tensor->stored);
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

void cpu_value_add_grad(const struct cpu *cpu, const struct cpu_value *value,
                        enum graph_dtype dtype, float *grad, const float *more, size_t count,
                        bool adds)
{
    const uint16_t *from = cpu_bf16_const(more);
    uint16_t *to = cpu_bf16(grad);

    if (value->type == CPU_F32) {
        cpu_add_grad(cpu, grad, more, count, adds);
        if (adds)
            cpu_round(cpu, dtype, grad, count);
    } else if (adds) {
        cpu->kernels->bf16->add(to, from, false, count, to);
    } else if (to != from) {
        memcpy(to, from, count * sizeof *to);
    }
}

uint16_t *cpu_bf16(float *memory)
{
    return (uint16_t *)(void *)memory;
}

const uint16_t *cpu_bf16_const(const float *memory)
{
    return (const uint16_t *)(const void *)memory;
}

static size_t element_bytes(const struct cpu_value *value)
{
    return value->type == CPU_BF16 ? sizeof(uint16_t) : sizeof(float);
}

size_t cpu_value_bytes(const struct cpu_value *value, size_t n)
{
    return n * value->image_size * element_bytes(value);
}

float *cpu_image_at(const struct cpu_value *value, float *memory, size_t image)
{
    return (float *)(void *)((char *)memory + cpu_value_bytes(value, image));
}

struct cpu_rows cpu_rows(const struct cpu_value *value, uint32_t images)
{
    assert(value->type == CPU_BF16);
    return (struct cpu_rows){images, (size_t)value->dims[1] * value->dims[2], value->dims[0]};
}

struct cpu_pixels cpu_pixels(const struct cpu_value *value, uint32_t images)
{
    assert(value->type == CPU_BF16);
    return (struct cpu_pixels){images, value->dims[1], value->dims[2], value->dims[0]};
}

struct cpu_pool_shape cpu_pool_shape(const struct cpu_layer *layer)
{
    const struct graph_window *window = &layer->graph->window;

    return (struct cpu_pool_shape){window->kernel, window->stride, window->pad, layer->out.dims[1],
                                   layer->out.dims[2]};
}
