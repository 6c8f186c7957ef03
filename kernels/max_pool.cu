/* Max pools. Bound by memory. A thread computes one pack of channels of one pixel; overlapping
 * windows hit the cache. Backward gathers over the windows that cover an input, which needs no
 * atomics. */
#include "kernels/layers.h"
#include "kernels/launch.cuh"

namespace
{
/* `best` of N channels: one byte each, the first channel in the lowest byte. */
template <int N> using places = std::conditional_t<N == 8, uint64_t, uint32_t>;

/* A pixel and the first of the channels that a thread handles. */
struct place {
    uint32_t y, x, channel;
};
} // namespace

template <int N> static __device__ struct place place_of(uint32_t i, uint32_t width, uint32_t packs)
{
    const uint32_t pixel = i / packs;

    return {pixel / width, pixel % width, (i % packs) * N};
}

template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    forward(const struct kernel_pool pool, const T *x, T *y, uint8_t *best)
{
    const uint32_t packs = pool.channels / N, count = pool.out_height * pool.out_width * packs;
    const T *image = x + (size_t)blockIdx.y * pool.height * pool.width * pool.channels;

    for (uint32_t i = blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < count;
         i += gridDim.x * LAUNCH_THREADS) {
        const struct place at = place_of<N>(i, pool.out_width, packs);
        const size_t out = ((size_t)blockIdx.y * count + i) * N;
        float max[N] = {};
        places<N> where = 0;
        bool is_first = true;

        for (uint32_t ky = 0; ky < pool.kernel; ky++)
            for (uint32_t kx = 0; kx < pool.kernel; kx++) {
                const uint32_t row =
                    at.y * pool.stride + ky -
                    pool.pad; /* above the image: wraps to a huge row, skipped below */
                const uint32_t column = at.x * pool.stride + kx - pool.pad;
                float in[N];

                if (row >= pool.height || column >= pool.width)
                    continue;
                pack_read<N>(image,
                             ((size_t)row * pool.width + column) * pool.channels + at.channel, in);
#pragma unroll
                for (int k = 0; k < N; k++)
                    if (is_first || in[k] > max[k] || in[k] != in[k]) {
                        max[k] = in[k];
                        where &= ~((places<N>)0xff << 8 * k);
                        where |= (places<N>)(ky * pool.kernel + kx) << 8 * k;
                    }
                is_first = false;
            }
        pack_write<N>(y, out, max);
        if (best != NULL)
            *reinterpret_cast<places<N> *>(best + out) = where;
    }
}

/* The windows that cover a coordinate: [*first, *last). */
static __device__ void windows_of(uint32_t at, const struct kernel_pool &pool, uint32_t out,
                                  uint32_t *first, uint32_t *last)
{
    const uint32_t padded = at + pool.pad;

    *first = padded < pool.kernel ? 0 : (padded - pool.kernel) / pool.stride + 1;
    *last = min(padded / pool.stride + 1, out);
}

template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    backward(const struct kernel_pool pool, const T *dy, const uint8_t *best, T *dx)
{
    const uint32_t packs = pool.channels / N, count = pool.height * pool.width * packs;
    const size_t image = (size_t)blockIdx.y * pool.out_height * pool.out_width * pool.channels;

    for (uint32_t i = blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < count;
         i += gridDim.x * LAUNCH_THREADS) {
        const struct place at = place_of<N>(i, pool.width, packs);
        uint32_t y_first, y_last, x_first, x_last;
        float sum[N] = {};

        windows_of(at.y, pool, pool.out_height, &y_first, &y_last);
        windows_of(at.x, pool, pool.out_width, &x_first, &x_last);
        for (uint32_t oy = y_first; oy < y_last; oy++)
            for (uint32_t ox = x_first; ox < x_last; ox++) {
                const size_t out =
                    image + ((size_t)oy * pool.out_width + ox) * pool.channels + at.channel;
                const uint32_t mine = (at.y + pool.pad - oy * pool.stride) * pool.kernel + at.x +
                                      pool.pad - ox * pool.stride;
                const places<N> where = *reinterpret_cast<const places<N> *>(best + out);
                float in[N];

                pack_read<N>(dy, out, in);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum[k] += (where >> 8 * k & 0xff) == mine ? in[k] : 0.0F;
            }
        pack_write<N>(dx, ((size_t)blockIdx.y * count + i) * N, sum);
    }
}

/* Every window must touch the image, and an image's elements fit 31 bits. */
static bool is_wrong(const struct kernel_pool *pool)
{
    return pool->channels % 4 != 0 || pool->kernel == 0 || pool->kernel > 15 || pool->stride == 0 ||
           2 * pool->pad > pool->kernel || pool->images > LAUNCH_GRID_Y_MAX ||
           (size_t)pool->out_height * pool->stride >=
               (size_t)pool->height + pool->pad + pool->stride ||
           (size_t)pool->out_width * pool->stride >=
               (size_t)pool->width + pool->pad + pool->stride ||
           (size_t)pool->height * pool->width * pool->channels > INT32_MAX ||
           (size_t)pool->out_height * pool->out_width * pool->channels > INT32_MAX;
}

/* f(t, n) as launch_packed() calls it; an error for a wrong shape, nothing for an empty one. */
template <typename F> static int pool_packed(const struct kernel_pool *pool, size_t count, F f)
{
    if (is_wrong(pool))
        return (int)cudaErrorInvalidValue;
    if (pool->images == 0 || count == 0)
        return 0;
    return launch_packed(pool->type, pool->channels, f);
}

int kernel_max_pool(const struct kernel_pool *pool, const void *x, void *y, uint8_t *best,
                    struct CUstream_st *stream)
{
    const size_t count = (size_t)pool->out_height * pool->out_width * pool->channels;

    return pool_packed(pool, count, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;

        return launch(forward<T, N>, dim3(launch_blocks(count / N), pool->images), stream, *pool,
                      (const T *)x, (T *)y, best);
    });
}

int kernel_max_pool_backward(const struct kernel_pool *pool, const void *dy, const uint8_t *best,
                             void *dx, struct CUstream_st *stream)
{
    const size_t count = (size_t)pool->height * pool->width * pool->channels;

    return pool_packed(pool, count, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;

        return launch(backward<T, N>, dim3(launch_blocks(count / N), pool->images), stream, *pool,
                      (const T *)dy, best, (T *)dx);
    });
}
