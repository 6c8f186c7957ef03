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

static struct cpu_operation describe(const struct cpu *cpu, const struct cpu_layer *layer,
                                     uint32_t n)
{
    return (struct cpu_operation){.layer = layer->graph->name,
                                  .has_bias = layer->graph->has_bias,
                                  .in = cpu_value_shape(cpu, layer->in, n),
                                  .out = cpu_value_shape(cpu, &layer->out, n)};
}

static struct cpu_operation describe_half(const struct cpu *cpu, const struct cpu_layer *layer,
                                          uint32_t n)
{
    const struct cpu_matrix matrix = {
        .rows = n, .in = (int64_t)layer->in->image_size, .out = layer->out.dims[0]};

    (void)cpu;
    return cpu_half_operation(layer, &matrix);
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

/* Computed in bf16; STATUS_UNSUPPORTED where that is not possible or our loop is better. */
static enum status choose_half(const struct cpu *cpu, struct cpu_layer *layer,
                               struct linear *linear, struct err *err)
{
    const int64_t dims[] = {layer->out.dims[0], (int64_t)layer->in->image_size};
    const struct cpu_shape plain = cpu_weights_shape(dims, 2);
    enum status status;

    if (!cpu_half_applies(cpu, layer) || has_own_loop(layer) || !is_flat(layer->in))
        return STATUS_UNSUPPORTED;
    status = cpu_product_choose(cpu, layer, &linear->product, describe_half, cpu->batch_max, &plain,
                                CPU_BF16, err);
    if (status == STATUS_OK)
        status = cpu_weights_set_layout(layer, &plain,
                                        linear->product.weights[CPU_DIRECTION_WEIGHTS], err);
    linear->half.on = status == STATUS_OK;
    return status;
}

/* The weights are [out][in] row-major, seen as [out][channels][height][width] where the input is an
 * image. After a blocked input their columns are stored in its order. */
static enum status choose_layouts(const struct cpu *cpu, struct cpu_layer *layer,
                                  struct linear *linear, struct err *err)
{
    const struct cpu_shape in = cpu_value_shape(cpu, layer->in, 1);
    const int64_t dims[] = {layer->out.dims[0], in.dims[1], in.dims[2], in.dims[3]};
    const struct cpu_shape plain = cpu_weights_shape(dims, in.dim_count);
    struct cpu_shape stored = plain;
    struct err refusal;
    enum status status = choose_half(cpu, layer, linear, &refusal);

    if (status != STATUS_UNSUPPORTED) {
        if (status != STATUS_OK && err != NULL)
            *err = refusal;
        return status;
    }
    stored.order = in.order;
    status = cpu_product_set(layer, &linear->product, describe, &stored, err);
    if (status == STATUS_OK)
        status = cpu_weights_set_layout(layer, &plain,
                                        linear->product.weights[CPU_DIRECTION_FORWARD], err);
    return status;
}

static enum status linear_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct linear *linear = calloc(1, sizeof *linear);
    enum status status;

    if (linear == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = linear;
    status = choose_layouts(cpu, layer, linear, err);
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
        status = cpu_product_run(cpu, set, CPU_DIRECTION_FORWARD, &memory, err);
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
        status = cpu_product_run(cpu, set, CPU_DIRECTION_DATA, &memory, err);
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
        status = cpu_product_run(cpu, set, CPU_DIRECTION_WEIGHTS, &memory, err);
    if (status == STATUS_OK)
        status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_WEIGHTS, err);
    return status;
}

const struct cpu_op cpu_op_linear = {linear_open, linear_close, linear_forward, linear_backward};
