/* Numbers in little-endian order, of 1 to 8 bytes. Private to worker/pth/. */
#ifndef WORKER_PTH_LITTLE_H
#define WORKER_PTH_LITTLE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

static inline uint64_t little_take(const char *bytes, size_t count)
{
    uint64_t value = 0;

    assert(count <= sizeof value);
    for (size_t i = count; i > 0; i--)
        value = value << 8 | (unsigned char)bytes[i - 1];
    return value;
}

static inline void little_put(struct buf *buf, uint64_t value, size_t count)
{
    assert(count <= sizeof value);
    for (size_t i = 0; i < count; i++) {
        const char byte = (char)(unsigned char)(value >> (8 * i));

        buf_add(buf, &byte, 1);
    }
}

#endif
