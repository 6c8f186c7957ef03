/* Shared by the batch norm kernels: how threads cover [rows][channels] in kernels that write every
 * element. A thread keeps its channels for all of its rows, so it reads their statistics once. It
 * asks for some rows before it uses the first one, and a block reads rows side by side where it can:
 * 4 KB in one piece. */
#ifndef KERNELS_BATCH_NORM_CUH
#define KERNELS_BATCH_NORM_CUH

#include "kernels/batch_norm.h"
#include "kernels/launch.cuh"

constexpr uint32_t BATCH_NORM_BLOCKS = 2112; /* aim: 132 multiprocessors hold 4 each, four times */

/* Rows and packs are counted in 32 bits. */
static inline bool batch_norm_is_wrong(const struct kernel_norm *norm)
{
    return norm->channels == 0 || norm->channels % 4 != 0 || norm->rows == 0 ||
           norm->rows > INT32_MAX / (norm->channels / kernel_pack(norm->type, norm->channels));
}

/* f(t, n) as launch_packed() calls it, or cudaErrorInvalidValue for a wrong shape. */
template <typename F> static int batch_norm_packed(const struct kernel_norm *norm, F f)
{
    if (batch_norm_is_wrong(norm))
        return (int)cudaErrorInvalidValue;
    return launch_packed(norm->type, norm->channels, f);
}

/* Packs of a row that a block covers: a power of two, for which whole rows are side by side if the
 * row is one too. */
static inline uint32_t batch_norm_width(uint32_t packs)
{
    const uint32_t divides = packs & (0U - packs);

    return divides < 8 ? 8 : divides < LAUNCH_THREADS ? divides : LAUNCH_THREADS;
}

/* at_once: rows that a thread asks for before it uses the first one */
static inline dim3 batch_norm_grid(uint32_t rows, uint32_t packs, uint32_t at_once)
{
    const uint32_t width = batch_norm_width(packs), x = (packs + width - 1) / width;
    const uint32_t lanes = LAUNCH_THREADS / width, most = BATCH_NORM_BLOCKS / x;
    const uint32_t wanted = (rows + lanes * at_once - 1) / (lanes * at_once);

    return dim3(x, wanted <= 1 || most <= 1 ? 1 : wanted < most ? wanted : most);
}

/* Where a thread is. */
struct batch_norm_place {
    uint32_t pack;        /* of channels: the first one of its row */
    uint32_t row, stride; /* its first row; from one row to its next */
};

static __device__ inline struct batch_norm_place batch_norm_place(uint32_t width)
{
    const uint32_t lanes = LAUNCH_THREADS / width;

    return {blockIdx.x * width + threadIdx.x % width, blockIdx.y * lanes + threadIdx.x / width,
            gridDim.y * lanes};
}

/* Pack number `pack` of every row: packs[u] for row + u * stride, or for `row` where that row is
 * beyond the last one. */
template <uint32_t U>
static __device__ inline void batch_norm_packs(const struct batch_norm_place &place, uint32_t row,
                                               uint32_t rows, uint32_t packs, uint32_t out[U])
{
#pragma unroll
    for (uint32_t u = 0; u < U; u++) {
        const uint32_t wanted = row + u * place.stride;

        out[u] = (wanted < rows ? wanted : row) * packs + place.pack;
    }
}

#endif
