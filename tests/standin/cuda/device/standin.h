/* Enough of CUDA C++ to run the kernels of kernels/ on a CPU, for tests on machines without a GPU:
 * a .cu file compiled as C++ with this header in front. It finds wrong indices, wrong orders of
 * sums, missing barriers and races; it says nothing about speed.
 *
 * The threads of a block are coroutines, one block at a time, which block is the first and which the
 * last is drawn. Between two barriers they run one
 * after the other in an order that is drawn anew each time, so a kernel that needs a barrier and
 * has none gives a result that changes with the seed. A barrier or a shuffle that not all threads
 * reach aborts the program. Shared memory is static memory, filled with garbage for each launch's
 * first block only by what ran before. */
#ifndef TESTS_STANDIN_CUDA_DEVICE_STANDIN_H
#define TESTS_STANDIN_CUDA_DEVICE_STANDIN_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "kernels/half.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

using std::isfinite;

struct uint3 {
    uint32_t x, y, z;
};

struct dim3 {
    uint32_t x, y, z;

    constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

struct CUstream_st;
typedef struct CUstream_st *cudaStream_t;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

static inline cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

/* Runs every thread of every block; false where CUDA would refuse the shape. */
bool standin_launch(dim3 grid, dim3 block, void (*thread)(void *), void *user);
void standin_seed(uint64_t seed);
/* What the 32 lanes of the warp give, until this thread's next exchange; all of them must be there. */
const uint64_t *standin_exchange(uint64_t value);

template <typename... P, typename... A>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                      A &&...args)
{
    struct call {
        void (*kernel)(P...);
        std::tuple<std::remove_const_t<P>...> args;
    } call = {kernel, {static_cast<P>(args)...}};
    const auto thread = [](void *user) {
        const struct call *own = (const struct call *)user;

        std::apply(own->kernel, own->args);
    };

    return standin_launch(config->gridDim, config->blockDim, thread, &call)
               ? cudaSuccess
               : cudaErrorInvalidConfiguration;
}

void __syncthreads(void);

/* Blocks run one after the other, and a thread runs until it waits. */
static inline void __threadfence(void)
{
}
static inline uint32_t atomicAdd(uint32_t *at, uint32_t more)
{
    const uint32_t before = *at;

    *at = before + more;
    return before;
}

struct alignas(16) double2 {
    double x, y;
};
template <typename T> static inline T __ldcg(const T *at)
{
    return *at;
}

template <typename T> static inline T __shfl_xor_sync(unsigned, T value, int lane_mask)
{
    uint64_t bits = 0;

    static_assert(sizeof value <= sizeof bits, "up to 8 bytes");
    memcpy(&bits, &value, sizeof value);
    memcpy(&value, standin_exchange(bits) + ((threadIdx.x % 32) ^ (unsigned)lane_mask),
           sizeof value);
    return value;
}

static inline int __any_sync(unsigned, int claim)
{
    const uint64_t *all = standin_exchange(claim != 0);

    return std::any_of(all, all + 32, [](uint64_t one) { return one != 0; });
}

template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __half2float(__half value)
{
    return half_f16_to(value.bits);
}
static inline float __bfloat162float(__nv_bfloat16 value)
{
    return half_bf16_to(value.bits);
}
static inline __half __float2half_rn(float value)
{
    return {half_f16_from(value)};
}
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return {half_bf16_from(value)};
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return std::sqrt(a);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double a)
{
    return std::sqrt(a);
}
static inline float __double2float_rn(double a)
{
    return (float)a;
}
static inline float __frcp_rn(float a)
{
    return 1.0F / a;
}

#endif
