/* Convolution by oneDNN, a few images at a time.
 *
 * The batch is cut into chunks whose output stays in the L2 cache. Forward, the batch norm behind
 * it sums up each chunk as soon as it is made; backward, it turns each chunk into dx just before
 * the two backward convolutions read it. Weights stay in the layout that the forward convolution
 * likes best; where backward likes another, they are reordered once a step (some KiB). No gradient
 * is computed for the network's input.
 *
 * In bf16 on a matrix unit (cpu_low.h) the convolution reads and makes pixels with their channels
 * side by side, and one of 1x1 is a matrix product over pixels: oneDNN's inner product is up to
 * five times as fast there as its convolution. Weights are then kept as their gradient comes, since
 * the two other directions read a 16-bit copy anyway. */
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cpu/cpu_low.h"
#include "worker/backend/cpu/cpu_product.h"

#define WEIGHTS_PER_CHUNK 4 /* a chunk reads and writes all weights: it has to be worth it */

struct conv {
    struct cpu_product product;
    struct cpu_low low;
    bool is_matrix; /* low and 1x1 */
    uint32_t chunk;
    float *partial;    /* one chunk's gradient of weights, then of bias */
    float *input_grad; /* one chunk's gradient of the input, to be added; or NULL */
};

static uint32_t chunk_images(const struct cpu *cpu, const struct cpu_layer *layer)
{
    const struct graph_window *window = &layer->graph->window;
    const size_t bytes = layer->out.image_size * sizeof(float);
    const size_t weights_bytes = (size_t)layer->out.dims[0] * layer->in->dims[0] * window->kernel *
                                 window->kernel * sizeof(float);
    size_t chunk = CPU_CHUNK_BYTES, images;

    if (chunk < WEIGHTS_PER_CHUNK * weights_bytes)
        chunk = WEIGHTS_PER_CHUNK * weights_bytes;
    images = bytes < chunk ? chunk / bytes : 1;

    return images < cpu->batch_max ? (uint32_t)images : cpu->batch_max;
}

static const struct conv *conv_of(const struct cpu_layer *layer)
{
    return layer->own;
}

static uint32_t input_step(const struct cpu_layer *layer)
{
    return conv_of(layer)->is_matrix ? layer->graph->window.stride : 1;
}

struct conv_mds {
    dnnl_memory_desc_t in, out, bias;
    const dnnl_memory_desc_t *bias_or_null;
    dnnl_dims_t stride, pad;
};

static dnnl_status_t fill_mds(const struct cpu *cpu, const struct cpu_layer *layer, uint32_t n,
                              struct conv_mds *mds)
{
    const struct graph_window *window = &layer->graph->window;
    const bool low = conv_of(layer)->low.on;
    dnnl_status_t rc =
        low ? cpu_low_md(layer->in, n, &mds->in) : cpu_value_md(cpu, layer->in, n, &mds->in);

    if (rc == dnnl_success)
        rc = low ? cpu_low_md(&layer->out, n, &mds->out)
                 : cpu_value_md(cpu, &layer->out, n, &mds->out);
    cpu_vector_md(layer->out.dims[0], &mds->bias);
    mds->bias_or_null = layer->graph->has_bias ? &mds->bias : NULL;
    for (int i = 0; i < 2; i++) {
        mds->stride[i] = window->stride;
        mds->pad[i] = window->pad;
    }
    return rc;
}

