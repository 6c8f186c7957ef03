/* Between values as the CPU backend keeps them, fp32 in channel blocks, and 16 bits as a matrix
 * unit reads them: bf16, the channels of a pixel side by side. Nothing is rounded here: what is
 * narrowed must be bf16 already, only its upper halves are kept. */
#ifndef WORKER_BACKEND_CPU_CPU_KERNELS_LOW_H
#define WORKER_BACKEND_CPU_CPU_KERNELS_LOW_H

#include <stddef.h>
#include <stdint.h>

struct cpu_area;

struct cpu_low_kernels {
    /* x: [images][blocks][height][width][block]; y: every `step`-th row and column,
     * [images][rows][columns][channels], padding channels left out. */
    void (*pack)(const struct cpu_area *area, uint32_t channels, uint32_t step, const float *x,
                 uint16_t *y);
    /* The reverse, with 0 in padding channels and in the pixels between. */
    void (*unpack)(const struct cpu_area *area, uint32_t channels, uint32_t step, const uint16_t *y,
                   float *x);
    /* n elements as they lie. */
    void (*narrow)(const float *x, size_t n, uint16_t *y);
    void (*widen)(const uint16_t *y, size_t n, float *x);
};

extern const struct cpu_low_kernels cpu_kernels_generic_low;
extern const struct cpu_low_kernels cpu_kernels_avx2_low;
extern const struct cpu_low_kernels cpu_kernels_avx512_low;

#endif
