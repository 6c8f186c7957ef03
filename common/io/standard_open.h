/* What we need from our start, whoever started us. */
#ifndef COMMON_IO_STANDARD_OPEN_H
#define COMMON_IO_STANDARD_OPEN_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* Call first in main. Opens /dev/null for each of stdin, stdout and stderr that is closed: else the next
 * file or pipe of ours would get that number, lines for stderr would be written into it, and libuv aborts
 * when it is to close such a number. And unblocks SIGCHLD, which libuv waits for: else the end of a child
 * would never be noticed. */
static inline void standard_open(void)
{
    sigset_t child;

    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_UNBLOCK, &child, NULL);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", O_RDWR); /* the lowest free number, and so this one */
}

#endif