static dnnl_status_t describe(const struct cpu *cpu, const struct cpu_layer *layer, uint32_t n,
                              enum cpu_direction direction, const dnnl_memory_desc_t *weights,
                              const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    struct conv_mds mds;
    dnnl_status_t rc = fill_mds(cpu, layer, n, &mds);

    if (rc == dnnl_success && direction == CPU_DIRECTION_FORWARD)
        rc = dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, direct, &mds.in,
                                                weights, mds.bias_or_null, &mds.out, mds.stride,
                                                mds.pad, mds.pad);
    else if (rc == dnnl_success && direction == CPU_DIRECTION_DATA)
        rc = dnnl_convolution_backward_data_desc_init(&desc, direct, &mds.in, weights, &mds.out,
                                                      mds.stride, mds.pad, mds.pad);
    else if (rc == dnnl_success)
        rc = dnnl_convolution_backward_weights_desc_init(&desc, direct, &mds.in, weights,
                                                         mds.bias_or_null, &mds.out, mds.stride,
                                                         mds.pad, mds.pad);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd, &desc, cpu->attr, cpu->engine, hint);
    return rc == dnnl_success && conv_of(layer)->low.on ? cpu_low_check(weights, pd) : rc;
}

/* The pixels of n images as rows of a matrix. */
static dnnl_status_t describe_matrix(const struct cpu *cpu, const struct cpu_layer *layer,
                                     uint32_t n, enum cpu_direction direction,
                                     const dnnl_memory_desc_t *weights,
                                     const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    const uint32_t pixels = layer->out.dims[1] * layer->out.dims[2];
    const struct cpu_matrix matrix = {.rows = (int64_t)n * pixels,
                                      .in = layer->in->dims[0],
                                      .out = layer->out.dims[0],
                                      .has_bias = layer->graph->has_bias};

    return cpu_low_describe(cpu, &matrix, direction, weights, hint, pd);
}

/* Layouts of the weights by oneDNN's taste. dnnl_unimplemented: not in bf16 after all. */
static dnnl_status_t choose_layouts(const struct cpu *cpu, const struct cpu_layer *layer,
                                    struct conv *conv)
{
    const dnnl_dim_t kernel = layer->graph->window.kernel;
    const dnnl_dims_t dims = {layer->out.dims[0], layer->in->dims[0], kernel, kernel};
    const int dim_count = conv->is_matrix ? 2 : 4;
    dnnl_memory_desc_t plain;
    dnnl_status_t rc = dnnl_memory_desc_init_by_tag(&plain, dim_count, dims, dnnl_f32,
                                                    dim_count == 2 ? dnnl_ab : dnnl_abcd);

    conv->product.describe = conv->is_matrix ? describe_matrix : describe;
    if (rc == dnnl_success)
        rc = cpu_product_choose(cpu, layer, &conv->product, conv->chunk, dims, dim_count,
                                conv->low.on ? dnnl_bf16 : dnnl_f32);
    if (rc == dnnl_success)
        cpu_tensor_set_layout(&layer->tensors[0], &plain,
                              &conv->product.weights_mds[conv->low.on ? CPU_DIRECTION_WEIGHTS
                                                                      : CPU_DIRECTION_FORWARD]);
    return rc;
}

static dnnl_status_t choose_type(const struct cpu *cpu, const struct cpu_layer *layer,
                                 struct conv *conv)
{
    const struct graph_window *window = &layer->graph->window;
    dnnl_status_t rc;

    conv->low.on = cpu_low_wanted(cpu, layer);
    conv->is_matrix = conv->low.on && window->kernel == 1 && window->pad == 0;
    rc = choose_layouts(cpu, layer, conv);
    if (rc != dnnl_unimplemented || !conv->low.on)
        return rc;
    conv->low.on = conv->is_matrix = false;
    return choose_layouts(cpu, layer, conv);
}

static bool has_other_reader(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return graph_only_user(cpu->graph, layer->graph->inputs[0]) == GRAPH_NONE;
}

static size_t weights_bytes(const struct conv *conv)
{
    return dnnl_memory_desc_get_size(&conv->product.weights_mds[CPU_DIRECTION_WEIGHTS]);
}

static enum status make_buffers(struct cpu *cpu, struct cpu_layer *layer, struct conv *conv,
                                struct err *err)
{
    const size_t input_bytes = conv->chunk * layer->in->image_size * sizeof(float);
    enum status status = cpu_product_want(cpu, layer, &conv->product, err);

