/* For LD_PRELOAD: a disk and a user database that hang. While the file $DDP_STUCK_FILE exists,
 * writes to files whose path contains "/logs/" do not return, nor do reads where it contains
 * "/logs/read/", nor does getpwuid_r; they continue when that file is gone. While the file
 * $DDP_STUCK_FILE.DIR exists, calls with a path that contains "/DIR" hang, too: a whole disk. If that
 * file has the number of a process, they hang in that process alone; if it has "--shim", in programs with that first argument. While the file $DDP_STUCK_FILE.exec has the first
 * argument of a program, such as "hang --shim", its start hangs; with "stop --shim" the process stops itself. While
 * the file $DDP_STUCK_FILE.eio has the name of a file, an openat of that name fails with EIO. While $DDP_STUCK_FILE.loop has the number of
 * a process, its libuv loop stands still. While
 * $DDP_STUCK_FILE.epoll has it, its epoll_ctl adds nothing, for want of memory. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int open64(const char *path, int flags, ...);
int openat64(int fd, const char *path, int flags, ...);
int statvfs64(const char *path, struct statvfs64 *info);
ssize_t pwrite64(int fd, const void *bytes, size_t byte_count, off_t offset);
ssize_t pread64(int fd, void *bytes, size_t byte_count, off_t offset);

/* For what runs in a child that shares its parent's memory: if the child is killed there, a sanitizer's marks of its stack
 * would stay behind. */
#define IN_CHILD __attribute__((no_sanitize("address")))

/* Without a wait for a time: it would move the gated clock of tests/lib/edge. */
IN_CHILD static void hang_while_it_exists(const char *stuck)
{
    char event[sizeof(struct inotify_event) + NAME_MAX + 1];
    const int fd = (int)syscall(SYS_inotify_init1, IN_CLOEXEC);
    const bool is_watched =
        syscall(SYS_inotify_add_watch, fd, stuck, IN_ATTRIB | IN_DELETE_SELF) >= 0;

    if (!is_watched && access(stuck, F_OK) == 0)
        abort(); /* a test would go on without its hang */
    while (is_watched && access(stuck, F_OK) == 0)
        (void)syscall(SYS_read, fd, event, sizeof event);
    (void)close(fd);
}

static bool has_argument(const char *word)
{
    FILE *file = fopen("/proc/self/cmdline", "r");
    char text[8192] = "";
    size_t got = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;

    if (file != NULL)
        (void)fclose(file);
    return strlen(text) + 1 < got && strcmp(text + strlen(text) + 1, word) == 0;
}

/* Whether the file is about another process. */
static bool is_of_another(const char *mark)
{
    FILE *file = fopen(mark, "r");
    char text[32] = "";
    long pid;

    if (file == NULL)
        return false;
    pid = fgets(text, sizeof text, file) != NULL ? strtol(text, NULL, 10) : 0;
    (void)fclose(file);
    if (strncmp(text, "--", 2) == 0)
        return !has_argument(text);
    return pid > 0 && pid != getpid();
}

/* Calls that name a file by its path, from the folder `parent_fd` if it is relative. */
static void hang_at(int parent_fd, const char *name)
{
    static const char *const dirs[] = {"logs",    "run",        "stage",
                                       "environ", "store.sock", "etcd-seen"};
    const char *stuck = getenv("DDP_STUCK_FILE");
    char link[64], path[8192] = "", mark[4200], part[32];
    size_t used = 0;

    if (stuck == NULL || name == NULL)
        return;
    if (name[0] != '/' && parent_fd >= 0) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", parent_fd);
        ssize_t count = readlink(link, path, 4096);
        used = count > 0 ? (size_t)count : 0;
    }
    (void)snprintf(path + used, sizeof path - used, "/%s", name);
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        (void)snprintf(part, sizeof part, "/%s", dirs[i]);
        (void)snprintf(mark, sizeof mark, "%s.%s", stuck, dirs[i]);
        if (strstr(path, part) != NULL && !is_of_another(mark))
            hang_while_it_exists(mark);
    }
}

