/* Layers of residual networks: the sum of two values, the mean over an image. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

#include "worker/backend/cpu/kernels_residual.h"

/* Floats per piece where several loops run over the same values, so that a piece stays in the
 * cache. */
#define PIECE 8192

static void close_nothing(struct cpu_layer *layer)
{
    (void)layer;
}

static enum status add_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)cpu;
    if (layer->in->blocked == layer->in2->blocked &&
        layer->in->image_size == layer->in2->image_size &&
        layer->in->dims[0] == layer->in2->dims[0])
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "layer %s: one of its inputs is a flattened image, the other is not",
                   layer->graph->name);
}

static enum status add_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const size_t count = cpu->n * layer->out.image_size;

    assert(layer->in2 != NULL && layer->in2->image_size == layer->out.image_size);
    (void)err;
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        cpu->kernels->residual->add(layer->in->data + at, layer->in2->data + at,
                                    layer->graph->fused_relu, n, layer->out.data + at);
        cpu_round(cpu, layer->graph->out.dtype, layer->out.data + at, n);
    }
    return STATUS_OK;
}

/* Copies floats [at, at + n) of the sum's gradient to both inputs. A copied gradient needs no
 * rounding: pass_amp gives the sum and its inputs one type. */
static void add_backward_piece(struct cpu *cpu, struct cpu_layer *layer, size_t at, size_t n)
{
    struct cpu_value *const inputs[] = {layer->in, layer->in2};
    float *dy = layer->out.grad + at;

    assert(at + n <= cpu->n * layer->out.image_size);
    if (layer->graph->fused_relu)
        cpu->kernels->relu_backward(layer->out.data + at, dy, n, dy);
    for (uint32_t k = 0; k < 2; k++) {
        if (inputs[k]->grad == NULL)
            continue;
        cpu_value_add_grad(cpu, inputs[k], layer->graph->out.dtype, inputs[k]->grad + at, dy, n,
                           layer->adds[k]);
    }
}

static enum status add_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                struct err *err)
{
    const size_t count = cpu->n * layer->out.image_size;

    (void)grad_scale;
    (void)err;
    for (size_t at = 0; layer->out.grad != NULL && at < count; at += PIECE)
        add_backward_piece(cpu, layer, at, count - at < PIECE ? count - at : PIECE);
    return STATUS_OK;
}

const struct cpu_op cpu_op_add = {add_open, close_nothing, add_forward, add_backward};

static enum status avg_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)cpu;
    if (layer->in->blocked)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "layer %s: avg_pool on the network's input is not supported",
                   layer->graph->name);
}

static enum status avg_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_area area = cpu_area(layer->in, cpu->n);

    (void)err;
    cpu->kernels->residual->avg_pool(&area, layer->in->data, layer->out.data);
    return STATUS_OK;
}

static enum status avg_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                struct err *err)
{
    const struct cpu_area area = cpu_area(layer->in, cpu->n);

    (void)grad_scale;
    (void)err;
    if (layer->in->grad != NULL)
        cpu->kernels->residual->avg_pool_backward(&area, layer->out.grad, layer->in->grad);
    return STATUS_OK;
}

const struct cpu_op cpu_op_avg_pool = {avg_open, close_nothing, avg_forward, avg_backward};
