/* Batch norm over [rows][channels] (NHWC: rows = images * height * width), with an addition and a
 * ReLU behind it. The fallback where cuDNN has no engine, and synchronised batch norm everywhere.
 *
 * Forward:  norm_sums -> (all-reduce of the sums) -> norm_finish -> norm_apply
 * Backward: norm_backward_sums -> (all-reduce) -> norm_backward_finish -> norm_backward_apply
 * Evaluation: norm_running -> norm_apply.
 * The sums are f64 and hold their count, so that an all-reduce with sum over ranks of any batch
 * sizes gives the statistics of all. Both directions are bound by memory: x is read twice forward,
 * x and dy twice backward.
 *
 * Accuracy: values are taken relative to the channel's first (forward) or the mean (backward), runs
 * of 16 of them added in f32 and the runs in double, so that a mean far above the deviation costs
 * no digits. Rules on layouts, types, streams and equality with the twins: kernels_layers.h.
 * Sources: Ioffe and Szegedy 2015, algorithm 1 and section 3; torch.nn.BatchNorm2d for the running
 * statistics, whose variance is the unbiased one. */
#ifndef KERNELS_KERNELS_NORM_H
#define KERNELS_KERNELS_NORM_H

#include "kernels/kernels_layers.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_norm {
    size_t rows;
    uint32_t channels;           /* a multiple of 4 */
    enum kernel_type type;       /* of x, y, dy, dx, the residual */
    enum kernel_type param_type; /* of gamma, beta and their gradients */
    enum kernel_type stats_type; /* what running statistics, kept as f32, are rounded to */
    float eps, momentum;
    bool relu;
};

/* What finish works out and apply reads: f32 [4][channels], 16-byte aligned. */
enum kernel_norm_stat {
    KERNEL_NORM_MEAN,
    KERNEL_NORM_INV_STD,
    KERNEL_NORM_SCALE,
    KERNEL_NORM_BETA
};
#define KERNEL_NORM_STATS 4
/* Of backward: dx = A * dy + B * (x - mean) + C; f32 [3][channels], 16-byte aligned. */
#define KERNEL_NORM_COEFS 3
/* f64: a sum of each channel, a second one of each channel, the rows. */
static inline size_t kernel_norm_sum_count(uint32_t channels)
{
    return 2 * (size_t)channels + 1;
}
/* Bytes of the mask: one for each kernel_pack() of elements, bit k for element k: the ReLU let it
 * pass. */
static inline size_t kernel_norm_mask_bytes(const struct kernel_norm *norm)
{
    return norm->rows * (norm->channels / kernel_pack(norm->type, norm->channels));
}

/* sums = sum of x, sum of x^2, rows. scratch: kernel_columns_bytes(..., 2), 8-byte aligned. */
void kernel_norm_sums_ref(const struct kernel_norm *norm, const void *x, double *sums);
int kernel_norm_sums(const struct kernel_norm *norm, const void *x, double *sums, void *scratch,
                     struct CUstream_st *stream);

/* Batch statistics; the running ones (NULL: none) move towards them. In double. */
void kernel_norm_finish_ref(const struct kernel_norm *norm, const double *sums, const void *gamma,
                            const void *beta, float *running_mean, float *running_var,
                            float *stats);
int kernel_norm_finish(const struct kernel_norm *norm, const double *sums, const void *gamma,
                       const void *beta, float *running_mean, float *running_var, float *stats,
                       struct CUstream_st *stream);

/* The same out of running statistics. */
void kernel_norm_running_ref(const struct kernel_norm *norm, const void *gamma, const void *beta,
                             const float *running_mean, const float *running_var, float *stats);
int kernel_norm_running(const struct kernel_norm *norm, const void *gamma, const void *beta,
                        const float *running_mean, const float *running_var, float *stats,
                        struct CUstream_st *stream);

/* y = (x - mean) * scale + beta (+ residual, may be NULL), cut at 0 where norm.relu. mask: see
 * kernel_norm_mask_bytes, written where norm.relu and not NULL. y may be x or residual. */
void kernel_norm_apply_ref(const struct kernel_norm *norm, const void *x, const float *stats,
                           const void *residual, void *y, uint8_t *mask);
int kernel_norm_apply(const struct kernel_norm *norm, const void *x, const float *stats,
                      const void *residual, void *y, uint8_t *mask, struct CUstream_st *stream);

/* sums = sum of d, sum of d * (x - mean), rows; d = dy where the mask (NULL: everywhere) lets it
 * pass, else 0. */
void kernel_norm_backward_sums_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                                   const uint8_t *mask, const float *stats, double *sums);
int kernel_norm_backward_sums(const struct kernel_norm *norm, const void *x, const void *dy,
                              const uint8_t *mask, const float *stats, double *sums, void *scratch,
                              struct CUstream_st *stream);

/* dgamma, dbeta (written, param_type) from `own` sums, which DDP reduces with the other gradients;
 * coefs from `all`, those of every rank; one rank: the same. */
void kernel_norm_backward_finish_ref(const struct kernel_norm *norm, const double *own,
                                     const double *all, const float *stats, void *dgamma,
                                     void *dbeta, float *coefs);
int kernel_norm_backward_finish(const struct kernel_norm *norm, const double *own,
                                const double *all, const float *stats, void *dgamma, void *dbeta,
                                float *coefs, struct CUstream_st *stream);

/* dx, and in dskip (NULL: not wanted) the gradient d of what was added. dx and dskip may be dy, dx
 * may be x; dx is not dskip. */
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
