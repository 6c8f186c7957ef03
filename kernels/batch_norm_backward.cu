/* Batch norm backward. Bound by memory: for halves, the sums read 4 bytes and a bit of mask per
 * element; apply reads the same and writes 2 bytes, 4 where dskip is written. */
#include "kernels/columns.cuh"
#include "kernels/batch_norm.cuh"
#include "kernels/batch_norm_terms.cuh"

namespace
{
/* d = dy where the mask bit is 1, else 0. */
template <typename T, int N> struct masked {
    const T *dy;
    const uint8_t *mask; /* NULL: dy as it is */

    __device__ void read(size_t element, float d[N]) const
    {
        pack_read<N>(dy, element, d);
        if (mask != NULL) {
            const uint32_t bits = mask[element / N];

#pragma unroll
            for (int n = 0; n < N; n++)
                d[n] = bits >> n & 1 ? d[n] : 0.0F;
        }
    }
};
} // namespace

int kernel_norm_backward_sums(const struct kernel_norm *norm, const void *x, const void *dy,
                              const uint8_t *mask, const float *stats, double *sums, void *scratch,
                              struct CUstream_st *stream)
{
    return batch_norm_packed(norm, [=](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;

        return batch_norm_launch_sums<T, N>(norm, x, stats, masked<T, N>{(const T *)dy, mask}, sums,
                                            scratch, stream);
    });
}

static __device__ void write_param(double value, void *params, enum kernel_type type, uint32_t i)
{
    if (type == KERNEL_F32)
        ((float *)params)[i] = (float)value;
    else if (type == KERNEL_F16)
        round_to((float)value, &((__half *)params)[i]);
    else
        round_to((float)value, &((__nv_bfloat16 *)params)[i]);
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    finish(const struct kernel_norm norm, const double *own, const double *all, const float *stats,
           void *dgamma, void *dbeta, float *coefs)
{
    const uint32_t c = blockIdx.x * LAUNCH_THREADS + threadIdx.x;
    const size_t channels = norm.channels;

    if (c >= channels)
        return;

    const double inv_std = stats[KERNEL_NORM_INV_STD * channels + c];
    const double a = stats[KERNEL_NORM_SCALE * channels + c], count = all[2 * channels];

    write_param(own[channels + c] * inv_std, dgamma, norm.param_type, c);
    write_param(own[c], dbeta, norm.param_type, c);
    coefs[c] = (float)a;
    coefs[channels + c] = (float)(-a * inv_std * inv_std * all[channels + c] / count);
    coefs[2 * channels + c] = (float)(-a * all[c] / count);
}

int kernel_norm_backward_finish(const struct kernel_norm *norm, const double *own,
                                const double *all, const float *stats, void *dgamma, void *dbeta,
                                float *coefs, struct CUstream_st *stream)
{
    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch(finish, dim3(launch_blocks(norm->channels)), stream, *norm, own, all, stats,
                  dgamma, dbeta, coefs);
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
