/* Reads from a file, and writes into one at an offset: all of it, continuing after signals and short reads and writes. */
#ifndef COMMON_IO_READ_ALL_H
#define COMMON_IO_READ_ALL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

/* Reads until the end, at most `most` bytes, from a blocking descriptor. Returns how many; -1: errno says why. */
static inline ssize_t read_all(int fd, void *bytes, size_t most)
{
    size_t used = 0;
    ssize_t got = 1;

    while (used < most && got != 0) {
        got = read(fd, (char *)bytes + used, most - used);
        if (got < 0 && errno != EINTR)
            return -1;
        used += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)used;
}

static inline ssize_t pread_all(int fd, void *bytes, size_t most, off_t offset)
{
    size_t used = 0;
    ssize_t got = 1;

    while (used < most && got != 0) {
        got = pread(fd, (char *)bytes + used, most - used, offset + (off_t)used);
        if (got < 0 && errno != EINTR)
            return -1;
        used += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)used;
}

/* False: errno says why not all were written. */
static inline bool pwrite_all(int fd, const void *bytes, size_t byte_count, off_t offset)
{
    size_t used = 0;

    while (used < byte_count) {
        ssize_t written =
            pwrite(fd, (const char *)bytes + used, byte_count - used, offset + (off_t)used);
        if (written < 0 && errno != EINTR)
            return false;
        used += written > 0 ? (size_t)written : 0;
    }
    return true;
}

#endif
