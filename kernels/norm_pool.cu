/* Batch norm and max pool as one. Bound by memory. Forward, a thread computes one pack of channels
 * of one pooled pixel and normalises every input of its window: up to nine loads, most of them from
 * the cache. Backward gathers over the windows that cover an input, once in the sums and once in
 * apply. */
#include "kernels/norm_pool.h"

#include "kernels/batch_norm.cuh"
#include "kernels/batch_norm_terms.cuh"
#include "kernels/columns.cuh"
#include "kernels/launch.cuh"

namespace
{
/* `places` of N channels: one byte each, the first channel in the lowest byte. */
template <int N> using bytes = std::conditional_t<N == 8, uint64_t, uint32_t>;

/* The pool's shape, for forward and backward. */
struct shape {
    uint32_t height, width, out_height, out_width, packs; /* packs of channels */
    uint32_t kernel, stride, pad;
};

/* The gradient that passes back through the pool and the ReLU, for one pack of the norm's input. */
template <typename T, int N> struct pooled {
    static constexpr uint32_t AT_ONCE = 1;
    struct raw {
        float d[N];
    };
    const T *dy;
    const uint8_t *places;
    struct shape shape;

    /* The windows that cover a coordinate: [*first, *last). */
    __device__ void windows_of(uint32_t at, uint32_t out, uint32_t *first, uint32_t *last) const
    {
        const uint32_t padded = at + shape.pad;

        *first = padded < shape.kernel ? 0 : (padded - shape.kernel) / shape.stride + 1;
        *last = min(padded / shape.stride + 1, out);
    }
    /* i: the pack in the norm's input. The sum is rounded as if it had been stored in memory. */
    __device__ raw load(uint32_t i, bool is_there) const
    {
        const uint32_t pixel = i / shape.packs;
        const uint32_t x = pixel % shape.width, line = pixel / shape.width;
        const uint32_t y = line % shape.height, image = line / shape.height;
        uint32_t y_first, y_last, x_first, x_last;
        float sum[N] = {};
        struct raw raw;

        windows_of(y, shape.out_height, &y_first, &y_last);
        windows_of(x, shape.out_width, &x_first, &x_last);
        for (uint32_t oy = y_first; oy < y_last; oy++)
            for (uint32_t ox = x_first; ox < x_last; ox++) {
                const size_t out =
                    ((((size_t)image * shape.out_height + oy) * shape.out_width + ox) *
                         shape.packs +
                     i % shape.packs) *
                    N;
                const uint32_t mine = (y + shape.pad - oy * shape.stride) * shape.kernel + x +
                                      shape.pad - ox * shape.stride;
                const bytes<N> where = *reinterpret_cast<const bytes<N> *>(places + out);
                float in[N];

                pack_read<N>(dy, out, in);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[k] += (where >> 8 * k & 0xff) == mine ? in[k] : 0.0F;
            }
#pragma unroll
        for (int k = 0; k < N; k++) {
            T rounded;

            round_to(sum[k], &rounded);
            raw.d[k] = is_there ? as_float(rounded) : 0.0F;
        }
        return raw;
    }
    static __device__ void read(const raw &raw, float d[N])
    {
#pragma unroll
        for (int k = 0; k < N; k++)
            d[k] = raw.d[k];
    }
};
} // namespace

/* Stores the maximum of each window, and which input it was. */
template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    forward(const struct shape shape, bool relu, const T *x, const float *stats, T *y,
            uint8_t *places)
{
    const uint32_t count = shape.out_height * shape.out_width * shape.packs;
    const uint32_t channels = shape.packs * N;
    const T *image = x + (size_t)blockIdx.y * shape.height * shape.width * channels;

    for (uint32_t i = blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < count;
         i += gridDim.x * LAUNCH_THREADS) {
        const uint32_t pixel = i / shape.packs, channel = i % shape.packs * N;
        const uint32_t oy = pixel / shape.out_width, ox = pixel % shape.out_width;
        const size_t out = ((size_t)blockIdx.y * count + i) * N;
        float mean[N], scale[N], beta[N], max[N] = {};
        bytes<N> where = 0;
        bool is_first = true;

        pack_read<N>(stats, KERNEL_NORM_MEAN * (size_t)channels + channel, mean);
        pack_read<N>(stats, KERNEL_NORM_SCALE * (size_t)channels + channel, scale);
        pack_read<N>(stats, KERNEL_NORM_BETA * (size_t)channels + channel, beta);
        for (uint32_t ky = 0; ky < shape.kernel; ky++)
            for (uint32_t kx = 0; kx < shape.kernel; kx++) {
                /* above the image: wraps to a huge row, skipped below */
                const uint32_t row = oy * shape.stride + ky - shape.pad;
                const uint32_t column = ox * shape.stride + kx - shape.pad;
                float in[N];

                if (row >= shape.height || column >= shape.width)
                    continue;
                pack_read<N>(image, ((size_t)row * shape.width + column) * channels + channel, in);
#pragma unroll
                for (int k = 0; k < N; k++) {
                    T rounded;

                    in[k] = (in[k] - mean[k]) * scale[k] + beta[k];
                    if (relu && in[k] <= 0.0F)
                        in[k] = 0.0F;
                    round_to(in[k], &rounded);
                    in[k] = as_float(rounded);
                    if (is_first || in[k] > max[k] || in[k] != in[k]) {
                        max[k] = in[k];
                        where &= ~((bytes<N>)0xff << 8 * k);
                        where |= (bytes<N>)(ky * shape.kernel + kx) << 8 * k;
                    }
                }
                is_first = false;
            }
#pragma unroll
        for (int k = 0; k < N; k++)
            if (relu && max[k] <= 0.0F)
                where |= (bytes<N>)KERNEL_NORM_POOL_STOPPED << 8 * k;
        pack_write<N>(y, out, max);
        if (places != NULL)
            *reinterpret_cast<bytes<N> *>(places + out) = where;
    }
}

