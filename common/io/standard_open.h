/* What we need from our start, whoever started us. */
#ifndef COMMON_IO_STANDARD_OPEN_H
#define COMMON_IO_STANDARD_OPEN_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define STANDARD_STACK_BYTES ((rlim_t)8 << 20)
#define STANDARD_STACK_LEAST ((rlim_t)256 << 10)

/* A small limit of the stack (ulimit -s) is raised as far as it may be, also for threads. With one that stays small we
 * would end by SIGSEGV somewhere. */
static inline void standard_stack(void)
{
    pthread_attr_t attributes;
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STANDARD_STACK_BYTES / 8)
        return;
    limit.rlim_cur = limit.rlim_max < STANDARD_STACK_BYTES ? limit.rlim_max : STANDARD_STACK_BYTES;
    (void)setrlimit(RLIMIT_STACK, &limit);
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STANDARD_STACK_LEAST) {
        (void)dprintf(STDERR_FILENO,
                      "the stack may have %u KiB here (ulimit -s, and its hard limit), and this "
                      "program needs %u: raise the limit\n",
                      (unsigned)(limit.rlim_cur >> 10), (unsigned)(STANDARD_STACK_LEAST >> 10));
        _exit(1);
    }
    if (pthread_attr_init(&attributes) != 0)
        return;
    if (pthread_attr_setstacksize(&attributes, (size_t)limit.rlim_cur) == 0)
        (void)pthread_setattr_default_np(&attributes);
    (void)pthread_attr_destroy(&attributes);
}

/* What a program lacks that starts others; NULL: nothing. */
const char *standard_missing(void);

/* Call first in main. Opens /dev/null for each of stdin, stdout and stderr that is closed: else the next
 * file or pipe of ours would get that number, lines for stderr would be written into it, and libuv aborts
 * when it is to close such a number. And unblocks SIGCHLD, which libuv waits for: else the end of a child
 * would never be noticed. And raises the limit of the stack. */
static inline void standard_open(void)
{
    sigset_t child;

    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_UNBLOCK, &child, NULL);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", O_RDWR) < 0) /* the lowest free number, and so this one */
            (void)open("/",
                       O_RDONLY | O_DIRECTORY); /* no program can read or write there, either */
    standard_stack();
}

#endif
