/* Buffers that are reused from picture to picture. */
#ifndef WORKER_DATA_PICTURE_GROW_H
#define WORKER_DATA_PICTURE_GROW_H

#include <stddef.h>

#include "common/status.h"

/* Makes room for `byte_count` bytes at *memory, whose size is *allocated; the old content is
 * lost. */
enum status grow(void *memory, size_t *allocated, size_t byte_count);

#endif
