/* Whether a process has a unix stream socket bound that does not listen yet: to connect to it is refused, as to a file
 * that a killed process has left. */
#ifndef COMMON_IO_BOUND_SOCKET_H
#define COMMON_IO_BOUND_SOCKET_H

#include <stdbool.h>

/* `path`: as it was bound; no file is touched, since those of others may be on disks that hang. False also if the kernel's
 * table cannot be read. Sockets of other network namespaces are not in it. */
bool bound_socket_is(const char *path);

#endif
