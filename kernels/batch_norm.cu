/* Batch norm forward. Bound by memory: for halves, norm_sums reads 2 bytes per element, norm_apply
 * reads 2 (4 with a residual) and writes 2 and a bit of mask. Values that are computed once per
 * channel take one thread, in double. */
#include "kernels/columns.cuh"
#include "kernels/batch_norm.h"
#include "kernels/batch_norm.cuh"

namespace
{
/* Terms of the forward sums, relative to the channel's first value. */
template <typename T, int N> struct moments {
    struct at {
        float shift[N];
    };
    const T *x;

    __device__ at begin(uint32_t channel) const
    {
        at at;

        pack_read<N>(x, channel, at.shift);
        return at;
    }
    __device__ void add(const at &at, size_t element, float sums[2][N]) const
    {
        float in[N];

        pack_read<N>(x, element, in);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float off = in[n] - at.shift[n];

            sums[0][n] += off;
            sums[1][n] += off * off;
        }
    }
};

/* Stores the sums of x and x^2. The input sums are relative to s, the channel's first value:
 *   sum x   = sum (x - s) + n s
 *   sum x^2 = sum (x - s)^2 + 2 s sum (x - s) + n s^2 */
template <typename T> struct unshifted {
    const T *x;
    size_t rows;
    uint32_t channels;
    double *sums;

    __device__ void operator()(uint32_t channel, const double in[2]) const
    {
        const double shift = as_float(x[channel]), count = (double)rows;

        sums[channel] = in[0] + count * shift;
        sums[channels + channel] = in[1] + 2.0 * shift * in[0] + count * shift * shift;
        if (channel == 0)
            sums[2 * (size_t)channels] = count;
    }
};
} // namespace

int kernel_norm_sums(const struct kernel_norm *norm, const void *x, double *sums, void *scratch,
                     struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        const unshifted<T> give = {(const T *)x, norm->rows, norm->channels, sums};

        return columns_launch<2, decltype(n)::value>(moments<T, decltype(n)::value>{(const T *)x},
                                                     give, norm->rows, norm->channels, scratch,
                                                     stream);
    });
}

/* `type` is an argument, not a template parameter, because each thread reads only one value. */
static __device__ float param_of(const void *params, enum kernel_type type, uint32_t i)
{
    return type == KERNEL_F32   ? ((const float *)params)[i]
           : type == KERNEL_F16 ? as_float(((const __half *)params)[i])
                                : as_float(((const __nv_bfloat16 *)params)[i]);
}

static __device__ float round_as(double value, enum kernel_type type)
{
    const float as_f32 = (float)value;

    return type == KERNEL_F32   ? as_f32
           : type == KERNEL_F16 ? __half2float(__float2half_rn(as_f32))
                                : __bfloat162float(__float2bfloat16_rn(as_f32));
}

static __device__ void write_stats(const struct kernel_norm &norm, uint32_t c, double mean,
                                   double var, const void *gamma, const void *beta, float *stats)
{
    const double inv_std = 1.0 / sqrt(var + (double)norm.eps);

    stats[KERNEL_NORM_MEAN * (size_t)norm.channels + c] = (float)mean;
    stats[KERNEL_NORM_INV_STD * (size_t)norm.channels + c] = (float)inv_std;
    stats[KERNEL_NORM_SCALE * (size_t)norm.channels + c] =
        (float)(param_of(gamma, norm.param_type, c) * inv_std);
    stats[KERNEL_NORM_BETA * (size_t)norm.channels + c] = param_of(beta, norm.param_type, c);
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    finish(const struct kernel_norm norm, const double *sums, const void *gamma, const void *beta,
           float *running_mean, float *running_var, float *stats)
{
    const uint32_t c = blockIdx.x * LAUNCH_THREADS + threadIdx.x;

    if (c >= norm.channels)
        return;

    const double count = sums[2 * (size_t)norm.channels], momentum = norm.momentum;
    const double mean = sums[c] / count;
    const double square = sums[norm.channels + c] / count - mean * mean;
    const double var = square < 0.0 ? 0.0 : square;
    const double unbiased = count > 1.0 ? var * count / (count - 1.0) : var;

    if (running_mean != NULL)
        running_mean[c] =
            round_as((1.0 - momentum) * running_mean[c] + momentum * mean, norm.stats_type);
    if (running_var != NULL)
        running_var[c] =
            round_as((1.0 - momentum) * running_var[c] + momentum * unbiased, norm.stats_type);
    write_stats(norm, c, mean, var, gamma, beta, stats);
}

int kernel_norm_finish(const struct kernel_norm *norm, const double *sums, const void *gamma,
                       const void *beta, float *running_mean, float *running_var, float *stats,
                       struct CUstream_st *stream)
{
    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch(finish, dim3(launch_blocks(norm->channels)), stream, *norm, sums, gamma, beta,
                  running_mean, running_var, stats);
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    running(const struct kernel_norm norm, const void *gamma, const void *beta,
            const float *running_mean, const float *running_var, float *stats)
{
    const uint32_t c = blockIdx.x * LAUNCH_THREADS + threadIdx.x;

    if (c < norm.channels)
        write_stats(norm, c, running_mean[c], running_var[c], gamma, beta, stats);
}

int kernel_norm_running(const struct kernel_norm *norm, const void *gamma, const void *beta,
                        const float *running_mean, const float *running_var, float *stats,
                        struct CUstream_st *stream)
{
    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch(running, dim3(launch_blocks(norm->channels)), stream, *norm, gamma, beta,
                  running_mean, running_var, stats);
}

template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    apply(size_t rows, uint32_t channels, bool relu, const T *x, const float *stats,
          const T *residual, T *y, uint8_t *mask)
{
    const uint32_t channel = batch_norm_channel<N>();
    float mean[N], scale[N], beta[N];

    if (channel >= channels)
        return;
    pack_read<N>(stats, KERNEL_NORM_MEAN * (size_t)channels + channel, mean);
    pack_read<N>(stats, KERNEL_NORM_SCALE * (size_t)channels + channel, scale);
    pack_read<N>(stats, KERNEL_NORM_BETA * (size_t)channels + channel, beta);
#pragma unroll 2
    for (size_t row = batch_norm_row(); row < rows; row += batch_norm_stride()) {
        const size_t at = row * channels + channel;
        float out[N], more[N] = {};
        uint32_t bits = 0;

        pack_read<N>(x, at, out);
        if (residual != NULL)
            pack_read<N>(residual, at, more);
#pragma unroll
        for (int n = 0; n < N; n++) {
            T rounded;

            out[n] = (out[n] - mean[n]) * scale[n] + beta[n];
            if (residual != NULL)
                out[n] += more[n];
            if (relu && out[n] <= 0.0F)
                out[n] = 0.0F;
            round_to(out[n], &rounded);
            bits |= (as_float(rounded) <= 0.0F ? 0U : 1U) << n; /* a NaN counts as positive */
        }
        pack_write<N>(y, at, out);
        if (relu && mask != NULL)
            mask[at / N] = (uint8_t)bits;
    }
}

int kernel_norm_apply(const struct kernel_norm *norm, const void *x, const float *stats,
                      const void *residual, void *y, uint8_t *mask, struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;

        return launch(apply<T, N>, batch_norm_grid(norm->rows, norm->channels, N), stream,
                      norm->rows, norm->channels, norm->relu, (const T *)x, stats,
                      (const T *)residual, (T *)y, mask);
    });
}
