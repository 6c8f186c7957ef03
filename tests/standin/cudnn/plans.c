/* Plans as plain loops: slow, in double, every sum in one order. Sources: the definitions in
 * plans.h; Ioffe and Szegedy 2015 for the batch norm. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/values.h"
#include "tests/standin/cudnn/plans.h"

static double get(const struct plan_call *call, enum plan_port port, size_t i)
{
    return (double)values_get(call->pointers[port], (enum kernel_type)call->request.type, i);
}

static void set(const struct plan_call *call, enum plan_port port, size_t i, double value)
{
    values_set(call->pointers[port], (enum kernel_type)call->request.type, i, (float)value);
}

static double get_f32(const struct plan_call *call, enum plan_port port, size_t i)
{
    return (double)((const float *)call->pointers[port])[i];
}

/* One pair of an output pixel and a place of the window that falls into the input. */
struct place {
    size_t y, x, w; /* offsets of channel 0 of the output, the input, the weights of output 0 */
};

typedef void (*each_place)(const struct plan_call *call, const struct place *place);

static void walk_row(const struct plan_call *call, uint32_t n, uint32_t oy, uint32_t ox,
                     each_place each)
{
    const struct plan_request *request = &call->request;
    const struct graph_window *window = &request->window;

    for (uint32_t r = 0; r < window->kernel; r++)
        for (uint32_t s = 0; s < window->kernel; s++) {
            const uint32_t y = oy * window->stride + r - window->pad;
            const uint32_t x = ox * window->stride + s - window->pad;
            const struct place place = {
                (((size_t)n * request->out_h + oy) * request->out_w + ox) * request->k,
                (((size_t)n * request->h + y) * request->w + x) * request->c,
                ((size_t)r * window->kernel + s) * request->c};

            if (y < request->h && x < request->w) /* below 0 is far above */
                each(call, &place);
        }
}

static void walk(const struct plan_call *call, each_place each)
{
    for (uint32_t n = 0; n < call->request.n; n++)
        for (uint32_t y = 0; y < call->request.out_h; y++)
            for (uint32_t x = 0; x < call->request.out_w; x++)
                walk_row(call, n, y, x, each);
}

/* Values in double, of this file alone: what a convolution is made of, and its sums. */
struct array {
    double *values;
    size_t count;
};

static _Thread_local struct array sums, wide[PLAN_PORTS];

static struct array array_new(size_t count)
{
    const struct array array = {calloc(count + 1, sizeof(double)), count};

    assert(array.values != NULL);
    return array;
}

static void array_free(struct array *array)
{
    free(array->values);
    *array = (struct array){NULL, 0};
}

static double *array_at(const struct array *array, size_t at, size_t count)
{
    assert(at + count <= array->count);
    return array->values + at;
}

static void widen(const struct plan_call *call, enum plan_port port)
{
    const size_t bytes = plan_port_bytes(&call->request, port);

    wide[port] = array_new(call->request.type == GRAPH_F32 ? bytes / 4 : bytes / 2);
    for (size_t i = 0; i < wide[port].count; i++)
        wide[port].values[i] = get(call, port, i);
}

static size_t weight_stride(const struct plan_request *request)
{
    return (size_t)request->window.kernel * request->window.kernel * request->c;
}

/* The innermost loops, over what array_at() has checked as a whole: with a check for each element, tests of whole nets
 * under sanitizers would spend most of their time here. */
#define CHECKED_BEFORE __attribute__((no_sanitize("address"), no_sanitize("undefined")))

