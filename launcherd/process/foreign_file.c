#include "launcherd/process/foreign_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"

/* The folder may be of any user. The one that has it is ours, so it is the one that we made. -1: errno says why. */
static int open_folder(const char *dir)
{
    const char *name = strrchr(dir, '/');
    char parent[PATH_MAX];
    struct err err;
    int parent_fd, fd, code;

    assert(name != NULL);
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(name - dir) + 1, dir);
    switch (own_folder_open(parent, 1, &parent_fd, &err)) {
    case STATUS_OK:
        break;
    case STATUS_IO:
        errno = err.code;
        return -1;
    default: /* of whoever has it, it is none of ours */
        errno = ENOENT;
        return -1;
    }
    fd = openat(parent_fd, name + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    code = errno;
    close(parent_fd);
    errno = code;
    return fd;
}

/* What an error of open says of the file that has the name. */
static enum foreign_file what_is(int code)
{
    switch (code) {
    case ENOENT:
        return FOREIGN_NO_FILE;
    case ELOOP: /* a link */
    case ENXIO: /* a socket */
        return FOREIGN_STRANGE;
    default:
        return FOREIGN_UNREADABLE;
    }
}

int foreign_file_open(const char *path, enum foreign_file *what)
{
    const char *name = strrchr(path, '/');
    struct stat folder, file;
    char dir[PATH_MAX];
    int dir_fd, fd, code;

    assert(name != NULL);
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    dir_fd = open_folder(dir);
    if (dir_fd < 0) {
        *what = errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? FOREIGN_NO_FOLDER
                                                                      : FOREIGN_UNREADABLE;
        return -1;
    }
    fd = openat(dir_fd, name + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    code = errno;
    *what = fd >= 0 ? FOREIGN_READABLE : what_is(code);
    if (fd >= 0 && (fstat(dir_fd, &folder) != 0 || fstat(fd, &file) != 0 ||
                    !S_ISREG(file.st_mode) || file.st_uid != folder.st_uid)) {
        *what = FOREIGN_STRANGE;
        close(fd);
        fd = -1;
    }
    close(dir_fd);
    errno = code;
    return fd;
}
