/* Residual additions and gradient accumulation. Bound by memory: for halves, 4 bytes are read and 2
 * written per element. */
#include "kernels/elements.cuh"
#include "kernels/elements.h"

namespace
{
template <bool RELU> struct sum {
    __device__ float operator()(float a, float b) const
    {
        const float y = a + b;

        return RELU && y <= 0.0F ? 0.0F : y;
    }
};
} // namespace

int kernel_add(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
               size_t count, struct CUstream_st *stream)
{
    return launch_typed(type, [=](auto value) {
        using T = decltype(value);

        if (relu)
            return elements_launch(sum<true>(), count, stream, (T *)y, (const T *)a, (const T *)b);
        return elements_launch(sum<false>(), count, stream, (T *)y, (const T *)a, (const T *)b);
    });
}

template <int N, typename T, typename F>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    accumulate(T *to, F *from, float scale, bool clear, size_t count)
{
    const size_t stride = (size_t)gridDim.x * LAUNCH_THREADS * N;
    const float zero[N] = {};

    for (size_t i = ((size_t)blockIdx.x * LAUNCH_THREADS + threadIdx.x) * N; i < count;
         i += stride) {
        const uint32_t n = (uint32_t)(count - i < N ? count - i : N);
        float sum[N], more[N];

        pack_read_some<N>((const T *)to, i, n, sum);
        pack_read_some<N>((const F *)from, i, n, more);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += scale * more[k];
        pack_write_some<N>(to, i, n, sum);
        if (clear)
            pack_write_some<N>(from, i, n, zero);
    }
}

int kernel_accumulate(void *to, enum kernel_type to_type, void *from, enum kernel_type from_type,
                      float scale, bool clear, size_t count, struct CUstream_st *stream)
{
    if (count == 0)
        return 0;
    return launch_typed(to_type, [=](auto t) {
        return launch_typed(from_type, [=](auto f) {
            using T = decltype(t);
            using F = decltype(f);
            constexpr int N = sizeof(T) == 2 || sizeof(F) == 2 ? 8 : 4;

            return launch(accumulate<N, T, F>, dim3(launch_blocks((count + N - 1) / N)), stream,
                          (T *)to, (F *)from, scale, clear, count);
        });
    });
}
