#include "worker/backend/cpu/cpu_low.h"

#include <assert.h>
#include <string.h>

#include "kernels/half.h"
#include "worker/backend/cpu/cpu_kernels_low.h"

bool cpu_low_wanted(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return cpu->has_bf16 && layer->graph->out.dtype == GRAPH_BF16;
}

dnnl_status_t cpu_low_check(const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *pd)
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

dnnl_status_t cpu_low_describe(const struct cpu *cpu, const struct cpu_matrix *matrix,
                               enum cpu_direction direction, const dnnl_memory_desc_t *weights,
                               const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    const dnnl_dims_t in_dims = {matrix->rows, matrix->in};
    const dnnl_dims_t out_dims = {matrix->rows, matrix->out};
    dnnl_memory_desc_t in, out, bias, *bias_or_null = matrix->has_bias ? &bias : NULL;
    dnnl_inner_product_desc_t desc;
    dnnl_status_t rc = dnnl_memory_desc_init_by_tag(&in, 2, in_dims, dnnl_bf16, dnnl_ab);

    cpu_vector_md((size_t)matrix->out, &bias);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&out, 2, out_dims, dnnl_bf16, dnnl_ab);
    if (rc == dnnl_success && direction == CPU_DIRECTION_FORWARD)
        rc = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &in, weights,
                                                  bias_or_null, &out);
    else if (rc == dnnl_success && direction == CPU_DIRECTION_DATA)
        rc = dnnl_inner_product_backward_data_desc_init(&desc, &in, weights, &out);
    else if (rc == dnnl_success)
        rc = dnnl_inner_product_backward_weights_desc_init(&desc, &in, weights, bias_or_null, &out);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, hint);
    return rc == dnnl_success ? cpu_low_check(weights, pd) : rc;
}

enum status cpu_low_want(struct cpu *cpu, const struct cpu_layer *layer, struct cpu_low *low,
                         uint32_t n, size_t in_size, size_t out_size, struct err *err)
{
    const uint32_t now = (uint32_t)(layer - cpu->layers);
    const size_t in_bytes = n * in_size * sizeof(uint16_t);
    const size_t out_bytes = n * out_size * sizeof(uint16_t);
    enum status status = cpu_want(cpu, layer, &low->in[0], in_bytes, now, now, err);

    if (status == STATUS_OK)
        status = cpu_want(cpu, layer, &low->out[0], out_bytes, now, now, err);
    if (cpu->evaluate_only)
        return status;
    if (status == STATUS_OK)
        status = cpu_want_in_backward(cpu, layer, &low->in[1], in_bytes, err);
    if (status == STATUS_OK)
        status = cpu_want_in_backward(cpu, layer, &low->out[1], out_bytes, err);
    return status;
}

dnnl_status_t cpu_low_md(const struct cpu_value *value, uint32_t n, dnnl_memory_desc_t *md)
{
    const dnnl_dims_t dims = {n, value->dims[0], value->dims[1], value->dims[2]};

    return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_bf16, dnnl_nhwc);
}

/* An input of few channels lies row-major: [n][channels][height][width]. */
static void pack_planes(const struct cpu_value *value, uint32_t n, uint32_t step,
                        const float *stored, uint16_t *low)
{
    const size_t channels = value->dims[0], height = value->dims[1], width = value->dims[2];

    for (size_t row = 0; row < n * height; row++) {
        const float *first = stored + (row / height * channels * height + row % height) * width;

        if (row % height % step != 0)
            continue;
        for (size_t column = 0; column < width; column += step)
            for (size_t c = 0; c < channels; c++)
                *low++ = (uint16_t)(half_float_bits(first[c * height * width + column]) >> 16);
    }
}

void cpu_low_pack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n, uint32_t step,
                  const float *stored, float *low)
{
    const struct cpu_area area = cpu_area(value, n);

    if (value->blocked)
        cpu->kernels->low->pack(&area, value->dims[0], step, stored, (uint16_t *)(void *)low);
    else
        pack_planes(value, n, step, stored, (uint16_t *)(void *)low);
}

void cpu_low_unpack(const struct cpu *cpu, const struct cpu_value *value, uint32_t n, uint32_t step,
                    const float *low, float *stored)
{
    const struct cpu_area area = cpu_area(value, n);

    assert(value->blocked); /* nobody asks for the gradient of the network's input */
    cpu->kernels->low->unpack(&area, value->dims[0], step, (const uint16_t *)(const void *)low,
                              stored);
}