CHECKED_BEFORE static double product(const double *a, const double *b, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

CHECKED_BEFORE static void add_multiple(double *to, double factor, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

static void add_forward(const struct plan_call *call, const struct place *place)
{
    const size_t channels = call->request.c, stride = weight_stride(&call->request);
    const double *x = array_at(&wide[PLAN_PORT_X], place->x, channels);
    double *y = array_at(&sums, place->y, call->request.k);

    for (uint32_t k = 0; k < call->request.k; k++)
        y[k] += product(x, array_at(&wide[PLAN_PORT_W], place->w + k * stride, channels), channels);
}

static void add_dgrad(const struct plan_call *call, const struct place *place)
{
    const size_t channels = call->request.c, stride = weight_stride(&call->request);
    const double *dy = array_at(&wide[PLAN_PORT_DY], place->y, call->request.k);
    double *dx = array_at(&sums, place->x, channels);

    for (uint32_t k = 0; k < call->request.k; k++)
        add_multiple(dx, dy[k], array_at(&wide[PLAN_PORT_W], place->w + k * stride, channels),
                     channels);
}

static void add_wgrad(const struct plan_call *call, const struct place *place)
{
    const size_t channels = call->request.c, stride = weight_stride(&call->request);
    const double *x = array_at(&wide[PLAN_PORT_X], place->x, channels);
    const double *dy = array_at(&wide[PLAN_PORT_DY], place->y, call->request.k);

    for (uint32_t k = 0; k < call->request.k; k++)
        add_multiple(array_at(&sums, place->w + k * stride, channels), dy[k], x, channels);
}

/* What the plan adds to sum `i`. */
static double added(const struct plan_call *call, enum plan_port out, size_t i)
{
    const uint8_t *mask = call->pointers[PLAN_PORT_MASK];

    if (call->request.kind == PLAN_CONV_DGRAD_ADD)
        return get(call, out, i);
    if (call->request.kind == PLAN_CONV_DGRAD_MASKED && (mask[i / 8] >> i % 8 & 1) != 0)
        return get(call, PLAN_PORT_DADD, i);
    return 0;
}

/* All sums of `count` outputs, then one rounding. */
static void convolve(const struct plan_call *call, each_place each, enum plan_port out,
                     size_t count)
{
    static const enum plan_port sources[] = {PLAN_PORT_X, PLAN_PORT_W, PLAN_PORT_DY};

    sums = array_new(count);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (call->pointers[sources[i]] != NULL)
            widen(call, sources[i]);
    walk(call, each);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        array_free(&wide[sources[i]]);
    for (size_t i = 0; i < count; i++) {
        const bool has_bias = out == PLAN_PORT_Y && call->request.has_bias;

        set(call, out, i,
            sums.values[i] + (has_bias ? get(call, PLAN_PORT_BIAS, i % call->request.k) : 0) +
                added(call, out, i));
    }
    array_free(&sums);
}

/* A linear layer is a convolution of one pixel. */
static struct plan_call as_conv(const struct plan_call *call)
{
    struct plan_call conv = *call;

    conv.request.h = conv.request.w = conv.request.out_h = conv.request.out_w = 1;
    conv.request.window = (struct graph_window){1, 1, 0};
    return conv;
}

static void linear_bias(const struct plan_call *call)
{
    if (call->pointers[PLAN_PORT_DBIAS] == NULL)
        return;
    for (uint32_t k = 0; k < call->request.k; k++) {
        double sum = 0;

        for (uint32_t n = 0; n < call->request.n; n++)
            sum += get(call, PLAN_PORT_DY, (size_t)n * call->request.k + k);
        set(call, PLAN_PORT_DBIAS, k, sum);
    }
}

/* -- batch norm, channel by channel -- */

static size_t norm_rows(const struct plan_call *call)
{
    return (size_t)call->request.n * call->request.h * call->request.w;
}

static void norm_statistics(const struct plan_call *call, uint32_t c)
{
    const size_t rows = norm_rows(call);
    float *mean = call->pointers[PLAN_PORT_MEAN], *inv_std = call->pointers[PLAN_PORT_INV_STD];
    float *running_mean = call->pointers[PLAN_PORT_RUNNING_MEAN];
    float *running_var = call->pointers[PLAN_PORT_RUNNING_VAR];
    const double m = (double)call->request.momentum;
    double sum = 0, squares = 0, var;

    for (size_t i = 0; i < rows; i++)
        sum += get(call, PLAN_PORT_X, i * call->request.c + c);
    sum /= (double)rows;
    for (size_t i = 0; i < rows; i++) {
        const double d = get(call, PLAN_PORT_X, i * call->request.c + c) - sum;

        squares += d * d;
    }
    var = squares / (double)rows;
    mean[c] = (float)sum;
    inv_std[c] = (float)(1.0 / sqrt(var + (double)call->request.eps));
    running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * sum);
    running_var[c] = (float)((1 - m) * (double)running_var[c] + m * squares / ((double)rows - 1));
}

/* Bits, as cuDNN stores booleans. */
static void mask_set(uint8_t *mask, size_t i, bool passes)
{
    const uint8_t bit = (uint8_t)(1U << i % 8);

    mask[i / 8] = (uint8_t)(passes ? mask[i / 8] | bit : mask[i / 8] & ~bit);
}

static bool mask_get(const uint8_t *mask, size_t i)
{
    return (mask[i / 8] >> i % 8 & 1) != 0;
}

static void norm_write(const struct plan_call *call, uint32_t c)
{
    const double mean = get_f32(call, PLAN_PORT_MEAN, c);
    const double scale = get_f32(call, PLAN_PORT_SCALE, c) * get_f32(call, PLAN_PORT_INV_STD, c);
    uint8_t *mask = call->pointers[PLAN_PORT_MASK];

    for (size_t i = c; i < norm_rows(call) * call->request.c; i += call->request.c) {
        double y = (get(call, PLAN_PORT_X, i) - mean) * scale + get_f32(call, PLAN_PORT_SHIFT, c);

        if (call->request.has_add)
            y += get(call, PLAN_PORT_ADD, i);
        if (call->request.has_relu && mask != NULL)
            mask_set(mask, i, y > 0);
        set(call, PLAN_PORT_Y, i, call->request.has_relu && !(y > 0) ? 0 : y);
    }
}

static void norm_forward(const struct plan_call *call, bool has_statistics)
{
    for (uint32_t c = 0; c < call->request.c; c++) {
        if (!has_statistics)
            norm_statistics(call, c);
        norm_write(call, c);
    }
}

static double masked(const struct plan_call *call, size_t i)
{
    const uint8_t *mask = call->pointers[PLAN_PORT_MASK];

    return call->request.has_relu && !mask_get(mask, i) ? 0 : get(call, PLAN_PORT_DY, i);
}

static void norm_backward_channel(const struct plan_call *call, uint32_t c)
{
    const struct plan_request *request = &call->request;
    const size_t rows = norm_rows(call), end = rows * call->request.c;
    const double mean = get_f32(call, PLAN_PORT_MEAN, c);
    const double inv_std = get_f32(call, PLAN_PORT_INV_STD, c);
    double sum = 0, dot = 0;

    for (size_t i = c; i < end; i += call->request.c) {
        sum += masked(call, i);
        dot += masked(call, i) * (get(call, PLAN_PORT_X, i) - mean) * inv_std;
    }
    ((float *)call->pointers[PLAN_PORT_DSCALE])[c] = (float)dot;
    ((float *)call->pointers[PLAN_PORT_DSHIFT])[c] = (float)sum;
    for (size_t i = c; i < end; i += call->request.c) {
        const double x = (get(call, PLAN_PORT_X, i) - mean) * inv_std;
        const double d = masked(call, i);

        if (plan_takes(request, PLAN_PORT_DADD))
            set(call, PLAN_PORT_DADD, i, d);
        set(call, PLAN_PORT_DX, i,
            get_f32(call, PLAN_PORT_SCALE, c) * inv_std *
                (d - sum / (double)rows - x * dot / (double)rows));
    }
}

/* -- statistics of the convolution -- */

/* The call with X as a batch norm and a ReLU make it of X: rounded to the type, as what a
 * convolution reads. The copy is the caller's. */
static struct plan_call with_prologue(const struct plan_call *call)
{
    const struct plan_request *request = &call->request;
    const size_t count = norm_rows(call) * request->c;
    struct plan_call made = *call;

    made.pointers[PLAN_PORT_X] = malloc(plan_port_bytes(request, PLAN_PORT_X));
    assert(made.pointers[PLAN_PORT_X] != NULL);
    for (size_t i = 0; i < count; i++) {
        const double y = get(call, PLAN_PORT_X, i) * get(call, PLAN_PORT_EQ_SCALE, i % request->c) +
                         get(call, PLAN_PORT_EQ_SHIFT, i % request->c);

        set(&made, PLAN_PORT_X, i, y > 0 ? y : 0);
    }
    return made;
}

static void conv_stats(const struct plan_call *call)
{
    const struct plan_request *request = &call->request;
    const size_t rows = (size_t)request->n * request->out_h * request->out_w;

    convolve(call, add_forward, PLAN_PORT_Y, rows * request->k);
    for (uint32_t k = 0; k < request->k; k++) {
        double sum = 0, squares = 0;

        for (size_t i = k; i < rows * request->k; i += request->k) {
            const double y = get(call, PLAN_PORT_Y, i);

            sum += y;
            squares += y * y;
        }
        ((float *)call->pointers[PLAN_PORT_SUM])[k] = (float)sum;
        ((float *)call->pointers[PLAN_PORT_SQ_SUM])[k] = (float)squares;
    }
}

static void stats_finalize(const struct plan_call *call, uint32_t c)
{
    const double rows = (double)norm_rows(call), m = (double)call->request.momentum;
    const double mean = get_f32(call, PLAN_PORT_SUM, c) / rows;
    const double var = get_f32(call, PLAN_PORT_SQ_SUM, c) / rows - mean * mean;
    const double inv_std = 1.0 / sqrt(var + (double)call->request.eps);
    const double scale = get_f32(call, PLAN_PORT_SCALE, c) * inv_std;
    float *running_mean = call->pointers[PLAN_PORT_RUNNING_MEAN];
    float *running_var = call->pointers[PLAN_PORT_RUNNING_VAR];

    ((float *)call->pointers[PLAN_PORT_MEAN])[c] = (float)mean;
    ((float *)call->pointers[PLAN_PORT_INV_STD])[c] = (float)inv_std;
    running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * mean);
    running_var[c] = (float)((1 - m) * (double)running_var[c] + m * var * rows / (rows - 1));
    set(call, PLAN_PORT_EQ_SCALE, c, scale);
    set(call, PLAN_PORT_EQ_SHIFT, c, get_f32(call, PLAN_PORT_SHIFT, c) - mean * scale);
}

