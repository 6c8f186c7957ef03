/* Sums over rows on the device, in the order of columns.h. The caller's `source` computes the
 * terms: K sums for each channel of a pack.
 *
 * To reach the memory's rate, a multiprocessor needs some 25 KB of loads on their way at all times:
 * 23 bytes a nanosecond for a latency of about a microsecond. It holds one block of 16 warps here,
 * and each thread asks for S::AT_ONCE rows before it uses the first one: 64 KB. So loads have no
 * condition: a row that is not there is replaced by one that adds nothing. */
#ifndef KERNELS_COLUMNS_CUH
#define KERNELS_COLUMNS_CUH

#include "kernels/columns.h"
#include "kernels/launch.cuh"

constexpr uint32_t COLUMNS_MERGE_AT_ONCE = 12;

/* Whether this block is the last of its slice to get here. The parts that blocks wrote before are
 * then visible to it. `counter` becomes 0 again. */
static __device__ inline bool columns_is_last(uint32_t *counter)
{
    __shared__ bool is_last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = gridDim.y == 1 || atomicAdd(counter, 1U) == gridDim.y - 1;
        if (is_last && gridDim.y > 1)
            *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

/* The sums of this thread's lane. `packs`: in a row. */
template <int K, int N, typename S>
static __device__ inline void columns_lane(const S &source, uint32_t rows, uint32_t packs,
                                           uint32_t width, double total[K][N])
{
    constexpr uint32_t U = S::AT_ONCE;
    const uint32_t first = blockIdx.x * width + threadIdx.x % width;
    const uint32_t lanes = COLUMNS_THREADS / width, stride = gridDim.y * lanes;
    const typename S::at at = source.begin(first * N);
    uint32_t index = blockIdx.y * lanes + threadIdx.x / width; /* of the row, from the end */
    uint32_t pack = (rows - 1 - index) * packs + first;

    static_assert(COLUMNS_RUN % U == 0, "a run is some whole batches");
    while (index < rows) {
        float run[K][N] = {};

#pragma unroll 1
        for (uint32_t k = 0; k < COLUMNS_RUN && index < rows; k += U) {
            typename S::raw in[U];

#pragma unroll
            for (uint32_t u = 0; u < U; u++)
                in[u] = source.load(pack - u * stride * packs, first, index + u * stride < rows);
#pragma unroll
            for (uint32_t u = 0; u < U; u++)
                source.add(at, in[u], run);
            index += U * stride;
            pack -= U * stride * packs;
        }
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int n = 0; n < N; n++)
                total[k][n] += run[k][n];
    }
}

/* sums = what the blocks of this slice wrote, for the channel threadIdx.x of it. Call with every
 * thread of the block. shared: [COLUMNS_MERGE][K * width * N] */
template <int K>
static __device__ inline void columns_merge(const double *partials, uint32_t channels,
                                            double *shared, double sums[K])
{
    constexpr uint32_t U = COLUMNS_MERGE_AT_ONCE;
    const uint32_t count = K * channels, pairs = count / 2; /* two sums a thread: 16 bytes */
    const uint32_t part = threadIdx.x / pairs, pair = threadIdx.x % pairs;
    const double2 *in = reinterpret_cast<const double2 *>(partials) + pair;
    double2 sum = {0.0, 0.0};

    if (part < COLUMNS_MERGE) {
        for (uint32_t block = part; block < gridDim.y; block += U * COLUMNS_MERGE) {
            double2 more[U];

#pragma unroll
            for (uint32_t u = 0; u < U; u++) {
                const uint32_t mine = block + u * COLUMNS_MERGE;

                more[u] = mine < gridDim.y ? __ldcg(in + mine * pairs) : double2{0.0, 0.0};
            }
#pragma unroll
            for (uint32_t u = 0; u < U; u++) {
                sum.x += more[u].x;
                sum.y += more[u].y;
            }
        }
        shared[part * count + 2 * pair] = sum.x;
        shared[part * count + 2 * pair + 1] = sum.y;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) {
        sums[k] = 0.0;
        for (uint32_t p = 0; p < COLUMNS_MERGE && threadIdx.x < channels; p++)
            sums[k] += shared[p * count + (uint32_t)k * channels + threadIdx.x];
    }
}

/*   source.begin(channel): reads once what a thread needs to know about its channels
 *   source.load(pack, first, is_there): reads one pack of a row. `first` is the pack of row 0. Where
 *       the row is not there, `pack` must not be read, and what is returned adds 0
 *   source.add(at, raw, sums): adds the terms of a pack to sums[K][N]; `at` is what begin() returned
 *   give(channel, sums): stores the K sums of a channel
 *   partials: [slices][gridDim.y][K][width * N], scratch
 *   counters: [slices], 0 before and after; not used where gridDim.y is 1 */
template <int K, int N, typename S, typename G>
static __global__ void __launch_bounds__(COLUMNS_THREADS, 1)
    columns(const S source, const G give, uint32_t rows, uint32_t channels, uint32_t width,
            double *partials, uint32_t *counters)
{
    constexpr uint32_t MOST = 16 * N; /* channels of a slice */
    __shared__ double shared[COLUMNS_WARPS * K * MOST];
    const uint32_t own = width * N, x = threadIdx.x % width;
    double *const slice = partials + (size_t)blockIdx.x * gridDim.y * K * own;
    double total[K][N] = {};

    if (blockIdx.x * width + x < channels / N)
        columns_lane<K, N>(source, rows, channels / N, width, total);
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            double sum = total[k][n];

            for (uint32_t step = WARP / 2; step >= width; step /= 2)
                sum += __shfl_xor_sync(0xffffffffU, sum, (int)step);
            if (threadIdx.x % WARP < width)
                shared[(threadIdx.x / WARP * K + (uint32_t)k) * own + x * N + (uint32_t)n] = sum;
        }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < K * own; i += COLUMNS_THREADS) {
        double sum = 0.0;

        for (uint32_t warp = 0; warp < COLUMNS_WARPS; warp++)
            sum += shared[warp * K * own + i];
        slice[blockIdx.y * K * own + i] = sum;
    }
    if (!columns_is_last(counters + blockIdx.x))
        return;

    double sums[K];
    const uint32_t channel = blockIdx.x * own + threadIdx.x;

    columns_merge<K>(slice, own, shared, sums);
    if (threadIdx.x < own && channel < channels)
        give(channel, sums);
}

/* scratch: kernel_columns_bytes() for K sums, 16-byte aligned.
 * counters: KERNEL_COLUMNS_COUNTERS of layers.h */
template <int K, int N, typename S, typename G>
static int columns_launch(S source, G give, size_t rows, uint32_t channels, void *scratch,
                          uint32_t *counters, cudaStream_t stream)
{
    const dim3 grid(columns_slices(channels, N), columns_blocks(rows, channels, N));

    if (rows > INT32_MAX / (channels / N))
        return (int)cudaErrorInvalidValue; /* packs are counted in 32 bits */
    return launch_wide(columns<K, N, S, G>, grid, COLUMNS_THREADS, stream, source, give, rows,
                       channels, columns_packs(channels, N), (double *)scratch, counters);
}

#endif
