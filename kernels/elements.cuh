/* Element-wise kernels: y[i] = op(x[i]) or op(x[i], z[i]). Reads and writes 16 bytes at once where
 * the addresses allow it. Any count, any alignment; y may be one of the inputs. */
#ifndef KERNELS_ELEMENTS_CUH
#define KERNELS_ELEMENTS_CUH

#include "kernels/launch.cuh"

template <int N, typename Op, typename Y, typename... X>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    elements(const Op op, size_t count, Y *y, const X *...x)
{
    const size_t stride = (size_t)gridDim.x * LAUNCH_THREADS * N;

    for (size_t i = ((size_t)blockIdx.x * LAUNCH_THREADS + threadIdx.x) * N; i < count;
         i += stride) {
        const uint32_t n = (uint32_t)(count - i < N ? count - i : N);
        float in[sizeof...(X)][N], out[N];
        int k = 0;

        (pack_read_some<N>(x, i, n, in[k++]), ...);
#pragma unroll
        for (int e = 0; e < N; e++)
            if constexpr (sizeof...(X) == 1)
                out[e] = op(in[0][e]);
            else
                out[e] = op(in[0][e], in[1][e]);
        pack_write_some<N>(y, i, n, out);
    }
}

template <typename Op, typename Y, typename... X>
static int elements_launch(Op op, size_t count, cudaStream_t stream, Y *y, const X *...x)
{
    constexpr bool has_halves = sizeof(Y) == 2 || ((sizeof(X) == 2) || ...);
    constexpr int N = has_halves ? 8 : 4;

    if (count == 0)
        return 0;
    return launch(elements<N, Op, Y, X...>, dim3(launch_blocks((count + N - 1) / N)), stream, op,
                  count, y, x...);
}

#endif
