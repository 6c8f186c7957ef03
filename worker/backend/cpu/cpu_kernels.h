/* The CPU backend's own loops: batch norm, ReLU, pooling over channel-blocked values.
 *
 * A value is stored as [images][blocks][height][width][block]: `block` channels lie side by side
 * (oneDNN's nChw8c and nChw16c), channels behind the last one are padding and hold 0. cpu_kernels.c
 * is compiled once per instruction set; cpu_kernels_best() picks by what this machine can do. All
 * are deterministic and single-threaded. */
#ifndef WORKER_BACKEND_CPU_CPU_KERNELS_H
#define WORKER_BACKEND_CPU_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_BLOCK_MAX 16
#define CPU_POOL_DEAD 255 /* in `best`: ReLU cut this maximum off, no gradient flows */

struct cpu_add_kernels; /* cpu_kernels_add.h */
struct cpu_low_kernels; /* cpu_kernels_low.h */

struct cpu_area {
    uint32_t images, blocks, height, width; /* of the larger side where there is a pool */
};

/* Pooling other than the fused 2x2. */
struct cpu_pool_shape {
    uint32_t kernel, stride, pad, out_height, out_width;
};

struct cpu_kernels {
    const char *name;
    uint32_t block;
    const struct cpu_add_kernels *more;
    const struct cpu_low_kernels *low;

    /* sum += x - shift, squares += (x - shift)^2 per channel; shift, sum, squares: [blocks *
     * block]. */
    void (*norm_sums)(const struct cpu_area *area, const float *x, const float *shift, double *sum,
                      double *squares);
    /* y = x * scale + offset, cut at 0 where `relu`; y may be x. */
    void (*norm_apply)(const struct cpu_area *area, const float *x, const float *scale,
                       const float *offset, bool relu, float *y);
    /* The same with ReLU, then the maximum of each 2x2 window: y [h/2][w/2]. `best`: which of the
     * four it was, or CPU_POOL_DEAD; `x_best`: the x it came from. Both NULL in evaluation. */
    void (*norm_pool_apply)(const struct cpu_area *area, const float *x, const float *scale,
                            const float *offset, float *y, uint8_t *best, float *x_best);
    /* sum += dy, products += dy * (x - mean), dy counting as 0 where y (may be NULL) is not above
     * 0. */
    void (*norm_backward_sums)(const struct cpu_area *area, const float *x, const float *y,
                               const float *dy, const float *mean, double *sum, double *products);
    /* dx = a * dy + b * (x - mean) + c; dx may be x or dy. */
    void (*norm_backward_apply)(const struct cpu_area *area, const float *x, const float *y,
                                const float *dy, const float *mean, const float *a, const float *b,
                                const float *c, float *dx);
    /* Both again behind a fused pool; x, dx: [h][w], the others: [h/2][w/2]. */
    void (*norm_pool_backward_sums)(const struct cpu_area *area, const float *x_best,
                                    const uint8_t *best, const float *dy, const float *mean,
                                    double *sum, double *products);
    void (*norm_pool_backward_apply)(const struct cpu_area *area, const float *x,
                                     const uint8_t *best, const float *dy, const float *mean,
                                     const float *a, const float *b, const float *c, float *dx);

    /* y[i][o] = bias[o] + sum over features of x[i][f] * weights[o][f]. features: whole blocks;
     * bias may be NULL. For few outputs, where a general matrix product spends its time on packing.
     */
    void (*linear)(const float *x, const float *weights, const float *bias, uint32_t n,
                   size_t features, uint32_t outputs, float *y);
    /* n stored floats; y may be x, dx may be dy. */
    void (*relu)(const float *x, size_t n, float *y);
    void (*relu_backward)(const float *y, const float *dy, size_t n, float *dx);
    /* best: place of the maximum in its window, row by row, the first where several are equal; NULL
     * in evaluation. */
    void (*max_pool)(const struct cpu_area *area, const struct cpu_pool_shape *pool, const float *x,
                     float *y, uint8_t *best);
    void (*max_pool_backward)(const struct cpu_area *area, const struct cpu_pool_shape *pool,
                              const uint8_t *best, const float *dy, float *dx);

    /* y = x rounded to the nearest value of the type, ties to even; a NaN stays one. y may be x.
     * fp16 and bf16 values are kept as floats here: they are rounded, not computed. */
    void (*round_f16)(const float *x, size_t n, float *y);
    void (*round_bf16)(const float *x, size_t n, float *y);
};

extern const struct cpu_kernels cpu_kernels_generic; /* block 8 */
extern const struct cpu_kernels cpu_kernels_avx2;    /* block 8 */
extern const struct cpu_kernels cpu_kernels_avx512;  /* block 16 */

#endif
