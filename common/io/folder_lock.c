#include "common/io/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/io/own_path.h"

static void read_holder(int fd, char holder[32])
{
    const ssize_t got = pread(fd, holder, 31, 0);

    holder[got > 0 ? got : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (holder[0] == '\0')
        (void)snprintf(holder, 32, "unknown");
}

static enum status lock_fd(int fd, const char *path, struct err *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return STATUS_OK;
    if (errno == EWOULDBLOCK)
        return err_set(err, STATUS_BUSY, errno, "%.180s is locked", path);
    return err_set(err, STATUS_IO, errno, "cannot lock %.180s: %s", path, strerror(errno));
}

static enum status lock_folder(struct folder_lock *lock, const char *folder, struct err *err)
{
    enum status status;

    lock->dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock->dir_fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot read %.180s: %s", folder, strerror(errno));
    status = lock_fd(lock->dir_fd, folder, err);
    return status == STATUS_BUSY ? status : STATUS_OK; /* NFS locks only what is open for writing */
}

enum status folder_lock_take(struct folder_lock *lock, const char *folder, char holder[32],
                             struct err *err)
{
    char path[PATH_MAX], text[32];
    int length;
    enum status status;

    *lock = FOLDER_LOCK_NONE;
    (void)snprintf(path, sizeof path, "%.*s/lock", PATH_MAX - 300, folder);
    status = own_file_open(path, 0, O_RDWR | O_CREAT, 0600, &lock->file_fd, err);
    if (status != STATUS_OK)
        return status;
    status = lock_fd(lock->file_fd, path, err);
    if (status == STATUS_OK)
        status = lock_folder(lock, folder, err);
    length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (status == STATUS_BUSY)
        read_holder(lock->file_fd, holder);
    else if (status == STATUS_OK &&
             (ftruncate(lock->file_fd, 0) != 0 ||
              pwrite(lock->file_fd, text, (size_t)length, 0) != (ssize_t)length))
        status = err_set(err, STATUS_IO, errno, "cannot write %.180s: %s", path, strerror(errno));
    if (status != STATUS_OK)
        folder_lock_release(lock);
    return status;
}

void folder_lock_release(struct folder_lock *lock)
{
    if (lock->file_fd >= 0)
        (void)close(lock->file_fd);
    if (lock->dir_fd >= 0)
        (void)close(lock->dir_fd);
    *lock = FOLDER_LOCK_NONE;
}