/* Every window must touch the image, and packs are counted in 32 bits. */
static bool is_wrong(const struct kernel_norm *norm, const struct kernel_pool *pool)
{
    return batch_norm_is_wrong(norm) || norm->channels != pool->channels ||
           norm->type != pool->type ||
           norm->rows != (size_t)pool->images * pool->height * pool->width || pool->kernel == 0 ||
           pool->kernel > 15 || pool->stride == 0 || 2 * pool->pad > pool->kernel ||
           pool->out_height == 0 || pool->out_width == 0 || pool->images > LAUNCH_GRID_Y_MAX ||
           (size_t)pool->out_height * pool->stride >=
               (size_t)pool->height + pool->pad + pool->stride ||
           (size_t)pool->out_width * pool->stride >=
               (size_t)pool->width + pool->pad + pool->stride ||
           norm->rows > UINT32_MAX / (norm->channels / 4);
}

static struct shape shape_of(const struct kernel_pool *pool, uint32_t pack)
{
    return {pool->height,          pool->width,  pool->out_height, pool->out_width,
            pool->channels / pack, pool->kernel, pool->stride,     pool->pad};
}

int kernel_norm_pool(const struct kernel_norm *norm, const struct kernel_pool *pool, const void *x,
                     const float *stats, void *y, uint8_t *places, struct CUstream_st *stream)
{
    if (is_wrong(norm, pool))
        return (int)cudaErrorInvalidValue;
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const size_t count = (size_t)pool->out_height * pool->out_width * pool->channels / N;

        return launch(forward<T, N>, dim3(launch_blocks(count), pool->images), stream,
                      shape_of(pool, N), norm->relu, (const T *)x, stats, (T *)y, places);
    });
}

/* Calls f(t, n, gradient) as batch_norm_packed() does; `gradient` is a `pooled`. */
template <typename F>
static int pooled_packed(const struct kernel_norm *norm, const struct kernel_pool *pool,
                         const void *dy, const uint8_t *places, F f)
{
    if (is_wrong(norm, pool))
        return (int)cudaErrorInvalidValue;
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;

        return f(t, n, pooled<T, N>{(const T *)dy, places, shape_of(pool, N)});
    });
}

int kernel_norm_pool_backward_sums(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                   const void *x, const void *dy, const uint8_t *places,
                                   const float *stats, double *sums, void *scratch,
                                   uint32_t *counters, struct CUstream_st *stream)
{
    return pooled_packed(norm, pool, dy, places, [=](auto t, auto n, auto gradient) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const batch_norm_products<T, N, pooled<T, N>> terms = {(const T *)x, stats, gradient};

        return columns_launch<2, N>(terms, batch_norm_sums{norm->rows, norm->channels, sums},
                                    norm->rows, norm->channels, scratch, counters, stream);
    });
}

int kernel_norm_pool_backward_apply(const struct kernel_norm *norm, const struct kernel_pool *pool,
                                    const void *x, const void *dy, const uint8_t *places,
                                    const float *stats, const float *coefs, void *dx,
                                    struct CUstream_st *stream)
{
    return pooled_packed(norm, pool, dy, places, [=](auto t, auto n, auto gradient) {
        return batch_norm_launch_apply<decltype(t), decltype(n)::value>(norm, x, gradient, stats,
                                                                        coefs, dx, NULL, stream);
    });
}
