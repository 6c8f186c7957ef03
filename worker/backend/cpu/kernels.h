/* Loops of the CPU backend: batch norm, ReLU and pooling over values in channel blocks.
 *
 * Layout: [images][blocks][height][width][block], where `block` channels are adjacent (oneDNN's
 * nChw8c and nChw16c). Channels after the last one are padding and hold 0.
 * Instruction sets: kernels.c is compiled once for each; cpu.c picks the best one at run time.
 * All loops are deterministic and run on the calling thread. */
#ifndef WORKER_BACKEND_CPU_KERNELS_H
#define WORKER_BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_BLOCK_MAX 16
#define CPU_POOL_DEAD 255 /* in `best`: the ReLU set this maximum to 0, so it gets no gradient */

struct cpu_residual_kernels;  /* kernels_residual.h */
struct cpu_bf16_kernels;      /* kernels_bf16.h */
struct cpu_bf16_pool_kernels; /* kernels_bf16_pool.h */

struct cpu_area {
    uint32_t images, blocks, height, width; /* with a pool: of its input */
};

/* A max pool that is a separate layer, not fused. */
struct cpu_pool_shape {
    uint32_t kernel, stride, pad, out_height, out_width;
};

/* A convolution whose input has few channels, in rows: [images][channels][in_height][in_width]. */
struct cpu_rows_conv {
    uint32_t channels, in_height, in_width; /* of the input */
    uint32_t kernel, stride, pad;
    uint32_t out_channels;
};

struct cpu_kernels {
    const char *name;
    uint32_t block;
    const struct cpu_residual_kernels *residual;
    const struct cpu_bf16_kernels *bf16;
    const struct cpu_bf16_pool_kernels *bf16_pool;

    /* Per channel:  sum += x - shift,  squares += (x - shift)^2
     *   shift, sum, squares: [blocks * block] */
    void (*norm_sums)(const struct cpu_area *area, const float *x, const float *shift, double *sum,
                      double *squares);
    /* y = x * scale + offset;  with `relu`: y = max(0, y).  y may be x. */
    void (*norm_apply)(const struct cpu_area *area, const float *x, const float *scale,
                       const float *offset, bool relu, float *y);
    /* The same with ReLU, then the maximum of each 2x2 window.
     *   y: [height / 2][width / 2] per block
     *   best: as y: which of the four elements was the maximum, or CPU_POOL_DEAD; NULL in
     *       evaluation
     *   x_best: as y: the value of x at the maximum; NULL in evaluation */
    void (*norm_pool_apply)(const struct cpu_area *area, const float *x, const float *scale,
                            const float *offset, float *y, uint8_t *best, float *x_best);
    /* Per channel:  sum += d,  products += d * (x - mean)
     * where d = dy if y > 0 or y is NULL, else 0. */
    void (*norm_backward_sums)(const struct cpu_area *area, const float *x, const float *y,
                               const float *dy, const float *mean, double *sum, double *products);
    /* dx = a * d + b * (x - mean) + c, with d as above; dx may be x or dy. */
    void (*norm_backward_apply)(const struct cpu_area *area, const float *x, const float *y,
                                const float *dy, const float *mean, const float *a, const float *b,
                                const float *c, float *dx);
    /* The same two for a norm with a fused pool. x, dx: [height][width]; the others:
     * [height / 2][width / 2]. */
    void (*norm_pool_backward_sums)(const struct cpu_area *area, const float *x_best,
                                    const uint8_t *best, const float *dy, const float *mean,
                                    double *sum, double *products);
    void (*norm_pool_backward_apply)(const struct cpu_area *area, const float *x,
                                     const uint8_t *best, const float *dy, const float *mean,
                                     const float *a, const float *b, const float *c, float *dx);

    /* y[i][o] = bias[o] + sum over f of x[i][f] * weights[o][f]
     *   features: a multiple of the block; bias may be NULL
     * For few outputs: a general matrix product would spend most of its time on packing. */
    void (*linear)(const float *x, const float *weights, const float *bias, uint32_t n,
                   size_t features, uint32_t outputs, float *y);
    /* The gradients of a convolution with respect to its weights and its bias:
     *   weights[o][i][ky][kx] = sum of dy[o][y][x]
     *       * x[i][y * stride + ky - pad][x * stride + kx - pad]
     *   bias[o] = sum of dy[o][y][x]; NULL: there is no bias
     * `area`: the shape of dy. For shapes for which oneDNN has no vector code on a CPU: its general
     * code is a hundred times slower than this. */
    void (*conv_weights)(const struct cpu_area *area, const struct cpu_rows_conv *conv,
                         const float *x, const float *dy, float *weights, float *bias);
    /* n floats, padding included; y may be x, dx may be dy. */
    void (*relu)(const float *x, size_t n, float *y);
    void (*relu_backward)(const float *y, const float *dy, size_t n, float *dx);
    /* best: position of the maximum in its window, ky * kernel + kx, the first of several equal
     * ones; NULL in evaluation. */
    void (*max_pool)(const struct cpu_area *area, const struct cpu_pool_shape *pool, const float *x,
                     float *y, uint8_t *best);
    void (*max_pool_backward)(const struct cpu_area *area, const struct cpu_pool_shape *pool,
                              const uint8_t *best, const float *dy, float *dx);

    /* y = x rounded to the type, ties to even, kept as fp32; a NaN stays a NaN. y may be x. */
    void (*round_f16)(const float *x, size_t n, float *y);
    void (*round_bf16)(const float *x, size_t n, float *y);
};

extern const struct cpu_kernels cpu_kernels_generic; /* block 8 */
extern const struct cpu_kernels cpu_kernels_avx2;    /* block 8 */
extern const struct cpu_kernels cpu_kernels_avx512;  /* block 16 */

#endif
