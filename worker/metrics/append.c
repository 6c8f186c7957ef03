#include "worker/metrics/append.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status append_open(struct append_file *file, const char *path, enum append_how how,
                        struct err *err)
{
    const int flags = how == APPEND_NEW ? O_EXCL : how == APPEND_REPLACE ? O_TRUNC : 0;

    /* O_NONBLOCK is for pipes: one that nobody reads holds up nothing. */
    *file = (struct append_file){
        .fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags,
                   0644)};
    if (file->fd >= 0)
        return STATUS_OK;
    if (errno == ENXIO)
        return err_set(err, STATUS_IO, ENXIO, "cannot open: it is a pipe that nobody reads");
    return err_set(err, errno == EEXIST ? STATUS_CONFLICT : STATUS_IO, errno, "cannot open: %s",
                   strerror(errno));
}

/* Cuts off the `byte_count` bytes that were written last, unless somebody has written after them.
 * Not a regular file: nothing to cut. */
static void take_back(struct append_file *file, size_t byte_count)
{
    const off_t end = lseek(file->fd, 0, SEEK_CUR);
    struct stat now;

    file->is_torn = end < (off_t)byte_count || fstat(file->fd, &now) < 0 || now.st_size != end ||
                    ftruncate(file->fd, end - (off_t)byte_count) < 0;
}

enum status append_write(struct append_file *file, const void *bytes, size_t byte_count,
                         struct err *err)
{
    size_t done = 0;

    assert(file->fd >= 0);
    while (done < byte_count) {
        const ssize_t n = write(file->fd, (const char *)bytes + done, byte_count - done);
        int code = n == 0 ? ENOSPC : errno;

        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && code == EINTR)
            continue;
        if (done > 0)
            take_back(file, done);
        return err_set(err, STATUS_IO, code, "cannot write: %s", strerror(code));
    }
    return STATUS_OK;
}

void append_close(struct append_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}
