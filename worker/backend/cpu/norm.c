/* Batch norm over channels, with the ReLU, addition and 2x2 max pool that were fused into it.
 *
 * Uses our own loops instead of oneDNN's: norm, ReLU and pool take one pass over memory. After a
 * convolution, statistics and dx need no pass of their own: conv.c calls cpu_norm_sums and
 * cpu_norm_backward_apply for each chunk. dx overwrites x, which is not read again.
 *
 * Source: Ioffe and Szegedy 2015, algorithm 1 and section 3. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR };

struct norm {
    size_t channels;                      /* padded to whole blocks; length of the arrays below */
    float *shift, *mean, *scale, *offset; /* forward */
    float *a, *b, *c;                     /* backward: dx = a dy + b (x - mean) + c */
    double *sum, *squares, *inverse_std;
    /* For sums over all ranks: [channels] first sums, [channels] second sums, number of pixels. */
    double *synced;
    uint8_t *best; /* with a pool: see norm_pool_apply in kernels.h */
    float *x_best;
};

static enum status make_buffers(struct cpu *cpu, struct cpu_layer *layer, struct norm *norm,
                                struct err *err)
{
    float **const floats[] = {&norm->shift, &norm->mean, &norm->scale, &norm->offset,
                              &norm->a,     &norm->b,    &norm->c};
    double **const doubles[] = {&norm->sum, &norm->squares, &norm->inverse_std};
    const size_t pooled = layer->out.image_size * cpu->batch_max;
    bool ok = true;

    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        ok = (*floats[i] = cpu_alloc(cpu, norm->channels * sizeof(float))) != NULL && ok;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        ok = (*doubles[i] = cpu_alloc(cpu, norm->channels * sizeof(double))) != NULL && ok;
    if (cpu->norm_sum != NULL)
        ok = (norm->synced = cpu_alloc(cpu, (2 * norm->channels + 1) * sizeof(double))) != NULL &&
             ok;
    if (layer->graph->fused_pool && !cpu->evaluate_only) {
        ok = (norm->best = cpu_alloc(cpu, pooled)) != NULL && ok;
        ok = (norm->x_best = cpu_alloc(cpu, pooled * sizeof(float))) != NULL && ok;
    }
    return ok ? STATUS_OK : cpu_out_of_memory(layer, err);
}

static enum status norm_open(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    const size_t block = cpu->kernels->block;
    struct norm *norm = calloc(1, sizeof *norm);

    if (norm == NULL)
        return cpu_out_of_memory(layer, err);
    layer->own = norm;
    if (!layer->in->blocked && layer->in->type == CPU_F32)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "layer %s: batch_norm on the network's input is not supported",
                       layer->graph->name);
    if (layer->graph->fused_add && !layer->in2->blocked && layer->in2->type == CPU_F32)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "layer %s: adding the network's input is not supported", layer->graph->name);
    norm->channels = (layer->in->dims[0] + block - 1) / block * block;
    for (uint32_t i = 0; i < layer->graph->tensor_count; i++)
        cpu_tensor_set_vector(&layer->tensors[i], layer->in->dims[0], norm->channels);
    return make_buffers(cpu, layer, norm, err);
}

static void norm_close(struct cpu_layer *layer)
{
    struct norm *norm = layer->own;

    if (norm == NULL)
        return;
    free(norm->shift);
    free(norm->mean);
    free(norm->scale);
    free(norm->offset);
    free(norm->a);
    free(norm->b);
    free(norm->c);
    free(norm->sum);
    free(norm->squares);
    free(norm->inverse_std);
    free(norm->synced);
    free(norm->best);
    free(norm->x_best);
    free(norm);
    layer->own = NULL;
}

static void add_sums(struct cpu *cpu, struct cpu_layer *layer, uint32_t first, uint32_t n)
{
    struct norm *norm = layer->own;
    float *x = cpu_image_at(layer->in, layer->in->data, first);

    if (layer->in->type == CPU_BF16) {
        cpu->kernels->bf16->norm_sums(cpu_rows(layer->in, n), cpu_bf16(x), norm->shift, norm->sum,
                                      norm->squares);
    } else {
        const struct cpu_area area = cpu_area(layer->in, n);

        cpu->kernels->norm_sums(&area, x, norm->shift, norm->sum, norm->squares);
    }
}

