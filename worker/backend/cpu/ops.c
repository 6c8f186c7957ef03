/* Layers of a few lines each: input, ReLU, max pool, flatten, cast, the loss. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/net/loss.h"

static enum status nothing(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)cpu;
    (void)layer;
    (void)err;
    return STATUS_OK;
}

static enum status nothing_back(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                struct err *err)
{
    (void)grad_scale;
    return nothing(cpu, layer, err);
}

static void close_nothing(struct cpu_layer *layer)
{
    (void)layer;
}

/* Nothing to do: cpu_images_take() wrote the input, and a flatten is a view of its input. */
const struct cpu_op cpu_op_input = {nothing, close_nothing, nothing, nothing_back};
const struct cpu_op cpu_op_flatten = {nothing, close_nothing, nothing, nothing_back};

static enum status relu_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)err;
    assert(layer->in->image_size == layer->out.image_size);
    cpu->kernels->relu(layer->in->data, cpu->n * layer->out.image_size, layer->out.data);
    return STATUS_OK;
}

static enum status relu_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    (void)grad_scale;
    (void)err;
    if (layer->in->grad != NULL)
        cpu->kernels->relu_backward(layer->out.data, layer->out.grad,
                                    cpu->n * layer->out.image_size, layer->in->grad);
    return STATUS_OK;
}

const struct cpu_op cpu_op_relu = {nothing, close_nothing, relu_forward, relu_backward};

enum status cpu_pool_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    if (cpu->evaluate_only)
        return STATUS_OK;
    layer->own = cpu_alloc(cpu, cpu->batch_max * layer->out.image_size);
    return layer->own != NULL ? STATUS_OK : cpu_out_of_memory(layer, err);
}

static enum status pool_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    if (!layer->in->blocked)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "layer %s: max_pool on the network's input is not supported",
                       layer->graph->name);
    return cpu_pool_open(cpu, layer, err);
}

void cpu_pool_close(struct cpu_layer *layer)
{
    free(layer->own);
    layer->own = NULL;
}

static enum status pool_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct cpu_area area = cpu_area(layer->in, cpu->n);
    const struct cpu_pool_shape shape = cpu_pool_shape(layer);

    (void)err;
    cpu->kernels->max_pool(&area, &shape, layer->in->data, layer->out.data,
                           cpu->training ? layer->own : NULL);
    return STATUS_OK;
}

static enum status pool_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    const struct cpu_area area = cpu_area(layer->in, cpu->n);
    const struct cpu_pool_shape shape = cpu_pool_shape(layer);

    (void)grad_scale;
    (void)err;
    assert(layer->own != NULL); /* forward in training filled it */
    if (layer->in->grad != NULL)
        cpu->kernels->max_pool_backward(&area, &shape, layer->own, layer->out.grad,
                                        layer->in->grad);
    return STATUS_OK;
}

const struct cpu_op cpu_op_pool = {pool_open, cpu_pool_close, pool_forward, pool_backward};

/* Copies; cpu_layer_forward rounds the copy if the type is narrower. */
static enum status cast_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)err;
    assert(layer->in->image_size == layer->out.image_size);
    memcpy(layer->out.data, layer->in->data, cpu->n * layer->out.image_size * sizeof(float));
    return STATUS_OK;
}

static enum status cast_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    (void)grad_scale;
    (void)err;
    if (layer->in->grad != NULL)
        memcpy(layer->in->grad, layer->out.grad, cpu->n * layer->out.image_size * sizeof(float));
    return STATUS_OK;
}

const struct cpu_op cpu_op_cast = {nothing, close_nothing, cast_forward, cast_backward};

/* The value of the loss layer is the softmax, for backward. */
static enum status loss_op_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)err;
    loss_forward(layer->in->data, cpu->labels, cpu->n, layer->out.dims[0],
                 cpu->training ? cpu->label_smoothing : 0.0F, layer->out.data, &cpu->result);
    return STATUS_OK;
}

static enum status loss_op_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                    struct err *err)
{
    (void)err;
    assert(cpu->scaler != NULL && cpu->n > 0);
    if (layer->in->grad != NULL)
        loss_backward(layer->out.data, cpu->labels, cpu->n, layer->out.dims[0],
                      cpu->label_smoothing, grad_scale * cpu->scaler->scale / (float)cpu->n,
                      layer->in->grad);
    return STATUS_OK;
}

static enum status loss_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    (void)cpu;
    if (layer->in->blocked || layer->in->dims[1] != 1 || layer->in->dims[2] != 1)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "layer %s: cross_entropy reads what a linear layer makes",
                       layer->graph->name);
    return STATUS_OK;
}

const struct cpu_op cpu_op_loss = {loss_open, close_nothing, loss_op_forward, loss_op_backward};
