#include "rendezvous/core/blocks.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define UNITS_PER_CHUNK (1u << (BLOCK_ORDERS - 1))

/* marks[unit]: one of these plus the order at a block's first unit; 0 at its other units. */
#define MARK_TAKEN 0x40u
#define MARK_FREE 0x80u

/* Lies at the start of a free block: the previous and next free block of its order, as unit + 1; 0:
 * none. */
struct link {
    uint32_t next, before;
};

uint64_t blocks_mark_bytes(uint32_t chunk_count)
{
    return (uint64_t)chunk_count * UNITS_PER_CHUNK;
}

uint64_t blocks_base_bytes(uint32_t chunk_count)
{
    return (uint64_t)chunk_count * BLOCK_BYTES_MAX;
}

void blocks_init(struct blocks *blocks, void *base, void *marks, uint32_t chunk_count)
{
    *blocks = (struct blocks){.base = base, .marks = marks, .chunk_count = chunk_count};
}

static struct link *link_of(const struct blocks *blocks, uint32_t unit)
{
    return (struct link *)(void *)(blocks->base + (size_t)unit * BLOCK_BYTES_MIN);
}

static void put(struct blocks *blocks, uint32_t unit, uint32_t order)
{
    struct link *link = link_of(blocks, unit);

    *link = (struct link){.next = blocks->free[order]};
    if (link->next != 0)
        link_of(blocks, link->next - 1)->before = unit + 1;
    blocks->free[order] = unit + 1;
    blocks->marks[unit] = (uint8_t)(MARK_FREE | order);
}

static void take(struct blocks *blocks, uint32_t unit, uint32_t order)
{
    const struct link *link = link_of(blocks, unit);

    assert(blocks->marks[unit] == (MARK_FREE | order));
    if (link->next != 0)
        link_of(blocks, link->next - 1)->before = link->before;
    if (link->before != 0)
        link_of(blocks, link->before - 1)->next = link->next;
    else
        blocks->free[order] = link->next;
    blocks->marks[unit] = 0;
}

/* The first free block of `order`, or of the next higher order that has one, as unit + 1; 0:
 * none. */
static uint32_t find(struct blocks *blocks, uint32_t order, uint32_t *found)
{
    for (*found = order; *found < BLOCK_ORDERS; ++*found)
        if (blocks->free[*found] != 0)
            return blocks->free[*found];
    if (blocks->chunks_used == blocks->chunk_count)
        return 0;
    *found = BLOCK_ORDERS - 1;
    put(blocks, blocks->chunks_used++ * UNITS_PER_CHUNK, *found);
    return blocks->free[*found];
}

void *blocks_alloc(struct blocks *blocks, uint32_t byte_count)
{
    uint32_t order = 0, found, unit;
    void *block;

    if (byte_count > BLOCK_BYTES_MAX)
        return NULL;
    while (BLOCK_BYTES_MIN << order < byte_count)
        order++;
    unit = find(blocks, order, &found);
    if (unit == 0)
        return NULL;
    unit--;
    take(blocks, unit, found);
    while (found > order) { /* the upper half is free */
        found--;
        put(blocks, unit + (1u << found), found);
    }
    blocks->marks[unit] = (uint8_t)(MARK_TAKEN | order);
    blocks->taken_count++;
    block = link_of(blocks, unit);
    memset(block, 0, byte_count);
    return block;
}

void blocks_free(struct blocks *blocks, void *block)
{
    ptrdiff_t at = (char *)block - blocks->base;
    uint32_t unit = (uint32_t)((uint64_t)at / BLOCK_BYTES_MIN);
    uint32_t order = blocks->marks[unit] & ~MARK_TAKEN;

    assert(at >= 0 && (uint64_t)at % BLOCK_BYTES_MIN == 0);
    assert((blocks->marks[unit] & MARK_TAKEN) != 0 && order < BLOCK_ORDERS);
    blocks->taken_count--;
    blocks->marks[unit] = 0;
    for (; order + 1 < BLOCK_ORDERS; order++) {
        uint32_t buddy = unit ^ 1u << order;

        if (blocks->marks[buddy] != (MARK_FREE | order))
            break;
        take(blocks, buddy, order);
        unit = unit < buddy ? unit : buddy;
    }
    put(blocks, unit, order);
}

void blocks_check(const struct blocks *blocks)
{
    uint32_t unit = 0, end = blocks->chunks_used * UNITS_PER_CHUNK;
    uint32_t free_count = 0, taken_count = 0;

    while (unit < end) {
        uint32_t mark = blocks->marks[unit], order = mark & 0x0f;

        assert((mark & (MARK_TAKEN | MARK_FREE)) != 0 && order < BLOCK_ORDERS);
        assert(unit % (1u << order) == 0);
        if ((mark & MARK_FREE) != 0)
            free_count++;
        else
            taken_count++;
        unit += 1u << order;
    }
    assert(unit == end && taken_count == blocks->taken_count);
    for (uint32_t order = 0; order < BLOCK_ORDERS; order++)
        for (uint32_t i = blocks->free[order]; i != 0; i = link_of(blocks, i - 1)->next) {
            assert(blocks->marks[i - 1] == (MARK_FREE | order));
            assert(free_count > 0);
            free_count--;
        }
    assert(free_count == 0);
}
