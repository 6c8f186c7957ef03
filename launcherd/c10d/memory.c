#include "launcherd/c10d/memory.h"

#include <assert.h>

void *memory_resize(struct memory *memory, void *bytes, size_t old, size_t new)
{
    void *moved;

    assert(memory->used >= old && (bytes != NULL || old == 0));
    if (bytes == NULL && new == 0)
        return NULL;
    if (new > old &&new - old > memory->limit - memory->used)
        return NULL;
    moved = memory->heap.resize(memory->heap.owner, bytes, new);
    if (moved == NULL && new > 0)
        return NULL;
    memory->used = memory->used - old + new;
    return moved;
}