/* The shift is the mean of the first image. Squares relative to it lose no digits to
 * cancellation. */
static void choose_shift(struct cpu *cpu, struct cpu_layer *layer)
{
    struct norm *norm = layer->own;
    const double pixels = (double)layer->in->dims[1] * layer->in->dims[2];

    memset(norm->shift, 0, norm->channels * sizeof(float));
    memset(norm->sum, 0, norm->channels * sizeof(double));
    memset(norm->squares, 0, norm->channels * sizeof(double));
    add_sums(cpu, layer, 0, 1);
    for (size_t c = 0; c < norm->channels; c++)
        norm->shift[c] = (float)(norm->sum[c] / pixels);
    memset(norm->sum, 0, norm->channels * sizeof(double));
    memset(norm->squares, 0, norm->channels * sizeof(double));
}

void cpu_norm_sums(struct cpu *cpu, struct cpu_layer *layer, uint32_t first, uint32_t n)
{
    uint64_t start = cpu_clock(cpu);

    assert(first + n <= cpu->n);
    if (first == 0)
        choose_shift(cpu, layer);
    add_sums(cpu, layer, first, n);
    if (layer->conv != NULL) /* otherwise cpu_layer_forward counts it */
        cpu_count(cpu, layer, CPU_FORWARD, start);
}

static enum graph_dtype statistics_type(const struct cpu *cpu, const struct cpu_layer *layer)
{
    return cpu->graph->tensors[layer->graph->tensor_first + RUNNING_MEAN].dtype;
}

/* Sums both sums over all ranks; *m gets the number of pixels that they cover. */
static enum status sync_sums(struct cpu *cpu, struct cpu_layer *layer, double *m, struct err *err)
{
    struct norm *norm = layer->own;
    const size_t count = norm->channels;
    enum status status;

    *m = (double)cpu->n * layer->in->dims[1] * layer->in->dims[2];
    if (cpu->norm_sum == NULL)
        return STATUS_OK;
    assert(norm->synced != NULL);
    memcpy(norm->synced, norm->sum, count * sizeof(double));
    memcpy(norm->synced + count, norm->squares, count * sizeof(double));
    norm->synced[2 * count] = *m;
    status = cpu_sync(cpu, layer, norm->synced, 2 * count + 1, err);
    memcpy(norm->sum, norm->synced, count * sizeof(double));
    memcpy(norm->squares, norm->synced + count, count * sizeof(double));
    *m = norm->synced[2 * count];
    return status;
}

/* Converts the sums to sums relative to 0: each rank has its own shift, and only sums with a common
 * shift can be added. In double this costs digits only if the mean is over a million times the
 * deviation. */
static void shift_to_zero(const struct cpu *cpu, struct cpu_layer *layer)
{
    struct norm *norm = layer->own;
    const double m = (double)cpu->n * layer->in->dims[1] * layer->in->dims[2];

    for (size_t c = 0; c < norm->channels; c++) {
        const double shift = norm->shift[c];

        norm->squares[c] += 2.0 * shift * norm->sum[c] + m * shift * shift;
        norm->sum[c] += m * shift;
        norm->shift[c] = 0.0F;
    }
}

/* Computes the batch statistics from the sums, and updates the running ones, whose variance is
 * unbiased as in PyTorch. */
