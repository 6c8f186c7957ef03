#include "worker/data/picture/grow.h"

#include <stdlib.h>
#include <string.h>

enum status grow(void *memory, size_t *allocated, size_t byte_count)
{
    void *bytes;

    if (byte_count <= *allocated)
        return STATUS_OK;
    memcpy(&bytes, memory, sizeof bytes);
    free(bytes);
    *allocated = 0;
    bytes = malloc(byte_count + byte_count / 4); /* pictures of one folder vary a little */
    memcpy(memory, &bytes, sizeof bytes);
    if (bytes == NULL)
        return STATUS_MEMORY;
    *allocated = byte_count + byte_count / 4;
    return STATUS_OK;
}
