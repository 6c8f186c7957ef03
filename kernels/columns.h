/* How a sum over the rows of [rows][channels] is split over blocks and threads, and in which order
 * the parts are added. Kernel and reference follow the same order.
 *
 * - A block is COLUMNS_PACKS packs of channels wide: 128 bytes, one cache line, for packs of 8
 *   halves or 4 floats. It is COLUMNS_LANES lanes of rows high.
 * - gridDim.y blocks share the rows of these channels: block y takes the groups of COLUMNS_LANES
 *   rows y, y + gridDim.y, ...
 * - A lane adds runs of COLUMNS_RUN rows in f32, and the runs in double. A run is too short to lose
 *   digits, and there are too few doubles to cost time.
 * - Then the 4 lanes of a warp are added, then the 8 warps of the block and, in a second launch,
 *   the blocks. */
#ifndef KERNELS_COLUMNS_H
#define KERNELS_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#define COLUMNS_PACKS 8U     /* packs of channels in a block */
#define COLUMNS_LANES 32U    /* rows that a block reads at once: 4 in each of its 8 warps */
#define COLUMNS_RUN 16U      /* rows that a lane adds in f32 */
#define COLUMNS_BLOCKS 1024U /* aim: 108 to 148 multiprocessors hold 4 to 8 blocks each */
#define COLUMNS_MERGE 8U     /* threads that share one channel when blocks are added */

static inline uint32_t columns_blocks_x(uint32_t channels, uint32_t pack)
{
    return (channels + pack * COLUMNS_PACKS - 1) / (pack * COLUMNS_PACKS);
}

/* Blocks along the rows. Few enough that a lane has at least half a run of rows. */
static inline uint32_t columns_blocks_y(size_t rows, uint32_t channels, uint32_t pack)
{
    const uint32_t x = columns_blocks_x(channels, pack);
    const uint32_t most = (COLUMNS_BLOCKS + x - 1) / x;
    const size_t wanted =
        (rows + COLUMNS_LANES * COLUMNS_RUN / 2 - 1) / (COLUMNS_LANES * COLUMNS_RUN / 2);

    return wanted == 0 ? 1 : wanted < most ? (uint32_t)wanted : most;
}

#endif
