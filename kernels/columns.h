/* How sums over the rows of [rows][channels] are split, for kernels and twins: which block and
 * thread adds which rows, in which order.
 *
 * A block is 8 packs of channels wide (a row of it is 128 bytes for 8 halves or 4 floats: one cache
 * line) and 32 lanes of rows high; blocks above one another take every gridDim.y-th group of 32
 * rows. A lane adds runs of 16 rows in f32, and the runs in double: no sum of f32 gets long enough
 * to lose digits, and the doubles are too few to cost time. Then the lanes of a warp (4 rows), the
 * 8 warps and the blocks are added, in a second launch where there is more than one source of
 * order. */
#ifndef KERNELS_COLUMNS_H
#define KERNELS_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#define COLUMNS_PACKS 8U     /* of a block */
#define COLUMNS_LANES 32U    /* of rows in a block: 4 in each of its 8 warps */
#define COLUMNS_RUN 16U      /* rows that a lane adds in f32 */
#define COLUMNS_BLOCKS 1024U /* about; 108 to 148 multiprocessors hold 4 to 8 each */
#define COLUMNS_MERGE 8U     /* threads that share one channel when blocks are added */

static inline uint32_t columns_blocks_x(uint32_t channels, uint32_t pack)
{
    return (channels + pack * COLUMNS_PACKS - 1) / (pack * COLUMNS_PACKS);
}

/* Blocks of rows; a lane has at least half a run where there are enough rows. */
static inline uint32_t columns_blocks_y(size_t rows, uint32_t channels, uint32_t pack)
{
    const uint32_t x = columns_blocks_x(channels, pack);
    const uint32_t most = (COLUMNS_BLOCKS + x - 1) / x;
    const size_t wanted =
        (rows + COLUMNS_LANES * COLUMNS_RUN / 2 - 1) / (COLUMNS_LANES * COLUMNS_RUN / 2);

    return wanted == 0 ? 1 : wanted < most ? (uint32_t)wanted : most;
}

#endif
