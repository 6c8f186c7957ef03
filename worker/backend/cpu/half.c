/* bf16 on the matrix unit: descriptors and conversions. See half.h. */
#include "worker/backend/cpu/half.h"

#include <assert.h>
#include <string.h>

#include "kernels/half.h"
#include "worker/backend/cpu/kernels_half.h"

bool cpu_half_applies(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return cpu->has_bf16 && layer->graph->out.dtype == GRAPH_BF16;
}

dnnl_status_t cpu_half_check(const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *pd)
{
    const char *name = NULL;
    dnnl_status_t rc;

    if (weights->format_kind != dnnl_format_kind_any)
        return dnnl_success;
    rc = dnnl_primitive_desc_query(*pd, dnnl_query_impl_info_str, 0, (void *)&name);
    if (rc == dnnl_success && strstr(name, "amx") != NULL)
        return dnnl_success;
    (void)dnnl_primitive_desc_destroy(*pd);
    *pd = NULL;
    return dnnl_unimplemented;
}

dnnl_status_t cpu_half_describe(const struct cpu *cpu, const struct cpu_matrix *matrix,
                                enum cpu_direction direction, const dnnl_memory_desc_t *weights,
                                const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    const dnnl_dims_t in_dims = {matrix->rows, matrix->in};
    const dnnl_dims_t out_dims = {matrix->rows, matrix->out};
    dnnl_memory_desc_t in, out, bias, *bias_or_null = matrix->has_bias ? &bias : NULL;
    dnnl_status_t rc = dnnl_memory_desc_init_by_tag(&in, 2, in_dims, dnnl_bf16, dnnl_ab);

    cpu_vector_md((size_t)matrix->out, &bias);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&out, 2, out_dims, dnnl_bf16, dnnl_ab);
    if (rc == dnnl_success)
        rc = cpu_product_describe(cpu, direction, &in, weights, bias_or_null, &out, hint, pd);
    return rc == dnnl_success ? cpu_half_check(weights, pd) : rc;
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

dnnl_status_t cpu_half_md(const struct cpu_value *value, uint32_t n, dnnl_memory_desc_t *md)
{
    const dnnl_dims_t dims = {n, value->dims[0], value->dims[1], value->dims[2]};

    return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_bf16, dnnl_nhwc);
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

void cpu_half_pack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n, uint32_t step,
                   const float *stored, float *half)
{
    assert(step > 0 && stored != NULL && half != NULL);
    if (value->blocked) {
        const struct cpu_area area = cpu_area(value, n);

        cpu->kernels->half->pack(&area, value->dims[0], step, stored, (uint16_t *)(void *)half);
    } else {
        pack_planes(value, n, step, stored, (uint16_t *)(void *)half);
    }
}

void cpu_half_unpack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                     uint32_t step, const float *half, float *stored)
{
    const struct cpu_area area = cpu_area(value, n);

    assert(value->blocked); /* the gradient of the network's input is never computed */
    cpu->kernels->half->unpack(&area, value->dims[0], step, (const uint16_t *)(const void *)half,
                               stored);
}