    if (status == STATUS_OK && conv->low.on)
        status = cpu_low_want(cpu, layer, &conv->low, conv->chunk, layer->in->image_size,
                              layer->out.image_size, err);
    if (cpu->evaluate_only)
        return status;
    if (status == STATUS_OK && conv->chunk < cpu->batch_max)
        status =
            cpu_want_in_backward(cpu, layer, &conv->partial,
                                 weights_bytes(conv) + layer->out.dims[0] * sizeof(float), err);
    if (status == STATUS_OK && layer->in->needs_grad && has_other_reader(cpu, layer))
        status = cpu_want_in_backward(cpu, layer, &conv->input_grad, input_bytes, err);
    return status;
}

static enum status conv_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct conv *conv = calloc(1, sizeof *conv);
    enum status status;

    if (conv == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = conv;
    conv->chunk = chunk_images(cpu, layer);
    status = cpu_check(choose_type(cpu, layer, conv), layer, "conv2d", err);
    if (status == STATUS_OK && layer->graph->has_bias)
        layer->tensors[1] = (struct cpu_tensor){
            .is_vector = true, .count = layer->out.dims[0], .size = layer->out.dims[0]};
    layer->is_low = conv->low.on;
    return status == STATUS_OK ? make_buffers(cpu, layer, conv, err) : status;
}

static void conv_close(struct cpu_layer *layer)
{
    struct conv *conv = layer->own;

    if (conv == NULL)
        return;
    cpu_product_close(&conv->product);
    free(conv);
    layer->own = NULL;
}

static uint32_t next_chunk(const struct cpu *cpu, const struct conv *conv, uint32_t first)
{
    return cpu->n - first < conv->chunk ? cpu->n - first : conv->chunk;
}

/* Timed as time inside oneDNN's convolutions. */
static enum status run(struct cpu *cpu, struct cpu_layer *layer, struct cpu_product_set *set,
                       enum cpu_direction direction, const struct cpu_product_memory *memory,
                       struct err *err)
{
    static const enum cpu_work works[CPU_DIRECTIONS] = {CPU_CONV_FORWARD, CPU_CONV_DATA,
                                                        CPU_CONV_WEIGHTS};
    const uint64_t start = cpu_clock(cpu);
    enum status status = cpu_product_run(cpu, layer, set, direction, memory, err);

    cpu_count(cpu, layer, works[direction], start);
    return status;
}

static void pack(struct cpu *cpu, struct cpu_layer *layer, const struct cpu_value *value,
                 uint32_t n, uint32_t step, const float *stored, float *low)
{
    const uint64_t start = cpu_clock(cpu);

    cpu_low_pack(cpu, value, n, step, stored, low);
    cpu_count(cpu, layer, CPU_CONV_COPIES, start);
}

static void unpack(struct cpu *cpu, struct cpu_layer *layer, const struct cpu_value *value,
                   uint32_t n, uint32_t step, const float *low, float *stored)
{
    const uint64_t start = cpu_clock(cpu);

    cpu_low_unpack(cpu, value, n, step, low, stored);
    cpu_count(cpu, layer, CPU_CONV_COPIES, start);
}

static enum status convert(struct cpu *cpu, struct cpu_layer *layer, enum cpu_direction direction,
                           struct err *err)
{
    struct conv *conv = layer->own;
    const uint64_t start = cpu_clock(cpu);
    enum status status = cpu_product_convert(cpu, layer, &conv->product, direction, err);

    cpu_count(cpu, layer, conv->low.on ? CPU_CONV_COPIES : CPU_FORWARD, start);
    return status;
}

