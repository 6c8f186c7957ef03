/* Shared by the batch norm kernels: how threads cover [rows][channels] in kernels that write every
 * element. A thread keeps its channels for all of its rows, so it reads their statistics once. */
#ifndef KERNELS_BATCH_NORM_CUH
#define KERNELS_BATCH_NORM_CUH

#include "kernels/columns.h"
#include "kernels/batch_norm.h"
#include "kernels/launch.cuh"

constexpr uint32_t BATCH_NORM_ROWS = 8; /* rows that a thread handles, if the grid allows it */

static inline bool batch_norm_is_wrong(const struct kernel_norm *norm)
{
    return norm->channels == 0 || norm->channels % 4 != 0 || norm->rows == 0;
}

/* f(t, n) as launch_packed() calls it, or cudaErrorInvalidValue for a wrong shape. */
template <typename F> static int batch_norm_packed(const struct kernel_norm *norm, F f)
{
    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch_packed(norm->type, norm->channels, f);
}

static inline dim3 batch_norm_grid(size_t rows, uint32_t channels, uint32_t pack)
{
    const size_t blocks =
        (rows + COLUMNS_LANES * BATCH_NORM_ROWS - 1) / (COLUMNS_LANES * BATCH_NORM_ROWS);

    return dim3(columns_blocks_x(channels, pack),
                (uint32_t)(blocks < LAUNCH_GRID_Y_MAX ? blocks : LAUNCH_GRID_Y_MAX));
}

/* The first channel of this thread's pack. */
template <int N> static __device__ inline uint32_t batch_norm_channel(void)
{
    return (blockIdx.x * COLUMNS_PACKS + threadIdx.x % COLUMNS_PACKS) * N;
}

static __device__ inline size_t batch_norm_row(void)
{
    return (size_t)blockIdx.y * COLUMNS_LANES + threadIdx.x / COLUMNS_PACKS;
}

static __device__ inline size_t batch_norm_stride(void)
{
    return (size_t)gridDim.y * COLUMNS_LANES;
}

#endif
