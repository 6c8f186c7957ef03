#include "rendezvous/core/gang.h"

#include <assert.h>

#define RANK_BYTES                                                                                 \
    (sizeof(struct rdzv_rank) + sizeof(struct hang_rank) + sizeof(struct straggler_rank))
/* For a part with one rank; times three, for rounding up to block sizes and for fragmentation. */
#define BYTES_PER_SLOT (3 * (sizeof(struct rdzv_part) + sizeof(struct part_state) + RANK_BYTES))

_Static_assert(ORDER_COUNT *(NODES_PER_JOB_MAX / 64 + 1) * sizeof(uint64_t) +
                       NODES_PER_JOB_MAX * (sizeof(struct rdzv_part) + sizeof(struct part_state)) +
                       RANKS_PER_JOB_MAX * RANK_BYTES <=
                   BLOCK_BYTES_MAX,
               "the largest job fits into a block");

uint32_t gang_chunks(const struct rdzv_options *options)
{
    uint64_t slots = (uint64_t)options->nodes_max * SLOTS_PER_NODE_MAX;
    uint64_t bytes = slots * BYTES_PER_SLOT + (uint64_t)options->jobs_max * BLOCK_BYTES_MIN;

    return (uint32_t)(bytes / BLOCK_BYTES_MAX) + 2;
}

bool gang_new(struct blocks *blocks, struct gang *gang, uint32_t part_count, uint32_t world)
{
    uint32_t words = (part_count + 63) / 64;
    uint32_t owed_bytes = ORDER_COUNT * words * (uint32_t)sizeof(uint64_t);
    uint32_t place_bytes = part_count * (uint32_t)sizeof(struct rdzv_part);
    uint32_t told_at = owed_bytes + place_bytes; /* arrays with 64-bit members come first */
    uint32_t paces_at = told_at + world * (uint32_t)sizeof(struct hang_rank);
    uint32_t ranks_at = paces_at + world * (uint32_t)sizeof(struct straggler_rank);
    uint32_t parts_at = ranks_at + world * (uint32_t)sizeof(struct rdzv_rank);
    uint32_t bytes = parts_at + part_count * (uint32_t)sizeof(struct part_state);
    char *block;

    assert(part_count > 0 && part_count <= NODES_PER_JOB_MAX && world <= RANKS_PER_JOB_MAX);
    block = blocks_alloc(blocks, bytes);
    if (block == NULL)
        return false;
    *gang = (struct gang){
        .part_count = part_count,
        .word_count = words,
        .owed = (uint64_t *)(void *)block,
        .places = (struct rdzv_part *)(void *)(block + owed_bytes),
        .told = (struct hang_rank *)(void *)(block + told_at),
        .paces = (struct straggler_rank *)(void *)(block + paces_at),
        .ranks = (struct rdzv_rank *)(void *)(block + ranks_at),
        .parts = (struct part_state *)(void *)(block + parts_at),
    };
    return true;
}

void gang_free(struct blocks *blocks, struct gang *gang)
{
    if (gang->part_count > 0)
        blocks_free(blocks, gang->owed);
    *gang = (struct gang){0};
}
