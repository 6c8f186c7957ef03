/* Shared by the kernels: launches, conversions, wide reads, sums over a block in a fixed order.
 *
 * Kernels are compiled with -fmad=false: a product and a sum are each rounded, as in the
 * references, so that both give the same bits. This costs no time, since the kernels are bound by
 * memory. */
#ifndef KERNELS_LAUNCH_CUH
#define KERNELS_LAUNCH_CUH

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/types.h"

constexpr uint32_t LAUNCH_THREADS = 256;
/* Most blocks of a grid-stride loop. A multiprocessor holds 2048 threads, so 108 of them (A100) to
 * 148 (B200) hold 864 to 1184 blocks at once. About four times as many blocks keep all
 * multiprocessors busy until near the end. */
constexpr uint32_t LAUNCH_BLOCKS_MAX = 4736;
constexpr uint32_t LAUNCH_GRID_Y_MAX = 65535; /* CUDA's limit on blocks along y */
constexpr uint32_t WARP = 32;
constexpr uint32_t WARPS = LAUNCH_THREADS / WARP;

/* kernel<<<grid, threads, 0, stream>>>(args...), in plain C++: the tests compile kernels for the CPU
 * too. Returns 0 or the CUDA error. */
template <typename... P, typename... A>
static int launch_wide(void (*kernel)(P...), dim3 grid, uint32_t threads, cudaStream_t stream,
                       A... args)
{
    cudaLaunchConfig_t config = {};

    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = stream;
    return (int)cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

template <typename... P, typename... A>
static int launch(void (*kernel)(P...), dim3 grid, cudaStream_t stream, A... args)
{
    return launch_wide(kernel, grid, LAUNCH_THREADS, stream, args...);
}

static inline uint32_t launch_blocks(size_t items)
{
    const size_t blocks = (items + LAUNCH_THREADS - 1) / LAUNCH_THREADS;

    return (uint32_t)(blocks < LAUNCH_BLOCKS_MAX ? blocks : LAUNCH_BLOCKS_MAX);
}

/* f(t), where t has the C++ type of `type`. */
template <typename F> static int launch_typed(enum kernel_type type, F f)
{
    if (type == KERNEL_F16)
        return f(__half());
    if (type == KERNEL_BF16)
        return f(__nv_bfloat16());
    return f(float());
}

/* f(t, n), where t has the C++ type of `type` and n::value is kernel_pack(type, channels). */
template <typename F> static int launch_packed(enum kernel_type type, uint32_t channels, F f)
{
    const bool is_wide = channels % 8 == 0;

    if (type == KERNEL_F32)
        return f(float(), std::integral_constant<int, 4>());
    if (type == KERNEL_F16)
        return is_wide ? f(__half(), std::integral_constant<int, 8>())
                       : f(__half(), std::integral_constant<int, 4>());
    return is_wide ? f(__nv_bfloat16(), std::integral_constant<int, 8>())
                   : f(__nv_bfloat16(), std::integral_constant<int, 4>());
}

static __device__ inline float as_float(float value)
{
    return value;
}
static __device__ inline float as_float(__half value)
{
    return __half2float(value);
}
static __device__ inline float as_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

static __device__ inline void round_to(float value, float *out)
{
    *out = value;
}
static __device__ inline void round_to(float value, __half *out)
{
    *out = __float2half_rn(value);
}
static __device__ inline void round_to(float value, __nv_bfloat16 *out)
{
    *out = __float2bfloat16_rn(value);
}

constexpr size_t pack_align(size_t bytes)
{
    return bytes < 16 ? bytes : 16;
}

/* N values side by side, read and written up to 16 bytes at once. */
template <typename T, int N> struct alignas(pack_align(sizeof(T) * N)) pack {
    T v[N];
};

/* Pack i of values as it is in memory: for loads that shall begin before the first one is used. */
template <int N, typename T>
static __device__ inline struct pack<T, N> pack_load(const T *values, uint32_t i) {
    return reinterpret_cast<const struct pack<T, N> *>(values)[i];
}

template <typename T, int N>
static __device__ inline void pack_floats(const struct pack<T, N> &in, float out[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        out[k] = as_float(in.v[k]);
}

/* out = values[i .. i + N), which must be there and aligned to the pack. */
template <int N, typename T>
static __device__ inline void pack_read(const T *values, size_t i, float out[N])
{
    const struct pack<T, N> in = *reinterpret_cast<const struct pack<T, N> *>(values + i);

    pack_floats(in, out); /* of a copy: through a reference they would be N loads */
}

template <int N, typename T>
static __device__ inline void pack_write(T *values, size_t i, const float in[N])
{
    struct pack<T, N> out;

#pragma unroll
    for (int k = 0; k < N; k++)
        round_to(in[k], &out.v[k]);
    *reinterpret_cast<struct pack<T, N> *>(values + i) = out;
}

/* The same for `n` values (1 to N) at any address: one wide access where all N are there and
 * aligned, else one by one. */
template <int N, typename T>
static __device__ inline void pack_read_some(const T *values, size_t i, uint32_t n, float out[N])
{
    if (n == N && reinterpret_cast<uintptr_t>(values + i) % alignof(struct pack<T, N>) == 0) {
        pack_read<N>(values, i, out);
        return;
    }
#pragma unroll
    for (uint32_t k = 0; k < N; k++)
        out[k] = k < n ? as_float(values[i + k]) : 0.0F;
}

template <int N, typename T>
static __device__ inline void pack_write_some(T *values, size_t i, uint32_t n, const float in[N])
{
    if (n == N && reinterpret_cast<uintptr_t>(values + i) % alignof(struct pack<T, N>) == 0) {
        pack_write<N>(values, i, in);
        return;
    }
#pragma unroll
    for (uint32_t k = 0; k < N; k++)
        if (k < n)
            round_to(in[k], &values[i + k]);
}

/* The sum over the block, in every thread, in the order that sums_block() in sums.h has. `shared`:
 * [WARPS]; may be used again when this returns. */
template <typename T> static __device__ inline T block_sum(T value, T *shared)
{
    T sum = 0;

    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffU, value, (int)step);
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = value;
    __syncthreads();
    for (uint32_t warp = 0; warp < WARPS; warp++)
        sum += shared[warp];
    __syncthreads();
    return sum;
}

#endif