static enum status take_batch_statistics(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct norm *norm = layer->own;
    const double momentum = (double)layer->graph->momentum;
    float *running_mean = layer->tensors[RUNNING_MEAN].param;
    float *running_var = layer->tensors[RUNNING_VAR].param;
    enum status status;
    double m;

    if (cpu->norm_sum != NULL)
        shift_to_zero(cpu, layer);
    status = sync_sums(cpu, layer, &m, err);
    for (size_t c = 0; c < layer->in->dims[0]; c++) {
        double off = norm->sum[c] / m, mean = norm->shift[c] + off;
        double var = fmax(norm->squares[c] / m - off * off, 0.0);
        double unbiased = m > 1.0 ? var * m / (m - 1.0) : var;

        norm->mean[c] = (float)mean;
        norm->inverse_std[c] = 1.0 / sqrt(var + (double)layer->graph->eps);
        running_mean[c] = (float)((1.0 - momentum) * running_mean[c] + momentum * mean);
        running_var[c] = (float)((1.0 - momentum) * running_var[c] + momentum * unbiased);
    }
    cpu_round(cpu, statistics_type(cpu, layer), running_mean, layer->in->dims[0]);
    cpu_round(cpu, statistics_type(cpu, layer), running_var, layer->in->dims[0]);
    return status;
}

static void take_running_statistics(struct cpu_layer *layer)
{
    struct norm *norm = layer->own;

    for (size_t c = 0; c < layer->in->dims[0]; c++) {
        double var = layer->tensors[RUNNING_VAR].param[c];

        norm->mean[c] = layer->tensors[RUNNING_MEAN].param[c];
        norm->inverse_std[c] = 1.0 / sqrt(var + (double)layer->graph->eps);
    }
}

/* Adds the second input to the norm's output, which is already rounded. */
static void add_rounded(const struct cpu *cpu, struct cpu_layer *layer, size_t at, size_t count)
{
    float *out = layer->out.data + at;

    cpu->kernels->residual->add(out, layer->in2->data + at, layer->graph->fused_relu, count, out);
    cpu_round(cpu, layer->graph->out.dtype, out, count);
}

/* A value that needs rounding is computed and rounded block by block, while it is in the cache. */
static void apply(struct cpu *cpu, struct cpu_layer *layer)
{
    const struct norm *norm = layer->own;
    const struct cpu_area area = cpu_area(layer->in, cpu->n),
                          plane = {1, 1, area.height, area.width};
    const size_t block = cpu->kernels->block, size = block * area.height * area.width;
    const bool relu = layer->graph->fused_relu && !layer->graph->fused_add;

    assert(!layer->graph->fused_add || layer->graph->rounds_norm);
    if (layer->graph->out.dtype == GRAPH_F32) {
        cpu->kernels->norm_apply(&area, layer->in->data, norm->scale, norm->offset, relu,
                                 layer->out.data);
        return;
    }
    for (size_t i = 0; i < (size_t)area.images * area.blocks; i++) {
        const size_t channel = i % area.blocks * block;
        float *out = layer->out.data + i * size;

        cpu->kernels->norm_apply(&plane, layer->in->data + i * size, norm->scale + channel,
                                 norm->offset + channel, relu, out);
        cpu_round(cpu, layer->graph->out.dtype, out, size);
        if (layer->graph->fused_add)
            add_rounded(cpu, layer, i * size, size);
    }
}

/* For an input in fp32. */
static void apply_f32(struct cpu *cpu, struct cpu_layer *layer)
{
    const struct norm *norm = layer->own;
    const struct cpu_area area = cpu_area(layer->in, cpu->n);

    if (layer->graph->fused_pool)
        cpu->kernels->norm_pool_apply(&area, layer->in->data, norm->scale, norm->offset,
                                      layer->out.data, cpu->training ? norm->best : NULL,
                                      cpu->training ? norm->x_best : NULL);
    else if (layer->graph->fused_add && !layer->graph->rounds_norm)
        cpu->kernels->residual->norm_add(&area, layer->in->data, norm->scale, norm->offset,
                                         layer->in2->data, layer->graph->fused_relu,
                                         layer->out.data);
    else
        apply(cpu, layer);
}

static void apply_bf16(struct cpu *cpu, struct cpu_layer *layer)
{
    const struct norm *norm = layer->own;
    const struct cpu_norm_add add = {layer->graph->fused_add ? cpu_bf16(layer->in2->data) : NULL,
                                     layer->graph->rounds_norm};

    cpu->kernels->bf16->norm_apply(cpu_rows(layer->in, cpu->n), cpu_bf16(layer->in->data),
                                   norm->scale, norm->offset, &add, layer->graph->fused_relu,
                                   cpu_bf16(layer->out.data));
}

