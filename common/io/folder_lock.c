#include "common/io/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"

enum { HELD_MAX = 4 }; /* a process has one state directory */

static struct held {
    dev_t dev;
    ino_t ino;
    int fd; /* 0: none */
} held[HELD_MAX];
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static void note_held(int fd)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return;
    (void)pthread_mutex_lock(&held_lock);
    for (int i = 0; i < HELD_MAX; i++) {
        if (held[i].fd == 0) {
            held[i] = (struct held){info.st_dev, info.st_ino, fd};
            break;
        }
    }
    (void)pthread_mutex_unlock(&held_lock);
}

static void note_released(int fd)
{
    (void)pthread_mutex_lock(&held_lock);
    for (int i = 0; i < HELD_MAX; i++)
        if (held[i].fd == fd)
            held[i].fd = 0;
    (void)pthread_mutex_unlock(&held_lock);
}

bool folder_lock_is_ours(int fd)
{
    struct stat info;
    bool is_ours = false;

    if (fstat(fd, &info) != 0)
        return false;
    (void)pthread_mutex_lock(&held_lock);
    for (int i = 0; i < HELD_MAX; i++)
        is_ours =
            is_ours || (held[i].fd > 0 && held[i].dev == info.st_dev && held[i].ino == info.st_ino);
    (void)pthread_mutex_unlock(&held_lock);
    return is_ours;
}

/* One reading of /proc/locks. 0: the locker of that file is not in it. */
static int read_locker(const struct stat *info)
{
    FILE *locks = fopen("/proc/locks", "re");
    char line[160], pid[16], major[16], minor[16], inode[32];
    int found = 0;

    while (locks != NULL && found == 0 && fgets(line, sizeof line, locks) != NULL)
        if (sscanf(line, "%*s FLOCK %*s %*s %15[0-9] %15[0-9a-f]:%15[0-9a-f]:%31[0-9]", pid, major,
                   minor, inode) == 4 &&
            strtoull(inode, NULL, 10) == info->st_ino &&
            makedev((unsigned)strtoul(major, NULL, 16), (unsigned)strtoul(minor, NULL, 16)) ==
                info->st_dev)
            found = (int)strtol(pid, NULL, 10);
    if (locks != NULL)
        (void)fclose(locks);
    return found;
}

/* Who has locked this folder or file. 0: not known (another PID namespace, or a file system that shows other numbers
 * there). The kernel gives /proc/locks out in pieces, by position: a lock that another process drops between two of
 * them moves a line out of sight. So a line that is not seen is looked for again. */
static int find_locker(int fd)
{
    enum { READINGS = 10 };
    struct stat info;
    int found = 0;

    if (fstat(fd, &info) != 0)
        return 0;
    for (int i = 0; i < READINGS && found == 0; i++)
        found = read_locker(&info);
    return found;
}

/* Somebody may have removed the file `lock`: the one that is there now is empty then. */
static void read_holder(const struct folder_lock *lock, char holder[32])
{
    const ssize_t got = pread_all(lock->file_fd, holder, 31, 0);
    int pid = 0;

    holder[got > 0 ? got : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (holder[0] == '\0' && lock->dir_fd >= 0)
        pid = find_locker(lock->dir_fd);
    if (pid > 0)
        (void)snprintf(holder, 32, "%d", pid);
    else if (holder[0] == '\0')
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
    if (status == STATUS_OK)
        note_held(lock->dir_fd);
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
        read_holder(lock, holder);
    else if (status == STATUS_OK && (ftruncate(lock->file_fd, 0) != 0 ||
                                     !pwrite_all(lock->file_fd, text, (size_t)length, 0)))
        status = err_set(err, STATUS_IO, errno, "cannot write %.180s: %s", path, strerror(errno));
    if (status != STATUS_OK)
        folder_lock_release(lock);
    return status;
}

void folder_lock_release(struct folder_lock *lock)
{
    if (lock->file_fd >= 0)
        (void)close(lock->file_fd);
    if (lock->dir_fd >= 0) {
        note_released(lock->dir_fd);
        (void)close(lock->dir_fd);
    }
    *lock = FOLDER_LOCK_NONE;
}
