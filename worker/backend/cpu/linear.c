/* The linear layer. After a flatten it reads the blocked value directly: the columns of the weights
 * are stored in the value's order, so that activations are never reordered. */
#include <assert.h>
#include <stdlib.h>

#include "worker/backend/cpu/half.h"
#include "worker/backend/cpu/product.h"

#define OWN_OUTPUTS_MAX 32 /* with more outputs oneDNN's matrix product is faster than our loop */

struct linear {
    struct cpu_product product;
    struct cpu_half half;
};

static struct cpu_operation describe(const struct cpu *cpu, const struct cpu_layer *layer,
                                     uint32_t n, enum cpu_direction direction)
{
    (void)direction;
    return (struct cpu_operation){.layer = layer->graph->name,
                                  .has_bias = layer->graph->has_bias,
                                  .in = cpu_value_shape(cpu, layer->in, n),
                                  .out = cpu_value_shape(cpu, &layer->out, n)};
}

static struct cpu_operation describe_half(const struct cpu *cpu, const struct cpu_layer *layer,
                                          uint32_t n, enum cpu_direction direction)
{
    const struct cpu_half *half = &((const struct linear *)layer->own)->half;
    const struct cpu_matrix matrix = {
        .rows = n, .in = (int64_t)layer->in->image_size, .out = layer->out.dims[0]};

    (void)cpu;
    (void)direction;
    return cpu_half_matrix(half, layer, &matrix);
}

static bool has_own_loop(const struct cpu_layer *layer)
{
    return layer->in->blocked && layer->out.dims[0] <= OWN_OUTPUTS_MAX;
}

/* For bf16: an image is a row of channels-last elements, so the columns of the weight matrix are
 * stored in that order. */
static enum status store_half(struct cpu_layer *layer, struct linear *linear,
                              const struct cpu_shape *plain, const struct cpu_shape *matrix,
                              struct err *err)
{
    struct cpu_product *product = &linear->product;
    struct cpu_shape last = *plain;
    struct cpu_layout *stored = NULL, *seen = NULL;
    enum status status;

    if (plain->dim_count == 2)
        return cpu_product_store(layer, product, plain, plain,
                                 product->weights[CPU_DIRECTION_WEIGHTS],
                                 product->weights[CPU_DIRECTION_WEIGHTS], err);
    last.order = CPU_CHANNELS_LAST;
    status = cpu_layout_new(&stored, &last, layer->graph->name, err);
    if (status == STATUS_OK)
        status = cpu_layout_new(&seen, matrix, layer->graph->name, err);
    if (status == STATUS_OK)
        status = cpu_product_store(layer, product, plain, plain, stored, seen, err);
    cpu_layout_free(&stored);
    cpu_layout_free(&seen);
    return status;
}

/* For a bf16 value: computes in bf16 if possible, else in fp32. */
static enum status choose_half(const struct cpu *cpu, struct cpu_layer *layer,
                               struct linear *linear, const struct cpu_shape *plain,
                               struct err *err)
{
    const int64_t dims[] = {layer->out.dims[0], (int64_t)layer->in->image_size};
    const struct cpu_shape matrix = cpu_weights_shape(dims, 2);
    struct err refusal;
    enum status status;

    assert(layer->out.type == CPU_BF16);
    linear->half.on = true;
    linear->half.step = 1;
    status = cpu_product_choose(cpu, layer, &linear->product, describe_half, cpu->batch_max,
                                &matrix, CPU_BF16, &refusal);
    linear->half.is_wide = status == STATUS_UNSUPPORTED;
    if (linear->half.is_wide)
        status = cpu_product_choose(cpu, layer, &linear->product, describe_half, cpu->batch_max,
                                    &matrix, CPU_F32, err);
    else if (status != STATUS_OK && err != NULL)
        *err = refusal;
    return status == STATUS_OK ? store_half(layer, linear, plain, &matrix, err) : status;
}

/* The weights are [out][in] row-major, or [out][channels][height][width] if the input is an image.
 * After a blocked input their columns are stored in its order. */
