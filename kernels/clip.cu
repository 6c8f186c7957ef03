/* Gradient clipping. Bound by memory: 4 bytes are read per value, and 8 read and written if the
 * value changes. Nothing is copied to the host: the last launch reads the factor from the
 * scratch. */
#include "kernels/gradients.h"
#include "kernels/launch.cuh"

namespace
{
struct table {
    struct kernel_span spans[KERNEL_SPANS_MAX];
    uint32_t count;
};
} // namespace

/* Calls f(T *, count) with the span's type. */
template <typename F> static __device__ void with_type(const struct kernel_span &span, F f)
{
    if (span.type == KERNEL_F32)
        f((float *)span.values);
    else if (span.type == KERNEL_F16)
        f((__half *)span.values);
    else
        f((__nv_bfloat16 *)span.values);
}

/* Calls f(i, n) for this thread's share of `count` elements: `n` (1 to N) from index i. */
template <int N, typename F> static __device__ void share(size_t count, F f)
{
    const size_t stride = (size_t)gridDim.x * LAUNCH_THREADS * N;

    for (size_t i = ((size_t)blockIdx.x * LAUNCH_THREADS + threadIdx.x) * N; i < count; i += stride)
        f(i, (uint32_t)(count - i < N ? count - i : N));
}

/* Clips by value where bound > 0 and returns `sum` plus the squares of this thread's share. */
template <typename T>
static __device__ double clip_share(T *values, size_t count, float bound, double sum)
{
    constexpr int N = 16 / sizeof(T);

    share<N>(count, [&](size_t i, uint32_t n) {
        float in[N];

        pack_read_some<N>((const T *)values, i, n, in);
        if (bound > 0.0F) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                T rounded;

                in[k] = in[k] > bound ? bound : in[k] < -bound ? -bound : in[k];
                round_to(in[k], &rounded);
                in[k] = as_float(rounded);
            }
            pack_write_some<N>(values, i, n, in);
        }
#pragma unroll
        for (int k = 0; k < N; k++) /* in[k] is 0 from n on */
            sum += (double)in[k] * (double)in[k];
    });
    return sum;
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    clip_values(const __grid_constant__ struct table table, float value, const float *scale,
                const uint32_t *found, double *sums)
{
    __shared__ double shared[WARPS];
    double sum = 0.0;

    if (found != NULL && *found != 0)
        return;
    for (uint32_t s = 0; s < table.count; s++)
        with_type(table.spans[s], [&](auto *values) {
            sum = clip_share(values, table.spans[s].count, value * *scale, sum);
        });
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* One block: stores the factor for all values after the sums of the blocks. */
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    clip_factor(float norm, const float *scale, const uint32_t *found, double *sums)
{
    __shared__ double shared[WARPS];
    double sum = 0.0;

    if (found != NULL && *found != 0)
        return;
    for (uint32_t i = threadIdx.x; i < KERNEL_CLIP_BLOCKS; i += LAUNCH_THREADS)
        sum += sums[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        sums[KERNEL_CLIP_BLOCKS] = (double)norm / (sqrt(sum) / (double)*scale + 1e-6);
}

template <typename T> static __device__ void scale_share(T *values, size_t count, float factor)
{
    constexpr int N = 16 / sizeof(T);

    share<N>(count, [&](size_t i, uint32_t n) {
        float in[N];

        pack_read_some<N>((const T *)values, i, n, in);
#pragma unroll
        for (int k = 0; k < N; k++)
            in[k] *= factor;
        pack_write_some<N>(values, i, n, in);
    });
}

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    clip_scale(const __grid_constant__ struct table table, const uint32_t *found,
               const double *sums)
{
    const double factor = sums[KERNEL_CLIP_BLOCKS];

    if ((found != NULL && *found != 0) || factor >= 1.0)
        return;
    for (uint32_t s = 0; s < table.count; s++)
        with_type(table.spans[s],
                  [&](auto *values) { scale_share(values, table.spans[s].count, (float)factor); });
}

int kernel_clip(const struct kernel_span *spans, uint32_t span_count,
                const struct kernel_clip *clip, const float *scale, const uint32_t *found,
                void *scratch, struct CUstream_st *stream)
{
    double *sums = (double *)scratch;
    struct table table = {};
    int error;

    if (span_count > KERNEL_SPANS_MAX)
        return (int)cudaErrorInvalidValue;
    if (!(clip->value > 0.0F) && !(clip->norm > 0.0F))
        return 0;
    for (uint32_t s = 0; s < span_count; s++)
        table.spans[s] = spans[s];
    table.count = span_count;
    error = launch(clip_values, dim3(KERNEL_CLIP_BLOCKS), stream, table, clip->value, scale, found,
                   sums);
    if (error != 0 || !(clip->norm > 0.0F))
        return error;
    error = launch(clip_factor, dim3(1), stream, clip->norm, scale, found, sums);
    if (error != 0)
        return error;
    return launch(clip_scale, dim3(KERNEL_CLIP_BLOCKS), stream, table, found, (const double *)sums);
}
