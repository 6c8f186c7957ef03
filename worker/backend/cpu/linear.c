/* The linear layer. After a flatten it reads the blocked value in place: the columns of the weights
 * are stored in that order, so that activations are never reordered. */
#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cpu/half.h"
#include "worker/backend/cpu/kernels_half.h"
#include "worker/backend/cpu/product.h"

#define OWN_OUTPUTS_MAX 32 /* with more outputs oneDNN's matrix product is faster than our loop */

struct linear {
    struct cpu_product product;
    struct cpu_half half;
};

static dnnl_status_t describe(const struct cpu *cpu, const struct cpu_layer *layer, uint32_t n,
                              enum cpu_direction direction, const dnnl_memory_desc_t *weights,
                              const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    dnnl_memory_desc_t in, out, bias, *bias_or_null = layer->graph->has_bias ? &bias : NULL;
    dnnl_status_t rc = cpu_value_md(cpu, layer->in, n, &in);

    if (rc == dnnl_success)
        rc = cpu_value_md(cpu, &layer->out, n, &out);
    cpu_vector_md(layer->out.dims[0], &bias);
    if (rc == dnnl_success)
        rc = cpu_product_describe(cpu, direction, &in, weights, bias_or_null, &out, hint, pd);
    return rc;
}

static dnnl_status_t describe_half(const struct cpu *cpu, const struct cpu_layer *layer, uint32_t n,
                                   enum cpu_direction direction, const dnnl_memory_desc_t *weights,
                                   const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    const struct cpu_matrix matrix = {.rows = n,
                                      .in = (int64_t)layer->in->image_size,
                                      .out = layer->out.dims[0],
                                      .has_bias = layer->graph->has_bias};

    return cpu_half_describe(cpu, &matrix, direction, weights, hint, pd);
}

/* Layouts of the weights: `plain` is [out][in] row-major, seen as [out][channels][height][width]
 * where the input is an image; `stored` has the columns in the order of the blocked input. */
static dnnl_status_t weights_mds(const struct cpu *cpu, const struct cpu_layer *layer,
                                 dnnl_memory_desc_t *plain, dnnl_memory_desc_t *stored)
{
    const struct cpu_value *in = layer->in;
    const dnnl_dims_t dims = {layer->out.dims[0], in->dims[0], in->dims[1], in->dims[2]};
    dnnl_status_t rc;

    if (!in->blocked) {
        const bool image = in->dims[1] != 1 || in->dims[2] != 1;

        rc = dnnl_memory_desc_init_by_tag(plain, image ? 4 : 2, dims, dnnl_f32,
                                          image ? dnnl_oihw : dnnl_oi);
        *stored = *plain;
        return rc;
    }
    rc = dnnl_memory_desc_init_by_tag(plain, 4, dims, dnnl_f32, dnnl_oihw);
    if (rc != dnnl_success)
        return rc;
    return dnnl_memory_desc_init_by_tag(stored, 4, dims, dnnl_f32,
                                        cpu->kernels->block == 16 ? dnnl_aBcd16b : dnnl_aBcd8b);
}

static bool has_own_loop(const struct cpu_layer *layer)
{
    return layer->in->blocked && layer->out.dims[0] <= OWN_OUTPUTS_MAX;
}

/* Whether the input is row-major and without padding in memory, whatever its shape. */
static bool is_flat(const struct cpu_value *in)
{
    return in->image_size == (size_t)in->dims[0] * in->dims[1] * in->dims[2] &&
           (!in->blocked || (in->dims[1] == 1 && in->dims[2] == 1));
}

/* bf16 on the matrix unit; dnnl_unimplemented where that is not possible or our loop is better. */
static dnnl_status_t choose_half(const struct cpu *cpu, const struct cpu_layer *layer,
                                 struct linear *linear)
{
    const dnnl_dims_t dims = {layer->out.dims[0], (dnnl_dim_t)layer->in->image_size};
    dnnl_memory_desc_t plain;
    dnnl_status_t rc;

    if (!cpu_half_applies(cpu, layer) || has_own_loop(layer) || !is_flat(layer->in))
        return dnnl_unimplemented;
    linear->product.describe = describe_half;
    rc = cpu_product_choose(cpu, layer, &linear->product, cpu->batch_max, dims, 2, dnnl_bf16);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&plain, 2, dims, dnnl_f32, dnnl_ab);
    if (rc == dnnl_success)
        cpu_tensor_set_layout(&layer->tensors[0], &plain,
                              &linear->product.weights_mds[CPU_DIRECTION_WEIGHTS]);
    linear->half.on = rc == dnnl_success;
    return rc;
}

static dnnl_status_t choose_layouts(const struct cpu *cpu, const struct cpu_layer *layer,
                                    struct linear *linear)
{
    dnnl_memory_desc_t plain, stored;
    dnnl_status_t rc = choose_half(cpu, layer, linear);

    if (rc != dnnl_unimplemented)
        return rc;
    linear->product.describe = describe;
    rc = weights_mds(cpu, layer, &plain, &stored);
    if (rc != dnnl_success)
        return rc;
    cpu_tensor_set_layout(&layer->tensors[0], &plain, &stored);
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        linear->product.weights_mds[d] = stored;
    return dnnl_success;
}