static enum status choose_layouts(const struct cpu *cpu, struct cpu_layer *layer,
                                  struct linear *linear, struct err *err)
{
    const struct cpu_value *in = layer->in;
    const int64_t dims[] = {layer->out.dims[0], in->dims[0], in->dims[1], in->dims[2]};
    const bool is_image = in->blocked || in->dims[1] != 1 || in->dims[2] != 1;
    const struct cpu_shape plain = cpu_weights_shape(dims, is_image ? 4 : 2);
    struct cpu_shape stored = plain;
    enum status status;

    if (in->type == CPU_BF16)
        return choose_half(cpu, layer, linear, &plain, err);
    stored.order = cpu_value_shape(cpu, in, 1).order;
    status = cpu_product_set(layer, &linear->product, describe, &stored, err);
    if (status == STATUS_OK)
        status = cpu_product_store(layer, &linear->product, &plain, &plain,
                                   linear->product.weights[CPU_DIRECTION_FORWARD],
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
    layer->is_half = cpu_half_type(&linear->half) == CPU_BF16;
    if (status == STATUS_OK)
        status = cpu_product_request(cpu, layer, &linear->product, err);
    if (status == STATUS_OK && linear->half.on)
        status = cpu_half_request(cpu, layer, &linear->half, cpu->batch_max, err);
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

/* A value in the form that the primitive reads. */
static const float *read_value(const struct cpu *cpu, const struct cpu_layer *layer,
                               const struct cpu_value *value, const float *memory, float *copy)
{
    const struct linear *linear = layer->own;

    return copy != NULL ? cpu_half_read(cpu, &linear->half, value, cpu->n, memory, copy) : memory;
}

static enum status forward_product(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct linear *linear = layer->own;
    float *copy = linear->half.out[0];
    struct cpu_product_memory memory = {
        .weights = cpu_product_weights(layer, &linear->product, CPU_DIRECTION_FORWARD),
        .bias = layer->graph->has_bias ? layer->tensors[1].param : NULL,
        .out = copy != NULL ? copy : layer->out.data};
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &linear->product, cpu->n, &set, err);

    if (status == STATUS_OK)
        status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_FORWARD, err);
    memory.in = read_value(cpu, layer, layer->in, layer->in->data, linear->half.in[0]);
    if (status == STATUS_OK)
        status = cpu_product_run(cpu, set, CPU_DIRECTION_FORWARD, &memory, err);
    if (status == STATUS_OK && copy != NULL)
        cpu_half_write(cpu, &linear->half, &layer->out, cpu->n, copy, layer->out.data);
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
    float *copy = linear->half.in[1];
    const struct cpu_product_memory memory = {
        .in = copy != NULL ? copy : layer->in->grad,
        .weights = cpu_product_weights(layer, &linear->product, CPU_DIRECTION_DATA),
        .out = dy};
    enum status status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_DATA, err);

    if (status == STATUS_OK)
        status = cpu_product_run(cpu, set, CPU_DIRECTION_DATA, &memory, err);
    if (status == STATUS_OK && copy != NULL)
        cpu_half_write(cpu, &linear->half, layer->in, cpu->n, copy, layer->in->grad);
    return status;
}

static enum status linear_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                   struct err *err)
{
    struct linear *linear = layer->own;
    struct cpu_product_memory memory = {
        .weights = cpu_product_weights(layer, &linear->product, CPU_DIRECTION_WEIGHTS),
        .bias = layer->graph->has_bias ? layer->tensors[1].grad : NULL};
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &linear->product, cpu->n, &set, err);

    (void)grad_scale;
    memory.out = read_value(cpu, layer, &layer->out, layer->out.grad, linear->half.out[1]);
    if (status == STATUS_OK && layer->in->grad != NULL)
        status = backward_data(cpu, layer, set, memory.out, err);
    memory.in = read_value(cpu, layer, layer->in, layer->in->data, linear->half.in[1]);
    if (status == STATUS_OK)
        status = cpu_product_run(cpu, set, CPU_DIRECTION_WEIGHTS, &memory, err);
    if (status == STATUS_OK)
        status = cpu_product_convert(cpu, layer, &linear->product, CPU_DIRECTION_WEIGHTS, err);
    return status;
}

const struct cpu_op cpu_op_linear = {linear_open, linear_close, linear_forward, linear_backward};
