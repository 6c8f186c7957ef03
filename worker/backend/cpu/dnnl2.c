/* Descriptors with oneDNN 2. See dnnl.h. */
#include "worker/backend/cpu/dnnl_api.h"

dnnl_status_t cpu_md_open(struct cpu_layout *layout, int dim_count, const dnnl_dims_t dims,
                          dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(&layout->md, dim_count, dims, type, tag);
}

dnnl_status_t cpu_md_open_copy(struct cpu_layout *layout, cpu_md md)
{
    layout->md = *md;
    return dnnl_success;
}

void cpu_md_close(struct cpu_layout *layout)
{
    (void)layout;
}

cpu_md cpu_md_of(const struct cpu_layout *layout)
{
    return &layout->md;
}

uint32_t cpu_layout_numbers(const struct cpu_layout *layout,
                            uint64_t numbers[CPU_LAYOUT_NUMBERS_MAX])
{
    const dnnl_memory_desc_t *md = &layout->md;
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    uint32_t count = 0;

    numbers[count++] = (uint64_t)md->data_type;
    for (int i = 0; i < md->ndims && i < CPU_DIMS_MAX; i++) {
        numbers[count++] = (uint64_t)md->padded_dims[i];
        numbers[count++] = (uint64_t)blocking->strides[i];
    }
    for (int i = 0; i < blocking->inner_nblks && i < CPU_INNER_BLOCKS_MAX; i++) {
        numbers[count++] = (uint64_t)blocking->inner_blks[i];
        numbers[count++] = (uint64_t)blocking->inner_idxs[i];
    }
    return count;
}

dnnl_status_t cpu_pd_conv(dnnl_primitive_desc_t *pd, enum cpu_direction direction,
                          const struct cpu_pd_args *args)
{
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    dnnl_status_t rc;

    if (direction == CPU_DIRECTION_FORWARD)
        rc = dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, direct, args->in,
                                                args->weights, args->bias, args->out, args->stride,
                                                args->pad, args->pad);
    else if (direction == CPU_DIRECTION_DATA)
        rc = dnnl_convolution_backward_data_desc_init(
            &desc, direct, args->in, args->weights, args->out, args->stride, args->pad, args->pad);
    else
        rc = dnnl_convolution_backward_weights_desc_init(&desc, direct, args->in, args->weights,
                                                         args->bias, args->out, args->stride,
                                                         args->pad, args->pad);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd, &desc, args->attr, args->engine, args->forward);
    return rc;
}

dnnl_status_t cpu_pd_product(dnnl_primitive_desc_t *pd, enum cpu_direction direction,
                             const struct cpu_pd_args *args)
{
    dnnl_inner_product_desc_t desc;
    dnnl_status_t rc;

    if (direction == CPU_DIRECTION_FORWARD)
        rc = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, args->in,
                                                  args->weights, args->bias, args->out);
    else if (direction == CPU_DIRECTION_DATA)
        rc = dnnl_inner_product_backward_data_desc_init(&desc, args->in, args->weights, args->out);
    else
        rc = dnnl_inner_product_backward_weights_desc_init(&desc, args->in, args->weights,
                                                           args->bias, args->out);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd, &desc, args->attr, args->engine, args->forward);
    return rc;
}
