/* Descriptors with oneDNN 3. See dnnl.h. */
#include "worker/backend/cpu/dnnl_api.h"

#include <assert.h>

dnnl_status_t cpu_md_open(struct cpu_layout *layout, int dim_count, const dnnl_dims_t dims,
                          dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(&layout->md, dim_count, dims, type, tag);
}

dnnl_status_t cpu_md_open_copy(struct cpu_layout *layout, cpu_md md)
{
    return dnnl_memory_desc_clone(&layout->md, md);
}

void cpu_md_close(struct cpu_layout *layout)
{
    if (layout->md != NULL)
        (void)dnnl_memory_desc_destroy(layout->md);
    layout->md = NULL;
}

cpu_md cpu_md_of(const struct cpu_layout *layout)
{
    return layout->md;
}

static void query(const struct cpu_layout *layout, dnnl_query_t what, void *answer)
{
    const dnnl_status_t rc = dnnl_memory_desc_query(layout->md, what, answer);

    assert(rc == dnnl_success); /* every layout is strided, perhaps with inner blocks */
    (void)rc;
}

uint32_t cpu_layout_numbers(const struct cpu_layout *layout,
                            uint64_t numbers[CPU_LAYOUT_NUMBERS_MAX])
{
    const dnnl_dims_t *dims, *strides, *blocks, *block_dims;
    dnnl_data_type_t type;
    int dim_count, block_count;
    uint32_t count = 0;

    query(layout, dnnl_query_data_type, &type);
    query(layout, dnnl_query_ndims_s32, &dim_count);
    query(layout, dnnl_query_padded_dims, (void *)&dims);
    query(layout, dnnl_query_strides, (void *)&strides);
    query(layout, dnnl_query_inner_nblks_s32, &block_count);
    query(layout, dnnl_query_inner_blks, (void *)&blocks);
    query(layout, dnnl_query_inner_idxs, (void *)&block_dims);
    numbers[count++] = (uint64_t)type;
    for (int i = 0; i < dim_count && i < CPU_DIMS_MAX; i++) {
        numbers[count++] = (uint64_t)(*dims)[i];
        numbers[count++] = (uint64_t)(*strides)[i];
    }
    for (int i = 0; i < block_count && i < CPU_INNER_BLOCKS_MAX; i++) {
        numbers[count++] = (uint64_t)(*blocks)[i];
        numbers[count++] = (uint64_t)(*block_dims)[i];
    }
    return count;
}

dnnl_status_t cpu_pd_conv(dnnl_primitive_desc_t *pd, enum cpu_direction direction,
                          const struct cpu_pd_args *args)
{
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    const dnnl_dims_t no_dilation = {0};

    if (direction == CPU_DIRECTION_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            pd, args->engine, dnnl_forward_training, direct, args->in, args->weights, args->bias,
            args->out, args->stride, no_dilation, args->pad, args->pad, args->attr);
    if (direction == CPU_DIRECTION_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, args->engine, direct, args->in, args->weights, args->out, args->stride, no_dilation,
            args->pad, args->pad, args->forward, args->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, args->engine, direct, args->in, args->weights, args->bias, args->out, args->stride,
        no_dilation, args->pad, args->pad, args->forward, args->attr);
}

dnnl_status_t cpu_pd_product(dnnl_primitive_desc_t *pd, enum cpu_direction direction,
                             const struct cpu_pd_args *args)
{
    if (direction == CPU_DIRECTION_FORWARD)
        return dnnl_inner_product_forward_primitive_desc_create(
            pd, args->engine, dnnl_forward_training, args->in, args->weights, args->bias, args->out,
            args->attr);
    if (direction == CPU_DIRECTION_DATA)
        return dnnl_inner_product_backward_data_primitive_desc_create(
            pd, args->engine, args->in, args->weights, args->out, args->forward, args->attr);
    return dnnl_inner_product_backward_weights_primitive_desc_create(
        pd, args->engine, args->in, args->weights, args->bias, args->out, args->forward,
        args->attr);
}
