#include "common/io/close_from.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* No sanitizer's marks stay in memory that is another process's, too. */
#define PLAIN __attribute__((no_sanitize("address")))

struct entry { /* getdents64(2) */
    uint64_t inode;
    int64_t next;
    unsigned short byte_count;
    unsigned char type;
    char name[];
};

PLAIN static bool close_one(int fd, bool on_exec)
{
    if (!on_exec)
        return close(fd) == 0 || errno != EBADF;
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

/* The number in a name of /proc/self/fd; -1: none, as "." and "..". */
PLAIN static int number_of(const char *name)
{
    int number = 0;

    for (; *name >= '0' && *name <= '9'; name++)
        number = number * 10 + (*name - '0');
    return *name == '\0' ? number : -1;
}

/* Those that /proc names. A descriptor that is closed meanwhile is no reason to stop. */
PLAIN static bool close_named(int folder, unsigned first, bool on_exec)
{
    _Alignas(struct entry) char bytes[4096];
    long count;

    while ((count = syscall(SYS_getdents64, folder, bytes, sizeof bytes)) > 0) {
        for (long at = 0; at < count;) {
            const struct entry *entry = (const void *)(bytes + at);
            const int fd = number_of(entry->name);

            if (fd >= 0 && (unsigned)fd >= first && fd != folder)
                (void)close_one(fd, on_exec);
            at += entry->byte_count;
        }
    }
    return count == 0;
}

/* Without /proc: each number that a descriptor can have. */
PLAIN static bool close_each(unsigned first, bool on_exec)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    for (rlim_t fd = first; fd < limit.rlim_max && fd <= INT32_MAX; fd++)
        (void)close_one((int)fd, on_exec);
    return true;
}

PLAIN bool close_from(unsigned first, bool on_exec)
{
    int folder;
    bool all;

    if (syscall(SYS_close_range, first, ~0u, on_exec ? CLOSE_RANGE_CLOEXEC : 0) == 0)
        return true;
    folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return close_each(first, on_exec);
    all = close_named(folder, first, on_exec);
    (void)close(folder);
    return all;
}
