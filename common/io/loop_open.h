/* The loop of a daemon. Part of common_io. */
#ifndef COMMON_IO_LOOP_OPEN_H
#define COMMON_IO_LOOP_OPEN_H

#include <stdint.h>
#include <uv.h>

#include "common/status.h"

/* Initialises the loop, and makes at once what libuv otherwise makes when it is first needed: the
 * threads of its pool, and its table of descriptors for all below `descriptors`. If there is no memory for
 * those, libuv calls abort(), so a machine that has no memory for a moment would end the daemon. Call
 * once in a process. On an error the loop need not be closed. Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status loop_open(uv_loop_t *loop, uint32_t descriptors, struct err *err);

#endif
