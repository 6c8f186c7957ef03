/* The mean over all pixels and its gradient. Bound by memory. Forward, a warp reads 512 adjacent
 * bytes of one pixel, then the same channels of the next. */
#include "kernels/layers.h"
#include "kernels/launch.cuh"

template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    forward(const T *x, T *y, size_t count, uint32_t pixels, uint32_t channels)
{
    const uint32_t packs = channels / N;

    for (size_t i = (size_t)blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * LAUNCH_THREADS) {
        const size_t at = i / packs * pixels * channels + i % packs * N;
        float sum[N] = {};

#pragma unroll 4
        for (uint32_t p = 0; p < pixels; p++) {
            float in[N];

            pack_read<N>(x, at + (size_t)p * channels, in);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += in[k];
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] /= (float)pixels;
        pack_write<N>(y, i * N, sum);
    }
}

template <typename T, int N>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    backward(const T *dy, T *dx, size_t count, uint32_t pixels, uint32_t channels)
{
    const uint32_t packs = channels / N;

    for (size_t i = (size_t)blockIdx.x * LAUNCH_THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * LAUNCH_THREADS) {
        float grad[N];

        pack_read<N>(dy, i / packs / pixels * channels + i % packs * N, grad);
#pragma unroll
        for (int k = 0; k < N; k++)
            grad[k] /= (float)pixels;
        pack_write<N>(dx, i * N, grad);
    }
}

/* f(t, n) as launch_packed() calls it; an error for a wrong shape, nothing for an empty one. */
template <typename F>
static int pool_packed(enum kernel_type type, uint32_t images, uint32_t pixels, uint32_t channels,
                       F f)
{
    if (channels % 4 != 0 || pixels == 0)
        return (int)cudaErrorInvalidValue;
    if (images == 0 || channels == 0)
        return 0;
    return launch_packed(type, channels, f);
}

int kernel_avg_pool(const void *x, void *y, enum kernel_type type, uint32_t images, uint32_t pixels,
                    uint32_t channels, struct CUstream_st *stream)
{
    return pool_packed(type, images, pixels, channels, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const size_t count = (size_t)images * (channels / N);

        return launch(forward<T, N>, dim3(launch_blocks(count)), stream, (const T *)x, (T *)y,
                      count, pixels, channels);
    });
}

int kernel_avg_pool_backward(const void *dy, void *dx, enum kernel_type type, uint32_t images,
                             uint32_t pixels, uint32_t channels, struct CUstream_st *stream)
{
    return pool_packed(type, images, pixels, channels, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const size_t count = (size_t)images * pixels * (channels / N);

        return launch(backward<T, N>, dim3(launch_blocks(count)), stream, (const T *)dy, (T *)dx,
                      count, pixels, channels);
    });
}
