/* Conversions between values in memory (fp32 in channel blocks) and what bf16 primitives read
 * (bf16, NHWC). Nothing is rounded: the fp32 values are bf16 already, so their upper 16 bits are
 * kept. */
#ifndef WORKER_BACKEND_CPU_KERNELS_HALF_H
#define WORKER_BACKEND_CPU_KERNELS_HALF_H

#include <stddef.h>
#include <stdint.h>

struct cpu_area;

struct cpu_half_kernels {
    /* y = every `step`-th row and column of x, without padding channels.
     *   x: [images][blocks][height][width][block];  y: [images][rows][columns][channels] */
    void (*pack)(const struct cpu_area *area, uint32_t channels, uint32_t step, const float *x,
                 uint16_t *y);
    /* The reverse; padding channels and the pixels in between become 0. */
    void (*unpack)(const struct cpu_area *area, uint32_t channels, uint32_t step, const uint16_t *y,
                   float *x);
    /* n elements, in the same order. */
    void (*narrow)(const float *x, size_t n, uint16_t *y);
    void (*widen)(const uint16_t *y, size_t n, float *x);
};

extern const struct cpu_half_kernels cpu_kernels_generic_half;
extern const struct cpu_half_kernels cpu_kernels_avx2_half;
extern const struct cpu_half_kernels cpu_kernels_avx512_half;

#endif
