/* The definitions, in double. */
#include "tests/numerics/net/net_reference.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static double *value_new(const struct graph_value *value, uint32_t n)
{
    double *values = calloc(graph_value_count(value) * n + 1, sizeof *values);

    assert(values != NULL);
    return values;
}

static double at(const double *plane, const struct graph_value *shape, long h, long w,
                 double outside)
{
    if (h < 0 || w < 0 || h >= (long)shape->dims[1] || w >= (long)shape->dims[2])
        return outside;
    return plane[(size_t)h * shape->dims[2] + (size_t)w];
}

/* One output of a convolution. */
static double conv_at(const struct graph_layer *layer, const struct graph_value *in,
                      const double *image, const double *weight, long h, long w)
{
    const long k = (long)layer->window.kernel;
    const size_t pixels = (size_t)in->dims[1] * in->dims[2];
    double sum = 0.0;

    for (size_t c = 0; c < in->dims[0]; c++)
        for (long kh = 0; kh < k; kh++)
            for (long kw = 0; kw < k; kw++)
                sum += *weight++ * at(image + c * pixels, in,
                                      h * (long)layer->window.stride + kh - (long)layer->window.pad,
                                      w * (long)layer->window.stride + kw - (long)layer->window.pad,
                                      0.0);
    return sum;
}

static void conv(const struct reference *r, const struct graph_layer *layer,
                 const struct graph_value *in, const double *x, double *y)
{
    const double *weight = r->tensors[layer->tensor_first];
    const size_t taps = (size_t)in->dims[0] * layer->window.kernel * layer->window.kernel;

    for (size_t i = 0; i < r->n; i++)
        for (size_t o = 0; o < layer->out.dims[0]; o++)
            for (long h = 0; h < (long)layer->out.dims[1]; h++)
                for (long w = 0; w < (long)layer->out.dims[2]; w++)
                    *y++ =
                        conv_at(layer, in, x + i * graph_value_count(in), weight + o * taps, h, w) +
                        (layer->has_bias ? r->tensors[layer->tensor_first + 1][o] : 0.0);
}

static void pool(const struct reference *r, const struct graph_layer *layer,
                 const struct graph_value *in, const double *x, double *y)
{
    const long k = (long)layer->window.kernel, s = (long)layer->window.stride;
    const long p = (long)layer->window.pad;

    for (size_t plane = 0; plane < (size_t)r->n * in->dims[0]; plane++)
        for (long h = 0; h < (long)layer->out.dims[1]; h++)
            for (long w = 0; w < (long)layer->out.dims[2]; w++, y++) {
                *y = -INFINITY;
                for (long t = 0; t < k * k; t++)
                    *y = fmax(*y, at(x + plane * in->dims[1] * in->dims[2], in, h * s + t / k - p,
                                     w * s + t % k - p, -INFINITY));
            }
}

/* Mean and biased variance of channel c over the batch. */
static void channel_statistics(const struct reference *r, const struct graph_value *in,
                               const double *x, size_t c, double *mean, double *var)
{
    const size_t pixels = graph_value_count(in) / in->dims[0];
    const double m = (double)r->n * (double)pixels;

    *mean = *var = 0.0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t p = 0; p < pixels; p++)
            *mean += x[(i * in->dims[0] + c) * pixels + p] / m;
    for (size_t i = 0; i < r->n; i++)
        for (size_t p = 0; p < pixels; p++)
            *var += pow(x[(i * in->dims[0] + c) * pixels + p] - *mean, 2.0) / m;
}

static void norm(const struct reference *r, const struct graph_layer *layer,
                 const struct graph_value *in, const double *x, double *y)
{
    double *const *t = r->tensors + layer->tensor_first; /* weight, bias, running mean and var */
    const size_t pixels = graph_value_count(in) / in->dims[0];
    const double m = (double)r->n * (double)pixels;

    for (size_t c = 0; c < in->dims[0]; c++) {
        double mean = t[2][c], var = t[3][c];

        if (r->training)
            channel_statistics(r, in, x, c, &mean, &var);
        if (r->update) {
            t[2][c] += 0.1 * (mean - t[2][c]);
            t[3][c] += 0.1 * (var * m / (m - 1.0) - t[3][c]);
        }
        for (size_t i = 0; i < r->n; i++)
            for (size_t p = 0; p < pixels; p++) {
                const size_t k = (i * in->dims[0] + c) * pixels + p;

                y[k] = (x[k] - mean) / sqrt(var + 1e-5) * t[0][c] + t[1][c];
            }
    }
}

