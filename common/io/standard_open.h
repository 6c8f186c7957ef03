/* The standard descriptors, whoever started us. */
#ifndef COMMON_IO_STANDARD_OPEN_H
#define COMMON_IO_STANDARD_OPEN_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Call first in main. Opens /dev/null for each of stdin, stdout and stderr that is closed: else the next
 * file or pipe of ours would get that number, lines for stderr would be written into it, and libuv aborts
 * when it is to close such a number. */
static inline void standard_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", O_RDWR); /* the lowest free number, and so this one */
}

#endif
