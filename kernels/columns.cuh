/* Sums over rows on the device, in the order of columns.h. The caller's `source` computes the
 * terms: K sums for each channel of a pack. */
#ifndef KERNELS_COLUMNS_CUH
#define KERNELS_COLUMNS_CUH

#include "kernels/columns.h"
#include "kernels/launch.cuh"

/* First launch: the sums of each block.
 *   source.begin(channel): reads once what a thread needs to know about its channels
 *   source.add(at, element, sums): adds the terms of N elements from index `element` to sums[K][N];
 *       `at` is what begin() returned
 *   partials: [gridDim.y][K][channels], written */
template <int K, int N, typename S>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    columns_partials(const S source, size_t rows, uint32_t channels, double *partials)
{
    constexpr uint32_t WIDTH = COLUMNS_PACKS * N;
    __shared__ double shared[WARPS][K][WIDTH];
    const uint32_t x = threadIdx.x % COLUMNS_PACKS, lane = threadIdx.x / COLUMNS_PACKS;
    const uint32_t channel = (blockIdx.x * COLUMNS_PACKS + x) * N;
    const size_t stride = (size_t)gridDim.y * COLUMNS_LANES;
    double total[K][N] = {};

    if (channel < channels) {
        const typename S::at at = source.begin(channel);
        size_t row = (size_t)blockIdx.y * COLUMNS_LANES + lane;

        while (row < rows) {
            float run[K][N] = {};

#pragma unroll 4
            for (uint32_t k = 0; k < COLUMNS_RUN; k++, row += stride)
                if (row < rows)
                    source.add(at, row * channels + channel, run);
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    total[k][n] += run[k][n];
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            double sum = total[k][n];

            sum += __shfl_xor_sync(0xffffffffU, sum, 16);
            sum += __shfl_xor_sync(0xffffffffU, sum, 8);
            if (threadIdx.x % WARP < COLUMNS_PACKS)
                shared[threadIdx.x / WARP][k][x * N + n] = sum;
        }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < K * WIDTH; i += LAUNCH_THREADS) {
        const uint32_t k = i / WIDTH, c = blockIdx.x * WIDTH + i % WIDTH;
        double sum = 0.0;

        if (c >= channels)
            continue;
        for (uint32_t warp = 0; warp < WARPS; warp++)
            sum += shared[warp][k][i % WIDTH];
        partials[((size_t)blockIdx.y * K + k) * channels + c] = sum;
    }
}

/* Second launch: adds the sums of the blocks. 32 channels a block, COLUMNS_MERGE threads a channel.
 *   give(channel, sums): stores the K sums of a channel */
template <int K, typename G>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
    columns_merge(const G give, uint32_t blocks, uint32_t channels, const double *partials)
{
    __shared__ double shared[COLUMNS_MERGE][K][WARP];
    const uint32_t x = threadIdx.x % WARP, part = threadIdx.x / WARP;
    const uint32_t channel = blockIdx.x * WARP + x;
    double sums[K] = {};

    if (channel < channels)
#pragma unroll 4
        for (uint32_t block = part; block < blocks; block += COLUMNS_MERGE)
#pragma unroll
            for (int k = 0; k < K; k++)
                sums[k] += partials[((size_t)block * K + k) * channels + channel];
#pragma unroll
    for (int k = 0; k < K; k++)
        shared[part][k][x] = sums[k];
    __syncthreads();
    if (part > 0 || channel >= channels)
        return;
#pragma unroll
    for (int k = 0; k < K; k++) {
        sums[k] = 0.0;
        for (uint32_t p = 0; p < COLUMNS_MERGE; p++)
            sums[k] += shared[p][k][x];
    }
    give(channel, sums);
}

/* Both launches. scratch: kernel_columns_bytes() for K sums. */
template <int K, int N, typename S, typename G>
static int columns_launch(S source, G give, size_t rows, uint32_t channels, void *scratch,
                          cudaStream_t stream)
{
    const dim3 grid(columns_blocks_x(channels, N), columns_blocks_y(rows, channels, N));
    int error =
        launch(columns_partials<K, N, S>, grid, stream, source, rows, channels, (double *)scratch);

    if (error != 0)
        return error;
    return launch(columns_merge<K, G>, dim3((channels + WARP - 1) / WARP), stream, give, grid.y,
                  channels, (const double *)scratch);
}

#endif
