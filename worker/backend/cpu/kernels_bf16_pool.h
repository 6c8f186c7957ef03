/* Pools on values that are stored in bf16, and copies of every n-th pixel of one:
 * [images][height][width][channels]. Rules: kernels_bf16.h. */
#ifndef WORKER_BACKEND_CPU_KERNELS_BF16_POOL_H
#define WORKER_BACKEND_CPU_KERNELS_BF16_POOL_H

#include <stddef.h>
#include <stdint.h>

struct cpu_pool_shape;

struct cpu_pixels {
    uint32_t images, height, width, channels; /* with a pool: of its input */
};

struct cpu_bf16_pool_kernels {
    /* As max_pool and max_pool_backward of kernels.h. All windows that share a pixel are added in
     * fp32, then the gradient is rounded. */
    void (*max_pool)(const struct cpu_pixels *in, const struct cpu_pool_shape *pool,
                     const uint16_t *x, uint16_t *y, uint8_t *best);
    void (*max_pool_backward)(const struct cpu_pixels *in, const struct cpu_pool_shape *pool,
                              const uint8_t *best, const uint16_t *dy, uint16_t *dx);
    /* y = mean over height and width, [images][channels]; backward: dx = dy / pixels. */
    void (*avg_pool)(const struct cpu_pixels *in, const uint16_t *x, uint16_t *y);
    void (*avg_pool_backward)(const struct cpu_pixels *in, const uint16_t *dy, uint16_t *dx);

    /* gather: y = every `step`-th row and column of x. scatter: the reverse; the pixels in between
     * become 0. */
    void (*gather)(const struct cpu_pixels *in, uint32_t step, const uint16_t *x, uint16_t *y);
    void (*scatter)(const struct cpu_pixels *in, uint32_t step, const uint16_t *y, uint16_t *x);
};

extern const struct cpu_bf16_pool_kernels cpu_kernels_generic_bf16_pool;
extern const struct cpu_bf16_pool_kernels cpu_kernels_avx2_bf16_pool;
extern const struct cpu_bf16_pool_kernels cpu_kernels_avx512_bf16_pool;

#endif
