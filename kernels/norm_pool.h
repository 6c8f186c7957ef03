/* Batch norm and the max pool after it as one kernel: the normalised value is never written to
 * memory. Common rules: kernels.h; statistics, sums and coefficients: batch_norm.h; windows:
 * layers.h.
 *
 *   forward:      norm_statistics -> norm_pool
 *   backward:     norm_pool_gradients -> norm_pool_backward_apply
 *   synchronised: norm_sums -> norm_finish -> norm_pool
 *                 norm_pool_backward_sums -> norm_backward_finish -> norm_pool_backward_apply
 *
 * norm->rows is images * height * width of the pool, channels and type are those of the pool.
 *
 * The norm and the ReLU keep or reverse the order of values. So a window's maximum is the norm of
 * its largest input, or of its smallest one where the channel's scale is negative: y has the bits of
 * norm_apply followed by max_pool. Where inputs differ and their norms round to the same value, this
 * kernel takes the outermost input, max_pool the first. The sums of backward are those of the
 * maxima, which forward keeps, before gradients of overlapping windows are added and rounded.
 *
 * Speed: bound by memory. Two separate kernels would write and read the normalised values once in
 * forward; in backward they would write their gradients once and read them twice, and read x twice.
 * This one reads and writes values of the pool's output instead, a quarter as many. */
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
 *   places: as y, u8: where x is taken from, as max_pool's `best`, or KERNEL_NORM_POOL_STOPPED
 *   kept:   as y: the x of each maximum
 * places and kept are NULL in evaluation. */
void kernel_norm_pool_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                          const void *x, const float *stats, void *y, uint8_t *places, void *kept);
int kernel_norm_pool(const struct kernel_norm *norm, const struct kernel_pool *pool, const void *x,
                     const float *stats, void *y, uint8_t *places, void *kept,
                     struct CUstream_st *stream);

/* For each channel: sum of d, sum of d * (kept - mean), over what is in y; d = dy, or 0 where the
 * ReLU stopped the maximum. dy has the shape of y. The number of rows is norm->rows.
 *   sums, scratch, counters: as in norm_sums */
void kernel_norm_pool_backward_sums_ref(const struct kernel_norm *norm,
                                        const struct kernel_pool *pool, const void *kept,
                                        const void *dy, const uint8_t *places, const float *stats,
                                        double *sums);
int kernel_norm_pool_backward_sums(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                   const void *kept, const void *dy, const uint8_t *places,
                                   const float *stats, double *sums, void *scratch,
                                   uint32_t *counters, struct CUstream_st *stream);

/* norm_pool_backward_sums and norm_backward_finish as one launch, for sums of this rank. */
void kernel_norm_pool_gradients_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                    const void *kept, const void *dy, const uint8_t *places,
                                    const float *stats, void *dgamma, void *dbeta, float *coefs,
                                    double *sums);
int kernel_norm_pool_gradients(const struct kernel_norm *norm, const struct kernel_pool *pool,
                               const void *kept, const void *dy, const uint8_t *places,
                               const float *stats, void *dgamma, void *dbeta, float *coefs,
                               double *sums, void *scratch, uint32_t *counters,
                               struct CUstream_st *stream);

/* norm_backward_apply, where d is the gradient that passes back through the pool and the ReLU,
 * rounded to the type. dx has the shape of x, and may be x. */
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
