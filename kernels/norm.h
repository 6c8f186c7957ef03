/* Sums of squares in an order that a GPU can keep: in chunks of NORM_CHUNK elements, each by
 * NORM_LANES lanes, lane k adding elements k, k + NORM_LANES, ...; then the lanes of a chunk in
 * halves; then the chunks as another such row. Squares of f32 are exact in double. */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H

#include <stddef.h>
#include <stdint.h>

#define NORM_LANES 256
#define NORM_CHUNK 4096 /* elements; a multiple of NORM_LANES */

#endif