/* DADD of the channel where the ReLU let its value through, then the norm's gradients and what is
 * left to do: dx = dadd * dy_factor + x * x_factor + term. */
static void dgrad_norm_channel(const struct plan_call *call, uint32_t c)
{
    const size_t rows = norm_rows(call), end = rows * call->request.c;
    const double mean = get_f32(call, PLAN_PORT_MEAN, c);
    const double inv_std = get_f32(call, PLAN_PORT_INV_STD, c);
    const double scale = get_f32(call, PLAN_PORT_SCALE, c);
    double sum = 0, dot = 0, x_factor;

    for (size_t i = c; i < end; i += call->request.c) {
        const double x = (get(call, PLAN_PORT_X, i) - mean) * inv_std;
        double d;

        if (!(x * scale + get_f32(call, PLAN_PORT_SHIFT, c) > 0))
            set(call, PLAN_PORT_DADD, i, 0);
        d = get(call, PLAN_PORT_DADD, i);
        sum += d;
        dot += d * x;
    }
    x_factor = -scale * inv_std * inv_std * dot / (double)rows;
    ((float *)call->pointers[PLAN_PORT_DSCALE])[c] = (float)dot;
    ((float *)call->pointers[PLAN_PORT_DSHIFT])[c] = (float)sum;
    ((float *)call->pointers[PLAN_PORT_DY_FACTOR])[c] = (float)(scale * inv_std);
    ((float *)call->pointers[PLAN_PORT_X_FACTOR])[c] = (float)x_factor;
    ((float *)call->pointers[PLAN_PORT_TERM])[c] =
        (float)(-scale * inv_std * sum / (double)rows - x_factor * mean);
}

