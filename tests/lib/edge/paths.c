/* Calls that name a path. Each has the name of the C library's function, and calls it unless a rule lets it fail. */
#include <fcntl.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/edge/edge.h"

/* The real functions are looked up before main: a child that shares its parent's memory must not do it. Those of
 * libraries that begin before this one are looked up at their call. */
static struct {
    int (*open)(const char *, int, ...);
    int (*open64)(const char *, int, ...);
    int (*openat)(int, const char *, int, ...);
    int (*openat64)(int, const char *, int, ...);
    int (*creat)(const char *, mode_t);
    int (*rename)(const char *, const char *);
    int (*renameat)(int, const char *, int, const char *);
    int (*renameat2)(int, const char *, int, const char *, unsigned);
    int (*link)(const char *, const char *);
    int (*linkat)(int, const char *, int, const char *, int);
    int (*unlink)(const char *);
    int (*unlinkat)(int, const char *, int);
    int (*mkdir)(const char *, mode_t);
    int (*mkdirat)(int, const char *, mode_t);
    int (*connect)(int, __CONST_SOCKADDR_ARG, socklen_t);
    long (*syscall)(long, ...);
} real;

__attribute__((constructor)) static void find_all(void)
{
    EDGE_FIND(real, open);
    EDGE_FIND(real, open64);
    EDGE_FIND(real, openat);
    EDGE_FIND(real, openat64);
    EDGE_FIND(real, creat);
    EDGE_FIND(real, rename);
    EDGE_FIND(real, renameat);
    EDGE_FIND(real, renameat2);
    EDGE_FIND(real, link);
    EDGE_FIND(real, linkat);
    EDGE_FIND(real, unlink);
    EDGE_FIND(real, unlinkat);
    EDGE_FIND(real, mkdir);
    EDGE_FIND(real, mkdirat);
    EDGE_FIND(real, connect);
    EDGE_FIND(real, syscall);
}

/* A variant of open: with a mode if it may make the file. */
#define MODE_OF(flags)                                                                             \
    va_list args;                                                                                  \
    va_start(args, flags);                                                                         \
    mode_t mode = ((flags) & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;               \
    va_end(args)

int open(const char *path, int flags, ...)
{
    MODE_OF(flags);
    EDGE_FIND(real, open);
    return edge_fails_at(EDGE_OPEN, AT_FDCWD, path) ? -1 : real.open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags);
    EDGE_FIND(real, open64);
    return edge_fails_at(EDGE_OPEN, AT_FDCWD, path) ? -1 : real.open64(path, flags, mode);
}

int openat(int fd, const char *path, int flags, ...)
{
    MODE_OF(flags);
    EDGE_FIND(real, openat);
    return edge_fails_at(EDGE_OPEN, fd, path) ? -1 : real.openat(fd, path, flags, mode);
}

int openat64(int fd, const char *path, int flags, ...)
{
    MODE_OF(flags);
    EDGE_FIND(real, openat64);
    return edge_fails_at(EDGE_OPEN, fd, path) ? -1 : real.openat64(fd, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
    EDGE_FIND(real, creat);
    return edge_fails_at(EDGE_OPEN, AT_FDCWD, path) ? -1 : real.creat(path, mode);
}

/* openat2 has no function of its own in the C library. Words that are not given are not looked at. */
long syscall(long number, ...)
{
    long words[6];
    va_list args;

    EDGE_FIND(real, syscall);
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2 && edge_fails_at(EDGE_OPEN, (int)words[0], (const char *)words[1]))
        return -1;
    return real.syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int rename(const char *from, const char *to)
{
    EDGE_FIND(real, rename);
    return edge_fails_at(EDGE_RENAME, AT_FDCWD, to) ? -1 : real.rename(from, to);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    EDGE_FIND(real, renameat);
    return edge_fails_at(EDGE_RENAME, to_fd, to) ? -1 : real.renameat(from_fd, from, to_fd, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    EDGE_FIND(real, renameat2);
    return edge_fails_at(EDGE_RENAME, to_fd, to) ? -1
                                                 : real.renameat2(from_fd, from, to_fd, to, flags);
}

int link(const char *from, const char *to)
{
    EDGE_FIND(real, link);
    return edge_fails_at(EDGE_LINK, AT_FDCWD, to) ? -1 : real.link(from, to);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    EDGE_FIND(real, linkat);
    return edge_fails_at(EDGE_LINK, to_fd, to) ? -1 : real.linkat(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path)
{
    EDGE_FIND(real, unlink);
    return edge_fails_at(EDGE_UNLINK, AT_FDCWD, path) ? -1 : real.unlink(path);
}

int unlinkat(int fd, const char *path, int flags)
{
    EDGE_FIND(real, unlinkat);
    return edge_fails_at(EDGE_UNLINK, fd, path) ? -1 : real.unlinkat(fd, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    EDGE_FIND(real, mkdir);
    return edge_fails_at(EDGE_MKDIR, AT_FDCWD, path) ? -1 : real.mkdir(path, mode);
}

int mkdirat(int fd, const char *path, mode_t mode)
{
    EDGE_FIND(real, mkdirat);
    return edge_fails_at(EDGE_MKDIR, fd, path) ? -1 : real.mkdirat(fd, path, mode);
}

/* A path, or HOST:PORT. An abstract name begins with @. */
static void name_of_address(const struct sockaddr *address, socklen_t bytes, char *name,
                            size_t name_bytes)
{
    char host[INET6_ADDRSTRLEN] = "";

    if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *local = (const void *)address;
        const int most = bytes > offsetof(struct sockaddr_un, sun_path)
                             ? (int)(bytes - offsetof(struct sockaddr_un, sun_path))
                             : 0;
        if (most > 1 && local->sun_path[0] == '\0')
            (void)snprintf(name, name_bytes, "@%.*s", most - 1, local->sun_path + 1);
        else
            (void)snprintf(name, name_bytes, "%.*s", most, local->sun_path);
    } else if (address->sa_family == AF_INET) {
        const struct sockaddr_in *ip4 = (const void *)address;
        (void)inet_ntop(AF_INET, &ip4->sin_addr, host, sizeof host);
        (void)snprintf(name, name_bytes, "%s:%d", host, ntohs(ip4->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *ip6 = (const void *)address;
        (void)inet_ntop(AF_INET6, &ip6->sin6_addr, host, sizeof host);
        (void)snprintf(name, name_bytes, "[%s]:%d", host, ntohs(ip6->sin6_port));
    } else {
        name[0] = '\0';
    }
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes)
{
    char name[128];

    EDGE_FIND(real, connect);
    name_of_address(address.__sockaddr__, bytes, name, sizeof name);
    return edge_fails_at(EDGE_CONNECT, -1, name) ? -1 : real.connect(fd, address, bytes);
}
