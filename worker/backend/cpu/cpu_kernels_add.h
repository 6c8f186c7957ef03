/* Loops for networks with residuals: sums of two values, batch norm with a sum behind it, the mean
 * over an image. One table per instruction set, beside cpu_kernels.h, whose layout of values they
 * share. Deterministic, single-threaded. */
#ifndef WORKER_BACKEND_CPU_CPU_KERNELS_ADD_H
#define WORKER_BACKEND_CPU_CPU_KERNELS_ADD_H

#include <stdbool.h>
#include <stddef.h>

struct cpu_area;

struct cpu_add_kernels {
    /* y = x * scale + offset + other, cut at 0 where `relu`. */
    void (*norm_add)(const struct cpu_area *area, const float *x, const float *scale,
                     const float *offset, const float *other, bool relu, float *y);
    /* First dy = 0 where y (may be NULL) is not above 0, in place; then sum += dy, products += dy *
     * (x - mean). */
    void (*norm_add_backward_sums)(const struct cpu_area *area, const float *x, const float *y,
                                   float *dy, const float *mean, double *sum, double *products);
    /* y = a + b, cut at 0 where `relu`; n stored floats, y may be a or b. */
    void (*add)(const float *a, const float *b, bool relu, size_t n, float *y);
    /* y: mean over height and width, [images][blocks][block]; backward: dx = dy / pixels. */
    void (*avg_pool)(const struct cpu_area *area, const float *x, float *y);
    void (*avg_pool_backward)(const struct cpu_area *area, const float *dy, float *dx);
};

extern const struct cpu_add_kernels cpu_kernels_generic_add;
extern const struct cpu_add_kernels cpu_kernels_avx2_add;
extern const struct cpu_add_kernels cpu_kernels_avx512_add;

#endif