static void norm_dx(const struct plan_call *call)
{
    const uint32_t channels = call->request.c;

    for (size_t i = 0; i < norm_rows(call) * channels; i++) {
        const uint32_t c = (uint32_t)(i % channels);

        set(call, PLAN_PORT_DX, i,
            get(call, PLAN_PORT_DADD, i) * get_f32(call, PLAN_PORT_DY_FACTOR, c) +
                get(call, PLAN_PORT_X, i) * get_f32(call, PLAN_PORT_X_FACTOR, c) +
                get_f32(call, PLAN_PORT_TERM, c));
    }
}

/* The kinds of stage two; false: it is none of them. */
static bool run_statistics(const struct plan_call *call)
{
    const struct plan_request *request = &call->request;
    const size_t in = norm_rows(call) * request->c;
    struct plan_call made = *call;

    if (request->kind == PLAN_CONV_STATS_PROLOGUE || request->kind == PLAN_CONV_WGRAD_PROLOGUE)
        made = with_prologue(call);
    if (request->kind == PLAN_CONV_STATS || request->kind == PLAN_CONV_STATS_PROLOGUE)
        conv_stats(&made);
    else if (request->kind == PLAN_CONV_WGRAD_PROLOGUE)
        convolve(&made, add_wgrad, PLAN_PORT_DW, request->k * weight_stride(request));
    else if (request->kind == PLAN_CONV_DGRAD_NORM)
        convolve(call, add_dgrad, PLAN_PORT_DADD, in);
    else if (request->kind == PLAN_NORM_DX)
        norm_dx(call);
    else if (request->kind != PLAN_STATS_FINALIZE)
        return false;
    for (uint32_t c = 0; c < request->c; c++) {
        if (request->kind == PLAN_STATS_FINALIZE)
            stats_finalize(call, c);
        else if (request->kind == PLAN_CONV_DGRAD_NORM)
            dgrad_norm_channel(call, c);
    }
    if (made.pointers[PLAN_PORT_X] != call->pointers[PLAN_PORT_X])
        free(made.pointers[PLAN_PORT_X]);
    return true;
}

