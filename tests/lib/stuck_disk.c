/* For LD_PRELOAD: a disk and a user database that hang. While the file $DDP_STUCK_FILE exists,
 * writes to files whose path contains "/logs/" do not return, nor do reads where it contains
 * "/logs/read/", nor does getpwuid_r; they continue when that file is gone. */
#include <dlfcn.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

ssize_t pwrite64(int fd, const void *bytes, size_t byte_count, off_t offset);
ssize_t pread64(int fd, void *bytes, size_t byte_count, off_t offset);

static void hang_while_it_exists(const char *stuck)
{
    const struct timespec pause = {.tv_nsec = 5000000};

    while (access(stuck, F_OK) == 0)
        (void)nanosleep(&pause, NULL);
}

static void hang(int fd, const char *where)
{
    const char *stuck = getenv("DDP_STUCK_FILE");
    char link[64], path[4096];

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t count = readlink(link, path, sizeof path - 1);
    if (stuck == NULL || count <= 0)
        return;
    path[count] = '\0';
    if (strstr(path, where) != NULL)
        hang_while_it_exists(stuck);
}

ssize_t pwrite64(int fd, const void *bytes, size_t byte_count, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    hang(fd, "/logs/");
    return real(fd, bytes, byte_count, offset);
}

ssize_t pread64(int fd, void *bytes, size_t byte_count, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    hang(fd, "/logs/read/");
    return real(fd, bytes, byte_count, offset);
}

ssize_t write(int fd, const void *bytes, size_t byte_count)
{
    static ssize_t (*real)(int, const void *, size_t);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    hang(fd, "/logs/");
    return real(fd, bytes, byte_count);
}

int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t byte_count,
               struct passwd **found)
{
    static int (*real)(uid_t, struct passwd *, char *, size_t, struct passwd **);
    const char *stuck = getenv("DDP_STUCK_FILE");

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "getpwuid_r");
    if (stuck != NULL)
        hang_while_it_exists(stuck);
    return real(uid, entry, buffer, byte_count, found);
}
