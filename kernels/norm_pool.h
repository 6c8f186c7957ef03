/* Batch norm and the max pool after it as one kernel: the normalised value is never written to
 * memory. Common rules: kernels.h; statistics, sums and coefficients: batch_norm.h; windows:
 * layers.h.
 *
 *   forward:    norm_sums -> norm_finish -> norm_pool
 *   backward:   norm_pool_backward_sums -> norm_backward_finish -> norm_pool_backward_apply
 *
 * The results are bit-identical to those of norm_apply followed by max_pool, including the rounding
 * in between. norm->rows is images * height * width of the pool, channels and type are those of the
 * pool.
 *
 * Speed: bound by memory. Two separate kernels would write and read the normalised values once in
 * forward; in backward they would write their gradients once and read them twice. This one reads and
 * writes the pooled values instead, a quarter as many. */
#ifndef KERNELS_NORM_POOL_H
#define KERNELS_NORM_POOL_H

#include "kernels/batch_norm.h"
#include "kernels/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a window whose maximum the ReLU set to 0: no gradient goes back. */
#define KERNEL_NORM_POOL_STOPPED 255

/* y = max pool of v = (x - mean) * scale + beta;  with norm.relu: v = max(0, v)
 *   x:      [images][height][width][channels]
 *   y:      [images][out_height][out_width][channels]
 *   places: as y, u8: max_pool's `best`, or KERNEL_NORM_POOL_STOPPED; NULL in evaluation */
void kernel_norm_pool_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                          const void *x, const float *stats, void *y, uint8_t *places);
int kernel_norm_pool(const struct kernel_norm *norm, const struct kernel_pool *pool, const void *x,
                     const float *stats, void *y, uint8_t *places, struct CUstream_st *stream);

/* norm_backward_sums, where d is the gradient that passes back through the pool and the ReLU. dy
 * and places have the shape of y. */
void kernel_norm_pool_backward_sums_ref(const struct kernel_norm *norm,
                                        const struct kernel_pool *pool, const void *x,
                                        const void *dy, const uint8_t *places, const float *stats,
                                        double *sums);
int kernel_norm_pool_backward_sums(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                   const void *x, const void *dy, const uint8_t *places,
                                   const float *stats, double *sums, void *scratch,
                                   uint32_t *counters, struct CUstream_st *stream);

/* norm_backward_apply with the same d. dx has the shape of x, and may be x. */
void kernel_norm_pool_backward_apply_ref(const struct kernel_norm *norm,
                                         const struct kernel_pool *pool, const void *x,
                                         const void *dy, const uint8_t *places, const float *stats,
                                         const float *coefs, void *dx);
int kernel_norm_pool_backward_apply(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                    const void *x, const void *dy, const uint8_t *places,
                                    const float *stats, const float *coefs, void *dx,
                                    struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
