/* How a convolution is computed. Only its shape decides, so that every run and every rank computes
 * it in the same way.
 *
 * In fp32 the primitives normally work directly on the values' channel blocks, and compute the
 * padding channels too: these hold 0, and oneDNN has no fast code for a part of a block. In two
 * cases they work on copies of a few images without padding, channels last:
 * - oneDNN has only its general code for blocks, which is hundreds of times slower (large strides
 *   and paddings);
 * - the products with padding cost more than the copies (few channels, large windows).
 * If oneDNN has only general code for channels last too, the copies are row-major: oneDNN then has
 * its matrix product. If oneDNN has no fast bf16 code, bf16 is computed in fp32 on copies. */
#include <assert.h>
#include <string.h>

#include "common/log.h"
#include "worker/backend/cpu/conv.h"
#include "worker/backend/cpu/order.h"

/* The time to copy a float, in units of one product: about 100 products and 2.5 floats a
 * nanosecond. */
#define COPY_COST 15.0

static const struct cpu_conv *conv_of(const struct cpu_layer *layer)
{
    return layer->own;
}

static size_t wide_channels(const struct cpu *cpu, const struct cpu_value *value)
{
    return value->blocked ? (size_t)value->blocks * cpu->kernels->block : value->dims[0];
}

size_t cpu_conv_channels(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return conv_of(layer)->on_copies ? layer->out.dims[0] : wide_channels(cpu, &layer->out);
}

/* n images of a value as the primitives see them. */
static struct cpu_shape shape_of(const struct cpu *cpu, const struct cpu_conv *conv,
                                 const struct cpu_value *value, uint32_t n,
                                 enum cpu_direction direction)
{
    struct cpu_shape shape;

    if (conv->on_copies)
        return cpu_order_shape(value, conv->order[direction], n);
    if (conv->half.on)
        return cpu_half_shape(&conv->half, value, n);
    shape = cpu_value_shape(cpu, value, n);
    shape.dim_count = 4; /* also if an image is one pixel */
    shape.dims[1] = (int64_t)wide_channels(cpu, value);
    return shape;
}

static struct cpu_operation describe(const struct cpu *cpu, const struct cpu_layer *layer,
                                     uint32_t n, enum cpu_direction direction)
{
    const struct cpu_conv *conv = conv_of(layer);

    return (struct cpu_operation){.layer = layer->graph->name,
                                  .is_conv = true,
                                  .has_bias = layer->graph->has_bias,
                                  .stride = layer->graph->window.stride,
                                  .pad = layer->graph->window.pad,
                                  .in = shape_of(cpu, conv, layer->in, n, direction),
                                  .out = shape_of(cpu, conv, &layer->out, n, direction)};
}

/* Describes the convolution as a matrix product whose rows are the pixels of n images. */
static struct cpu_operation describe_matrix(const struct cpu *cpu, const struct cpu_layer *layer,
                                            uint32_t n, enum cpu_direction direction)
{
    const uint32_t pixels = layer->out.dims[1] * layer->out.dims[2];
    const struct cpu_matrix matrix = {
        .rows = (int64_t)n * pixels, .in = layer->in->dims[0], .out = layer->out.dims[0]};

    (void)cpu;
    (void)direction;
    return cpu_half_matrix(&conv_of(layer)->half, layer, &matrix);
}

/* The weights row-major, with all channels that the primitives see, padding included. */
static struct cpu_shape wide_weights(const struct cpu *cpu, const struct cpu_layer *layer)
{
    const bool is_matrix = conv_of(layer)->is_matrix;
    const struct cpu_operation operation =
        (is_matrix ? describe_matrix : describe)(cpu, layer, 1, CPU_DIRECTION_FORWARD);
    const int64_t kernel = layer->graph->window.kernel;
    const int64_t dims[] = {operation.out.dims[1], operation.in.dims[1], kernel, kernel};

    return cpu_weights_shape(dims, is_matrix ? 2 : 4);
}

/* Lets oneDNN choose the layouts of the weights. STATUS_UNSUPPORTED: no bf16 for this shape. */
static enum status choose_layouts(const struct cpu *cpu, struct cpu_layer *layer,
                                  struct cpu_conv *conv, struct err *err)
{
    const cpu_describe describes = conv->is_matrix ? describe_matrix : describe;
    const struct cpu_shape wide = wide_weights(cpu, layer);

    return cpu_product_choose(cpu, layer, &conv->product, describes, conv->chunk, &wide,
                              cpu_half_type(&conv->half), err);
}

static bool is_general(const struct cpu_conv *conv)
{
    const bool *general = conv->product.is_general;

    return general[CPU_DIRECTION_FORWARD] || general[CPU_DIRECTION_DATA] ||
           (general[CPU_DIRECTION_WEIGHTS] && !conv->own_weights);
}

/* Our own loop reads an input of few channels in rows, and writes row-major weights. */
static enum status choose_own_weights(const struct cpu *cpu, const struct cpu_layer *layer,
                                      struct cpu_conv *conv, struct err *err)
{
    const struct cpu_product *product = &conv->product;
    const struct cpu_shape wide = wide_weights(cpu, layer);
    struct cpu_layout *rows;
    enum status status;

