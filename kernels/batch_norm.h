/* Batch norm over [rows][channels], with an optional addition and ReLU after it. Common rules:
 * kernels.h; layout and alignment: layers.h (NHWC, so rows = images * height * width).
 *
 * Used where cuDNN has no engine, and for synchronised batch norm everywhere.
 *
 *   forward:      norm_statistics -> norm_apply
 *   backward:     norm_gradients -> norm_backward_apply
 *   synchronised: norm_sums -> (all-reduce of the sums) -> norm_finish -> norm_apply
 *                 norm_backward_sums -> (all-reduce) -> norm_backward_finish -> norm_backward_apply
 *   evaluation:   norm_running -> norm_apply
 *
 * The sums are f64 and include the number of rows. So an all-reduce (sum) over ranks with different
 * batch sizes gives the statistics of the global batch.
 *
 * Accuracy: forward sums are taken relative to the channel's first value, backward sums relative to
 * its mean. Runs of 16 rows are added in f32, the runs in double. A mean far above the deviation
 * therefore costs no digits.
 *
 * Speed: bound by memory; x is read twice forward, x and dy twice backward. Each arrow above is one
 * launch: the block that ends last adds what the others have. The sums begin at the last row, what
 * reads x after them at the first, so part of x is still in the cache.
 *
 * Sources: Ioffe and Szegedy 2015, algorithm 1 and section 3. Running statistics as in
 * torch.nn.BatchNorm2d, which keeps the unbiased variance. */
#ifndef KERNELS_BATCH_NORM_H
#define KERNELS_BATCH_NORM_H

#include "kernels/layers.h" /* kernel_columns_bytes, KERNEL_COLUMNS_COUNTERS */
#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_norm {
    size_t rows;                 /* > 0; rows * channels / kernel_pack() is at most INT32_MAX */
    uint32_t channels;           /* a multiple of 4, > 0 */
    enum kernel_type type;       /* of x, y, dy, dx and the residual */
    enum kernel_type param_type; /* of gamma, beta and their gradients */
    enum kernel_type stats_type; /* running statistics are f32, rounded to this type */
    float eps, momentum;
    bool relu;
};

/* Rows of the table `stats`, f32 [KERNEL_NORM_STATS][channels], 16-byte aligned: made by
 * norm_finish or norm_running, read by norm_apply and the backward kernels. */
enum kernel_norm_stat {
    KERNEL_NORM_MEAN,
    KERNEL_NORM_INV_STD, /* 1 / sqrt(var + eps) */
    KERNEL_NORM_SCALE,   /* gamma * inv_std */
    KERNEL_NORM_BETA
};
#define KERNEL_NORM_STATS 4

/* Rows of the table `coefs`, f32 [KERNEL_NORM_COEFS][channels], 16-byte aligned: a, b and c of
 * norm_backward_apply. */
#define KERNEL_NORM_COEFS 3

/* Elements of `sums`, f64: [channels] first sums, [channels] second sums, the number of rows. */
static inline size_t kernel_norm_sum_count(uint32_t channels)
{
    return 2 * (size_t)channels + 1;
}

/* Bytes of `mask`: one byte for each kernel_pack() elements. Bit k is 1 where the ReLU let element
 * k pass. */
static inline size_t kernel_norm_mask_bytes(const struct kernel_norm *norm)
{
    return norm->rows * (norm->channels / kernel_pack(norm->type, norm->channels));
}

/* For each channel: sum over r of x, sum over r of x^2.
 *   x:        [rows][channels]
 *   sums:     kernel_norm_sum_count(channels) f64
 *   scratch:  kernel_columns_bytes(type, rows, channels, 2) bytes, 16-byte aligned
 *   counters: [KERNEL_COLUMNS_COUNTERS], 0 before and after */
void kernel_norm_sums_ref(const struct kernel_norm *norm, const void *x, double *sums);
int kernel_norm_sums(const struct kernel_norm *norm, const void *x, double *sums, void *scratch,
                     uint32_t *counters, struct CUstream_st *stream);

/* Batch statistics from sums, and the step of the running statistics, in double (n = rows):
 *   mean = sums_1 / n
 *   var  = max(0, sums_2 / n - mean^2)
 *   running_mean = (1 - momentum) * running_mean + momentum * mean
 *   running_var  = (1 - momentum) * running_var  + momentum * var * n / (n - 1)
 *   gamma, beta: [channels] of param_type
 *   running_mean, running_var: [channels] f32, updated in place; NULL: not kept
 *   stats: written */
