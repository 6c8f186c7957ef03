/* Loops over values that are stored in bf16: channels last, [images][pixels][channels], without
 * padding. Arithmetic is fp32, sums end in double, and every bf16 that is written is rounded to
 * nearest even; a NaN stays a NaN. One table per instruction set. Results, including sums, are
 * bit-identical to those of kernels.h on the same numbers in fp32, rounded.
 *
 * Arrays of `channels` hold one number per channel. Deterministic, on the calling thread. */
#ifndef WORKER_BACKEND_CPU_KERNELS_BF16_H
#define WORKER_BACKEND_CPU_KERNELS_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_area;

struct cpu_rows {
    uint32_t images;
    size_t pixels; /* per image */
    uint32_t channels;
};

/* An addition after a norm. */
struct cpu_norm_add {
    const uint16_t *other; /* shape of x; NULL: none */
    bool rounds_norm;      /* round the norm's result before the addition */
};

/* What backward needs to know about the ReLU after a norm: no gradient flows where
 * x * scale + offset, rounded to bf16, is not above 0. scale NULL: there was no ReLU. */
struct cpu_norm_relu {
    const float *scale, *offset;
};

/* The coefficients of dx = a * d + b * (x - mean) + c. */
struct cpu_norm_dx {
    const float *mean, *a, *b, *c;
};

struct cpu_bf16_kernels {
    /* Per channel:  sum += x - shift,  squares += (x - shift)^2 */
    void (*norm_sums)(struct cpu_rows shape, const uint16_t *x, const float *shift, double *sum,
                      double *squares);
    /* y = x * scale + offset;  with `add`: + other;  with `relu`: max(0, y).  y may be x. */
    void (*norm_apply)(struct cpu_rows shape, const uint16_t *x, const float *scale,
                       const float *offset, const struct cpu_norm_add *add, bool relu, uint16_t *y);
    /* Per channel:  sum += d,  products += d * (x - mean),  where d = dy, 0 where the ReLU was 0 */
    void (*norm_backward_sums)(struct cpu_rows shape, const uint16_t *x,
                               const struct cpu_norm_relu *relu, const uint16_t *dy,
                               const float *mean, double *sum, double *products);
    /* The same with a fused addition. In place: dy = 0 where y is not above 0 (NULL: dy stays). */
    void (*norm_add_backward_sums)(struct cpu_rows shape, const uint16_t *x, const uint16_t *y,
                                   uint16_t *dy, const float *mean, double *sum, double *products);
    /* dx as above, with d = dy, 0 where the ReLU was 0; dx may be x or dy. */
    void (*norm_backward_apply)(struct cpu_rows shape, const uint16_t *x,
                                const struct cpu_norm_relu *relu, const uint16_t *dy,
                                const struct cpu_norm_dx *dx_of, uint16_t *dx);

    /* n elements; y may be a, b or x, dx may be dy. */
    void (*relu)(const uint16_t *x, size_t n, uint16_t *y);
    void (*relu_backward)(const uint16_t *y, const uint16_t *dy, size_t n, uint16_t *dx);
    void (*add)(const uint16_t *a, const uint16_t *b, bool relu, size_t n, uint16_t *y);
    void (*narrow)(const float *x, size_t n, uint16_t *y);
    void (*widen)(const uint16_t *x, size_t n, float *y);

    /* Between fp32 in channel blocks and bf16 channels last: pack rounds; unpack writes 0 to
     * padding channels. */
    void (*pack)(const struct cpu_area *area, uint32_t channels, const float *x, uint16_t *y);
    void (*unpack)(const struct cpu_area *area, uint32_t channels, const uint16_t *y, float *x);
};

extern const struct cpu_bf16_kernels cpu_kernels_generic_bf16;
extern const struct cpu_bf16_kernels cpu_kernels_avx2_bf16;
extern const struct cpu_bf16_kernels cpu_kernels_avx512_bf16;

#endif