    if (!product->is_general[CPU_DIRECTION_WEIGHTS] || layer->in->blocked || !layer->out.blocked)
        return STATUS_OK;
    status = cpu_layout_new(&rows, &wide, layer->graph->name, err);
    conv->own_weights =
        status == STATUS_OK && cpu_layout_equal(product->weights[CPU_DIRECTION_WEIGHTS], rows);
    cpu_layout_free(&rows);
    return status;
}

/* Whether, by estimate, copies without padding take less time than the products with padding. */
static bool padding_costs(const struct cpu *cpu, const struct cpu_layer *layer)
{
    const struct cpu_value *in = layer->in, *out = &layer->out;
    const double in_pixels = (double)in->dims[1] * in->dims[2];
    const double out_pixels = (double)out->dims[1] * out->dims[2];
    const double window = (double)layer->graph->window.kernel * layer->graph->window.kernel;
    const double i = in->dims[0], o = out->dims[0];
    const double wide_i = (double)wide_channels(cpu, in), wide_o = (double)wide_channels(cpu, out);
    /* oneDNN still pads what it writes: the outputs, and in backward to the data the inputs. */
    const double products = window * out_pixels * (2.0 * i * wide_o + wide_i * o);
    const double copies = 3.0 * in_pixels * wide_i + 2.0 * out_pixels * wide_o;

    return products + COPY_COST * copies < 3.0 * window * out_pixels * wide_i * wide_o;
}

/* Chooses copies: channels last, or row-major in each direction for which oneDNN has only general
 * code. */
static enum status choose_copies(const struct cpu *cpu, struct cpu_layer *layer,
                                 struct cpu_conv *conv, struct err *err)
{
    static const char *const names[CPU_DIRECTIONS] = {"forward", "the gradient of its input",
                                                      "the gradient of its weights"};
    enum status status;

    conv->half.on = false;
    conv->is_matrix = false;
    conv->on_copies = true;
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        conv->order[d] = CPU_CHANNELS_LAST;
    status = choose_layouts(cpu, layer, conv, err);
    if (status != STATUS_OK || !is_general(conv))
        return status;
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        if (conv->product.is_general[d])
            conv->order[d] = CPU_ROW_MAJOR;
    cpu_product_close(&conv->product);
    status = choose_layouts(cpu, layer, conv, err);
    for (uint32_t d = 0; d < CPU_DIRECTIONS && status == STATUS_OK; d++)
        if (conv->product.is_general[d])
            log_line(LOG_WARNING, LOG_ABOUT_NONE,
                     "layer %s: oneDNN has no fast code for %s: expect this layer to be slow; "
                     "another kernel, stride or padding may help",
                     layer->graph->name, names[d]);
    return status;
}

static enum status choose_f32(const struct cpu *cpu, struct cpu_layer *layer, struct cpu_conv *conv,
                              struct err *err)
{
    enum status status = STATUS_OK;

    if (layer->out.type == CPU_F32 && !padding_costs(cpu, layer)) {
        status = choose_layouts(cpu, layer, conv, err);
        if (status == STATUS_OK)
            status = choose_own_weights(cpu, layer, conv, err);
        if (status != STATUS_OK || !is_general(conv))
            return status;
        conv->own_weights = false;
        cpu_product_close(&conv->product);
    }
    return choose_copies(cpu, layer, conv, err);
}

/* For a bf16 value: computes in bf16 if possible, else in fp32. */
static enum status choose_bf16(const struct cpu *cpu, struct cpu_layer *layer,
                               struct cpu_conv *conv, struct err *err)
{
    const struct graph_window *window = &layer->graph->window;
    enum status status;
    struct err refusal;

    conv->half.on = true;
    conv->is_matrix = cpu_dnnl_isa() == CPU_ISA_AMX && window->kernel == 1 && window->pad == 0;
    status = choose_layouts(cpu, layer, conv, &refusal);
    if (status == STATUS_OK && conv->is_matrix)
        conv->half.step = window->stride;
    if (status == STATUS_UNSUPPORTED)
        return choose_f32(cpu, layer, conv, err);
    if (status != STATUS_OK && err != NULL)
        *err = refusal;
    return status;
}

enum status cpu_conv_choose(const struct cpu *cpu, struct cpu_layer *layer, struct cpu_conv *conv,
                            struct err *err)
{
    const int64_t kernel = layer->graph->window.kernel;
    const int64_t dims[] = {layer->out.dims[0], layer->in->dims[0], kernel, kernel};
    struct cpu_product *product = &conv->product;
    struct cpu_shape shape, wide;
    const struct cpu_layout *stored;
    enum status status;

    assert(layer->in->type == layer->out.type && conv->chunk > 0);
    conv->half.step = 1;
    status = layer->out.type == CPU_BF16 ? choose_bf16(cpu, layer, conv, err)
                                         : choose_f32(cpu, layer, conv, err);
    if (status != STATUS_OK)
        return status;
    shape = cpu_weights_shape(dims, conv->is_matrix ? 2 : 4);
    wide = wide_weights(cpu, layer);
    stored = product->weights[conv->half.on ? CPU_DIRECTION_WEIGHTS : CPU_DIRECTION_FORWARD];
    return cpu_product_store(layer, product, &shape, &wide, stored, stored, err);
}
