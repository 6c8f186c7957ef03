/* Writes to a blocking descriptor. */
#ifndef COMMON_IO_WRITE_ALL_H
#define COMMON_IO_WRITE_ALL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* Writes all bytes, continuing after signals and short writes. False: errno says why not all were
 * written. */
static inline bool write_all(int fd, const void *bytes, size_t byte_count)
{
    const char *at = bytes;

    while (byte_count > 0) {
        ssize_t written = write(fd, at, byte_count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        at += written;
        byte_count -= (size_t)written;
    }
    return true;
}

#endif
