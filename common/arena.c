#include "common/arena.h"

#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES_MIN 4000u
#define ALIGN alignof(max_align_t)

struct arena_block {
    struct arena_block *next;
    size_t used, capacity;
    alignas(max_align_t) unsigned char bytes[];
};

static struct arena_block *add_block(struct arena *arena, size_t byte_count)
{
    size_t capacity = byte_count > BLOCK_BYTES_MIN ? byte_count : BLOCK_BYTES_MIN;
    struct arena_block *block = malloc(sizeof *block + capacity);

    if (block == NULL)
        return NULL;
    *block = (struct arena_block){.next = arena->first, .capacity = capacity};
    arena->first = block;
    return block;
}

void *arena_alloc(struct arena *arena, size_t byte_count)
{
    struct arena_block *block = arena->first;
    size_t taken;
    void *bytes;

    assert(block == NULL || block->used <= block->capacity);
    if (byte_count > SIZE_MAX / 4)
        return NULL;
    taken = (byte_count + ALIGN - 1) / ALIGN * ALIGN;
    if (taken == 0)
        taken = ALIGN; /* a distinct pointer, even for 0 bytes */
    assert(arena->byte_limit == 0 || arena->byte_count <= arena->byte_limit);
    if (arena->byte_limit != 0 && taken > arena->byte_limit - arena->byte_count)
        return NULL;
    if (block == NULL || taken > block->capacity - block->used) {
        block = add_block(arena, taken);
        if (block == NULL)
            return NULL;
    }
    bytes = block->bytes + block->used;
    block->used += taken;
    arena->byte_count += taken;
    return memset(bytes, 0, taken);
}

char *arena_text(struct arena *arena, const char *text, size_t byte_count)
{
    char *copy;

    assert(byte_count == 0 || text != NULL);
    if (byte_count == SIZE_MAX)
        return NULL;
    copy = arena_alloc(arena, byte_count + 1);
    if (copy != NULL && byte_count > 0)
        memcpy(copy, text, byte_count);
    return copy;
}

void arena_reset(struct arena *arena)
{
    while (arena->first != NULL) {
        struct arena_block *block = arena->first;

        arena->first = block->next;
        free(block);
    }
    arena->byte_count = 0;
}
