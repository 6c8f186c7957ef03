/* The gradient of a bias. Bound by memory: for halves, 2 bytes are read per element. */
#include "kernels/columns.cuh"
#include "kernels/layers.h"

namespace
{
template <typename T, int N> struct plain {
    static constexpr uint32_t AT_ONCE = 8;
    struct at {
    };
    using raw = pack<T, N>;
    const T *x;

    __device__ at begin(uint32_t) const
    {
        return {};
    }
    __device__ raw load(uint32_t pack, uint32_t, bool is_there) const
    {
        return is_there ? pack_load<N>(x, pack) : raw{};
    }
    __device__ void add(const at &, const raw &raw, float sums[1][N]) const
    {
        float in[N];

        pack_floats(raw, in);
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
                   enum kernel_type sums_type, void *scratch, uint32_t *counters,
                   struct CUstream_st *stream)
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
                                        channels, scratch, counters, stream);
        });
    });
}
