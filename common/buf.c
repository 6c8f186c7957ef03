#include "common/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 256u

/* Makes room for `byte_count` more bytes. False: there is none, and `failed` is set. */
static bool reserve(struct buf *buf, size_t byte_count)
{
    size_t needed, capacity;
    char *bytes;

    assert(buf->byte_count <= buf->capacity);
    assert(buf->limit == 0 || buf->byte_count <= buf->limit);
    if (buf->failed)
        return false;
    if (byte_count > SIZE_MAX / 4 - buf->byte_count)
        goto fail;
    needed = buf->byte_count + byte_count;
    if (buf->limit != 0 && needed > buf->limit)
        goto fail;
    if (needed <= buf->capacity)
        return true;
    capacity = buf->capacity < CAPACITY_MIN ? CAPACITY_MIN : buf->capacity * 2;
    if (capacity < needed)
        capacity = needed;
    bytes = realloc(buf->bytes, capacity);
    if (bytes == NULL)
        goto fail;
    buf->bytes = bytes;
    buf->capacity = capacity;
    return true;

fail:
    buf->failed = true;
    return false;
}

void buf_add(struct buf *buf, const void *bytes, size_t byte_count)
{
    assert(byte_count == 0 || bytes != NULL);
    if (!reserve(buf, byte_count) || byte_count == 0)
        return;
    memcpy(buf->bytes + buf->byte_count, bytes, byte_count);
    buf->byte_count += byte_count;
}

void buf_add_text(struct buf *buf, const char *text)
{
    buf_add(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    char text[512];
    va_list args, again;
    int count;

    va_start(args, format);
    va_copy(again, args);
    count = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (count < 0) {
        buf->failed = true;
    } else if ((size_t)count < sizeof text) {
        buf_add(buf, text, (size_t)count);
    } else if (reserve(buf, (size_t)count + 1)) { /* one more for the NUL, which is not part of the
                                                   * content */
        (void)vsnprintf(buf->bytes + buf->byte_count, (size_t)count + 1, format, again);
        buf->byte_count += (size_t)count;
    }
    va_end(again);
}

void buf_drop(struct buf *buf, size_t byte_count)
{
    assert(byte_count <= buf->byte_count);
    buf->byte_count -= byte_count;
    if (buf->byte_count > 0 && byte_count > 0)
        memmove(buf->bytes, buf->bytes + byte_count, buf->byte_count);
}

void buf_cut(struct buf *buf, size_t byte_count)
{
    assert(byte_count <= buf->byte_count);
    buf->byte_count = byte_count;
}

void buf_free(struct buf *buf)
{
    free(buf->bytes);
    *buf = (struct buf){.limit = buf->limit};
}
