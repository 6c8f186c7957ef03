/* Convolution by oneDNN, in chunks of a few images whose output stays in the L2 cache.
 *
 * Batch norm: if one follows, its sums over a chunk are computed as soon as the chunk is ready. In
 * backward it computes dx of a chunk just before the two backward convolutions read it.
 *
 * Weights are stored in the layout that is best for forward. If backward needs another layout, the
 * weights are reordered once per step (some KiB). No gradient is computed for the network's input.
 *
 * conv_choose.c chooses the type and the order of the computation. With bf16 values (half.h)
 * weights are stored in the layout of their gradient, since forward and data read a 16-bit copy
 * anyway. With AMX a 1x1 convolution is a matrix product over pixels: oneDNN's inner product is up
 * to five times as fast as its convolution. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cpu/conv.h"
#include "worker/backend/cpu/order.h"

#define WEIGHTS_PER_CHUNK                                                                          \
    4 /* every chunk reads all weights, so its output is at least this much larger */

static uint32_t chunk_images(const struct cpu *cpu, const struct cpu_layer *layer)
{
    const struct graph_window *window = &layer->graph->window;
    const size_t bytes = cpu_value_bytes(&layer->out, 1);
    const size_t weights_bytes = (size_t)layer->out.dims[0] * layer->in->dims[0] * window->kernel *
                                 window->kernel * bytes / layer->out.image_size;
    size_t chunk = CPU_CHUNK_BYTES, images;

    if (chunk < WEIGHTS_PER_CHUNK * weights_bytes)
        chunk = WEIGHTS_PER_CHUNK * weights_bytes;
    images = bytes < chunk ? chunk / bytes : 1;
    assert(bytes > 0 && images > 0);
    return images < cpu->batch_max ? (uint32_t)images : cpu->batch_max;
}

static bool has_other_reader(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return graph_only_user(cpu->graph, layer->graph->inputs[0]) == GRAPH_NONE;
}

static size_t weights_bytes(const struct cpu_conv *conv)
{
    return cpu_layout_bytes(conv->product.weights[CPU_DIRECTION_WEIGHTS]);
}

static enum status request_copies(struct cpu *cpu, struct cpu_layer *layer, struct cpu_conv *conv,
                                  struct err *err)
{
    const uint32_t now = (uint32_t)(layer - cpu->layers);
    const size_t in = cpu_order_bytes(layer->in, conv->chunk);
    const size_t out = cpu_order_bytes(&layer->out, conv->chunk);
    struct cpu_half *copies = &conv->half;
    enum status status = cpu_request(cpu, layer, &copies->in[0], in, now, now, err);

    if (status == STATUS_OK)
        status = cpu_request(cpu, layer, &copies->out[0], out, now, now, err);
    if (status == STATUS_OK && !cpu->evaluate_only)
        status = cpu_request_in_backward(cpu, layer, &copies->in[1], in, err);
    if (status == STATUS_OK && !cpu->evaluate_only)
        status = cpu_request_in_backward(cpu, layer, &copies->out[1], out, err);
    return status;
}

static enum status make_buffers(struct cpu *cpu, struct cpu_layer *layer, struct cpu_conv *conv,
                                struct err *err)
{
    const size_t input_bytes = cpu_value_bytes(layer->in, conv->chunk);
    enum status status = cpu_product_request(cpu, layer, &conv->product, err);

    if (status == STATUS_OK && conv->half.on)
        status = cpu_half_request(cpu, layer, &conv->half, conv->chunk, err);
    if (status == STATUS_OK && conv->on_copies)
        status = request_copies(cpu, layer, conv, err);
    if (cpu->evaluate_only)
        return status;
    if (status == STATUS_OK && conv->chunk < cpu->batch_max)
        status = cpu_request_in_backward(
            cpu, layer, &conv->partial,
            weights_bytes(conv) + cpu_conv_channels(cpu, layer) * sizeof(float), err);
    if (status == STATUS_OK && layer->in->needs_grad && has_other_reader(cpu, layer))
        status = cpu_request_in_backward(cpu, layer, &conv->input_grad, input_bytes, err);
    return status;
}

static enum status conv_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct cpu_conv *conv = calloc(1, sizeof *conv);
    enum status status;

    if (conv == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = conv;
    conv->chunk = chunk_images(cpu, layer);
    status = cpu_conv_choose(cpu, layer, conv, err);
    if (status == STATUS_OK && layer->graph->has_bias)
        cpu_tensor_set_vector(&layer->tensors[1], layer->out.dims[0],
                              cpu_conv_channels(cpu, layer));
    layer->is_half = cpu_half_type(&conv->half) == CPU_BF16;
    return status == STATUS_OK ? make_buffers(cpu, layer, conv, err) : status;
}

static void conv_close(struct cpu_layer *layer)
{
    struct cpu_conv *conv = layer->own;

    if (conv == NULL)
        return;
    cpu_product_close(&conv->product);
    free(conv);
    layer->own = NULL;
}

static uint32_t next_chunk(const struct cpu *cpu, const struct cpu_conv *conv, uint32_t first)
{
    return cpu->n - first < conv->chunk ? cpu->n - first : conv->chunk;
}

