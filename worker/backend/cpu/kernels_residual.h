/* Loops for residual networks: sums of two values, batch norm followed by a sum, the mean over an
 * image. One table per instruction set. Rules and layout of values: kernels.h. */
#ifndef WORKER_BACKEND_CPU_KERNELS_RESIDUAL_H
#define WORKER_BACKEND_CPU_KERNELS_RESIDUAL_H

#include <stdbool.h>
#include <stddef.h>

struct cpu_area;

struct cpu_residual_kernels {
    /* y = x * scale + offset + other;  with `relu`: y = max(0, y) */
    void (*norm_add)(const struct cpu_area *area, const float *x, const float *scale,
                     const float *offset, const float *other, bool relu, float *y);
    /* In place:     dy = 0 where y is not above 0 (y NULL: dy stays)
     * Per channel:  sum += dy,  products += dy * (x - mean) */
    void (*norm_add_backward_sums)(const struct cpu_area *area, const float *x, const float *y,
                                   float *dy, const float *mean, double *sum, double *products);
    /* y = a + b;  with `relu`: y = max(0, y).  n floats, padding included; y may be a or b. */
    void (*add)(const float *a, const float *b, bool relu, size_t n, float *y);
    /* y = mean over height and width, [images][blocks][block]; backward: dx = dy / pixels. */
    void (*avg_pool)(const struct cpu_area *area, const float *x, float *y);
    void (*avg_pool_backward)(const struct cpu_area *area, const float *dy, float *dx);
};

extern const struct cpu_residual_kernels cpu_kernels_generic_residual;
extern const struct cpu_residual_kernels cpu_kernels_avx2_residual;
extern const struct cpu_residual_kernels cpu_kernels_avx512_residual;

#endif
