#include "launcherd/c10d/memory.h"

#include <assert.h>

void *memory_resize(struct memory *memory, void *bytes, size_t old_bytes, size_t new_bytes)
{
    void *moved;

    assert(memory->used >= old_bytes && (bytes != NULL || old_bytes == 0));
    if (bytes == NULL && new_bytes == 0)
        return NULL;
    if (new_bytes > old_bytes && new_bytes - old_bytes > memory->limit - memory->used)
        return NULL;
    moved = memory->heap.resize(memory->heap.owner, bytes, new_bytes);
    if (moved == NULL && new_bytes > 0)
        return NULL;
    memory->used = memory->used - old_bytes + new_bytes;
    return moved;
}
