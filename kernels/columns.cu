/* The gradient of a bias. Bound by memory: for halves, 2 bytes are read per element. */
#include "kernels/columns.cuh"
#include "kernels/layers.h"

namespace
{
template <typename T, int N> struct plain {
    struct at {
    };
    const T *x;

    __device__ at begin(uint32_t) const
    {
        return {};
    }
    __device__ void add(const at &, size_t element, float sums[1][N]) const
    {
        float in[N];

        pack_read<N>(x, element, in);
#pragma unroll
        for (int n = 0; n < N; n++)
            sums[0][n] += in[n];
    }
};

template <typename T> struct rounded {
    T *sums;

    __device__ void operator()(uint32_t channel, const double in[1]) const
    {
        round_to((float)in[0], &sums[channel]);
    }
};
} // namespace

int kernel_columns(const void *x, enum kernel_type type, size_t rows, uint32_t channels, void *sums,
                   enum kernel_type sums_type, void *scratch, struct CUstream_st *stream)
{
    if (channels % 4 != 0)
        return (int)cudaErrorInvalidValue;
    if (channels == 0)
        return 0;
    return launch_packed(type, channels, [=](auto t, auto n) {
        return launch_typed(sums_type, [=](auto s) {
            using T = decltype(t);
            using S = decltype(s);
            constexpr int N = decltype(n)::value;

            return columns_launch<1, N>(plain<T, N>{(const T *)x}, rounded<S>{(S *)sums}, rows,
                                        channels, scratch, stream);
        });
    });
}
