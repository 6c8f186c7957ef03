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

/* The folder may be of any user. The one that has it is ours, so it is the one that we made. */
static int open_folder(const char *dir)
{
    const char *name = strrchr(dir, '/');
    char parent[PATH_MAX];
    struct err none;
    int parent_fd, fd;

    assert(name != NULL);
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(name - dir) + 1, dir);
    if (own_folder_open(parent, 1, &parent_fd, &none) != STATUS_OK)
        return -1;
    fd = openat(parent_fd, name + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(parent_fd);
    return fd;
}

int foreign_file_open(const char *path, enum foreign_file *what)
{
    const char *name = strrchr(path, '/');
    struct stat folder, file;
    char dir[PATH_MAX];
    int dir_fd, fd;

    assert(name != NULL);
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    dir_fd = open_folder(dir);
    *what = FOREIGN_NO_FOLDER;
    if (dir_fd < 0)
        return -1;
    fd = openat(dir_fd, name + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *what = fd >= 0 ? FOREIGN_READABLE : errno == ENOENT ? FOREIGN_NO_FILE : FOREIGN_STRANGE;
    if (fd >= 0 && (fstat(dir_fd, &folder) != 0 || fstat(fd, &file) != 0 ||
                    !S_ISREG(file.st_mode) || file.st_uid != folder.st_uid)) {
        *what = FOREIGN_STRANGE;
        close(fd);
        fd = -1;
    }
    close(dir_fd);
    return fd;
}