/* Runs one direction and counts its time as time in oneDNN. */
static enum status run(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product_set *set,
                       enum cpu_direction direction, const struct cpu_product_memory *memory,
                       struct err *err)
{
    static const enum cpu_work works[CPU_DIRECTIONS] = {CPU_CONV_FORWARD, CPU_CONV_DATA,
                                                        CPU_CONV_WEIGHTS};
    const uint64_t start = cpu_clock(cpu);
    enum status status = cpu_product_run(cpu, set, direction, memory, err);

    cpu_count(cpu, layer, works[direction], start);
    return status;
}

/* n images as the primitive of a direction reads them. */
static const float *read_value(struct cpu *cpu, struct cpu_layer *layer,
                               enum cpu_direction direction, const struct cpu_value *value,
                               uint32_t n, const float *memory, float *copy)
{
    const struct cpu_conv *conv = layer->own;
    const uint64_t start = cpu_clock(cpu);
    const float *read = copy;

    if (copy == NULL)
        return memory;
    if (conv->on_copies)
        cpu_order_read(cpu, value, n, memory, conv->order[direction], copy);
    else
        read = cpu_half_read(cpu, &conv->half, value, n, memory, copy);
    cpu_count(cpu, layer, CPU_CONV_COPIES, start);
    return read;
}

/* Call after the primitive wrote n images, to `copy` or to `memory`. */
static void finish(struct cpu *cpu, struct cpu_layer *layer, enum cpu_direction direction,
                   const struct cpu_value *value, enum graph_dtype dtype, uint32_t n,
                   const float *copy, float *memory)
{
    const struct cpu_conv *conv = layer->own;
    const uint64_t start = cpu_clock(cpu);

    if (copy != NULL && conv->on_copies)
        cpu_order_write(cpu, value, n, copy, conv->order[direction], memory);
    else if (copy != NULL)
        cpu_half_write(cpu, &conv->half, value, n, copy, memory);
    if (value->type == CPU_F32)
        cpu_round(cpu, dtype, memory, n * value->image_size);
    if (copy != NULL)
        cpu_count(cpu, layer, CPU_CONV_COPIES, start);
}

static enum status convert(struct cpu *cpu, struct cpu_layer *layer, enum cpu_direction direction,
                           struct err *err)
{
    struct cpu_conv *conv = layer->own;
    const uint64_t start = cpu_clock(cpu);
    enum status status = cpu_product_convert(cpu, layer, &conv->product, direction, err);

    cpu_count(cpu, layer, conv->half.on ? CPU_CONV_COPIES : CPU_FORWARD, start);
    return status;
}

static enum status forward_chunk(struct cpu *cpu, struct cpu_layer *layer, uint32_t first,
                                 uint32_t n, struct err *err)
{
    struct cpu_conv *conv = layer->own;
    const float *in = cpu_image_at(layer->in, layer->in->data, first);
    float *out = cpu_image_at(&layer->out, layer->out.data, first), *copy = conv->half.out[0];
    struct cpu_product_memory memory = {
        .weights = cpu_product_weights(layer, &conv->product, CPU_DIRECTION_FORWARD),
        .bias = layer->graph->has_bias ? layer->tensors[1].param : NULL,
        .out = copy != NULL ? copy : out};
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &conv->product, n, &set, err);

    assert(first + n <= cpu->n && n <= conv->chunk);
    if (status != STATUS_OK)
        return status;
    memory.in = read_value(cpu, layer, CPU_DIRECTION_FORWARD, layer->in, n, in, conv->half.in[0]);
    status = run(cpu, layer, set, CPU_DIRECTION_FORWARD, &memory, err);
    if (status == STATUS_OK)
        finish(cpu, layer, CPU_DIRECTION_FORWARD, &layer->out, layer->graph->out.dtype, n, copy,
               out);
    return status;
}

static enum status conv_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct cpu_conv *conv = layer->own;
    enum status status = convert(cpu, layer, CPU_DIRECTION_FORWARD, err);
    uint32_t n;

    assert(conv->chunk > 0 && conv->chunk <= cpu->batch_max);
    for (uint32_t first = 0; first < cpu->n && status == STATUS_OK; first += n) {
        n = next_chunk(cpu, conv, first);
        status = forward_chunk(cpu, layer, first, n, err);
        if (status == STATUS_OK && layer->norm != NULL && cpu->training)
            cpu_norm_sums(cpu, layer->norm, first, n);
    }
    return status;
}

static void add_to(float *restrict sum, const float *restrict part, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += part[i];
}

static void own_weights(struct cpu *cpu, struct cpu_layer *layer, uint32_t n, const float *in,
                        const float *dy, float *weights, float *bias)
{
    const struct graph_window *window = &layer->graph->window;
    const struct cpu_area area = {.images = n,
                                  .blocks = layer->out.blocks,
                                  .height = layer->out.dims[1],
                                  .width = layer->out.dims[2]};
    const struct cpu_rows_conv shape = {.channels = layer->in->dims[0],
                                        .in_height = layer->in->dims[1],
                                        .in_width = layer->in->dims[2],
                                        .kernel = window->kernel,
                                        .stride = window->stride,
                                        .pad = window->pad,
                                        .out_channels = (uint32_t)cpu_conv_channels(cpu, layer)};
    const uint64_t start = cpu_clock(cpu);

    cpu->kernels->conv_weights(&area, &shape, in, dy, weights, bias);
    cpu_count(cpu, layer, CPU_CONV_WEIGHTS, start);
}

