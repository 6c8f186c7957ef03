/* Batch norm over [features] (BatchNorm1d), with the ReLU that was fused into it. Values are
 * row-major and small; sums are in double. Formulas as in norm.c. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/values.h"

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR };

struct norm {
    double *mean, *inverse_std;
    double *sums; /* [2 * features + 1]: first sums, second sums, number of images */
};

static enum kernel_type type_of(const struct cpu_value *value)
{
    return value->type == CPU_BF16 ? KERNEL_BF16 : KERNEL_F32;
}

static float value_at(const struct cpu_value *value, const float *memory, size_t at)
{
    return values_get(memory, type_of(value), at);
}

static enum status norm_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const uint32_t features = layer->out.dims[0];
    struct norm *norm = calloc(1, sizeof *norm);

    if (norm == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = norm;
    if (layer->in->blocked || layer->in->dims[1] != 1 || layer->in->dims[2] != 1)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "layer %s: batch_norm of a flattened image is not supported; put it before "
                       "the flatten, or after a linear layer",
                       layer->graph->name);
    for (uint32_t i = 0; i < layer->graph->tensor_count; i++)
        cpu_tensor_set_vector(&layer->tensors[i], features, features);
    norm->mean = cpu_alloc(cpu, features * sizeof(double));
    norm->inverse_std = cpu_alloc(cpu, features * sizeof(double));
    norm->sums = cpu_alloc(cpu, (2 * (size_t)features + 1) * sizeof(double));
    return norm->mean != NULL && norm->inverse_std != NULL && norm->sums != NULL
               ? STATUS_OK
               : cpu_out_of_memory(layer, err);
}

static void norm_close(struct cpu_layer *layer)
{
    struct norm *norm = layer->own;

    if (norm == NULL)
        return;
    free(norm->mean);
    free(norm->inverse_std);
    free(norm->sums);
    free(norm);
    layer->own = NULL;
}

/* In two passes, mean then variance, so that no digits are lost to cancellation. */
static enum status take_batch_statistics(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct norm *norm = layer->own;
    const size_t features = layer->out.dims[0];
    double m = cpu->n;
    enum status status = STATUS_OK;

    for (int pass = 0; pass < 2 && status == STATUS_OK; pass++) {
        memset(norm->sums, 0, (2 * features + 1) * sizeof(double));
        norm->sums[2 * features] = cpu->n;
        for (size_t i = 0; i < cpu->n; i++)
            for (size_t c = 0; c < features; c++) {
                double x = value_at(layer->in, layer->in->data, i * features + c);

                norm->sums[c] += pass == 0 ? x : (x - norm->mean[c]) * (x - norm->mean[c]);
            }
        status = cpu_sync(cpu, layer, norm->sums, 2 * features + 1, err);
        m = norm->sums[2 * features];
        for (size_t c = 0; c < features; c++)
            *(pass == 0 ? &norm->mean[c] : &norm->inverse_std[c]) = norm->sums[c] / m;
    }
    for (size_t c = 0; c < features; c++) {
        const double momentum = (double)layer->graph->momentum, var = norm->inverse_std[c];
        float *mean = &layer->tensors[RUNNING_MEAN].param[c];
        float *unbiased = &layer->tensors[RUNNING_VAR].param[c];

        norm->inverse_std[c] = 1.0 / sqrt(var + (double)layer->graph->eps);
        *mean = (float)((1.0 - momentum) * *mean + momentum * norm->mean[c]);
        *unbiased = (float)((1.0 - momentum) * *unbiased +
                            momentum * (m > 1.0 ? var * m / (m - 1.0) : var));
    }
    return status;
}

static void take_running_statistics(struct cpu_layer *layer)
{
    struct norm *norm = layer->own;

    for (size_t c = 0; c < layer->out.dims[0]; c++) {
        norm->mean[c] = layer->tensors[RUNNING_MEAN].param[c];
        norm->inverse_std[c] =
            1.0 / sqrt((double)layer->tensors[RUNNING_VAR].param[c] + (double)layer->graph->eps);
    }
}

static enum status norm_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const struct norm *norm = layer->own;
    const size_t features = layer->out.dims[0];
    const enum graph_dtype dtype =
        cpu->graph->tensors[layer->graph->tensor_first + RUNNING_MEAN].dtype;
    enum status status = STATUS_OK;

    assert(layer->in->image_size == features);
    if (cpu->training)
        status = take_batch_statistics(cpu, layer, err);
    else
        take_running_statistics(layer);
    cpu_round(cpu, dtype, layer->tensors[RUNNING_MEAN].param, features);
    cpu_round(cpu, dtype, layer->tensors[RUNNING_VAR].param, features);
    for (size_t i = 0; i < cpu->n; i++)
        for (size_t c = 0; c < features; c++) {
            double y = (value_at(layer->in, layer->in->data, i * features + c) - norm->mean[c]) *
                           norm->inverse_std[c] * layer->tensors[GAMMA].param[c] +
                       layer->tensors[BETA].param[c];

            values_set(layer->out.data, type_of(&layer->out), i * features + c,
                       layer->graph->fused_relu && y < 0.0 ? 0.0F : (float)y);
        }
    return status;
}

/* dy where the ReLU let the value pass, else 0. */
static double gradient(const struct cpu_layer *layer, size_t at)
{
    return layer->graph->fused_relu && !(value_at(&layer->out, layer->out.data, at) > 0.0F)
               ? 0.0
               : value_at(&layer->out, layer->out.grad, at);
}

static enum status norm_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    struct norm *norm = layer->own;
    const size_t features = layer->out.dims[0];
    enum status status;
    double m;

    assert(cpu->training && layer->out.grad != NULL);
    (void)grad_scale;
    memset(norm->sums, 0, (2 * features + 1) * sizeof(double));
    norm->sums[2 * features] = cpu->n;
    for (size_t at = 0; at < cpu->n * features; at++) {
        const size_t c = at % features;
        const double dy = gradient(layer, at);

        norm->sums[c] += dy;
        norm->sums[features + c] += dy * (value_at(layer->in, layer->in->data, at) - norm->mean[c]);
    }
    for (size_t c = 0; c < features; c++) { /* of this rank; DDP reduces them */
        layer->tensors[BETA].grad[c] = (float)norm->sums[c];
        layer->tensors[GAMMA].grad[c] = (float)(norm->sums[features + c] * norm->inverse_std[c]);
    }
    status = cpu_sync(cpu, layer, norm->sums, 2 * features + 1, err);
    m = norm->sums[2 * features];
    for (size_t at = 0; layer->in->grad != NULL && at < cpu->n * features; at++) {
        const size_t c = at % features;
        const double a = layer->tensors[GAMMA].param[c] * norm->inverse_std[c];
        const double hat =
            (value_at(layer->in, layer->in->data, at) - norm->mean[c]) * norm->inverse_std[c];

        values_set(layer->in->grad, type_of(layer->in), at,
                   (float)(a * (gradient(layer, at) - norm->sums[c] / m -
                                hat * norm->inverse_std[c] * norm->sums[features + c] / m)));
    }
    if (layer->in->grad != NULL && layer->in->type == CPU_F32)
        cpu_round(cpu, cpu->graph->layers[layer->graph->inputs[0]].out.dtype, layer->in->grad,
                  cpu->n * features);
    return status;
}

const struct cpu_op cpu_op_norm_features = {norm_open, norm_close, norm_forward, norm_backward};
