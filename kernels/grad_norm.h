/* The order in which LARS adds up the squares of a tensor for its L2 norm. A GPU can keep this
 * order with a block per chunk, so kernel and reference agree to the bit.
 *
 * - A tensor is cut into chunks of GRAD_NORM_CHUNK elements.
 * - A chunk has GRAD_NORM_LANES lanes; lane k adds elements k, k + GRAD_NORM_LANES, ...
 * - The lanes of a chunk are folded in halves: lane k += lane k + lanes / 2, and so on.
 * - The sums of the chunks are added the same way, as if they were the elements of one chunk.
 *
 * The square of an f32 is exact in double. */
#ifndef KERNELS_GRAD_NORM_H
#define KERNELS_GRAD_NORM_H

#define GRAD_NORM_LANES 256
#define GRAD_NORM_CHUNK 4096 /* elements; a multiple of GRAD_NORM_LANES */

#endif