/* Gradient of weights and bias over one chunk: the first chunk writes it, the others add to it. */
static enum status backward_weights(struct cpu *cpu, struct cpu_layer *layer,
                                    struct cpu_product_set *set, uint32_t first, const float *dy,
                                    struct err *err)
{
    const struct cpu_conv *conv = layer->own;
    const size_t count = weights_bytes(conv) / sizeof(float); /* their gradient is fp32 */
    const float *in = read_value(cpu, layer, CPU_DIRECTION_WEIGHTS, layer->in, set->n,
                                 cpu_image_at(layer->in, layer->in->data, first), conv->half.in[1]);
    float *sum = cpu_product_weights(layer, &conv->product, CPU_DIRECTION_WEIGHTS);
    float *weights = first == 0 ? sum : conv->partial;
    float *bias_sum = layer->graph->has_bias ? layer->tensors[1].grad : NULL;
    float *bias = first == 0 || bias_sum == NULL ? bias_sum : conv->partial + count;
    const struct cpu_product_memory memory = {
        .in = in, .weights = weights, .bias = bias, .out = dy};
    enum status status = STATUS_OK;

    assert(first == 0 || conv->partial != NULL);
    if (conv->own_weights)
        own_weights(cpu, layer, set->n, in, dy, weights, bias);
    else
        status = run(cpu, layer, set, CPU_DIRECTION_WEIGHTS, &memory, err);
    if (status != STATUS_OK || first == 0)
        return status;
    add_to(sum, weights, count);
    if (bias_sum != NULL)
        add_to(bias_sum, bias, layer->out.dims[0]);
    return STATUS_OK;
}

static enum status backward_data(struct cpu *cpu, struct cpu_layer *layer,
                                 struct cpu_product_set *set, uint32_t first, const float *dy,
                                 struct err *err)
{
    const struct cpu_conv *conv = layer->own;
    const enum graph_dtype dtype = cpu->graph->layers[layer->graph->inputs[0]].out.dtype;
    float *grad = cpu_image_at(layer->in, layer->in->grad, first), *copy = conv->half.in[1];
    float *made = layer->adds[0] ? conv->input_grad : grad;
    const struct cpu_product_memory memory = {
        .in = copy != NULL ? copy : made,
        .weights = cpu_product_weights(layer, &conv->product, CPU_DIRECTION_DATA),
        .out = dy};
    enum status status;

    assert(layer->in->grad != NULL && made != NULL);
    status = run(cpu, layer, set, CPU_DIRECTION_DATA, &memory, err);
    if (status != STATUS_OK)
        return status;
    finish(cpu, layer, CPU_DIRECTION_DATA, layer->in, dtype, set->n, copy, made);
    if (layer->adds[0])
        cpu_value_add_grad(cpu, layer->in, dtype, grad, made, set->n * layer->in->image_size, true);
    return STATUS_OK;
}

static enum status backward_chunk(struct cpu *cpu, struct cpu_layer *layer, uint32_t first,
                                  uint32_t n, struct err *err)
{
    struct cpu_conv *conv = layer->own;
    const float *grad = cpu_image_at(&layer->out, layer->out.grad, first), *dy = NULL;
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &conv->product, n, &set, err);

    assert(first + n <= cpu->n && n <= conv->chunk);
    if (status != STATUS_OK)
        return status;
    if (layer->norm != NULL)
        cpu_norm_backward_apply(cpu, layer->norm, first, n);
    if (layer->in->grad != NULL) {
        dy = read_value(cpu, layer, CPU_DIRECTION_DATA, &layer->out, n, grad, conv->half.out[1]);
        status = backward_data(cpu, layer, set, first, dy, err);
    }
    if (dy == NULL || conv->order[CPU_DIRECTION_DATA] != conv->order[CPU_DIRECTION_WEIGHTS])
        dy = read_value(cpu, layer, CPU_DIRECTION_WEIGHTS, &layer->out, n, grad, conv->half.out[1]);
    return status == STATUS_OK ? backward_weights(cpu, layer, set, first, dy, err) : status;
}

static enum status conv_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    struct cpu_conv *conv = layer->own;
    enum status status = convert(cpu, layer, CPU_DIRECTION_DATA, err);
    uint32_t n;

    (void)grad_scale;
    for (uint32_t first = 0; first < cpu->n && status == STATUS_OK; first += n) {
        n = next_chunk(cpu, conv, first);
        status = backward_chunk(cpu, layer, first, n, err);
    }
    if (status == STATUS_OK)
        status = convert(cpu, layer, CPU_DIRECTION_WEIGHTS, err);
    return status;
}

const struct cpu_op cpu_op_conv = {conv_open, conv_close, conv_forward, conv_backward};
