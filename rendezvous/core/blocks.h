/* A buddy allocator (Knuth, The Art of Computer Programming, volume 1, section 2.5): blocks of
 * different sizes within one region that the caller owns. Pages of the region that never held a
 * block are never touched. */
#ifndef RENDEZVOUS_CORE_BLOCKS_H
#define RENDEZVOUS_CORE_BLOCKS_H

#include <stdint.h>

#define BLOCK_BYTES_MIN 256u
#define BLOCK_ORDERS 16u /* a block of order k has BLOCK_BYTES_MIN << k bytes */
#define BLOCK_BYTES_MAX (BLOCK_BYTES_MIN << (BLOCK_ORDERS - 1))

struct blocks {
    char *base;
    uint32_t chunk_count, chunks_used; /* of BLOCK_BYTES_MAX each */
    uint8_t *marks; /* [chunk_count * BLOCK_BYTES_MAX / BLOCK_BYTES_MIN]; see blocks.c */
    uint32_t free[BLOCK_ORDERS]; /* the first free block of each order, as unit + 1; 0: none */
    uint32_t taken_count;
};

/* The bytes that `marks` and `base` need for that many chunks. Both must be zeroed. */
uint64_t blocks_mark_bytes(uint32_t chunk_count);
uint64_t blocks_base_bytes(uint32_t chunk_count);
void blocks_init(struct blocks *blocks, void *base, void *marks, uint32_t chunk_count);
/* A zeroed block, aligned to BLOCK_BYTES_MIN. NULL: no room, or `byte_count` is over
 * BLOCK_BYTES_MAX. */
void *blocks_alloc(struct blocks *blocks, uint32_t byte_count);
void blocks_free(struct blocks *blocks, void *block);
/* Asserts that the marks and the lists agree. Scans every unit. */
void blocks_check(const struct blocks *blocks);

#endif