static enum status linear_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct linear *linear = calloc(1, sizeof *linear);
    enum status status;

    if (linear == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = linear;
    status = cpu_check(choose_layouts(cpu, layer, linear), layer, "linear", err);
    if (status == STATUS_OK && layer->graph->has_bias)
        cpu_tensor_set_vector(&layer->tensors[1], layer->out.dims[0], layer->out.dims[0]);
    layer->is_half = linear->half.on;
    if (status == STATUS_OK)
        status = cpu_product_request(cpu, layer, &linear->product, err);
    if (status == STATUS_OK && linear->half.on)
        status = cpu_half_request(cpu, layer, &linear->half, cpu->batch_max, layer->in->image_size,
                                  layer->out.image_size, err);
    return status;
}

static void linear_close(struct cpu_layer *layer)
{
    struct linear *linear = layer->own;

    if (linear == NULL)
        return;
    cpu_product_close(&linear->product);
    free(linear);
    layer->own = NULL;
}

static void narrow(const struct cpu *cpu, const float *values, size_t n, float *half)
{
    cpu->kernels->half->narrow(values, n, (uint16_t *)(void *)half);
}

static void widen(const struct cpu *cpu, const float *half, size_t n, float *values)
{
    cpu->kernels->half->widen((const uint16_t *)(const void *)half, n, values);
}

static enum status forward_product(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct linear *linear = layer->own;
    const bool half = linear->half.on;
    const struct cpu_product_memory memory = {
        .in = half ? linear->half.in[0] : layer->in->data,
        .weights = cpu_product_weights(layer, &linear->product, CPU_DIRECTION_FORWARD),
        .bias = layer->graph->has_bias ? layer->tensors[1].param : NULL,
        .out = half ? linear->half.out[0] : layer->out.data};
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &linear->product, cpu->n, &set, err);

    assert(!half || (linear->half.in[0] != NULL && linear->half.out[0] != NULL));
    if (status == STATUS_OK)
        status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_FORWARD, err);
    if (status == STATUS_OK && half)
        narrow(cpu, layer->in->data, cpu->n * layer->in->image_size, linear->half.in[0]);
    if (status == STATUS_OK)
        status = cpu_product_run(cpu, layer, set, CPU_DIRECTION_FORWARD, &memory, err);
    if (status == STATUS_OK && half)
        widen(cpu, linear->half.out[0], cpu->n * layer->out.image_size, layer->out.data);
    return status;
}

static enum status linear_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_tensor *tensors = layer->tensors;

    assert(tensors[0].count == (size_t)layer->out.dims[0] * layer->in->dims[0] *
                                   layer->in->dims[1] * layer->in->dims[2]);
    if (!has_own_loop(layer))
        return forward_product(cpu, layer, err);
    cpu->kernels->linear(layer->in->data, tensors[0].param,
                         layer->graph->has_bias ? tensors[1].param : NULL, cpu->n,
                         layer->in->image_size, layer->out.dims[0], layer->out.data);
    return STATUS_OK;
}

static enum status backward_data(struct cpu *cpu, struct cpu_layer *layer,
                                 struct cpu_product_set *set, const float *dy, struct err *err)
{
    struct linear *linear = layer->own;
    const bool half = linear->half.on;
    const struct cpu_product_memory memory = {
        .in = half ? linear->half.in[1] : layer->in->grad,
        .weights = cpu_product_weights(layer, &linear->product, CPU_DIRECTION_DATA),
        .out = dy};
    enum status status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_DATA, err);

    if (status == STATUS_OK)
        status = cpu_product_run(cpu, layer, set, CPU_DIRECTION_DATA, &memory, err);
    if (status == STATUS_OK && half)
        widen(cpu, linear->half.in[1], cpu->n * layer->in->image_size, layer->in->grad);
    return status;
}

static enum status linear_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                   struct err *err)
{
    struct linear *linear = layer->own;
    const bool half = linear->half.on;
    const float *dy = half ? linear->half.out[1] : layer->out.grad;
    const struct cpu_product_memory memory = {
        .in = half ? linear->half.in[1] : layer->in->data,
        .weights = cpu_product_weights(layer, &linear->product, CPU_DIRECTION_WEIGHTS),
        .bias = layer->graph->has_bias ? layer->tensors[1].grad : NULL,
        .out = dy};
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &linear->product, cpu->n, &set, err);

    (void)grad_scale;
    if (status == STATUS_OK && half)
        narrow(cpu, layer->out.grad, cpu->n * layer->out.image_size, linear->half.out[1]);
    if (status == STATUS_OK && layer->in->grad != NULL)
        status = backward_data(cpu, layer, set, dy, err);
    if (status == STATUS_OK && half)
        narrow(cpu, layer->in->data, cpu->n * layer->in->image_size, linear->half.in[1]);
    if (status == STATUS_OK)
        status = cpu_product_run(cpu, layer, set, CPU_DIRECTION_WEIGHTS, &memory, err);
    if (status == STATUS_OK)
        status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_WEIGHTS, err);
    return status;
}

const struct cpu_op cpu_op_linear = {linear_open, linear_close, linear_forward, linear_backward};