void standin_plan_run(void *args)
{
    const struct plan_call *call = args, conv = as_conv(call);
    const struct plan_request *request = &call->request;
    const size_t in = (size_t)request->n * request->h * request->w * request->c;
    const size_t out = (size_t)request->n * request->out_h * request->out_w * request->k;

    switch (request->kind) {
    case PLAN_CONV_FORWARD:
        convolve(call, add_forward, PLAN_PORT_Y, out);
        return;
    case PLAN_CONV_DGRAD:
    case PLAN_CONV_DGRAD_ADD:
    case PLAN_CONV_DGRAD_MASKED:
        convolve(call, add_dgrad, PLAN_PORT_DX, in);
        return;
    case PLAN_CONV_WGRAD:
        convolve(call, add_wgrad, PLAN_PORT_DW, request->k * weight_stride(request));
        return;
    case PLAN_LINEAR_FORWARD:
        convolve(&conv, add_forward, PLAN_PORT_Y, (size_t)request->n * request->k);
        return;
    case PLAN_LINEAR_DGRAD:
        convolve(&conv, add_dgrad, PLAN_PORT_DX, (size_t)request->n * request->c);
        return;
    case PLAN_LINEAR_WGRAD:
        convolve(&conv, add_wgrad, PLAN_PORT_DW, (size_t)request->k * request->c);
        linear_bias(call);
        return;
    case PLAN_NORM_FORWARD:
    case PLAN_NORM_EVALUATE:
    case PLAN_NORM_APPLY:
        norm_forward(call, request->kind != PLAN_NORM_FORWARD);
        return;
    case PLAN_NORM_BACKWARD:
        for (uint32_t c = 0; c < request->c; c++)
            norm_backward_channel(call, c);
        return;
    default:
        if (!run_statistics(call))
            assert(false && "a plan that the stand-in does not have");
    }
}