static void linear(const struct reference *r, const struct graph_layer *layer,
                   const struct graph_value *in, const double *x, double *y)
{
    const size_t features = in->dims[0];

    for (size_t i = 0; i < r->n; i++)
        for (size_t o = 0; o < layer->out.dims[0]; o++, y++) {
            *y = layer->has_bias ? r->tensors[layer->tensor_first + 1][o] : 0.0;
            for (size_t k = 0; k < features; k++)
                *y += r->tensors[layer->tensor_first][o * features + k] * x[i * features + k];
        }
}

/* The mean over height and width. */
static void average(const struct reference *r, const struct graph_value *in, const double *x,
                    double *y)
{
    const size_t pixels = (size_t)in->dims[1] * in->dims[2];

    for (size_t plane = 0; plane < (size_t)r->n * in->dims[0]; plane++)
        for (size_t p = 0; p < pixels; p++)
            y[plane] = (p == 0 ? 0.0 : y[plane]) + x[plane * pixels + p] / (double)pixels;
}

/* (1 - smoothing) * nll + smoothing / classes * sum of -log p. */
static double cross_entropy(const double *scores, const int64_t *labels, uint32_t n,
                            uint32_t classes, double smoothing)
{
    double loss = 0.0;

    for (uint32_t i = 0; i < n; i++, scores += classes) {
        double sum = 0.0;

        for (uint32_t c = 0; c < classes; c++)
            sum += exp(scores[c] - scores[labels[i]]);
        loss += log(sum) / n;
        for (uint32_t c = 0; c < classes; c++)
            loss += smoothing * (scores[labels[i]] - scores[c]) / classes / n;
    }
    return loss;
}

static void layer_forward(const struct reference *r, uint32_t index)
{
    const struct graph_layer *layer = &r->graph->layers[index];
    const struct graph_value *in = &r->graph->layers[layer->inputs[0]].out;
    const double *x = r->values[layer->inputs[0]];
    double *y = r->values[index];
    const size_t count = graph_value_count(&layer->out) * r->n;

    assert(!layer->fused_relu && !layer->fused_pool);
    if (layer->op == GRAPH_CONV2D)
        conv(r, layer, in, x, y);
    else if (layer->op == GRAPH_BATCH_NORM)
        norm(r, layer, in, x, y);
    else if (layer->op == GRAPH_MAX_POOL)
        pool(r, layer, in, x, y);
    else if (layer->op == GRAPH_LINEAR)
        linear(r, layer, in, x, y);
    else if (layer->op == GRAPH_AVG_POOL)
        average(r, in, x, y);
    else
        for (size_t i = 0; i < count; i++)
            y[i] = layer->op == GRAPH_RELU  ? fmax(x[i], 0.0)
                   : layer->op == GRAPH_ADD ? x[i] + r->values[layer->inputs[1]][i]
                                            : x[i];
}

double **reference_values_new(const struct graph *graph, const float *images, uint32_t n)
{
    double **values = calloc(graph->layer_count, sizeof *values);

    assert(values != NULL && n > 0);
    for (uint32_t i = 0; i < graph->layer_count; i++)
        values[i] = value_new(&graph->layers[i].out, n);
    for (size_t i = 0; i < graph_value_count(&graph->layers[0].out) * n; i++)
        values[0][i] = (double)images[i];
    return values;
}

void reference_values_free(const struct graph *graph, double **values)
{
    for (uint32_t i = 0; i < graph->layer_count; i++)
        free(values[i]);
    free(values);
}

double reference_loss(const struct reference *r, uint32_t first)
{
    const uint32_t last = r->graph->layer_count - 1;

    assert(first >= 1 && first <= last);
    for (uint32_t i = first; i < last; i++)
        layer_forward(r, i);
    return cross_entropy(r->values[r->graph->layers[last].inputs[0]], r->labels, r->n,
                         r->graph->layers[last].out.dims[0], r->training ? r->smoothing : 0.0);
}