static enum status forward_chunk(struct cpu *cpu, struct cpu_layer *layer, uint32_t first,
                                 uint32_t n, struct err *err)
{
    struct conv *conv = layer->own;
    const float *in = layer->in->data + first * layer->in->image_size;
    float *out = layer->out.data + first * layer->out.image_size;
    const bool low = conv->low.on;
    const struct cpu_product_memory memory = {
        .in = low ? conv->low.in[0] : in,
        .weights = cpu_product_weights(layer, &conv->product, CPU_DIRECTION_FORWARD),
        .bias = layer->graph->has_bias ? layer->tensors[1].param : NULL,
        .out = low ? conv->low.out[0] : out};
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &conv->product, n, &set, err);

    if (status != STATUS_OK)
        return status;
    if (low)
        pack(cpu, layer, layer->in, n, input_step(layer), in, conv->low.in[0]);
    status = run(cpu, layer, set, CPU_DIRECTION_FORWARD, &memory, err);
    if (low)
        unpack(cpu, layer, &layer->out, n, 1, conv->low.out[0], out);
    else
        cpu_round(cpu, layer->graph->out.dtype, out, n * layer->out.image_size);
    return status;
}

static enum status conv_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct conv *conv = layer->own;
    enum status status = convert(cpu, layer, CPU_DIRECTION_FORWARD, err);
    uint32_t n;

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

/* Gradient of weights and bias over one chunk, written for the first and added for the others. */
static enum status backward_weights(struct cpu *cpu, struct cpu_layer *layer,
                                    struct cpu_product_set *set, uint32_t first, const float *dy,
                                    struct err *err)
{
    const struct conv *conv = layer->own;
    const size_t count = weights_bytes(conv) / sizeof(float);
    const float *in = layer->in->data + first * layer->in->image_size;
    float *sum = cpu_product_weights(layer, &conv->product, CPU_DIRECTION_WEIGHTS);
    float *weights = first == 0 ? sum : conv->partial;
    float *bias_sum = layer->graph->has_bias ? layer->tensors[1].grad : NULL;
    float *bias = first == 0 || bias_sum == NULL ? bias_sum : conv->partial + count;
    const struct cpu_product_memory memory = {
        .in = conv->low.on ? conv->low.in[1] : in, .weights = weights, .bias = bias, .out = dy};
    enum status status;

    if (conv->low.on)
        pack(cpu, layer, layer->in, set->n, input_step(layer), in, conv->low.in[1]);
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
    const struct conv *conv = layer->own;
    const enum graph_dtype dtype = cpu->graph->layers[layer->graph->inputs[0]].out.dtype;
    const size_t count = set->n * layer->in->image_size;
    float *grad = layer->in->grad + first * layer->in->image_size;
    float *made = layer->adds[0] ? conv->input_grad : grad;
    const struct cpu_product_memory memory = {
        .in = conv->low.on ? conv->low.in[1] : made,
        .weights = cpu_product_weights(layer, &conv->product, CPU_DIRECTION_DATA),
        .out = dy};
    enum status status = run(cpu, layer, set, CPU_DIRECTION_DATA, &memory, err);

    if (status != STATUS_OK)
        return status;
    if (conv->low.on)
        unpack(cpu, layer, layer->in, set->n, input_step(layer), conv->low.in[1], made);
    else
        cpu_round(cpu, dtype, made, count);
    if (layer->adds[0]) {
        cpu_add_grad(cpu, grad, made, count, true);
        cpu_round(cpu, dtype, grad, count);
    }
    return STATUS_OK;
}

static enum status backward_chunk(struct cpu *cpu, struct cpu_layer *layer, uint32_t first,
                                  uint32_t n, struct err *err)
{
    struct conv *conv = layer->own;
    const float *dy = layer->out.grad + first * layer->out.image_size;
    struct cpu_product_set *set;
    enum status status = cpu_product_find(cpu, layer, &conv->product, n, &set, err);

    if (status != STATUS_OK)
        return status;
    if (layer->norm != NULL)
        cpu_norm_backward_apply(cpu, layer->norm, first, n);
    if (conv->low.on) {
        pack(cpu, layer, &layer->out, n, 1, dy, conv->low.out[1]);
        dy = conv->low.out[1];
    }
    if (layer->in->grad != NULL)
        status = backward_data(cpu, layer, set, first, dy, err);
    return status == STATUS_OK ? backward_weights(cpu, layer, set, first, dy, err) : status;
}

static enum status conv_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    struct conv *conv = layer->own;
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
