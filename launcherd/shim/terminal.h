/* A terminal for a rank, on request (--tty). */
#ifndef LAUNCHERD_SHIM_TERMINAL_H
#define LAUNCHERD_SHIM_TERMINAL_H

#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

/* Opens a terminal of this size. Both descriptors are close-on-exec. The slave is given to `uid`,
 * unless that is (uid_t)-1. STATUS_SYSTEM: both are -1. */
enum status terminal_open(uint32_t rows, uint32_t columns, uid_t uid, int *master, int *slave,
                          struct err *err);

#endif
