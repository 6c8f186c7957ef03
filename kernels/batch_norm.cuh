/* What batch norm's kernels share: how threads are laid over [rows][channels] where every element
 * is written. A thread keeps its channels, so that what belongs to them is read once. */
#ifndef KERNELS_BATCH_NORM_CUH
#define KERNELS_BATCH_NORM_CUH

#include "kernels/columns.h"
#include "kernels/kernels_norm.h"
#include "kernels/launch.cuh"

constexpr uint32_t NORM_ROWS = 8; /* of a thread, about */

static inline bool norm_is_wrong(const struct kernel_norm *norm)
{
    return norm->channels == 0 || norm->channels % 4 != 0 || norm->rows == 0;
}

static inline dim3 norm_grid(size_t rows, uint32_t channels, uint32_t pack)
{
    const size_t blocks = (rows + COLUMNS_LANES * NORM_ROWS - 1) / (COLUMNS_LANES * NORM_ROWS);

    return dim3(columns_blocks_x(channels, pack),
                (uint32_t)(blocks < LAUNCH_GRID_Y_MAX ? blocks : LAUNCH_GRID_Y_MAX));
}

/* The first channel of this thread's pack. */
template <int N> static __device__ inline uint32_t norm_channel(void)
{
    return (blockIdx.x * COLUMNS_PACKS + threadIdx.x % COLUMNS_PACKS) * N;
}

static __device__ inline size_t norm_row(void)
{
    return (size_t)blockIdx.y * COLUMNS_LANES + threadIdx.x / COLUMNS_PACKS;
}

static __device__ inline size_t norm_stride(void)
{
    return (size_t)gridDim.y * COLUMNS_LANES;
}

#endif
