/* The buddy allocator: blocks never overlap, are zeroed, and come together again when they are free. */
#include "rendezvous/core/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define CHUNKS 3u
#define HELD_MAX 600u

struct held {
    unsigned char *bytes;
    uint32_t count;
    unsigned char mark;
};

static struct blocks blocks;
static void *base, *marks;
static uint32_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * below >> 32);
}

static void begin(uint32_t seed)
{
    free(base);
    free(marks);
    base = aligned_alloc(BLOCK_BYTES_MIN, blocks_base_bytes(CHUNKS));
    marks = calloc(1, blocks_mark_bytes(CHUNKS));
    CHECK(base != NULL && marks != NULL);
    memset(base, 0xa5, blocks_base_bytes(CHUNKS)); /* what an earlier owner left */
    blocks_init(&blocks, base, marks, CHUNKS);
    random_state = seed;
}

static void check_held(const struct held *held)
{
    for (uint32_t i = 0; i < held->count; i++)
        CHECK_EQ(held->bytes[i], held->mark);
}

static bool take(struct held *held)
{
    static unsigned char mark;

    held->count = 1 + draw(1u << (8 + draw(BLOCK_ORDERS)));
    held->bytes = blocks_alloc(&blocks, held->count);
    if (held->bytes == NULL)
        return false;
    for (uint32_t i = 0; i < held->count; i++)
        CHECK_EQ(held->bytes[i], 0);
    held->mark = ++mark;
    memset(held->bytes, held->mark, held->count);
    return true;
}

TEST(blocks_never_overlap)
{
    static struct held held[HELD_MAX];
    uint32_t count = 0, full = 0;

    begin(7);
    for (uint32_t round = 0; round < 4000; round++) {
        if (count < HELD_MAX && draw(100) < 52) {
            if (take(&held[count]))
                count++;
            else
                full++;
        } else if (count > 0) {
            uint32_t i = draw(count);

            check_held(&held[i]);
            blocks_free(&blocks, held[i].bytes);
            held[i] = held[--count];
        }
        if (round % 16 == 0)
            blocks_check(&blocks);
        CHECK_EQ(blocks.taken_count, count);
    }
    CHECK(full > 0); /* it was full at times */
    while (count > 0) {
        check_held(&held[--count]);
        blocks_free(&blocks, held[count].bytes);
    }
    blocks_check(&blocks);
    for (uint32_t i = 0; i < CHUNKS; i++) /* all memory is one whole again */
        CHECK(blocks_alloc(&blocks, BLOCK_BYTES_MAX) != NULL);
    CHECK(blocks_alloc(&blocks, 1) == NULL);
}

TEST(a_block_over_the_limit_is_refused)
{
    begin(1);
    CHECK(blocks_alloc(&blocks, BLOCK_BYTES_MAX + 1) == NULL);
    CHECK(blocks_alloc(&blocks, BLOCK_BYTES_MAX) != NULL);
}

TEST_MAIN
