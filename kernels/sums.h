/* The order in which a block of 256 threads adds one value from each thread. block_sum() of
 * launch.cuh uses this order on the device, sums_block() in the references. */
#ifndef KERNELS_SUMS_H
#define KERNELS_SUMS_H

#include <stdint.h>

#define SUMS_THREADS 256
#define SUMS_WARP 32

/* In each warp the 32 values are folded in halves, then the warps are added one after the other.
 * Overwrites `values`. */
static inline double sums_block(double values[SUMS_THREADS])
{
    double sum = 0.0;

    for (uint32_t first = 0; first < SUMS_THREADS; first += SUMS_WARP) {
        for (uint32_t step = SUMS_WARP / 2; step > 0; step /= 2)
            for (uint32_t lane = 0; lane < step; lane++)
                values[first + lane] += values[first + lane + step];
        sum += values[first];
    }
    return sum;
}

#endif
