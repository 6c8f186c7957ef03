/* One launch over many tensors: the table travels in the kernel's parameters, each block takes one
 * chunk of one tensor.
 *
 * A launch per tensor was refused: ResNet-50 has 161 of them, most with fewer elements than one
 * block handles. A table in device memory was refused too: it would need a copy and a life of its
 * own. 64 tensors keep the parameters under the 4 KiB that every architecture takes; more tensors
 * are more launches. */
#ifndef KERNELS_MULTI_CUH
#define KERNELS_MULTI_CUH

#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/kernels.h"
#include "kernels/launch.cuh"

constexpr uint32_t MULTI_TENSORS_MAX = 64;
constexpr uint32_t MULTI_THREADS = 256;
constexpr uint32_t MULTI_PACK = 4; /* elements that a thread reads at once */
constexpr uint32_t MULTI_CHUNK = MULTI_THREADS * MULTI_PACK * 4; /* elements of a block */

template <typename T> struct multi_table {
    T tensors[MULTI_TENSORS_MAX];
    uint32_t chunk_first[MULTI_TENSORS_MAX +
                         1]; /* the first block of each tensor; behind the last: the grid */
    uint32_t tensor_count;
};

/* Fill `table` from tensors[0 .. count) and say how many it took; empty tensors are left out. At
 * least one is taken, a tensor has fewer than 2^31 chunks (8 Ti elements). */
template <typename T>
static uint32_t multi_take(const T *tensors, uint32_t count, struct multi_table<T> *table)
{
    uint32_t taken = 0;
    uint64_t chunks = 0;

    table->tensor_count = 0;
    for (; taken < count && table->tensor_count < MULTI_TENSORS_MAX; taken++) {
        uint64_t more = (tensors[taken].count + MULTI_CHUNK - 1) / MULTI_CHUNK;

        if (more == 0)
            continue;
        if (table->tensor_count > 0 && chunks + more > INT32_MAX)
            break;
        table->tensors[table->tensor_count] = tensors[taken];
        table->chunk_first[table->tensor_count++] = (uint32_t)chunks;
        chunks += more;
    }
    table->chunk_first[table->tensor_count] = (uint32_t)chunks;
    return taken;
}

template <typename... P, typename... A>
static int multi_launch(void (*kernel)(P...), uint32_t grid, cudaStream_t stream, A... args)
{
    static_assert(MULTI_THREADS == LAUNCH_THREADS, "one size of block");
    return launch(kernel, dim3(grid), stream, args...);
}

/* The tensor of this block: the last one whose first chunk is not behind it. */
template <typename T> static __device__ uint32_t multi_find(const struct multi_table<T> &table)
{
    uint32_t low = 0, high = table.tensor_count;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (table.chunk_first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename T> struct alignas(sizeof(T) * MULTI_PACK) multi_pack {
    T v[MULTI_PACK];
};

template <typename T> static __device__ bool multi_is_aligned(const T *values)
{
    return (reinterpret_cast<uintptr_t>(values) % sizeof(struct multi_pack<T>)) == 0;
}

/* out = values[i ...], `n` (1 to 4) of them: one wide read where all four are there and aligned. */
template <typename T>
static __device__ void multi_read(const T *values, size_t i, uint32_t n, T out[MULTI_PACK])
{
    if (n == MULTI_PACK && multi_is_aligned(values + i)) {
        *reinterpret_cast<struct multi_pack<T> *>(out) =
            *reinterpret_cast<const struct multi_pack<T> *>(values + i);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        out[k] = values[i + k];
}

template <typename T>
static __device__ void multi_write(T *values, size_t i, uint32_t n, const T in[MULTI_PACK])
{
    if (n == MULTI_PACK && multi_is_aligned(values + i)) {
        *reinterpret_cast<struct multi_pack<T> *>(values + i) =
            *reinterpret_cast<const struct multi_pack<T> *>(in);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        values[i + k] = in[k];
}

static __device__ inline float multi_float(float value)
{
    return value;
}
static __device__ inline float multi_float(__half value)
{
    return __half2float(value);
}
static __device__ inline float multi_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

static __device__ inline void multi_round(float value, __half *out)
{
    *out = __float2half_rn(value);
}
static __device__ inline void multi_round(float value, __nv_bfloat16 *out)
{
    *out = __float2bfloat16_rn(value);
}

#endif
