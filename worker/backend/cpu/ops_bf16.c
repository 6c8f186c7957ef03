/* ReLU, pools, addition and cast on values that are stored in bf16. As their counterparts in ops.c
 * and add.c; the kernels round what they write. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/half.h"

static enum status open_nothing(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)cpu;
    (void)layer;
    (void)err;
    return STATUS_OK;
}

static void close_nothing(struct cpu_layer *layer)
{
    (void)layer;
}

static enum status relu_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)err;
    cpu->kernels->bf16->relu(cpu_bf16(layer->in->data), cpu->n * layer->out.image_size,
                             cpu_bf16(layer->out.data));
    return STATUS_OK;
}

static enum status relu_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    (void)grad_scale;
    (void)err;
    if (layer->in->grad != NULL)
        cpu->kernels->bf16->relu_backward(cpu_bf16(layer->out.data), cpu_bf16(layer->out.grad),
                                          cpu->n * layer->out.image_size,
                                          cpu_bf16(layer->in->grad));
    return STATUS_OK;
}

const struct cpu_op cpu_op_relu_bf16 = {open_nothing, close_nothing, relu_forward, relu_backward};

static enum status pool_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_pixels in = cpu_pixels(layer->in, cpu->n);
    const struct cpu_pool_shape shape = cpu_pool_shape(layer);

    (void)err;
    cpu->kernels->bf16_pool->max_pool(&in, &shape, cpu_bf16(layer->in->data),
                                      cpu_bf16(layer->out.data), cpu->training ? layer->own : NULL);
    return STATUS_OK;
}

static enum status pool_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    const struct cpu_pixels in = cpu_pixels(layer->in, cpu->n);
    const struct cpu_pool_shape shape = cpu_pool_shape(layer);

    (void)grad_scale;
    (void)err;
    assert(layer->own != NULL); /* forward in training filled it */
    if (layer->in->grad != NULL)
        cpu->kernels->bf16_pool->max_pool_backward(
            &in, &shape, layer->own, cpu_bf16(layer->out.grad), cpu_bf16(layer->in->grad));
    return STATUS_OK;
}

const struct cpu_op cpu_op_pool_bf16 = {cpu_pool_open, cpu_pool_close, pool_forward, pool_backward};

static enum status add_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    assert(layer->in->image_size == layer->in2->image_size && layer->in2->type == CPU_BF16);
    (void)err;
    cpu->kernels->bf16->add(cpu_bf16(layer->in->data), cpu_bf16(layer->in2->data),
                            layer->graph->fused_relu, cpu->n * layer->out.image_size,
                            cpu_bf16(layer->out.data));
    return STATUS_OK;
}

static enum status add_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                struct err *err)
{
    struct cpu_value *const inputs[] = {layer->in, layer->in2};
    const size_t count = cpu->n * layer->out.image_size;
    uint16_t *dy = cpu_bf16(layer->out.grad);

    (void)grad_scale;
    (void)err;
    if (dy == NULL)
        return STATUS_OK;
    if (layer->graph->fused_relu)
        cpu->kernels->bf16->relu_backward(cpu_bf16(layer->out.data), dy, count, dy);
    for (uint32_t k = 0; k < 2; k++)
        if (inputs[k]->grad != NULL)
            cpu_value_add_grad(cpu, inputs[k], layer->graph->out.dtype, inputs[k]->grad,
                               layer->out.grad, count, layer->adds[k]);
    return STATUS_OK;
}

const struct cpu_op cpu_op_add_bf16 = {open_nothing, close_nothing, add_forward, add_backward};

static enum status avg_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_pixels in = cpu_pixels(layer->in, cpu->n);

    (void)err;
    cpu->kernels->bf16_pool->avg_pool(&in, cpu_bf16(layer->in->data), cpu_bf16(layer->out.data));
    return STATUS_OK;
}

static enum status avg_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                struct err *err)
{
    const struct cpu_pixels in = cpu_pixels(layer->in, cpu->n);

    (void)grad_scale;
    (void)err;
    if (layer->in->grad != NULL)
        cpu->kernels->bf16_pool->avg_pool_backward(&in, cpu_bf16(layer->out.grad),
                                                   cpu_bf16(layer->in->grad));
    return STATUS_OK;
}

const struct cpu_op cpu_op_avg_pool_bf16 = {open_nothing, close_nothing, avg_forward, avg_backward};

/* Converts row-major [n][channels][pixels] from and to channels last. For few channels or one
 * pixel. */
static void pack_planes(const struct cpu_value *value, uint32_t n, const float *x, uint16_t *y)
{
    const size_t channels = value->dims[0], pixels = (size_t)value->dims[1] * value->dims[2];

    for (size_t i = 0; i < n; i++, x += channels * pixels)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < channels; c++)
                *y++ = half_bf16_from(x[c * pixels + p]);
}

static void unpack_planes(const struct cpu_value *value, uint32_t n, const uint16_t *y, float *x)
{
    const size_t channels = value->dims[0], pixels = (size_t)value->dims[1] * value->dims[2];

    for (size_t i = 0; i < n; i++, x += channels * pixels)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < channels; c++)
                x[c * pixels + p] = half_bf16_to(*y++);
}

/* Between an fp32 value and a bf16 value of the same shape, or their gradients. */
static void narrow(const struct cpu *cpu, const struct cpu_value *wide, const float *x, uint16_t *y)
{
    if (wide->blocked) {
        const struct cpu_area area = cpu_area(wide, cpu->n);

        cpu->kernels->bf16->pack(&area, wide->dims[0], x, y);
    } else {
        pack_planes(wide, cpu->n, x, y);
    }
}

static void widen(const struct cpu *cpu, const struct cpu_value *wide, const uint16_t *y, float *x)
{
    if (wide->blocked) {
        const struct cpu_area area = cpu_area(wide, cpu->n);

        cpu->kernels->bf16->unpack(&area, wide->dims[0], y, x);
    } else {
        unpack_planes(wide, cpu->n, y, x);
    }
}

static enum status cast_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_value *in = layer->in, *out = &layer->out;

    assert(in->type != out->type);
    (void)err;
    if (out->type == CPU_BF16)
        narrow(cpu, in, in->data, cpu_bf16(out->data));
    else
        widen(cpu, out, cpu_bf16(in->data), out->data);
    return STATUS_OK;
}

static enum status cast_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    const struct cpu_value *in = layer->in, *out = &layer->out;

    (void)grad_scale;
    (void)err;
    if (in->grad == NULL)
        return STATUS_OK;
    if (out->type == CPU_BF16)
        widen(cpu, in, cpu_bf16(out->grad), in->grad);
    else
        narrow(cpu, out, out->grad, cpu_bf16(in->grad));
    return STATUS_OK;
}

const struct cpu_op cpu_op_cast_bf16 = {open_nothing, close_nothing, cast_forward, cast_backward};
