/* Convolution and linear layers on bf16 values: shapes and copies. See half.h. */
#include "worker/backend/cpu/half.h"

#include <assert.h>

enum cpu_type cpu_half_type(const struct cpu_half *half)
{
    return half->on && !half->is_wide ? CPU_BF16 : CPU_F32;
}

struct cpu_shape cpu_half_shape(const struct cpu_half *half, const struct cpu_value *value,
                                uint32_t n)
{
    assert(half->on && value->type == CPU_BF16);
    return (struct cpu_shape){.dim_count = 4,
                              .dims = {n, value->dims[0], value->dims[1], value->dims[2]},
                              .type = cpu_half_type(half),
                              .order = CPU_CHANNELS_LAST};
}

struct cpu_operation cpu_half_matrix(const struct cpu_half *half, const struct cpu_layer *layer,
                                     const struct cpu_matrix *matrix)
{
    const enum cpu_type type = cpu_half_type(half);

    return (struct cpu_operation){
        .layer = layer->graph->name,
        .has_bias = layer->graph->has_bias,
        .in = {.dim_count = 2, .dims = {matrix->rows, matrix->in}, .type = type},
        .out = {.dim_count = 2, .dims = {matrix->rows, matrix->out}, .type = type}};
}

enum status cpu_half_request(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_half *half,
                             uint32_t n, struct err *err)
{
    const uint32_t now = (uint32_t)(layer - cpu->layers);
    const size_t bytes = half->is_wide ? sizeof(float) : sizeof(uint16_t);
    const size_t in = n * layer->in->image_size * bytes, out = n * layer->out.image_size * bytes;
    const bool trains = !cpu->evaluate_only;
    enum status status = STATUS_OK;

    assert(half->on && half->step > 0);
    if (half->is_wide || half->step > 1)
        status = cpu_request(cpu, layer, &half->in[0], in, now, now, err);
    if (status == STATUS_OK && half->is_wide)
        status = cpu_request(cpu, layer, &half->out[0], out, now, now, err);
    if (status == STATUS_OK && trains && (half->is_wide || half->step > 1))
        status = cpu_request_in_backward(cpu, layer, &half->in[1], in, err);
    if (status == STATUS_OK && trains && half->is_wide)
        status = cpu_request_in_backward(cpu, layer, &half->out[1], out, err);
    return status;
}

const float *cpu_half_read(const struct cpu *cpu, const struct cpu_half *half,
                           const struct cpu_value *value, uint32_t n, const float *memory,
                           float *copy)
{
    const struct cpu_pixels pixels = cpu_pixels(value, n);

    if (copy == NULL)
        return memory;
    if (half->is_wide)
        cpu->kernels->bf16->widen(cpu_bf16_const(memory), n * value->image_size, copy);
    else
        cpu->kernels->bf16_pool->gather(&pixels, half->step, cpu_bf16_const(memory),
                                        cpu_bf16(copy));
    return copy;
}

void cpu_half_write(const struct cpu *cpu, const struct cpu_half *half,
                    const struct cpu_value *value, uint32_t n, const float *copy, float *memory)
{
    const struct cpu_pixels pixels = cpu_pixels(value, n);

    if (copy == NULL)
        return;
    if (half->is_wide)
        cpu->kernels->bf16->narrow(copy, n * value->image_size, cpu_bf16(memory));
    else
        cpu->kernels->bf16_pool->scatter(&pixels, half->step, cpu_bf16_const(copy),
                                         cpu_bf16(memory));
}
