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
    static constexpr uint32_t AT_ONCE = 8;
    struct at {
        float shift[N];
    };
    using raw = pack<T, N>;
    const T *x;

    __device__ at begin(uint32_t channel) const
    {
        at at;

        pack_read<N>(x, channel, at.shift);
        return at;
    }
    /* The first row is the shift, so it adds 0. */
    __device__ raw load(uint32_t pack, uint32_t first, bool is_there) const
    {
        return pack_load<N>(x, is_there ? pack : first);
    }
    __device__ void add(const at &at, const raw &raw, float sums[2][N]) const
    {
        float in[N];

        pack_floats(raw, in);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float off = in[n] - at.shift[n];

            sums[0][n] += off;
            sums[1][n] += off * off;
        }
    }
};

/* Stores the sums of x and x^2, and returns them. The input sums are relative to s, the channel's
 * first value:
 *   sum x   = sum (x - s) + n s
 *   sum x^2 = sum (x - s)^2 + 2 s sum (x - s) + n s^2 */
template <typename T> struct unshifted {
    const T *x;
    size_t rows;
    uint32_t channels;
    double *sums;

    __device__ double2 operator()(uint32_t channel, const double in[2]) const
    {
        const double shift = as_float(x[channel]), count = (double)rows;
        const double2 out = {in[0] + count * shift,
                             in[1] + 2.0 * shift * in[0] + count * shift * shift};

        sums[channel] = out.x;
        sums[channels + channel] = out.y;
        if (channel == 0)
            sums[2 * (size_t)channels] = count;
        return out;
    }
};
} // namespace

int kernel_norm_sums(const struct kernel_norm *norm, const void *x, double *sums, void *scratch,
                     uint32_t *counters, struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const unshifted<T> give = {(const T *)x, norm->rows, norm->channels, sums};

        return columns_launch<2, N>(moments<T, N>{(const T *)x}, give, norm->rows, norm->channels,
                                    scratch, counters, stream);
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

/* Parameters and results of a norm in training. */
struct learned {
    const void *gamma, *beta;
    float *running_mean, *running_var, *stats;
};

/* Statistics of one channel, from its sums. */
static __device__ void finish_channel(const struct kernel_norm &norm, const struct learned &to,
                                      uint32_t c, double sum, double squares, double count)
{
    const double momentum = norm.momentum;
    const double mean = sum / count;
    const double square = squares / count - mean * mean;
    const double var = square < 0.0 ? 0.0 : square;
    const double unbiased = count > 1.0 ? var * count / (count - 1.0) : var;

    if (to.running_mean != NULL)
        to.running_mean[c] =
            round_as((1.0 - momentum) * to.running_mean[c] + momentum * mean, norm.stats_type);
    if (to.running_var != NULL)
        to.running_var[c] =
            round_as((1.0 - momentum) * to.running_var[c] + momentum * unbiased, norm.stats_type);
    write_stats(norm, c, mean, var, to.gamma, to.beta, to.stats);
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    finish(const struct kernel_norm norm, const double *sums, const struct learned to)
{
    const uint32_t c = blockIdx.x * LAUNCH_THREADS + threadIdx.x;

    if (c < norm.channels)
        finish_channel(norm, to, c, sums[c], sums[norm.channels + c],
                       sums[2 * (size_t)norm.channels]);
}

int kernel_norm_finish(const struct kernel_norm *norm, const double *sums, const void *gamma,
                       const void *beta, float *running_mean, float *running_var, float *stats,
                       struct CUstream_st *stream)
{
    const struct learned to = {gamma, beta, running_mean, running_var, stats};

    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch(finish, dim3(launch_blocks(norm->channels)), stream, *norm, sums, to);
}

namespace
{
template <typename T> struct finished {
    struct kernel_norm norm;
    struct unshifted<T> unshifted;
    struct learned to;

    __device__ void operator()(uint32_t channel, const double in[2]) const
    {
        const double2 sums = unshifted(channel, in);

        finish_channel(norm, to, channel, sums.x, sums.y, (double)norm.rows);
    }
};
} // namespace

int kernel_norm_statistics(const struct kernel_norm *norm, const void *x, const void *gamma,
                           const void *beta, float *running_mean, float *running_var, float *stats,
                           double *sums, void *scratch, uint32_t *counters,
                           struct CUstream_st *stream)
{
    const struct learned to = {gamma, beta, running_mean, running_var, stats};

    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const finished<T> give = {*norm, {(const T *)x, norm->rows, norm->channels, sums}, to};

        return columns_launch<2, N>(moments<T, N>{(const T *)x}, give, norm->rows, norm->channels,
                                    scratch, counters, stream);
    });
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

/* Rows that a thread asks for at once: with a residual twice as many bytes. */
template <bool ADDS> constexpr uint32_t APPLY_AT_ONCE = ADDS ? 2 : 4;

template <typename T, int N, bool ADDS>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 4)
    apply(uint32_t rows, uint32_t packs, uint32_t width, bool relu, const T *x, const float *stats,
          const T *residual, T *y, uint8_t *mask)
{
    constexpr uint32_t U = APPLY_AT_ONCE<ADDS>;
    const struct batch_norm_place place = batch_norm_place(width);
    const size_t channels = (size_t)packs * N;
    float mean[N], scale[N], beta[N];

    if (place.pack >= packs)
        return;
    pack_read<N>(stats, KERNEL_NORM_MEAN * channels + place.pack * N, mean);
    pack_read<N>(stats, KERNEL_NORM_SCALE * channels + place.pack * N, scale);
    pack_read<N>(stats, KERNEL_NORM_BETA * channels + place.pack * N, beta);
    for (uint32_t row = place.row; row < rows; row += U * place.stride) {
        uint32_t at[U];
        pack<T, N> in[U], more[U];

        batch_norm_packs<U>(place, row, rows, packs, at);
#pragma unroll
        for (uint32_t u = 0; u < U; u++) {
            in[u] = pack_load<N>(x, at[u]);
            if (ADDS)
                more[u] = pack_load<N>(residual, at[u]);
        }
#pragma unroll
        for (uint32_t u = 0; u < U; u++) {
            float out[N], add[N];
            uint32_t bits = 0;

            if (row + u * place.stride >= rows)
                break;
            pack_floats(in[u], out);
            if (ADDS)
                pack_floats(more[u], add);
#pragma unroll
            for (int n = 0; n < N; n++) {
                T rounded;

                out[n] = (out[n] - mean[n]) * scale[n] + beta[n];
                if (ADDS)
                    out[n] += add[n];
                if (relu && out[n] <= 0.0F)
                    out[n] = 0.0F;
                round_to(out[n], &rounded);
                bits |= (as_float(rounded) <= 0.0F ? 0U : 1U) << n; /* a NaN counts as positive */
            }
            pack_write<N>(y, (size_t)at[u] * N, out);
            if (relu && mask != NULL)
                mask[at[u]] = (uint8_t)bits;
        }
    }
}

int kernel_norm_apply(const struct kernel_norm *norm, const void *x, const float *stats,
                      const void *residual, void *y, uint8_t *mask, struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const uint32_t rows = (uint32_t)norm->rows, packs = norm->channels / N;
        const uint32_t at_once = residual != NULL ? APPLY_AT_ONCE<true> : APPLY_AT_ONCE<false>;

        return launch(residual != NULL ? apply<T, N, true> : apply<T, N, false>,
                      batch_norm_grid(rows, packs, at_once), stream, rows, packs,
                      batch_norm_width(packs), norm->relu, (const T *)x, stats, (const T *)residual,
                      (T *)y, mask);
    });
}