static enum status norm_forward(struct cpu *cpu, struct cpu_layer *layer, struct err *err)
{
    struct norm *norm = layer->own;
    enum status status = STATUS_OK;

    assert(layer->in->dims[0] <= norm->channels && layer->tensors[GAMMA].size == norm->channels);
    if (!cpu->training) {
        take_running_statistics(layer);
    } else {
        if (layer->conv == NULL)
            cpu_norm_sums(cpu, layer, 0, cpu->n);
        status = take_batch_statistics(cpu, layer, err);
    }
    for (size_t c = 0; c < layer->in->dims[0]; c++) { /* padding stays 0 */
        double scale = layer->tensors[GAMMA].param[c] * norm->inverse_std[c];

        norm->scale[c] = (float)scale;
        norm->offset[c] = (float)(layer->tensors[BETA].param[c] - norm->mean[c] * scale);
    }
    if (layer->in->type == CPU_BF16)
        apply_bf16(cpu, layer);
    else
        apply_f32(cpu, layer);
    return status;
}

/* y if a ReLU was fused: where y is 0, no gradient flows. NULL with a fused addition: there
 * norm_add_backward_sums has applied the ReLU already. */
static const float *relu_of(const struct cpu_layer *layer, uint32_t first)
{
    return layer->graph->fused_relu && !layer->graph->fused_add
               ? layer->out.data + first * layer->out.image_size
               : NULL;
}

/* The same for bf16: computes from x where y is 0. */
static struct cpu_norm_relu relu_of_bf16(const struct cpu_layer *layer)
{
    const struct norm *norm = layer->own;

    if (!layer->graph->fused_relu || layer->graph->fused_add)
        return (struct cpu_norm_relu){NULL, NULL};
    return (struct cpu_norm_relu){norm->scale, norm->offset};
}

static void backward_apply_bf16(struct cpu *cpu, struct cpu_layer *layer, uint32_t first,
                                uint32_t n)
{
    const struct norm *norm = layer->own;
    const struct cpu_norm_relu relu = relu_of_bf16(layer);
    const struct cpu_norm_dx dx_of = {norm->mean, norm->a, norm->b, norm->c};

    cpu->kernels->bf16->norm_backward_apply(
        cpu_rows(layer->in, n), cpu_bf16(cpu_image_at(layer->in, layer->in->data, first)), &relu,
        cpu_bf16(cpu_image_at(&layer->out, layer->out.grad, first)), &dx_of,
        cpu_bf16(cpu_image_at(layer->in, layer->in->grad, first)));
}

static void backward_apply_f32(struct cpu *cpu, struct cpu_layer *layer, uint32_t first, uint32_t n)
{
    const struct norm *norm = layer->own;
    const struct cpu_area area = cpu_area(layer->in, n);
    const size_t in = first * layer->in->image_size, out = first * layer->out.image_size;

    if (layer->graph->fused_pool)
        cpu->kernels->norm_pool_backward_apply(&area, layer->in->data + in, norm->best + out,
                                               layer->out.grad + out, norm->mean, norm->a, norm->b,
                                               norm->c, layer->in->grad + in);
    else
        cpu->kernels->norm_backward_apply(&area, layer->in->data + in, relu_of(layer, first),
                                          layer->out.grad + out, norm->mean, norm->a, norm->b,
                                          norm->c, layer->in->grad + in);
    cpu_round(cpu, cpu->graph->layers[layer->graph->inputs[0]].out.dtype, layer->in->grad + in,
              n * layer->in->image_size);
}

void cpu_norm_backward_apply(struct cpu *cpu, struct cpu_layer *layer, uint32_t first, uint32_t n)
{
    uint64_t start = cpu_clock(cpu);

    assert(first + n <= cpu->n && layer->in->grad != NULL && layer->out.grad != NULL);
    if (layer->in->type == CPU_BF16)
        backward_apply_bf16(cpu, layer, first, n);
    else
        backward_apply_f32(cpu, layer, first, n);
    if (layer->conv != NULL)
        cpu_count(cpu, layer, CPU_BACKWARD, start);
}

