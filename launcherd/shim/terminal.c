#include "launcherd/shim/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum status terminal_open(uint32_t rows, uint32_t columns, uid_t uid, int *master, int *slave,
                          struct err *err)
{
    const struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    char name[64];

    *slave = -1;
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*master >= 0 && grantpt(*master) == 0 && unlockpt(*master) == 0 &&
        ptsname_r(*master, name, sizeof name) == 0)
        *slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*slave >= 0 && ioctl(*slave, TIOCSWINSZ, &size) == 0 &&
        (uid == (uid_t)-1 || fchown(*slave, uid, (gid_t)-1) == 0))
        return STATUS_OK;
    (void)err_set(err, STATUS_SYSTEM, errno, "cannot make a terminal: %s", strerror(errno));
    if (*slave >= 0)
        (void)close(*slave);
    if (*master >= 0)
        (void)close(*master);
    *master = *slave = -1;
    return err->status;
}
