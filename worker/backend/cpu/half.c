/* Layers computed in bf16: shapes and conversions. See half.h. */
#include "worker/backend/cpu/half.h"

#include <assert.h>

#include "kernels/half.h"
#include "worker/backend/cpu/kernels_half.h"

bool cpu_half_applies(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return cpu->has_bf16 && layer->graph->out.dtype == GRAPH_BF16;
}

struct cpu_operation cpu_half_operation(const struct cpu_layer *layer,
                                        const struct cpu_matrix *matrix)
{
    return (struct cpu_operation){
        .layer = layer->graph->name,
        .has_bias = layer->graph->has_bias,
        .in = {.dim_count = 2, .dims = {matrix->rows, matrix->in}, .type = CPU_BF16},
        .out = {.dim_count = 2, .dims = {matrix->rows, matrix->out}, .type = CPU_BF16}};
}

enum status cpu_half_request(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_half *half,
                             uint32_t n, size_t in_size, size_t out_size, struct err *err)
{
    const uint32_t now = (uint32_t)(layer - cpu->layers);
    const size_t in_bytes = n * in_size * sizeof(uint16_t);
    const size_t out_bytes = n * out_size * sizeof(uint16_t);
    enum status status = cpu_request(cpu, layer, &half->in[0], in_bytes, now, now, err);

    if (status == STATUS_OK)
        status = cpu_request(cpu, layer, &half->out[0], out_bytes, now, now, err);
    if (cpu->evaluate_only)
        return status;
    if (status == STATUS_OK)
        status = cpu_request_in_backward(cpu, layer, &half->in[1], in_bytes, err);
    if (status == STATUS_OK)
        status = cpu_request_in_backward(cpu, layer, &half->out[1], out_bytes, err);
    return status;
}

struct cpu_shape cpu_half_shape(const struct cpu *cpu, const struct cpu_half *half,
                                const struct cpu_value *value, uint32_t n)
{
    struct cpu_shape shape = {.dim_count = 4,
                              .dims = {n, value->dims[0], value->dims[1], value->dims[2]},
                              .order = CPU_CHANNELS_LAST};

    if (half->keeps_blocks)
        shape = cpu_value_shape(cpu, value, n);
    shape.type = CPU_BF16;
    return shape;
}

/* cpu_half_pack for a row-major value, an input of few channels: [n][channels][height][width]. */
static void pack_planes(const struct cpu_value *value, uint32_t n, uint32_t step,
                        const float *stored, uint16_t *half)
{
    const size_t channels = value->dims[0], height = value->dims[1], width = value->dims[2];

    for (size_t row = 0; row < n * height; row++) {
        const float *first = stored + (row / height * channels * height + row % height) * width;

        if (row % height % step != 0)
            continue;
        for (size_t column = 0; column < width; column += step)
            for (size_t c = 0; c < channels; c++)
                *half++ = (uint16_t)(half_float_bits(first[c * height * width + column]) >> 16);
    }
}

void cpu_half_pack(const struct cpu *cpu, const struct cpu_half *half,
                   const struct cpu_value *value, uint32_t n, uint32_t step, const float *stored,
                   float *packed)
{
    uint16_t *to = (uint16_t *)(void *)packed;

    assert(step > 0 && stored != NULL && packed != NULL);
    if (half->keeps_blocks) {
        cpu->kernels->half->narrow(stored, n * value->image_size, to);
    } else if (value->blocked) {
        const struct cpu_area area = cpu_area(value, n);

        cpu->kernels->half->pack(&area, value->dims[0], step, stored, to);
    } else {
        pack_planes(value, n, step, stored, to);
    }
}

void cpu_half_unpack(const struct cpu *cpu, const struct cpu_half *half,
                     const struct cpu_value *value, uint32_t n, uint32_t step, const float *packed,
                     float *stored)
{
    const struct cpu_area area = cpu_area(value, n);
    const uint16_t *from = (const uint16_t *)(const void *)packed;

    assert(value->blocked); /* the gradient of the network's input is never computed */
    if (half->keeps_blocks)
        cpu->kernels->half->widen(from, n * value->image_size, stored);
    else
        cpu->kernels->half->unpack(&area, value->dims[0], step, from, stored);
}
