/* Element types and layout rules that every header of this folder shares. */
#ifndef KERNELS_TYPES_H
#define KERNELS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st; /* what CUDA's cudaStream_t points to; NULL is the default stream */

enum kernel_type { KERNEL_F32, KERNEL_F16, KERNEL_BF16 };

/* Channels that a thread reads or writes at once: 16 bytes of halves where the channel count allows
 * it, else 4 elements. */
static inline uint32_t kernel_pack(enum kernel_type type, uint32_t channels)
{
    return type != KERNEL_F32 && channels % 8 == 0 ? 8 : 4;
}

#endif
