/* How a sum over the rows of [rows][channels] is split over blocks and threads, and in which order
 * the parts are added. Kernel and reference follow the same order.
 *
 * - A block is columns_packs() packs of channels wide: one slice of the channels. For packs of 8
 *   halves or 4 floats that is two cache lines of a row, or one where the rows do not divide by it.
 *   It is columns_lanes() lanes of rows high.
 * - gridDim.y blocks share the rows of a slice: block y takes the groups of columns_lanes() rows y,
 *   y + gridDim.y, ..., counted from the last row. What the kernel before wrote last is still in the
 *   cache, and what is read last is what the next kernel, from the first row on, reads first.
 * - A lane adds runs of COLUMNS_RUN rows in f32, and the runs in double. A run is too short to lose
 *   digits, and there are too few doubles to cost time.
 * - Then the 2 or 4 lanes of a warp are added, then the warps of the block. The block that ends last
 *   adds the blocks of its slice. */
#ifndef KERNELS_COLUMNS_H
#define KERNELS_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#define COLUMNS_THREADS 512U
#define COLUMNS_WARPS 16U
#define COLUMNS_RUN 16U     /* rows that a lane adds in f32 */
#define COLUMNS_BLOCKS 132U /* aim: one for each multiprocessor of an H100, all at once */
#define COLUMNS_MERGE 4U    /* threads that share one channel when blocks are added */

static inline uint32_t columns_packs(uint32_t channels, uint32_t pack)
{
    return channels % (16 * pack) == 0 ? 16 : 8;
}

static inline uint32_t columns_lanes(uint32_t channels, uint32_t pack)
{
    return COLUMNS_THREADS / columns_packs(channels, pack);
}

static inline uint32_t columns_slices(uint32_t channels, uint32_t pack)
{
    const uint32_t width = pack * columns_packs(channels, pack);

    return (channels + width - 1) / width;
}

/* Blocks of a slice. Few enough that a lane has at least half a run of rows. 1 where there are more
 * than COLUMNS_BLOCKS / 2 slices. */
static inline uint32_t columns_blocks(size_t rows, uint32_t channels, uint32_t pack)
{
    const size_t group = (size_t)columns_lanes(channels, pack) * (COLUMNS_RUN / 2);
    const size_t wanted = (rows + group - 1) / group;
    const uint32_t most = COLUMNS_BLOCKS / columns_slices(channels, pack);

    return wanted <= 1 || most <= 1 ? 1 : wanted < most ? (uint32_t)wanted : most;
}

#endif
