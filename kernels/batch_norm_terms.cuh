/* The sums of batch norm's backward pass over [rows][channels]: for each channel the sum of d and of
 * d * (x - mean), where d is the gradient of the norm's output. Whoever has it in another form (behind
 * a mask, or a pool) brings a type with
 *     __device__ void read(size_t element, float d[N]) const
 * for one pack of N channels that begins at `element`. */
#ifndef KERNELS_BATCH_NORM_TERMS_CUH
#define KERNELS_BATCH_NORM_TERMS_CUH

#include "kernels/batch_norm.h"
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

/* Where they go: [2][channels], then the number of rows. */
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

/* Both, as a launch. */
template <typename T, int N, typename Gradient>
static int batch_norm_launch_sums(const struct kernel_norm *norm, const void *x, const float *stats,
                                  const Gradient &gradient, double *sums, void *scratch,
                                  struct CUstream_st *stream)
{
    return columns_launch<2, N>(batch_norm_products<T, N, Gradient>{(const T *)x, stats, gradient},
                                batch_norm_sums{norm->rows, norm->channels, sums}, norm->rows,
                                norm->channels, scratch, stream);
}

#endif