static void sum_gradients_bf16(struct cpu *cpu, struct cpu_layer *layer)
{
    struct norm *norm = layer->own;
    const struct cpu_rows rows = cpu_rows(layer->in, cpu->n);
    const struct cpu_norm_relu relu = relu_of_bf16(layer);

    if (layer->graph->fused_add)
        cpu->kernels->bf16->norm_add_backward_sums(
            rows, cpu_bf16(layer->in->data),
            layer->graph->fused_relu ? cpu_bf16(layer->out.data) : NULL, cpu_bf16(layer->out.grad),
            norm->mean, norm->sum, norm->squares);
    else
        cpu->kernels->bf16->norm_backward_sums(rows, cpu_bf16(layer->in->data), &relu,
                                               cpu_bf16(layer->out.grad), norm->mean, norm->sum,
                                               norm->squares);
}

static void sum_gradients_f32(struct cpu *cpu, struct cpu_layer *layer)
{
    struct norm *norm = layer->own;
    const struct cpu_area area = cpu_area(layer->in, cpu->n);

    if (layer->graph->fused_pool)
        cpu->kernels->norm_pool_backward_sums(&area, norm->x_best, norm->best, layer->out.grad,
                                              norm->mean, norm->sum, norm->squares);
    else if (layer->graph->fused_add)
        cpu->kernels->residual->norm_add_backward_sums(
            &area, layer->in->data, layer->graph->fused_relu ? layer->out.data : NULL,
            layer->out.grad, norm->mean, norm->sum, norm->squares);
    else
        cpu->kernels->norm_backward_sums(&area, layer->in->data, relu_of(layer, 0), layer->out.grad,
                                         norm->mean, norm->sum, norm->squares);
}

static void sum_gradients(struct cpu *cpu, struct cpu_layer *layer)
{
    struct norm *norm = layer->own;

    memset(norm->sum, 0, norm->channels * sizeof(double));
    memset(norm->squares, 0, norm->channels * sizeof(double));
    if (layer->in->type == CPU_BF16)
        sum_gradients_bf16(cpu, layer);
    else
        sum_gradients_f32(cpu, layer);
}

static enum status norm_backward(struct cpu *cpu, struct cpu_layer *layer, float grad_scale,
                                 struct err *err)
{
    struct norm *norm = layer->own;
    enum status status;
    double m;

    assert(cpu->training);
    (void)grad_scale;
    sum_gradients(cpu, layer);
    for (size_t c = 0; c < layer->in->dims[0]; c++) { /* of this rank; DDP reduces them */
        layer->tensors[GAMMA].grad[c] = (float)(norm->squares[c] * norm->inverse_std[c]);
        layer->tensors[BETA].grad[c] = (float)norm->sum[c];
    }
    status = sync_sums(cpu, layer, &m, err);
    for (size_t c = 0; c < layer->in->dims[0]; c++) {
        double inverse_std = norm->inverse_std[c];
        double a = layer->tensors[GAMMA].param[c] * inverse_std;

        norm->a[c] = (float)a;
        norm->b[c] = (float)(-a * inverse_std * inverse_std * norm->squares[c] / m);
        norm->c[c] = (float)(-a * norm->sum[c] / m);
    }
    if (layer->graph->fused_add && layer->in2->grad != NULL)
        /* a copy needs no rounding: its type is the sum's */
        cpu_value_add_grad(cpu, layer->in2, layer->graph->out.dtype, layer->in2->grad,
                           layer->out.grad, cpu->n * layer->out.image_size, layer->adds[1]);
    if (layer->conv == NULL && layer->in->grad != NULL)
        cpu_norm_backward_apply(cpu, layer, 0, cpu->n);
    return status;
}

const struct cpu_op cpu_op_norm = {norm_open, norm_close, norm_forward, norm_backward};
