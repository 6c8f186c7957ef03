/* Batch norm's backward pass over [rows][channels]: the sums of d and of d * (x - mean) for each
 * channel, and what follows from them. d is the gradient of the norm's output. The caller provides d
 * through a type (one applies a mask, another goes back through a pool) with
 *     AT_ONCE                                                   rows that a thread asks for before it
 *                                                               uses the first one
 *     struct raw                                                one pack of d, as it is in memory
 *     __device__ raw load(uint32_t pack, bool is_there) const   there not: d = 0; `pack` may be read
 *     static __device__ void read(const raw &, float d[N]) */
#ifndef KERNELS_BATCH_NORM_TERMS_CUH
#define KERNELS_BATCH_NORM_TERMS_CUH

#include "kernels/batch_norm.cuh"
#include "kernels/columns.cuh"

template <typename T, int N, typename Gradient> struct batch_norm_products {
    static constexpr uint32_t AT_ONCE = Gradient::AT_ONCE;
    struct at {
        float mean[N];
    };
    struct raw {
        pack<T, N> x;
        typename Gradient::raw d;
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
    __device__ raw load(uint32_t pack, uint32_t first, bool is_there) const
    {
        const uint32_t i = is_there ? pack : first;

        return {pack_load<N>(x, i), gradient.load(i, is_there)};
    }
    __device__ void add(const at &at, const raw &raw, float sums[2][N]) const
    {
        float in[N], d[N];

        pack_floats(raw.x, in);
        Gradient::read(raw.d, d);
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

/* Where the gradients of a norm go. */
struct batch_norm_learned {
    const float *stats;
    void *dgamma, *dbeta;
    float *coefs;
};

static __device__ inline void batch_norm_write(double value, void *params, enum kernel_type type,
                                               uint32_t i)
{
    if (type == KERNEL_F32)
        ((float *)params)[i] = (float)value;
    else if (type == KERNEL_F16)
        round_to((float)value, &((__half *)params)[i]);
    else
        round_to((float)value, &((__nv_bfloat16 *)params)[i]);
}

/* Gradients of one channel, from its sums: of this rank, and of all. */
static __device__ inline void batch_norm_finish(const struct kernel_norm &norm,
                                                const struct batch_norm_learned &to, uint32_t c,
                                                const double own[2], const double all[2],
                                                double count)
{
    const size_t channels = norm.channels;
    const double inv_std = to.stats[KERNEL_NORM_INV_STD * channels + c];
    const double a = to.stats[KERNEL_NORM_SCALE * channels + c];

    batch_norm_write(own[1] * inv_std, to.dgamma, norm.param_type, c);
    batch_norm_write(own[0], to.dbeta, norm.param_type, c);
    to.coefs[c] = (float)a;
    to.coefs[channels + c] = (float)(-a * inv_std * inv_std * all[1] / count);
    to.coefs[2 * channels + c] = (float)(-a * all[0] / count);
}

/* Stores the sums and what follows from them. */
struct batch_norm_gradients {
    struct kernel_norm norm;
    struct batch_norm_sums sums;
    struct batch_norm_learned to;

    __device__ void operator()(uint32_t channel, const double in[2]) const
    {
        sums(channel, in);
        batch_norm_finish(norm, to, channel, in, in, (double)norm.rows);
    }
};

/* dx = a * d + b * (x - mean) + c, with the coefficients of kernel_norm_backward_finish. dskip = d;
 * NULL: not needed. */
template <typename T, int N, typename Gradient>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 2)
    batch_norm_apply(uint32_t rows, uint32_t packs, uint32_t width, const T *x,
                     const Gradient gradient, const float *stats, const float *coefs, T *dx,
                     T *dskip)
{
    constexpr uint32_t U = Gradient::AT_ONCE;
    const struct batch_norm_place place = batch_norm_place(width);
    const size_t channels = (size_t)packs * N, channel = (size_t)place.pack * N;
    float mean[N], a[N], b[N], c[N];

    if (place.pack >= packs)
        return;
    pack_read<N>(stats, KERNEL_NORM_MEAN * channels + channel, mean);
    pack_read<N>(coefs, channel, a);
    pack_read<N>(coefs, channels + channel, b);
    pack_read<N>(coefs, 2 * channels + channel, c);
    for (uint32_t row = place.row; row < rows; row += U * place.stride) {
        uint32_t at[U];
        pack<T, N> raw[U];
        typename Gradient::raw raw_d[U];

        batch_norm_packs<U>(place, row, rows, packs, at);
#pragma unroll
        for (uint32_t u = 0; u < U; u++) {
            raw[u] = pack_load<N>(x, at[u]);
            raw_d[u] = gradient.load(at[u], true);
        }
#pragma unroll
        for (uint32_t u = 0; u < U; u++) {
            float in[N], d[N];

            if (row + u * place.stride >= rows)
                break;
            pack_floats(raw[u], in);
            Gradient::read(raw_d[u], d);
            if (dskip != NULL)
                pack_write<N>(dskip, (size_t)at[u] * N, d);
#pragma unroll
            for (int n = 0; n < N; n++)
                in[n] = a[n] * d[n] + b[n] * (in[n] - mean[n]) + c[n];
            pack_write<N>(dx, (size_t)at[u] * N, in);
        }
    }
}

template <typename T, int N, typename Gradient>
static int batch_norm_launch_apply(const struct kernel_norm *norm, const void *x,
                                   const Gradient &gradient, const float *stats, const float *coefs,
                                   void *dx, void *dskip, struct CUstream_st *stream)
{
    const uint32_t rows = (uint32_t)norm->rows, packs = norm->channels / N;

    return launch(batch_norm_apply<T, N, Gradient>, batch_norm_grid(rows, packs, Gradient::AT_ONCE),
                  stream, rows, packs, batch_norm_width(packs), (const T *)x, gradient, stats,
                  coefs, (T *)dx, (T *)dskip);
}

#endif
