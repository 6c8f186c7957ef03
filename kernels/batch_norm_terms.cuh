/* Batch norm's backward pass over [rows][channels]: the sums of d and of d * (x - mean) for each
 * channel, and the gradients computed from them. d is the gradient of the norm's output. The caller
 * provides d through a type (one applies a mask, another goes back through a pool) with
 *     __device__ void read(size_t element, float d[N]) const
 * which reads one pack of N channels that begins at `element`. */
#ifndef KERNELS_BATCH_NORM_TERMS_CUH
#define KERNELS_BATCH_NORM_TERMS_CUH

#include "kernels/batch_norm.cuh"
#include "kernels/columns.cuh"

template <typename T, int N, typename Gradient> struct batch_norm_products {
    struct at {
        float mean[N];
    };
    const T *x;
    const float *stats;
    Gradient gradient;

    __device__ at begin(uint32_t channel) const
    {
        at at;

        static_assert(KERNEL_NORM_MEAN == 0, "the means come first");
        pack_read<N>(stats, channel, at.mean);
        return at;
    }
    __device__ void add(const at &at, size_t element, float sums[2][N]) const
    {
        float in[N], d[N];

        pack_read<N>(x, element, in);
        gradient.read(element, d);
#pragma unroll
        for (int n = 0; n < N; n++) {
            sums[0][n] += d[n];
            sums[1][n] += d[n] * (in[n] - at.mean[n]);
        }
    }
};

/* Stores the sums: [2][channels], then the number of rows. */
struct batch_norm_sums {
    size_t rows;
    uint32_t channels;
    double *sums;

    __device__ void operator()(uint32_t channel, const double in[2]) const
    {
        sums[channel] = in[0];
        sums[channels + channel] = in[1];
        if (channel == 0)
            sums[2 * (size_t)channels] = (double)rows;
    }
};

/* Launches the sums: batch_norm_products for the terms, batch_norm_sums for the result. */
template <typename T, int N, typename Gradient>
static int batch_norm_launch_sums(const struct kernel_norm *norm, const void *x, const float *stats,
                                  const Gradient &gradient, double *sums, void *scratch,
                                  struct CUstream_st *stream)
{
    return columns_launch<2, N>(batch_norm_products<T, N, Gradient>{(const T *)x, stats, gradient},
                                batch_norm_sums{norm->rows, norm->channels, sums}, norm->rows,
                                norm->channels, scratch, stream);
}

/* dx = a * d + b * (x - mean) + c, with the coefficients of kernel_norm_backward_finish. dskip = d;
 * NULL: not needed. */
template <typename T, int N, typename Gradient>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    batch_norm_apply(size_t rows, uint32_t channels, const T *x, const Gradient gradient,
                     const float *stats, const float *coefs, T *dx, T *dskip)
{
    const uint32_t channel = batch_norm_channel<N>();
    float mean[N], a[N], b[N], c[N];

    if (channel >= channels)
        return;
    pack_read<N>(stats, KERNEL_NORM_MEAN * (size_t)channels + channel, mean);
    pack_read<N>(coefs, channel, a);
    pack_read<N>(coefs, (size_t)channels + channel, b);
    pack_read<N>(coefs, 2 * (size_t)channels + channel, c);
    for (size_t row = batch_norm_row(); row < rows; row += batch_norm_stride()) {
        const size_t at = row * channels + channel;
        float in[N], d[N];

        pack_read<N>(x, at, in);
        gradient.read(at, d);
        if (dskip != NULL)
            pack_write<N>(dskip, at, d);
#pragma unroll
        for (int n = 0; n < N; n++)
            in[n] = a[n] * d[n] + b[n] * (in[n] - mean[n]) + c[n];
        pack_write<N>(dx, at, in);
    }
}

template <typename T, int N, typename Gradient>
static int batch_norm_launch_apply(const struct kernel_norm *norm, const void *x,
                                   const Gradient &gradient, const float *stats, const float *coefs,
                                   void *dx, void *dskip, struct CUstream_st *stream)
{
    return launch(batch_norm_apply<T, N, Gradient>, batch_norm_grid(norm->rows, norm->channels, N),
                  stream, norm->rows, norm->channels, (const T *)x, gradient, stats, coefs, (T *)dx,
                  (T *)dskip);
}

#endif