void kernel_norm_finish_ref(const struct kernel_norm *norm, const double *sums, const void *gamma,
                            const void *beta, float *running_mean, float *running_var,
                            float *stats);
int kernel_norm_finish(const struct kernel_norm *norm, const double *sums, const void *gamma,
                       const void *beta, float *running_mean, float *running_var, float *stats,
                       struct CUstream_st *stream);

/* norm_sums and norm_finish as one launch, for statistics of this rank. sums: written. */
void kernel_norm_statistics_ref(const struct kernel_norm *norm, const void *x, const void *gamma,
                                const void *beta, float *running_mean, float *running_var,
                                float *stats, double *sums);
int kernel_norm_statistics(const struct kernel_norm *norm, const void *x, const void *gamma,
                           const void *beta, float *running_mean, float *running_var, float *stats,
                           double *sums, void *scratch, uint32_t *counters,
                           struct CUstream_st *stream);

/* stats from the running statistics, for evaluation. */
void kernel_norm_running_ref(const struct kernel_norm *norm, const void *gamma, const void *beta,
                             const float *running_mean, const float *running_var, float *stats);
int kernel_norm_running(const struct kernel_norm *norm, const void *gamma, const void *beta,
                        const float *running_mean, const float *running_var, float *stats,
                        struct CUstream_st *stream);

/* y = (x - mean) * scale + beta + residual;  with norm.relu: y = max(0, y)
 *   x, y, residual: [rows][channels]; residual NULL: 0; y may be x or residual
 *   mask: written where norm.relu; NULL: not needed */
void kernel_norm_apply_ref(const struct kernel_norm *norm, const void *x, const float *stats,
                           const void *residual, void *y, uint8_t *mask);
int kernel_norm_apply(const struct kernel_norm *norm, const void *x, const float *stats,
                      const void *residual, void *y, uint8_t *mask, struct CUstream_st *stream);

/* For each channel: sum over r of d, sum over r of d * (x - mean).
 *   d = dy where the mask bit is 1, else 0; mask NULL: d = dy
 *   sums, scratch, counters: as in norm_sums */
void kernel_norm_backward_sums_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                                   const uint8_t *mask, const float *stats, double *sums);
int kernel_norm_backward_sums(const struct kernel_norm *norm, const void *x, const void *dy,
                              const uint8_t *mask, const float *stats, double *sums, void *scratch,
                              uint32_t *counters, struct CUstream_st *stream);

/* Gradients of gamma and beta, and the coefficients of norm_backward_apply (n: rows of `all`):
 *   dgamma = own_2 * inv_std
 *   dbeta  = own_1
 *   a = scale
 *   b = -scale * inv_std^2 * all_2 / n
 *   c = -scale * all_1 / n
 *   own: the sums of this rank; DDP reduces dgamma and dbeta with the other gradients
 *   all: the sums over all ranks; without synchronisation the same as own
 *   dgamma, dbeta: [channels] of param_type, overwritten
 *   coefs: written */
void kernel_norm_backward_finish_ref(const struct kernel_norm *norm, const double *own,
                                     const double *all, const float *stats, void *dgamma,
                                     void *dbeta, float *coefs);
int kernel_norm_backward_finish(const struct kernel_norm *norm, const double *own,
                                const double *all, const float *stats, void *dgamma, void *dbeta,
                                float *coefs, struct CUstream_st *stream);

/* norm_backward_sums and norm_backward_finish as one launch, for sums of this rank. sums: written. */
void kernel_norm_gradients_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                               const uint8_t *mask, const float *stats, void *dgamma, void *dbeta,
                               float *coefs, double *sums);
int kernel_norm_gradients(const struct kernel_norm *norm, const void *x, const void *dy,
                          const uint8_t *mask, const float *stats, void *dgamma, void *dbeta,
                          float *coefs, double *sums, void *scratch, uint32_t *counters,
                          struct CUstream_st *stream);

/* dx    = a * d + b * (x - mean) + c
 * dskip = d, the gradient of the residual; NULL: not needed
 *   x, dy, dx, dskip: [rows][channels]; dx may be x or dy, dskip may be dy, dx is not dskip */
void kernel_norm_backward_apply_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                                    const uint8_t *mask, const float *stats, const float *coefs,
                                    void *dx, void *dskip);
int kernel_norm_backward_apply(const struct kernel_norm *norm, const void *x, const void *dy,
                               const uint8_t *mask, const float *stats, const float *coefs,
                               void *dx, void *dskip, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
