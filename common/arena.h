/* Memory that goes all at once: blocks of bytes handed out in order, freed together. For decoded
 * messages. */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *first;
    size_t byte_count, byte_limit; /* handed out so far; no more than this, 0: no limit */
};

/* Zeroed memory, aligned for any type; NULL when the limit or the heap is spent. Lives until
 * arena_reset. */
void *arena_alloc(struct arena *arena, size_t byte_count);
/* A copy of `byte_count` bytes of `text` with a NUL behind; NULL as above. */
char *arena_text(struct arena *arena, const char *text, size_t byte_count);
/* Frees everything; the arena is as after zeroing and can be used again. */
void arena_reset(struct arena *arena);

#endif
