/* Batch norm backward. Bound by memory: for halves, the sums read 4 bytes and a bit of mask per
 * element; apply reads the same and writes 2 bytes, 4 where dskip is written. */
#include "kernels/columns.cuh"
#include "kernels/batch_norm.cuh"
#include "kernels/batch_norm_terms.cuh"

namespace
{
/* d = dy where the mask bit is 1, else 0. */
template <typename T, int N> struct masked {
    static constexpr uint32_t AT_ONCE = 4;
    struct raw {
        pack<T, N> dy;
        uint32_t bits;
    };
    const T *dy;
    const uint8_t *mask; /* NULL: dy as it is */

    __device__ raw load(uint32_t pack, bool is_there) const
    {
        const uint32_t bits = mask != NULL ? mask[pack] : 0xff;

        return {pack_load<N>(dy, pack), is_there ? bits : 0};
    }
    static __device__ void read(const raw &raw, float d[N])
    {
        pack_floats(raw.dy, d);
#pragma unroll
        for (int n = 0; n < N; n++)
            d[n] = raw.bits >> n & 1 ? d[n] : 0.0F;
    }
};
} // namespace

int kernel_norm_backward_sums(const struct kernel_norm *norm, const void *x, const void *dy,
                              const uint8_t *mask, const float *stats, double *sums, void *scratch,
                              uint32_t *counters, struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const batch_norm_products<T, N, masked<T, N>> terms = {
            (const T *)x, stats, {(const T *)dy, mask}};

        return columns_launch<2, N>(terms, batch_norm_sums{norm->rows, norm->channels, sums},
                                    norm->rows, norm->channels, scratch, counters, stream);
    });
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    finish(const struct kernel_norm norm, const double *own, const double *all,
           const struct batch_norm_learned to)
{
    const uint32_t c = blockIdx.x * LAUNCH_THREADS + threadIdx.x;
    const size_t channels = norm.channels;

    if (c >= channels)
        return;

    const double own_sums[2] = {own[c], own[channels + c]};
    const double all_sums[2] = {all[c], all[channels + c]};

    batch_norm_finish(norm, to, c, own_sums, all_sums, all[2 * channels]);
}

int kernel_norm_backward_finish(const struct kernel_norm *norm, const double *own,
                                const double *all, const float *stats, void *dgamma, void *dbeta,
                                float *coefs, struct CUstream_st *stream)
{
    const struct batch_norm_learned to = {stats, dgamma, dbeta, coefs};

    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch(finish, dim3(launch_blocks(norm->channels)), stream, *norm, own, all, to);
}

int kernel_norm_gradients(const struct kernel_norm *norm, const void *x, const void *dy,
                          const uint8_t *mask, const float *stats, void *dgamma, void *dbeta,
                          float *coefs, double *sums, void *scratch, uint32_t *counters,
                          struct CUstream_st *stream)
{
    const batch_norm_gradients give = {
        *norm, {norm->rows, norm->channels, sums}, {stats, dgamma, dbeta, coefs}};

    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const batch_norm_products<T, N, masked<T, N>> terms = {
            (const T *)x, stats, {(const T *)dy, mask}};

        return columns_launch<2, N>(terms, give, norm->rows, norm->channels, scratch, counters,
                                    stream);
    });
}

int kernel_norm_backward_apply(const struct kernel_norm *norm, const void *x, const void *dy,
                               const uint8_t *mask, const float *stats, const float *coefs,
                               void *dx, void *dskip, struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;

        return batch_norm_launch_apply<T, N>(norm, x, masked<T, N>{(const T *)dy, mask}, stats,
                                             coefs, dx, dskip, stream);
    });
}