static void *real_call(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* What a mark has, without the heap: for a child that shares its parent's memory, too. False: it is not there. */
IN_CHILD static bool read_mark(const char *name, char *text, size_t text_bytes)
{
    const char *stuck = getenv("DDP_STUCK_FILE");
    char mark[4200];
    int fd = -1;
    ssize_t got = -1;

    (void)snprintf(mark, sizeof mark, "%s.%s", stuck != NULL ? stuck : "", name);
    if (stuck != NULL)
        fd = open(mark, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, text_bytes - 1);
        (void)close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* A variant of open: with a mode if it may make the file. */
#define MODE_OF(flags)                                                                             \
    va_list args;                                                                                  \
    va_start(args, flags);                                                                         \
    mode_t mode = ((flags) & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;               \
    va_end(args)

int open64(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);

    if (real == NULL)
        *(void **)&real = real_call("open64");
    MODE_OF(flags);
    hang_at(-1, path);
    return real(path, flags, mode);
}

int openat64(int fd, const char *path, int flags, ...)
{
    static int (*real)(int, const char *, int, ...);
    char broken[64];

    if (real == NULL)
        *(void **)&real = real_call("openat64");
    MODE_OF(flags);
    hang_at(fd, path);
    if (read_mark("eio", broken, sizeof broken) && strcmp(path, broken) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd, path, flags, mode);
}

/* openat2 has no function of its own in the C library. */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long words[6];
    va_list args;

    if (real == NULL)
        *(void **)&real = real_call("syscall");
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(args, long); /* those that are not given are not looked at */
    va_end(args);
    if (number == SYS_openat2)
        hang_at((int)words[0], (const char *)words[1]);
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int mkdir(const char *path, mode_t mode)
{
    static int (*real)(const char *, mode_t);

    if (real == NULL)
        *(void **)&real = real_call("mkdir");
    hang_at(-1, path);
    return real(path, mode);
}

int mkdirat(int fd, const char *path, mode_t mode)
{
    static int (*real)(int, const char *, mode_t);

    if (real == NULL)
        *(void **)&real = real_call("mkdirat");
    hang_at(fd, path);
    return real(fd, path, mode);
}

int unlinkat(int fd, const char *path, int flags)
{
    static int (*real)(int, const char *, int);

    if (real == NULL)
        *(void **)&real = real_call("unlinkat");
    hang_at(fd, path);
    return real(fd, path, flags);
}

int chdir(const char *path)
{
    static int (*real)(const char *);

    if (real == NULL)
        *(void **)&real = real_call("chdir");
    hang_at(-1, path);
    return real(path);
}

int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes)
{
    static int (*real)(int, __CONST_SOCKADDR_ARG, socklen_t);
    const struct sockaddr_un *local = address.__sockaddr_un__;

    if (real == NULL)
        *(void **)&real = real_call("bind");
    if (local->sun_family == AF_UNIX && local->sun_path[0] != '\0')
        hang_at(-1, local->sun_path);
    return real(fd, address, bytes);
}

/* A loop that stands still: the next turn does not begin. */
static void hang_loop(void)
{
    const char *stuck = getenv("DDP_STUCK_FILE");
    char mark[4200];

    (void)snprintf(mark, sizeof mark, "%s.loop", stuck != NULL ? stuck : "");
    if (stuck != NULL && access(mark, F_OK) == 0 && !is_of_another(mark))
        hang_while_it_exists(mark);
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask)
{
    static int (*real)(int, struct epoll_event *, int, int, const sigset_t *);

    if (real == NULL)
        *(void **)&real = real_call("epoll_pwait");
    hang_loop();
    return real(fd, events, most, timeout_ms, mask);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    static int (*real)(int, struct epoll_event *, int, int);

    if (real == NULL)
        *(void **)&real = real_call("epoll_wait");
    hang_loop();
    return real(fd, events, most, timeout_ms);
}

int epoll_ctl(int fd, int op, int watched, struct epoll_event *event)
{
    static int (*real)(int, int, int, struct epoll_event *);
    const char *stuck = getenv("DDP_STUCK_FILE");
    char mark[4200];

    if (real == NULL)
        *(void **)&real = real_call("epoll_ctl");
    (void)snprintf(mark, sizeof mark, "%s.epoll", stuck != NULL ? stuck : "");
    if (stuck != NULL && op == EPOLL_CTL_ADD && access(mark, F_OK) == 0 && !is_of_another(mark)) {
        errno = ENOMEM;
        return -1;
    }
    return real(fd, op, watched, event);
}

int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
    static int (*real)(int, const char *, uint32_t);

    if (real == NULL)
        *(void **)&real = real_call("inotify_add_watch");
    hang_at(-1, path);
    return real(fd, path, mask);
}

int statvfs64(const char *path, struct statvfs64 *info)
{
    static int (*real)(const char *, struct statvfs64 *);

    if (real == NULL)
        *(void **)&real = real_call("statvfs64");
    hang_at(-1, path);
    return real(path, info);
}

IN_CHILD static void hang_at_exec(const char *word)
{
    char mark[4200], text[64];

    if (word == NULL || !read_mark("exec", text, sizeof text) || strlen(text) < 5 ||
        strcmp(text + 5, word) != 0)
        return;
    (void)snprintf(mark, sizeof mark, "%s.exec", getenv("DDP_STUCK_FILE"));
    if (strncmp(text, "stop", 4) == 0)
        (void)raise(SIGSTOP);
    else
        hang_while_it_exists(mark);
}

IN_CHILD int execve(const char *path, char *const argv[], char *const envp[])
{
    static int (*real)(const char *, char *const[], char *const[]);

    if (real == NULL)
        *(void **)&real = real_call("execve");
    hang_at_exec(argv[0] != NULL ? argv[1] : NULL);
    return real(path, argv, envp);
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
