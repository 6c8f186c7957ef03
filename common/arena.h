/* Memory that is freed all at once, for decoded messages. */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *first;
    size_t byte_count, byte_limit; /* allocated so far, and the most that may be; 0: no limit */
};

/* Zeroed memory, aligned for any type, valid until arena_reset. NULL: over the limit, or no
 * memory. */
void *arena_alloc(struct arena *arena, size_t byte_count);
/* A copy of `byte_count` bytes of `text`, and a NUL; NULL as above. */
char *arena_text(struct arena *arena, const char *text, size_t byte_count);
/* Frees everything; the arena is as after zeroing and can be used again. */
void arena_reset(struct arena *arena);

#endif
