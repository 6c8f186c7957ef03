/* The core's memory: from the caller's heap, counted and limited. */
#ifndef LAUNCHERD_C10D_MEMORY_H
#define LAUNCHERD_C10D_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "launcherd/c10d/c10d.h"

struct memory {
    struct c10d_heap heap;
    uint64_t used, limit;
};

/* Borrowed bytes of any kind: a key, a value. */
struct text {
    const char *bytes;
    size_t byte_count;
};

/* Resizes `bytes` from `old_bytes` to `new_bytes`; NULL and 0 allocate, new_bytes 0 frees and
 * returns NULL. Otherwise NULL means over the limit or no memory, and nothing was changed. */
void *memory_resize(struct memory *memory, void *bytes, size_t old_bytes, size_t new_bytes);

#endif
