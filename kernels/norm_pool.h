/* Batch norm and the max pool after it as one: the normalised value is never in memory. Common rules:
 * kernels.h; statistics, sums and coefficients: batch_norm.h; windows: layers.h.
 *
 *   forward:    norm_sums -> norm_finish -> norm_pool
 *   backward:   norm_pool_backward_sums -> norm_backward_finish -> norm_pool_backward_apply
 *
 * To the bit what norm_apply and max_pool make one after the other, rounding in between included.
 * norm->rows is images * height * width of the pool, channels and type are those of the pool.
 *
 * Speed: bound by memory. Of values v, the norm's input, the two kernels apart write v and read it
 * forward, and write v and read it twice backward; here are the pooled values instead, a quarter.
 */
#ifndef KERNELS_NORM_POOL_H
#define KERNELS_NORM_POOL_H

#include "kernels/batch_norm.h"
#include "kernels/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A place where the ReLU let nothing through: no gradient goes back. */
#define KERNEL_NORM_POOL_STOPPED 255

/* y = max pool of (x - mean) * scale + beta, with norm.relu of max(0, that).
 *   x:      [images][height][width][channels]
 *   y:      [images][out_height][out_width][channels]
 *   places: as y, u8: max_pool's `best`, or KERNEL_NORM_POOL_STOPPED; NULL in evaluation */
void kernel_norm_pool_ref(const struct kernel_norm *norm, const struct kernel_pool *pool,
                          const void *x, const float *stats, void *y, uint8_t *places);
int kernel_norm_pool(const struct kernel_norm *norm, const struct kernel_pool *pool, const void *x,
                     const float *stats, void *y, uint8_t *places, struct CUstream_st *stream);

/* norm_backward_sums, d being what comes back through the pool and the ReLU.
 *   dy, places: as y */
void kernel_norm_pool_backward_sums_ref(const struct kernel_norm *norm,
                                        const struct kernel_pool *pool, const void *x,
                                        const void *dy, const uint8_t *places, const float *stats,
                                        double *sums);
int kernel_norm_pool_backward_sums(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                   const void *x, const void *dy, const uint8_t *places,
                                   const float *stats, double *sums, void *scratch,
                                   struct CUstream_st *stream);

/* norm_backward_apply, with that d.
 *   dx: as x, and may be x */
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
