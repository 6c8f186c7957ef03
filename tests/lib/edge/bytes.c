/* Calls that read and write a descriptor. Of one that is short, half of the bytes are read or written, at least one. */
#include <errno.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/lib/edge/edge.h"

static struct {
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*pread)(int, void *, size_t, off_t);
    ssize_t (*pread64)(int, void *, size_t, off64_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*pwrite)(int, const void *, size_t, off_t);
    ssize_t (*pwrite64)(int, const void *, size_t, off64_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    int (*fsync)(int);
    int (*fdatasync)(int);
} real;

__attribute__((constructor)) static void find_all(void)
{
    EDGE_FIND(real, read);
    EDGE_FIND(real, pread);
    EDGE_FIND(real, pread64);
    EDGE_FIND(real, readv);
    EDGE_FIND(real, write);
    EDGE_FIND(real, pwrite);
    EDGE_FIND(real, pwrite64);
    EDGE_FIND(real, writev);
    EDGE_FIND(real, fsync);
    EDGE_FIND(real, fdatasync);
}

/* False: the call fails, with errno. */
static bool goes_on(enum edge_kind kind, int fd, size_t *byte_count)
{
    const struct edge_verdict verdict = edge_look_fd(kind, fd);

    if (verdict.code != 0)
        errno = verdict.code;
    else if (verdict.is_short && *byte_count > 1)
        *byte_count /= 2;
    return verdict.code == 0;
}

ssize_t read(int fd, void *bytes, size_t byte_count)
{
    EDGE_FIND(real, read);
    return goes_on(EDGE_READ, fd, &byte_count) ? real.read(fd, bytes, byte_count) : -1;
}

ssize_t pread(int fd, void *bytes, size_t byte_count, off_t offset)
{
    EDGE_FIND(real, pread);
    return goes_on(EDGE_READ, fd, &byte_count) ? real.pread(fd, bytes, byte_count, offset) : -1;
}

ssize_t pread64(int fd, void *bytes, size_t byte_count, off64_t offset)
{
    EDGE_FIND(real, pread64);
    return goes_on(EDGE_READ, fd, &byte_count) ? real.pread64(fd, bytes, byte_count, offset) : -1;
}

ssize_t write(int fd, const void *bytes, size_t byte_count)
{
    EDGE_FIND(real, write);
    return goes_on(EDGE_WRITE, fd, &byte_count) ? real.write(fd, bytes, byte_count) : -1;
}

ssize_t pwrite(int fd, const void *bytes, size_t byte_count, off_t offset)
{
    EDGE_FIND(real, pwrite);
    return goes_on(EDGE_WRITE, fd, &byte_count) ? real.pwrite(fd, bytes, byte_count, offset) : -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t byte_count, off64_t offset)
{
    EDGE_FIND(real, pwrite64);
    return goes_on(EDGE_WRITE, fd, &byte_count) ? real.pwrite64(fd, bytes, byte_count, offset) : -1;
}

static size_t sum_of(const struct iovec *parts, int count)
{
    size_t sum = 0;

    for (int i = 0; i < count; i++)
        sum += parts[i].iov_len;
    return sum;
}

/* A short one has the first part that is not empty, cut to the limit. */
static struct iovec first_part(const struct iovec *parts, int count, size_t limit)
{
    struct iovec part = {0};

    for (int i = 0; i < count && part.iov_len == 0; i++)
        part = parts[i];
    if (part.iov_len > limit)
        part.iov_len = limit;
    return part;
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    const size_t sum = sum_of(parts, count);
    size_t most = sum;
    struct iovec part;

    EDGE_FIND(real, readv);
    if (!goes_on(EDGE_READ, fd, &most))
        return -1;
    part = first_part(parts, count, most);
    return most < sum ? real.readv(fd, &part, 1) : real.readv(fd, parts, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    const size_t sum = sum_of(parts, count);
    size_t most = sum;
    struct iovec part;

    EDGE_FIND(real, writev);
    if (!goes_on(EDGE_WRITE, fd, &most))
        return -1;
    part = first_part(parts, count, most);
    return most < sum ? real.writev(fd, &part, 1) : real.writev(fd, parts, count);
}

int fsync(int fd)
{
    EDGE_FIND(real, fsync);
    return edge_fails_fd(EDGE_FSYNC, fd) ? -1 : real.fsync(fd);
}

int fdatasync(int fd)
{
    EDGE_FIND(real, fdatasync);
    return edge_fails_fd(EDGE_FDATASYNC, fd) ? -1 : real.fdatasync(fd);
}
