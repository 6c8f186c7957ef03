/* A terminal for a rank, on request (--tty). */
#ifndef LAUNCHERD_SHIM_TERMINAL_H
#define LAUNCHERD_SHIM_TERMINAL_H

#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

/* Both descriptors are close-on-exec; the slave belongs to `uid`, where that is not (uid_t)-1. STATUS_SYSTEM. */
enum status terminal_open(uint32_t rows, uint32_t columns, uid_t uid, int *master, int *slave,
                          struct err *err);

#endif
