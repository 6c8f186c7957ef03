/* Compiled once per instruction set, as kernels.c. CPU_KERNELS_RESIDUAL is the name of the table.
 */
#include "worker/backend/cpu/kernels_residual.h"

#include <math.h>

#include "worker/backend/cpu/kernels.h"

#define B CPU_BLOCK

typedef float lanes __attribute__((vector_size(sizeof(float) * B), may_alias));
typedef int32_t lanes_mask __attribute__((vector_size(sizeof(int32_t) * B), may_alias));

static inline const lanes *at_lanes(const float *values)
{
    return (const lanes *)values;
}

static inline lanes cut(lanes_mask mask, lanes values)
{
    return (lanes)(mask & (lanes_mask)values);
}

/* max(least, values); a NaN stays. */
static inline lanes at_least(lanes least, lanes values)
{
    const lanes_mask less = values < least;

    return (lanes)((less & (lanes_mask)least) | (~less & (lanes_mask)values));
}

static inline lanes lowest(bool relu)
{
    return (lanes){0} - (relu ? 0.0F : INFINITY);
}

static void add_sums(lanes part, double *restrict total)
{
    for (int c = 0; c < B; c++)
        total[c] += (double)part[c];
}

static void norm_add(const struct cpu_area *area, const float *x, const float *scale,
                     const float *offset, const float *other, bool relu, float *y)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t planes = (size_t)area->images * area->blocks;
    const lanes half = lowest(relu);

    for (size_t plane = 0; plane < planes; plane++) {
        const lanes *in = at_lanes(x) + plane * pixels, *more = at_lanes(other) + plane * pixels;
        lanes *out = (lanes *)y + plane * pixels;
        const lanes sc = at_lanes(scale)[plane % area->blocks];
        const lanes of = at_lanes(offset)[plane % area->blocks];

        for (size_t p = 0; p < pixels; p++)
            out[p] = at_least(half, in[p] * sc + of + more[p]);
    }
}

static void norm_add_backward_sums(const struct cpu_area *area, const float *x, const float *y,
                                   float *dy, const float *mean, double *sum, double *products)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t planes = (size_t)area->images * area->blocks;

    for (size_t plane = 0; plane < planes; plane++) {
        const size_t block = plane % area->blocks, at = plane * pixels;
        const lanes *in = at_lanes(x) + at, m = at_lanes(mean)[block];
        const lanes *out = y != NULL ? at_lanes(y) + at : NULL;
        lanes *grad = (lanes *)dy + at, s = {0}, q = {0};

        for (size_t p = 0; p < pixels; p++) {
            if (out != NULL)
                grad[p] = cut(out[p] > 0.0F, grad[p]);
            s += grad[p];
            q += grad[p] * (in[p] - m);
        }
        add_sums(s, sum + block * B);
        add_sums(q, products + block * B);
    }
}

static void add(const float *a, const float *b, bool relu, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];

        y[i] = relu && sum < 0.0F ? 0.0F : sum;
    }
}

static void avg_pool(const struct cpu_area *area, const float *x, float *y)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t planes = (size_t)area->images * area->blocks;

    for (size_t plane = 0; plane < planes; plane++) {
        lanes sum = {0};

        for (size_t p = 0; p < pixels; p++)
            sum += at_lanes(x)[plane * pixels + p];
        ((lanes *)y)[plane] = sum / (float)pixels;
    }
}

static void avg_pool_backward(const struct cpu_area *area, const float *dy, float *dx)
{
    const size_t pixels = (size_t)area->height * area->width;
    const size_t planes = (size_t)area->images * area->blocks;

    for (size_t plane = 0; plane < planes; plane++) {
        const lanes part = at_lanes(dy)[plane] / (float)pixels;

        for (size_t p = 0; p < pixels; p++)
            ((lanes *)dx)[plane * pixels + p] = part;
    }
}

const struct cpu_residual_kernels CPU_KERNELS_RESIDUAL = {
    .norm_add = norm_add,
    .norm_add_backward_sums = norm_add_backward_sums,
    .add = add,
    .avg_pool = avg_pool,
    .avg_pool_backward = avg_pool_backward,
};
