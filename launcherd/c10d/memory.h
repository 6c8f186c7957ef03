/* The core's memory: from the caller's heap, counted, with a limit. */
#ifndef LAUNCHERD_C10D_MEMORY_H
#define LAUNCHERD_C10D_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "launcherd/c10d/c10d.h"

struct memory {
    struct c10d_heap heap;
    uint64_t used, limit;
};

/* Bytes that are not owned and may be anything: a key, a value. */
struct text {
    const char *bytes;
    size_t byte_count;
};

/* `bytes` of `old_bytes` become `new_bytes`; NULL and 0 is a new allocation. NULL: over the limit or no memory, and nothing has
 * changed; also after new_bytes == 0. */
void *memory_resize(struct memory *memory, void *bytes, size_t old_bytes, size_t new_bytes);

#endif
